"""`Config`, the objects that a document describes, and the conversion of objects to plain mappings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from redouble._engine.backoff import Backoff
from redouble._engine.budgets.budget_protocol import Budget
from redouble._internal.public import public
from redouble._internal.validation import instance, nearest
from redouble._layers.gate import Gate
from redouble._layers.layer import Pipeline
from redouble._layers.retry.retry import Retry
from redouble.config._document_path import DocPath, short_repr
from redouble.config._options.backoff import written
from redouble.config._options.catalogue import BUDGETS, LAYERS, PIPELINE, RETRY, TABLES
from redouble.config._options.option_table import Tagged
from redouble.errors import ConfigError

ANY = Tagged(**BUDGETS.tables, **LAYERS.tables)


@public("redouble.config")
@dataclass(frozen=True, eq=False)
class Config:
    """The policies, budgets, gates and pipelines of a document, by name."""

    policies: Mapping[str, Retry]
    budgets: Mapping[str, Budget]
    gates: Mapping[str, Gate]
    pipelines: Mapping[str, Pipeline]

    def named(self, name: str) -> Retry | Pipeline:
        """Return the policy or the pipeline of that name; raise `ConfigError` if there is none."""
        instance(name, "name", str, "the name of a policy or a pipeline, such as 'payments'")
        target: Retry | Pipeline | None = self.policies.get(name, self.pipelines.get(name))
        if target is None:
            hint = nearest(name, (*self.policies, *self.pipelines))
            raise ConfigError(f"there is no policy or pipeline {short_repr(name)}; {hint}")
        return target

    def to_mapping(self) -> dict[str, object]:
        """Return the configuration as a document: plain dicts, lists, numbers, strings and booleans."""
        names = {id(budget): name for name, budget in self.budgets.items()}
        names |= {id(gate): f"gates.{name}" for name, gate in self.gates.items()}
        names |= {id(policy): f"policies.{name}" for name, policy in self.policies.items()}
        document: dict[str, object] = {}
        for section, tables in TABLES.items():
            objects: Mapping[str, object] = getattr(self, section)
            written = {
                name: tables.write(thing, DocPath((section, name), names=names))
                for name, thing in objects.items()
            }
            for name, table in written.items():
                if table.get("name") == name:  # the default
                    del table["name"]
            if written:
                document[section] = written
        return document


@public("redouble.config")
def to_mapping(thing: object) -> dict[str, object]:
    """Convert a policy, backoff, budget, gate, `Timeout`, `Hedge`, pipeline or `Config` to a mapping.

    The mapping holds plain dicts, lists, numbers, strings and booleans, so that it fits into TOML and JSON;
    None is written as ``"unlimited"``. Only values that differ from the defaults are written. A value that
    cannot be written, such as a hook, raises `ConfigError`.
    """
    if isinstance(thing, Config):
        return thing.to_mapping()
    if isinstance(thing, Backoff):
        return written(thing, DocPath())
    if type(thing) is Retry:
        return RETRY.write(thing, DocPath())
    if type(thing) is Pipeline:
        return PIPELINE.write(thing, DocPath())
    return ANY.write(thing, DocPath())
