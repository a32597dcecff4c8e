"""What a configuration takes over from the one before it: all that has not changed, and whatever has a state.

A budget or a gate stays if its name and its sort do. A policy or a pipeline stays if all that is said of it
does. Nothing is put in force here, and what is in force is only looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar, runtime_checkable

from redouble._layers.layer import Layer, Pipeline
from redouble._layers.retry.retry import Retry
from redouble.config._document import Config, ParsedDocument
from redouble.config._errors import DocPath
from redouble.config._options.table import Blueprint, DeferredList, Reference

__all__ = ["ActiveConfig", "carry_over"]


Key: TypeAlias = tuple[str, str]  # a section, and a name in it
L = TypeVar("L", bound=Layer)

NOTHING = ParsedDocument({}, {}, {}, {}, {})


@runtime_checkable
class Reconfigurable(Protocol):
    """A budget or a layer that may take over the settings of another one, and keep its state."""

    def can_reconfigure(self, other: Any, /) -> bool:
        """Return True if it can take over the settings of ``other``; change nothing."""
        ...

    def reconfigure(self, other: Any, /) -> None:
        """Take over the settings of ``other``."""
        ...


class ActiveConfig(NamedTuple):
    """A configuration, and what it was made from.

    shared: its budgets and gates.
    tuned: those of them that are to go by other values, each with the one that has these.
    changed: what is not as it was before, by path.
    """

    config: Config
    document: ParsedDocument
    shared: Mapping[Key, object]
    reconfigured: tuple[tuple[Any, Any], ...]
    changed: tuple[str, ...]


def carry_over(before: ActiveConfig | None, parts: ParsedDocument) -> ActiveConfig:
    """Build the configuration that follows on another one, or the first one."""
    was = NOTHING if before is None else before.document
    shared: Mapping[Key, object] = {} if before is None else before.shared
    kept: dict[Key, object] = {}
    tuned: list[tuple[Any, Any]] = []
    unchanged: set[Key] = set()
    for key, fresh in parts.shared.items():
        old, as_before = shared.get(key), was.shared_tables.get(key) == parts.shared_tables[key]
        if type(old) is type(fresh) and (as_before or _can_reconfigure(old, fresh)):
            kept[key] = old
            if as_before:
                unchanged.add(key)
            else:
                tuned.append((old, fresh))
    built = parts.build(kept)
    stay = set(kept)
    recipes, before_that = _blueprints(parts), _blueprints(was)
    for key, recipe in recipes.items():
        # With another budget it is another policy, and with another policy another pipeline.
        if _equal(recipe, before_that.get(key)) and stay.issuperset(_references(recipe)):
            stay.add(key)
            unchanged.add(key)
    inline = InlineObjects([*parts.shared.values(), *kept.values()])
    config = built if before is None else _reuse_unchanged(built, before.config, stay, inline)
    tuned += inline.reconfigured
    paths = {*parts.shared, *recipes} - unchanged | {*was.shared, *before_that} - {*parts.shared, *recipes}
    changed = tuple(sorted(DocPath(key).path for key in paths))
    return ActiveConfig(config, parts, {**parts.shared, **kept}, tuple(tuned), changed)


def _can_reconfigure(old: object, fresh: object) -> bool:
    return isinstance(old, Reconfigurable) and old.can_reconfigure(fresh)


def _blueprints(parts: ParsedDocument) -> dict[Key, Blueprint]:
    """Return those of policies, and then those of pipelines, which may refer to policies."""
    recipes = {("policies", name): recipe for name, (recipe, _) in parts._policies.items()}
    return recipes | {("pipelines", name): recipe for name, recipe in parts._pipelines.items()}


def _equal(one: object, other: object) -> bool:
    """Say whether two documents say the same, wherever it stands in them."""
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
    """Tell what it refers to by name."""
    if isinstance(thing, Reference):
        yield thing.section, thing.name
    elif isinstance(thing, Blueprint | DeferredList):
        for part in thing.parts if isinstance(thing, DeferredList) else thing.values.values():
            yield from _references(part)


def _reuse_unchanged(built: Config, old: Config, stay: set[Key], inline: InlineObjects) -> Config:
    """Return a configuration with the very policies and pipelines of the old one, where they stay."""
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
    """Budgets and gates that are written where they are used: in a policy or a pipeline, which has changed.

    One that has a state stays if there is one of the same sort and name in the same place of the new one.
    """

    def __init__(self, shared: list[object]) -> None:
        self._shared = {id(thing) for thing in shared}
        self.reconfigured: list[tuple[Any, Any]] = []

    def keep_budget(self, new: Retry, old: Retry) -> Retry:
        """Return a policy with the budget of the old one, if that is its own."""
        if not self._can_keep(new.budget, old.budget):
            return new
        self.reconfigured.append((old.budget, new.budget))
        return replace(new, budget=old.budget)

    def keep_gates(self, new: Pipeline, old: Pipeline) -> Pipeline:
        """Return a pipeline with those gates of the old one that are its own."""
        left, layers = list(old.layers), list[Layer]()
        for layer in new.layers:
            gate = next((before for before in left if self._can_keep(layer, before)), None)
            if gate is not None:
                left = [before for before in left if before is not gate]
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
