"""Backoff: immutable recipes for delays, each an iterable of seconds.

A recipe is a series and the stages its values pass through, in the order they were chained. One
generator walks all stages, instead of one generator for each. This file knows nothing of attempts,
errors or clocks.
"""

from __future__ import annotations

import itertools
import random as chance
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from redouble._time import Chance, Duration, seconds

__all__ = ["Backoff", "fresh"]

LARGEST: Final = sys.float_info.max

Step = tuple[str, tuple[float, ...]]
Draw = Callable[[], float]


class Backoff:
    """A recipe for delays: make one with a constructor, refine it by chaining.

    >>> list(Backoff.exponential(0.1).maximum(0.5).take(4))
    [0.1, 0.2, 0.4, 0.5]

    Iterating starts afresh each time. Modifiers apply in the order they are written:
    ``.maximum(5).full_jitter()`` stays random at the cap, ``.full_jitter().maximum(5)`` does not.
    """

    __slots__ = ("_series", "_source", "_stages")
    _series: Step
    _source: Iterable[float] | None
    _stages: tuple[Step, ...]

    def __init__(self) -> None:
        raise TypeError("make a Backoff with a constructor, such as Backoff.exponential(0.2)")

    # ------------------------------------------------------------------ series

    @classmethod
    def constant(cls, delay: Duration) -> Backoff:
        """Return the same delay every time."""
        return _make("constant", (seconds(delay, "constant"),))

    @classmethod
    def linear(cls, initial: Duration, increment: Duration) -> Backoff:
        """Return delays that grow by the same step: initial, initial + increment, ..."""
        return _make("linear", (seconds(initial, "initial"), seconds(increment, "increment")))

    @classmethod
    def exponential(cls, initial: Duration, factor: float = 2) -> Backoff:
        """Return delays that are multiplied by ``factor`` each time."""
        return _make("exponential", (seconds(initial, "initial"), _factor(factor)))

    @classmethod
    def random(cls, low: Duration, high: Duration) -> Backoff:
        """Return delays drawn evenly between ``low`` and ``high``."""
        bounds = (seconds(low, "low"), seconds(high, "high"))
        if bounds[0] > bounds[1]:
            raise ValueError(f"low={low!r} is above high={high!r}: write the smaller one first")
        return _make("random", bounds)

    @classmethod
    def decorrelated(cls, base: Duration, cap: Duration) -> Backoff:
        """Return delays drawn between ``base`` and three times the delay before, ``cap`` at most."""
        bounds = (seconds(base, "base"), seconds(cap, "cap"))
        if bounds[0] > bounds[1]:
            raise ValueError(f"base={base!r} is above cap={cap!r}: no delay would fit between them")
        return _make("decorrelated", bounds)

    @classmethod
    def fibonacci(cls, initial: Duration) -> Backoff:
        """Return delays that are each the sum of the two before: 1, 1, 2, 3, 5, ... times initial."""
        return _make("fibonacci", (seconds(initial, "initial"),))

    @classmethod
    def of(cls, delays: Iterable[Duration]) -> Backoff:
        """Return the delays of your own iterable; when it ends, so does retrying."""
        source = fresh(delays, "of")
        if isinstance(source, Backoff):
            return source
        return _make("of", (), source=source)

    # --------------------------------------------------------------- modifiers

    def minimum(self, delay: Duration) -> Backoff:
        """Raise shorter delays to ``delay``."""
        return self._then("minimum", seconds(delay, "minimum"))

    def maximum(self, delay: Duration) -> Backoff:
        """Cut longer delays to ``delay``."""
        return self._then("maximum", seconds(delay, "maximum"))

    def full_jitter(self) -> Backoff:
        """Replace each delay by one drawn evenly between zero and it: spreads a herd best."""
        return self._then("full_jitter")

    def equal_jitter(self) -> Backoff:
        """Keep half of each delay and draw the other half: never close to zero."""
        return self._then("equal_jitter")

    def jitter(self, factor: float) -> Backoff:
        """Move each delay by at most ``factor`` of itself, up or down; follow with a maximum to cap it."""
        if isinstance(factor, bool) or not isinstance(factor, int | float):
            raise TypeError(f"jitter={factor!r}: write a number between 0 and 1")
        if not 0 <= factor <= 1:
            raise ValueError(f"jitter={factor!r}: write a number between 0 and 1")
        return self._then("jitter", float(factor))

    def take(self, n: int) -> Backoff:
        """End after ``n`` delays, and retrying with them."""
        if isinstance(n, bool) or not isinstance(n, int):
            raise TypeError(f"take={n!r}: write a whole number of delays")
        if n < 0:
            raise ValueError(f"take={n!r}: write 0 or more")
        return self._then("take", n)

    # --------------------------------------------------------------- iterating

    def __iter__(self) -> Iterator[float]:
        return self.delays(chance)

    def delays(self, random: Chance) -> Iterator[float]:
        """Iterate with your own source of chance: one draw per random stage, the series first."""
        name, args = self._series
        draw = random.random
        delays = SERIES[name](draw, *args) if self._source is None else map(_checked, self._source)
        if self._stages:
            # However many stages, one generator walks them all.
            stages = [step for step in self._stages if step[0] != "take"]
            delays = _staged(delays, stages, draw) if stages else delays
            limits = [int(args[0]) for stage, args in self._stages if stage == "take"]
            delays = itertools.islice(delays, min(limits)) if limits else delays
        return delays

    # ------------------------------------------------------------------- value

    def _then(self, stage: str, *args: float) -> Backoff:
        return _make(*self._series, source=self._source, stages=(*self._stages, (stage, args)))

    def _key(self) -> tuple[object, ...]:
        return (self._series, self._stages, self._source)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Backoff) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash((self._series, self._stages))

    def __repr__(self) -> str:
        head, *chain = [self._series, *self._stages]
        inner = repr(self._source) if self._source is not None else _spelled(head[1])
        return f"Backoff.{head[0]}({inner})" + "".join(f".{s}({_spelled(args)})" for s, args in chain)

    def __reduce__(self) -> tuple[Callable[..., Backoff], tuple[object, ...]]:
        return (_make, (*self._series, self._source, self._stages))


