"""Config: what came of a document. And the way back: things as plain mappings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from redouble._engine.backoff import Backoff
from redouble._engine.budget import Budget
from redouble._internal.public import public
from redouble._internal.validation import instance
from redouble._layers.gate import Gate
from redouble._layers.layer import Pipeline
from redouble._layers.retry.retry import Retry
from redouble.config._delays import written
from redouble.config._gates import LAYERS, PIPELINE
from redouble.config._policies import BUDGETS, RETRY
from redouble.config._tagged import Tagged
from redouble.config._wrong import Place, nearest, shown
from redouble.errors import ConfigError

__all__ = ["Config", "Said", "to_mapping"]

Said = Mapping[tuple[str, str], Mapping[str, object]]

ANY = Tagged({**BUDGETS.tables, **LAYERS.tables})


@public("redouble.config")
@dataclass(frozen=True, eq=False)
class Config:
    """The policies, budgets, gates and pipelines of a document, by name."""

    policies: Mapping[str, Retry]
    budgets: Mapping[str, Budget]
    gates: Mapping[str, Gate]
    pipelines: Mapping[str, Pipeline]
    # What the document said of budgets and gates: those change as they are used.
    _said: Said = field(default_factory=dict[tuple[str, str], Mapping[str, object]], repr=False)

    def named(self, name: str) -> Retry | Pipeline:
        """Return the policy or the pipeline of that name."""
        instance(name, "name", str, "the name of a policy or a pipeline, such as 'payments'")
        found: Retry | Pipeline | None = self.policies.get(name, self.pipelines.get(name))
        if found is None:
            hint = nearest(name, (*self.policies, *self.pipelines))
            raise ConfigError(f"there is no policy or pipeline {shown(name)}; {hint}")
        return found

    def to_mapping(self) -> dict[str, object]:
        """Return it as a document: plain dicts, lists, numbers, texts and booleans."""
        names = {id(budget): name for name, budget in self.budgets.items()}
        names |= {id(gate): f"gates.{name}" for name, gate in self.gates.items()}
        names |= {id(policy): f"policies.{name}" for name, policy in self.policies.items()}
        document: dict[str, dict[str, object]] = {"budgets": {}, "gates": {}, "policies": {}, "pipelines": {}}
        for (section, name), said in self._said.items():
            document[section][name] = _unnamed(said, name)
        for name, policy in self.policies.items():
            place = Place(("policies", name), names=names)
            document["policies"][name] = _unnamed(RETRY.write(policy, place), name)
        for name, pipeline in self.pipelines.items():
            place = Place(("pipelines", name), names=names)
            document["pipelines"][name] = PIPELINE.write(pipeline, place)
        return {section: tables for section, tables in document.items() if tables}


@public("redouble.config")
def to_mapping(thing: object) -> dict[str, object]:
    """Return as a mapping: a policy, backoff, budget, gate, `Timeout`, `Hedge`, pipeline, or `Config`.

    It holds plain dicts, lists, numbers, texts and booleans, so that it fits into TOML and JSON; None is
    spelled ``"unlimited"``. Only what differs from the defaults is written. What cannot be written, such as
    hooks, is a `ConfigError`.
    """
    if isinstance(thing, Config):
        return thing.to_mapping()
    if isinstance(thing, Backoff):
        return written(thing, Place())
    if type(thing) is Retry:
        return RETRY.write(thing, Place())
    if type(thing) is Pipeline:
        return PIPELINE.write(thing, Place())
    return ANY.write(thing, Place())


def _unnamed(table: Mapping[str, object], name: str) -> dict[str, object]:
    return {key: value for key, value in table.items() if (key, value) != ("name", name)}
