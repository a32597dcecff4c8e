"""The JSON Schema of a document, for editors: generated from the tables that also parse documents."""

from __future__ import annotations

from redouble._internal.public import public
from redouble.config._options.backoff import BACKOFFS, BY_KIND, DELAYS, SHORT
from redouble.config._options.catalogue import BUDGETS, DEFAULTS, GATES, LAYERS, PIPELINE, RETRY
from redouble.config._options.error_names import BUILT_IN

DIALECT = "https://json-schema.org/draft/2020-12/schema"


@public("redouble.config")
def schema() -> dict[str, object]:
    """Return the JSON Schema (2020-12) of a whole document, for editors and validators."""
    # The built-in names are only suggestions, because a program may register any other name.
    name = {"anyOf": [{"enum": sorted(BUILT_IN)}, {"type": "string"}]}
    replaced = {"then": {"properties": dict.fromkeys(SHORT, False)}}
    by_kind = {"description": "A backoff for each kind of failure.", **BY_KIND.schema(), "minProperties": 1}
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
            "on": {"anyOf": [name, {"type": "array", "items": name, "minItems": 1}]},
            "delays": {"anyOf": [DELAYS.schema(), {**BACKOFFS.schema(), "dependentSchemas": replaced}]},
            "backoff": {"anyOf": [{"$ref": "#/$defs/delays"}, by_kind]},
        },
    }


def _section(about: str, table: dict[str, object]) -> dict[str, object]:
    names = {"minLength": 1, "not": {"const": "unlimited"}}
    return {"description": about, "type": "object", "propertyNames": names, "additionalProperties": table}
