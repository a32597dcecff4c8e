"""Build a configuration that reuses the unchanged and the stateful objects of the previous one.

A budget or a gate is kept, with its state, if its name and type are the same and its settings are unchanged
or can be reconfigured. A policy or a pipeline is kept if its whole description is the same. This module
activates nothing, and only reads the active configuration.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar, runtime_checkable

from redouble._layers.layer import Layer, Pipeline
from redouble._layers.retry.retry import Retry
from redouble.config._document import Config, ParsedDocument
from redouble.config._document_path import DocPath
from redouble.config._options.option_table import Blueprint, DeferredList, Reference

__all__ = ["ActiveConfig", "carry_over"]


Key: TypeAlias = tuple[str, str]  # a section of the document, and a name in that section
L = TypeVar("L", bound=Layer)

NOTHING = ParsedDocument({}, {}, {}, {}, {})


@runtime_checkable
class Reconfigurable(Protocol):
    """A budget or a layer that can adopt the settings of another one and keep its own state."""

    def can_reconfigure(self, other: Any, /) -> bool:
        """Return True if this object can adopt the settings of ``other``; change nothing."""
        ...

    def reconfigure(self, other: Any, /) -> None:
        """Adopt the settings of ``other``."""
        ...


class ActiveConfig(NamedTuple):
    """A configuration, and the parsed document from which it was built.

    shared: its named budgets and gates, by section and name.
    reconfigured: pairs of a kept budget or gate and the new one whose settings it will adopt.
    changed: the sorted paths that were added, changed or removed since the previous configuration.
    """

    config: Config
    document: ParsedDocument
    shared: Mapping[Key, object]
    reconfigured: tuple[tuple[Any, Any], ...]
    changed: tuple[str, ...]


def carry_over(before: ActiveConfig | None, parts: ParsedDocument) -> ActiveConfig:
    """Build the configuration that replaces ``before``; the first one if ``before`` is None."""
    previous = NOTHING if before is None else before.document
    shared: Mapping[Key, object] = {} if before is None else before.shared
    kept: dict[Key, object] = {}
    reconfigured: list[tuple[Any, Any]] = []
    unchanged: set[Key] = set()
    for key, fresh in parts.shared.items():
        old, same_table = shared.get(key), previous.shared_tables.get(key) == parts.shared_tables[key]
        if type(old) is type(fresh) and (same_table or _can_reconfigure(old, fresh)):
            kept[key] = old
            if same_table:
                unchanged.add(key)
            else:
                reconfigured.append((old, fresh))
    built = parts.build(kept)
    stay = set(kept)
    blueprints, old_blueprints = _blueprints(parts), _blueprints(previous)
    for key, blueprint in blueprints.items():
        # A policy whose budget is replaced has changed, and so has a pipeline whose policy is replaced.
        if _equal(blueprint, old_blueprints.get(key)) and stay.issuperset(_references(blueprint)):
            stay.add(key)
            unchanged.add(key)
    inline = InlineObjects([*parts.shared.values(), *kept.values()])
    config = built if before is None else _reuse_unchanged(built, before.config, stay, inline)
    reconfigured += inline.reconfigured
    paths = ({*parts.shared, *blueprints} - unchanged) | (
        {*previous.shared, *old_blueprints} - {*parts.shared, *blueprints}
    )
    changed = tuple(sorted(DocPath(key).path for key in paths))
    return ActiveConfig(config, parts, {**parts.shared, **kept}, tuple(reconfigured), changed)


def _can_reconfigure(old: object, fresh: object) -> bool:
    return isinstance(old, Reconfigurable) and old.can_reconfigure(fresh)


def _blueprints(parts: ParsedDocument) -> dict[Key, Blueprint]:
    """Return the blueprints of policies, followed by those of pipelines, which may refer to policies."""
    blueprints = {("policies", name): blueprint for name, (blueprint, _) in parts._policies.items()}
    return blueprints | {("pipelines", name): blueprint for name, blueprint in parts._pipelines.items()}


def _equal(one: object, other: object) -> bool:
    """Return True if two parts of documents describe the same, wherever in a document each is written."""
    if isinstance(one, Blueprint) and isinstance(other, Blueprint):
        mine, theirs = one.values, other.values
        return (
            one.table is other.table
            and mine.keys() == theirs.keys()
            and all(_equal(value, theirs[key]) for key, value in mine.items())
        )
    if isinstance(one, DeferredList) and isinstance(other, DeferredList):
        return len(one.parts) == len(other.parts) and all(map(_equal, one.parts, other.parts))
    return type(one) is type(other) and one == other


def _references(thing: object) -> Iterator[Key]:
    """Yield the keys of all objects that ``thing`` refers to by name."""
    if isinstance(thing, Reference):
        yield thing.section, thing.name
    elif isinstance(thing, Blueprint | DeferredList):
        for part in thing.parts if isinstance(thing, DeferredList) else thing.values.values():
            yield from _references(part)


def _reuse_unchanged(built: Config, old: Config, stay: set[Key], inline: InlineObjects) -> Config:
    """Return ``built`` with the policies and pipelines of ``old`` whose keys are in ``stay``."""
    policies = _select("policies", built.policies, old.policies, stay)
    for name, policy in policies.items():
        if name in old.policies and ("policies", name) not in stay:
            policies[name] = inline.keep_budget(policy, old.policies[name])
    swapped = {id(built.policies[name]): policy for name, policy in policies.items()}
    pipelines = {
        name: Pipeline(*(swapped.get(id(layer), layer) for layer in pipeline.layers))
        for name, pipeline in built.pipelines.items()
    }
    for name, pipeline in pipelines.items():
        if name in old.pipelines and ("pipelines", name) not in stay:
            pipelines[name] = inline.keep_gates(pipeline, old.pipelines[name])
    return replace(
        built,
        policies=MappingProxyType(policies),
        pipelines=MappingProxyType(_select("pipelines", pipelines, old.pipelines, stay)),
    )


class InlineObjects:
    """Budgets and gates that are defined inline, in a policy or a pipeline that has changed.

    One that can be reconfigured keeps its state if the new policy or pipeline of the same name has a budget
    or gate of the same type and name.
    """

    def __init__(self, shared: list[object]) -> None:
        self._shared = {id(thing) for thing in shared}
        self.reconfigured: list[tuple[Any, Any]] = []

    def keep_budget(self, new: Retry, old: Retry) -> Retry:
        """Return ``new`` with the budget of ``old`` if that budget is defined inline and can be kept."""
        if not self._can_keep(new.budget, old.budget):
            return new
        self.reconfigured.append((old.budget, new.budget))
        return replace(new, budget=old.budget)

    def keep_gates(self, new: Pipeline, old: Pipeline) -> Pipeline:
        """Return ``new`` with those gates of ``old`` that are defined inline and can be kept."""
        candidates, layers = list(old.layers), list[Layer]()
        for layer in new.layers:
            gate = next((before for before in candidates if self._can_keep(layer, before)), None)
            if gate is not None:
                candidates = [before for before in candidates if before is not gate]
                self.reconfigured.append((gate, layer))
            layers.append(layer if gate is None else gate)
        return Pipeline(*layers)

    def _can_keep(self, fresh: object, old: object) -> bool:
        if type(fresh) is not type(old) or {id(fresh), id(old)} & self._shared:
            return False
        named = getattr(fresh, "name", None) == getattr(old, "name", None)
        return named and fresh is not old and _can_reconfigure(old, fresh)


def _select(section: str, new: Mapping[str, L], old: Mapping[str, L], stay: set[Key]) -> dict[str, L]:
    return {name: old[name] if (section, name) in stay else one for name, one in new.items()}