def _make(
    name: str, args: tuple[float, ...], source: Iterable[float] | None = None, stages: tuple[Step, ...] = ()
) -> Backoff:
    backoff = object.__new__(Backoff)
    backoff._series = (name, args)
    backoff._source = source
    backoff._stages = stages
    return backoff


def _spelled(args: tuple[float, ...]) -> str:
    return ", ".join(f"{a:g}" for a in args)


def _constant(draw: Draw, delay: float) -> Iterator[float]:
    return itertools.repeat(delay)


def _linear(draw: Draw, value: float, increment: float) -> Iterator[float]:
    while True:
        yield value
        value = min(value + increment, LARGEST)


def _exponential(draw: Draw, value: float, factor: float) -> Iterator[float]:
    while True:
        yield value
        value = min(value * factor, LARGEST)  # multiplied, not raised to a power: ** would overflow


def _random(draw: Draw, low: float, high: float) -> Iterator[float]:
    while True:
        yield low + draw() * (high - low)


def _decorrelated(draw: Draw, base: float, cap: float) -> Iterator[float]:
    value = base
    while True:
        value = min(cap, base + draw() * (min(3 * value, LARGEST) - base))
        yield value


def _fibonacci(draw: Draw, value: float) -> Iterator[float]:
    before = 0.0
    while True:
        yield value
        before, value = value, min(before + value, LARGEST)


SERIES: Final[dict[str, Callable[..., Iterator[float]]]] = {
    "constant": _constant,
    "linear": _linear,
    "exponential": _exponential,
    "random": _random,
    "decorrelated": _decorrelated,
    "fibonacci": _fibonacci,
}


def _staged(series: Iterator[float], stages: list[Step], draw: Draw) -> Iterator[float]:
    """Pass each delay through every stage, in the order they were chained."""
    for delay in series:
        for stage, args in stages:
            match stage:
                case "maximum":
                    delay = min(delay, args[0])
                case "full_jitter":
                    delay *= draw()
                case "minimum":
                    delay = max(delay, args[0])
                case "equal_jitter":
                    delay = delay / 2 + draw() * (delay / 2)
                case _:  # jitter
                    delay = min(delay * (1 + args[0] * (2 * draw() - 1)), LARGEST)
        yield delay


def _factor(factor: object) -> float:
    if isinstance(factor, bool) or not isinstance(factor, int | float):
        raise TypeError(f"factor={factor!r}: write a number, 1 or more")
    if not 1 <= factor <= LARGEST:
        raise ValueError(f"factor={factor!r}: write a finite number, 1 or more, so that delays never shrink")
    return float(factor)


def _checked(delay: object) -> float:
    return seconds(delay, "a delay of your backoff")


def fresh(delays: object, option: str) -> Iterable[float]:
    """Accept an iterable of seconds that can be iterated again; refuse everything else by name."""
    if isinstance(delays, Backoff):
        return delays
    if isinstance(delays, str | bytes) or not isinstance(delays, Iterable):
        raise TypeError(
            f"{option}={delays!r} is not an iterable of seconds: write Backoff.constant(1), "
            "Backoff.exponential(0.2) or a list such as [0.1, 0.5, 2]"
        )
    if isinstance(delays, Iterator):
        raise TypeError(
            f"{option}={delays!r} can be iterated only once, and every call needs its own delays: "
            "write a list, or Backoff.of(...) around something that can be iterated again"
        )
    if isinstance(delays, list | tuple):
        return tuple(seconds(delay, option) for delay in delays)
    return delays
