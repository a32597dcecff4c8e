"""The JSON Schema of a document, for editors: generated from the tables that also parse documents."""

from __future__ import annotations

from redouble._internal.public import public
from redouble.config._options.backoff import KINDS, OPTIONAL, SERIES, SHORT, STAGES, WORDS
from redouble.config._options.catalogue import BUDGETS, DEFAULTS, GATES, LAYERS, PIPELINE, RETRY
from redouble.config._options.error_names import BUILT_IN
from redouble.config._options.values import DurationValue

__all__ = ["schema"]


DIALECT = "https://json-schema.org/draft/2020-12/schema"


@public("redouble.config")
def schema() -> dict[str, object]:
    """Return the JSON Schema (2020-12) of a whole document, for editors and validators."""
    return {
        "$schema": DIALECT,
        "title": "Redouble",
        "description": "Policies, budgets, gates and pipelines.",
        "type": "object",
        "properties": {
            "defaults": {
                **DEFAULTS.schema(),
                "description": "Options of all policies; a policy may override them.",
            },
            "budgets": _section("Allowances for retries, shared by name.", {"$ref": "#/$defs/budget"}),
            "gates": _section("Layers that admit or reject calls, shared by name.", {"$ref": "#/$defs/gate"}),
            "policies": _section("Retry policies.", RETRY.schema()),
            "pipelines": _section("Layers in order, outermost first.", PIPELINE.schema()),
        },
        "additionalProperties": False,
        "$defs": {
            "budget": BUDGETS.schema(),
            "gate": GATES.schema(),
            "layer": LAYERS.schema(),
            "on": _names(),
            "delays": _delays(),
            "backoff": {"anyOf": [{"$ref": "#/$defs/delays"}, _by_kind()]},
        },
    }


def _section(about: str, table: dict[str, object]) -> dict[str, object]:
    names = {"minLength": 1, "not": {"const": "unlimited"}}
    return {"description": about, "type": "object", "propertyNames": names, "additionalProperties": table}


def _names() -> dict[str, object]:
    # The built-in names are only suggestions, because a program may register any other name.
    name = {"anyOf": [{"enum": sorted(BUILT_IN)}, {"type": "string"}]}
    return {"anyOf": [name, {"type": "array", "items": name, "minItems": 1}]}


def _by_kind() -> dict[str, object]:
    parts = {key: {"$ref": "#/$defs/delays"} for key in KINDS}
    return {
        "description": "A backoff for each kind of failure.",
        "type": "object",
        "properties": parts,
        "minProperties": 1,
        "additionalProperties": False,
    }


def _delays() -> dict[str, object]:
    lists = {"description": "A list of delays.", "type": "array", "items": DurationValue().schema()}
    return {"anyOf": [lists, *(_series(name) for name in SERIES)]}


def _series(name: str) -> dict[str, object]:
    properties: dict[str, object] = {"type": {"const": name}}
    properties |= {key: kind.schema() for key, kind in {**SERIES[name], **SHORT}.items()}
    stages = [
        {
            "type": "object",
            "properties": {key: kind.schema()},
            "required": [key],
            "additionalProperties": False,
        }
        for key, kind in STAGES.items()
    ]
    chain = {"type": "array", "items": {"anyOf": [{"enum": list(WORDS)}, *stages]}}
    chain["description"] = "Any chain of stages, in order, instead of minimum, maximum, jitter and take."
    return {
        "type": "object",
        "properties": {**properties, "then": chain},
        "required": ["type", *(key for key in SERIES[name] if key not in OPTIONAL)],
        "dependentSchemas": {"then": {"properties": dict.fromkeys(SHORT, False)}},
        "additionalProperties": False,
    }
