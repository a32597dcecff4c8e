"""Backoffs in documents: a series of delays, given by type, and the chain of stages that modify the delays.

A series is written with all its options. The usual chain is written with short keys, which apply in the order
``minimum``, ``maximum``, ``jitter``, ``take``; any other chain is written as the list ``then``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast

from redouble._engine.backoff import Backoff
from redouble._failures.verdict import Kind
from redouble.config._document_path import DocPath, nearest, short_repr
from redouble.config._options.values import (
    Choice,
    DurationValue,
    Listed,
    Number,
    Value,
    Whole,
    number_of,
    plain,
)

__all__ = ["KINDS", "OPTIONAL", "OTHERS", "SERIES", "SHORT", "STAGES", "WORDS", "BackoffValue", "written"]


OTHERS = "others"  # all kinds that the table does not name; the key None in Python
KINDS = (*Kind.__members__, OTHERS)
SPAN = DurationValue()

MAKE: dict[str, Callable[..., Backoff]] = {
    "constant": Backoff.constant,
    "decorrelated": Backoff.decorrelated,
    "exponential": Backoff.exponential,
    "fibonacci": Backoff.fibonacci,
    "linear": Backoff.linear,
    "of": Backoff.of,
    "random": Backoff.random,
}
SERIES: dict[str, dict[str, Value]] = {
    "constant": {"delay": SPAN},
    "decorrelated": {"base": SPAN, "cap": SPAN},
    "exponential": {"initial": SPAN, "factor": Number(low=1)},
    "fibonacci": {"initial": SPAN},
    "linear": {"initial": SPAN, "increment": SPAN},
    "of": {"delays": Listed(SPAN, least=0)},
    "random": {"low": SPAN, "high": SPAN},
}
OPTIONAL = {"factor": 2.0}


class Jitter(Value):
    """The jitter of a delay: full, equal (half of the delay is random), or a share added or subtracted."""

    def read(self, value: object, place: DocPath) -> object:
        if value in ("full", "equal"):
            return value
        if isinstance(value, str):
            raise place.error(f"{short_repr(value)}: write 'full', 'equal', or a share from 0 to 1")
        return Number(high=1).read(value, place)

    def text(self, text: str) -> object:
        return number_of(text)

    def schema(self) -> dict[str, object]:
        return {"anyOf": [{"enum": ["full", "equal"]}, Number(high=1).schema()]}


SHORT: dict[str, Value] = {"minimum": SPAN, "maximum": SPAN, "jitter": Jitter(), "take": Whole()}
STAGES: dict[str, Value] = {**SHORT, "jitter": Number(high=1)}
WORDS = ("full_jitter", "equal_jitter")
JITTERS = {"full_jitter": "full", "equal_jitter": "equal"}


@dataclass(frozen=True)
class BackoffValue(Value):
    """A backoff: a table, a list of durations, or, if ``by_kind``, a table of backoffs by kind of failure."""

    by_kind: bool = True

    def read(self, value: object, place: DocPath) -> object:
        if isinstance(value, list | tuple):
            items = cast("list[object]", value)
            return tuple(SPAN.read(item, place.under(str(index))) for index, item in enumerate(items))
        example = "{ type = 'exponential', initial = '200ms', maximum = '2s' }"
        table = place.table(value, f"one such as {example}, or a list of durations")
        if self.by_kind and "type" not in table and any(key in KINDS for key in table):
            return self._by_kind(table, place)
        return _one(table, place)

    def text(self, text: str) -> object:
        return [SPAN.text(item) for item in text.split(",")]

    def write(self, value: object, place: DocPath) -> object:
        if isinstance(value, Backoff):
            return written(value, place)
        if isinstance(value, Mapping):
            parts = cast("Mapping[Kind | None, Backoff]", value)
            named = {str(kind or OTHERS): part for kind, part in parts.items()}
            return {key: self.write(part, place.under(key)) for key, part in named.items()}
        if isinstance(value, tuple):
            return [plain(delay) for delay in cast("tuple[float, ...]", value)]
        raise place.error(f"{short_repr(value)} is an iterable of your own: set it in code, or write a list")

    def schema(self) -> dict[str, object]:
        return {"$ref": "#/$defs/backoff" if self.by_kind else "#/$defs/delays"}

    def keys(self) -> Mapping[str, Value]:
        keys: dict[str, Value] = {"type": Choice(tuple(SERIES)), **SHORT}
        for options in SERIES.values():
            keys |= options
        if self.by_kind:
            keys |= {key: BackoffValue(by_kind=False) for key in KINDS}
        return keys

    def _by_kind(self, table: Mapping[str, object], place: DocPath) -> dict[Kind | None, object]:
        backoffs: dict[Kind | None, object] = {}
        for key, value in table.items():
            if key not in KINDS:
                raise place.unknown_key(key, value, KINDS)
            kind = None if key == OTHERS else Kind(key)
            backoffs[kind] = BackoffValue(by_kind=False).read(value, place.under(key))
        if None not in backoffs and len(backoffs) < len(Kind):
            raise place.under(OTHERS).error("missing: write it too, for the kinds that are not named")
        return backoffs


def _one(table: Mapping[str, object], place: DocPath) -> Backoff:
    if "type" not in table:
        raise place.error(f"{short_repr(table)} has no type: write one of {', '.join(SERIES)}")
    name = Choice(tuple(SERIES)).read(table["type"], place.under("type"))
    options = SERIES[name]
    for key, value in table.items():
        if key not in options and key not in SHORT and key not in ("type", "then"):
            raise place.unknown_key(key, value, (*options, *SHORT, "then"))
    for key in options:
        if key not in table and key not in OPTIONAL:
            raise place.under(key).error(f"missing: a backoff of type {name!r} must set {key}")
    arguments = {
        key: kind.read(table[key], place.under(key)) for key, kind in options.items() if key in table
    }
    try:
        backoff = MAKE[name](*arguments.values())
    except ValueError as error:
        raise place.constructor_error(error, arguments) from error
    if "then" in table:
        return _chained(backoff, table, place)
    for key, kind in SHORT.items():
        if key in table:
            backoff = _passed(backoff, key, kind.read(table[key], place.under(key)))
    return backoff


def _chained(backoff: Backoff, table: Mapping[str, object], place: DocPath) -> Backoff:
    for key in SHORT:
        if key in table:
            raise place.under(key).error("write it into the list `then`, which replaces this key")
    place = place.under("then")
    wanted = "a list such as [{ maximum = 5 }, 'full_jitter', { take = 3 }]"
    for index, stage in enumerate(place.items(table["then"], wanted)):
        stage_place = place.under(str(index))
        if isinstance(stage, str):
            if stage not in WORDS:
                raise stage_place.error(f"{short_repr(stage)} is no stage; {nearest(stage, WORDS)}")
            backoff = _passed(backoff, "jitter", JITTERS[stage])
            continue
        one = stage_place.table(stage, "'full_jitter', 'equal_jitter', or a table with one key")
        if len(one) != 1:
            raise stage_place.error(f"{short_repr(one)}: write a table with one key for each stage")
        for key, value in one.items():
            if key not in STAGES:
                raise stage_place.unknown_key(key, value, STAGES)
            backoff = _passed(backoff, key, STAGES[key].read(value, stage_place.under(key)))
    return backoff


def _passed(backoff: Backoff, stage: str, value: Any) -> Backoff:
    if value in ("full", "equal"):
        return backoff.full_jitter() if value == "full" else backoff.equal_jitter()
    modifier: Callable[[Any], Backoff] = getattr(backoff, stage)
    return modifier(value)


def written(backoff: Backoff, place: DocPath) -> dict[str, object]:
    """Return a backoff as the table that a document holds."""
    name, args = backoff._series
    if name == "of":
        return {"type": name, "delays": BackoffValue().write(backoff._source, place), **_stages(backoff)}
    options = {key: plain(arg) for key, arg in zip(SERIES[name], args, strict=False)}
    return {
        "type": name,
        **{key: arg for key, arg in options.items() if OPTIONAL.get(key) != arg},
        **_stages(backoff),
    }


def _stages(backoff: Backoff) -> dict[str, object]:
    chain = [(stage, plain(bound)) for stage, (bound, _) in backoff._stages]
    short = [("jitter", JITTERS[stage]) if stage in JITTERS else (stage, bound) for stage, bound in chain]
    order = [list(SHORT).index(key) for key, _ in short]
    if all(before < after for before, after in pairwise(order)):
        return dict(short)
    return {"then": [stage if stage in JITTERS else {stage: bound} for stage, bound in chain]}
