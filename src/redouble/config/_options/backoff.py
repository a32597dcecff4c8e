"""Backoffs in documents: a series of delays, given by type, and the chain of stages that modify the delays.

The usual chain is written with short keys, which apply in the order ``minimum``, ``maximum``, ``jitter``,
``take``; any other chain is written as the list ``then``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from redouble._engine.backoff import Backoff
from redouble._failures.verdict import Kind
from redouble._internal.validation import nearest
from redouble.config._document_path import DocPath, short_repr
from redouble.config._options.option_table import Option, Table, Tagged
from redouble.config._options.values import DurationValue, Listed, Number, TableOf, Value, Whole, plain

OTHERS = "others"  # all kinds that the table does not name; the key None in Python
KINDS: dict[str, Kind | None] = {**Kind.__members__, OTHERS: None}
SPAN, SHARE = DurationValue(), Number(high=1)


class Jitter(Number):
    """The jitter of a delay: full, equal (half of the delay is random), or a share added or subtracted."""

    def parse(self, value: object, place: DocPath) -> Any:
        if value in ("full", "equal"):
            return value
        if isinstance(value, str):
            raise place.error(f"{short_repr(value)}: write 'full', 'equal', or a share from 0 to 1")
        return super().parse(value, place)

    def schema(self) -> dict[str, object]:
        return {"anyOf": [{"enum": ["full", "equal"]}, super().schema()]}


STAGES: dict[str, Value] = {"minimum": SPAN, "maximum": SPAN, "jitter": SHARE, "take": Whole()}
JITTERS = ("full_jitter", "equal_jitter")


class StageValue(Value):
    """One stage of a chain, as a tuple of its name and its arguments."""

    def parse(self, value: object, place: DocPath) -> tuple[object, ...]:
        if isinstance(value, str):
            if value not in JITTERS:
                raise place.error(f"{short_repr(value)} is no stage; {nearest(value, JITTERS)}")
            return (value,)
        table = place.table(value, "'full_jitter', 'equal_jitter', or a table with one key")
        if len(table) != 1:
            raise place.error(f"{short_repr(table)}: write a table with one key for each stage")
        [(key, argument)] = table.items()
        if key not in STAGES:
            raise place.unknown_key(key, argument, STAGES)
        return key, STAGES[key].read(argument, place.under(key))

    def schema(self) -> dict[str, object]:
        stages = [
            {"type": "object", "properties": {key: kind.schema()}, "required": [key]}
            | {"additionalProperties": False}
            for key, kind in STAGES.items()
        ]
        return {"anyOf": [{"enum": list(JITTERS)}, *stages]}


CHAIN = Listed(StageValue(), "a list such as [{ maximum = 5 }, 'full_jitter', { take = 3 }]")
SHORT = {
    "minimum": Option(SPAN, "Raise shorter delays to this."),
    "maximum": Option(SPAN, "Cut longer delays to this."),
    "jitter": Option(Jitter(high=1), "How much of each delay is random."),
    "take": Option(STAGES["take"], "End after this many delays."),
}
THEN = Option(CHAIN, "Any chain of stages, in order, instead of minimum, maximum, jitter and take.")


class BackoffTable(Table):
    """A constructor of `Backoff`, followed by stages."""

    def build(self, then: tuple[tuple[Any, ...], ...] | None = None, **options: Any) -> Backoff:
        """Call the constructor, and chain the stages."""
        short = [(key, options.pop(key)) for key in SHORT if key in options]
        if then is not None and short:
            key, value = short[0]
            raise ValueError(f"{key}={value}: write it into the list `then`, which replaces this key")
        chain = [(f"{value}_jitter",) if isinstance(value, str) else (key, value) for key, value in short]
        backoff: Backoff = self.make(**options)
        for stage, *arguments in chain if then is None else then:
            backoff = getattr(backoff, stage)(*arguments)
        return backoff


def _table(make: Callable[..., Backoff], about: str, **options: Option) -> Table:
    return BackoffTable(make, about, **options, **SHORT, then=THEN)


DELAYS = Listed(SPAN, "a list of durations")
LEAST, MOST = Option(SPAN, "The shortest delay."), Option(SPAN, "The longest delay.")
INITIAL, STEP = Option(SPAN, "The first delay."), Option(SPAN, "The step.")
FACTOR = Option(Number(low=1), "The factor; 2 unless given.")
BACKOFFS = Tagged(
    constant=_table(Backoff.constant, "The same delay every time.", delay=Option(SPAN, "The delay.")),
    decorrelated=_table(Backoff.decorrelated, "A random walk between two bounds.", base=LEAST, cap=MOST),
    exponential=_table(
        Backoff.exponential, "Multiply by a factor each time.", initial=INITIAL, factor=FACTOR
    ),
    fibonacci=_table(Backoff.fibonacci, "Add the two delays before.", initial=INITIAL),
    linear=_table(Backoff.linear, "Add a step each time.", initial=INITIAL, increment=STEP),
    of=_table(Backoff.of, "The delays of a list.", delays=Option(DELAYS, "The delays.")),
    random=_table(Backoff.random, "Random delays between two bounds.", low=LEAST, high=MOST),
)
EXAMPLE = "one such as { type = 'exponential', initial = '200ms', maximum = '2s' }, or a list of durations"


@dataclass(frozen=True)
class BackoffValue(Value):
    """A backoff: a table, a list of durations, or, if ``by_kind``, a table of backoffs by kind of failure."""

    by_kind: bool = True

    def parse(self, value: object, place: DocPath) -> object:
        if isinstance(value, list | tuple):
            return DELAYS.parse(cast("object", value), place)
        table = place.table(value, EXAMPLE)
        if not self.by_kind or "type" in table or not any(key in KINDS for key in table):
            return BACKOFFS.parse(table, place)
        backoffs = BY_KIND.parse(table, place)
        if None not in backoffs and len(backoffs) < len(Kind):
            raise place.under(OTHERS).error("missing: write it too, for the kinds that are not named")
        return backoffs

    def text(self, text: str) -> object:
        return DELAYS.text(text)

    def write(self, value: object, place: DocPath) -> object:
        if isinstance(value, Backoff):
            return written(value, place)
        if isinstance(value, Mapping):
            return BY_KIND.write(cast("Mapping[Kind | None, object]", value), place)
        return DELAYS.write(value, place)

    def schema(self) -> dict[str, object]:
        return {"$ref": "#/$defs/backoff" if self.by_kind else "#/$defs/delays"}


class CooldownValue(BackoffValue):
    """The cooldown of a breaker: a duration, or a backoff."""

    def parse(self, value: object, place: DocPath) -> object:
        if isinstance(value, list | tuple | Mapping):
            return super().parse(cast("object", value), place)
        return SPAN.parse(value, place)

    def text(self, text: str) -> object:
        return super().text(text) if "," in text else SPAN.text(text)

    def write(self, value: object, place: DocPath) -> object:
        if isinstance(value, int | float):
            return SPAN.write(value, place)
        if callable(value):
            raise place.error(f"{short_repr(value)} is a function of your own: set it in code")
        return super().write(value, place)

    def schema(self) -> dict[str, object]:
        return {"anyOf": [SPAN.schema(), super().schema()]}


BY_KIND = TableOf(BackoffValue(by_kind=False), keys=KINDS)


def written(backoff: Backoff, place: DocPath) -> dict[str, object]:
    """Return a backoff as the table that a document holds."""
    name, args = backoff._series
    defaults = BACKOFFS.tables[name].defaults.items()
    given = ((key, plain(arg), default) for (key, default), arg in zip(defaults, args, strict=False))
    options: dict[str, object] = {key: value for key, value, default in given if value != default}
    if name == "of":
        options["delays"] = DELAYS.write(backoff._source, place)
    chain: list[tuple[str, object]] = [
        ("jitter", stage.removesuffix("_jitter")) if stage in JITTERS else (stage, plain(bound))
        for stage, (bound, _) in backoff._stages
    ]
    keys = [key for key, _ in chain]
    if keys == [key for key in SHORT if key in keys]:  # each once, in the order in which they apply
        return {"type": name, **options, **dict(chain)}
    then = [f"{value}_jitter" if isinstance(value, str) else {key: value} for key, value in chain]
    return {"type": name, **options, "then": then}
