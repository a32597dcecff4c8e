"""Backoff: immutable recipes for delays, each an iterable of seconds.

A recipe is a series and the stages that its values pass through, in the order they were chained. One
generator computes both, instead of one for the series and one for each stage.
"""

from __future__ import annotations

import itertools
import random as chance
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Final, TypeAlias, cast

from redouble._internal.public import public
from redouble._internal.validation import Duration, integer, number, seconds
from redouble._runtime.clock import Chance

LARGEST: Final = sys.float_info.max
MAX_DELAYS: Final = 2**53  # more delays than any call needs, and still exact as a float
# The number of arguments of a series or stage, if it is not 1.
TWO: Final = ("linear", "exponential", "random", "decorrelated")
ARGUMENTS: Final = dict.fromkeys(TWO, 2) | {"full_jitter": 0, "equal_jitter": 0}

Step: TypeAlias = tuple[str, tuple[float, float]]
Draw: TypeAlias = Callable[[], float]


@public("redouble")
class Backoff:
    """A recipe for delays: make one with a constructor, refine it by chaining.

    >>> list(Backoff.exponential(0.1).maximum(0.5).take(4))
    [0.1, 0.2, 0.4, 0.5]

    Iterating starts afresh each time. Modifiers apply in the order they are written:
    ``.maximum(5).full_jitter()`` stays random at the cap, ``.full_jitter().maximum(5)`` does not.
    """

    __slots__ = ("_limit", "_series", "_shaping", "_source", "_stages")
    _series: Step
    _source: Iterable[float] | None
    _stages: tuple[Step, ...]
    _shaping: tuple[Step, ...]  # the stages without `take`, which changes no delay
    _limit: int | None

    def __init__(self) -> None:
        raise TypeError("make a Backoff with a constructor, such as Backoff.exponential(0.2)")

    # ------------------------------------------------------------------ series

    @classmethod
    def constant(cls, delay: Duration) -> Backoff:
        """Return the same delay every time."""
        return _make("constant", seconds(delay, "constant"))

    @classmethod
    def linear(cls, initial: Duration, increment: Duration) -> Backoff:
        """Return delays that grow by the same step: initial, initial + increment, ..."""
        return _make("linear", seconds(initial, "initial"), seconds(increment, "increment"))

    @classmethod
    def exponential(cls, initial: Duration, factor: float = 2) -> Backoff:
        """Return delays that are multiplied by ``factor`` each time."""
        growth = number(
            factor, "factor", 1, LARGEST, "a finite number, 1 or more, so that delays never shrink"
        )
        return _make("exponential", seconds(initial, "initial"), growth)

    @classmethod
    def random(cls, low: Duration, high: Duration) -> Backoff:
        """Return delays drawn evenly between ``low`` and ``high``."""
        bounds = (seconds(low, "low"), seconds(high, "high"))
        if bounds[0] > bounds[1]:
            raise ValueError(f"low={low!r} is above high={high!r}: write the smaller one first")
        return _make("random", *bounds)

    @classmethod
    def decorrelated(cls, base: Duration, cap: Duration) -> Backoff:
        """Return delays drawn between ``base`` and three times the delay before, ``cap`` at most."""
        bounds = (seconds(base, "base"), seconds(cap, "cap"))
        if bounds[0] > bounds[1]:
            raise ValueError(f"base={base!r} is above cap={cap!r}: no delay would fit between them")
        return _make("decorrelated", *bounds)

    @classmethod
    def fibonacci(cls, initial: Duration) -> Backoff:
        """Return delays that are each the sum of the two before: 1, 1, 2, 3, 5, ... times initial."""
        return _make("fibonacci", seconds(initial, "initial"))

    @classmethod
    def of(cls, delays: Iterable[Duration]) -> Backoff:
        """Return the delays of your own iterable; when it ends, so does retrying."""
        source = reiterable(delays, "of")
        if isinstance(source, Backoff):
            return source
        return _make("of", source=source)

    # --------------------------------------------------------------- modifiers

    def minimum(self, delay: Duration) -> Backoff:
        """Raise shorter delays to ``delay``."""
        return self._with_stage("minimum", seconds(delay, "minimum"))

    def maximum(self, delay: Duration) -> Backoff:
        """Cut longer delays to ``delay``."""
        return self._with_stage("maximum", seconds(delay, "maximum"))

    def full_jitter(self) -> Backoff:
        """Draw each delay evenly between zero and its value, which spreads many clients best."""
        return self._with_stage("full_jitter")

    def equal_jitter(self) -> Backoff:
        """Keep half of each delay and draw the other half: never close to zero."""
        return self._with_stage("equal_jitter")

    def jitter(self, factor: float) -> Backoff:
        """Move each delay by at most ``factor`` of itself, up or down; follow with a maximum to cap it."""
        return self._with_stage("jitter", number(factor, "jitter", 0, 1, "a number between 0 and 1"))

    def take(self, n: int) -> Backoff:
        """End after ``n`` delays; then retrying ends too."""
        return self._with_stage(
            "take", min(integer(n, "take", 0, "a whole number of delays, 0 or more"), MAX_DELAYS)
        )

    # --------------------------------------------------------------- iterating

    def __iter__(self) -> Iterator[float]:
        return self.delays(chance)

    def delays(self, random: Chance) -> Iterator[float]:
        """Iterate with your own random source: one draw per random stage, the series first."""
        stages, draw = self._shaping, random.random
        if self._source is not None:
            own, source = "a delay of your backoff", self._source
            delays: Iterator[float] = (_apply_stages(stages, seconds(each, own), draw) for each in source)
        else:
            delays = _Delays(self._series, stages, draw)
        return delays if self._limit is None else itertools.islice(delays, self._limit)

    def factory(self, random: Chance) -> Callable[[], Iterator[float]]:
        """Return the fastest callable that begins another iteration with this random source."""
        if self._series[0] == "constant" and not self._stages:
            return partial(itertools.repeat, self._series[1][0])
        return partial(self.delays, random)

    # ------------------------------------------------------------------- value

    def _with_stage(self, stage: str, bound: float = 0.0) -> Backoff:
        name, args = self._series
        return _make(name, *args, source=self._source, stages=(*self._stages, (stage, (bound, 0.0))))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Backoff) and self.__reduce__() == other.__reduce__()

    def __hash__(self) -> int:
        return hash((self._series, self._stages))

    def __repr__(self) -> str:
        name, args = self._series
        inner = repr(self._source) if self._source is not None else _format_args(name, args)
        return f"Backoff.{name}({inner})" + "".join(f".{s}({_format_args(s, a)})" for s, a in self._stages)

    def __reduce__(self) -> tuple[Callable[..., Backoff], tuple[object, ...]]:
        name, args = self._series
        return (_make, (name, *args, self._source, self._stages))


def _make(
    name: str,
    first: float = 0.0,
    second: float = 0.0,
    source: Iterable[float] | None = None,
    stages: tuple[Step, ...] = (),
) -> Backoff:
    backoff = object.__new__(Backoff)
    backoff._series = (name, (first, second))
    backoff._source = source
    backoff._stages = stages
    backoff._shaping = tuple(step for step in stages if step[0] != "take")
    backoff._limit = min((int(args[0]) for stage, args in stages if stage == "take"), default=None)
    return backoff


def _format_args(name: str, args: tuple[float, float]) -> str:
    return ", ".join(repr(arg).removesuffix(".0") for arg in args[: ARGUMENTS.get(name, 1)])


class _Delays(Iterator[float]):
    """The delays of a series. One that overflows stays at LARGEST.

    Not a generator, whose frame takes five times the memory: every call that waits for a retry has one.
    """

    __slots__ = ("_before", "_draw", "_series", "_stages", "_value")

    def __init__(self, series: Step, stages: tuple[Step, ...], draw: Draw) -> None:
        self._series, self._stages, self._draw = series, stages, draw
        self._value: float | None = None
        self._before = 0.0

    def __next__(self) -> float:
        name, (first, second) = self._series
        value = self._value
        if name == "random":
            value = first + self._draw() * (second - first)
        elif name == "decorrelated":
            value = first if value is None else value
            value = min(second, first + self._draw() * (min(3 * value, LARGEST) - first))
        elif value is None:
            value = first
        elif name == "exponential":
            value = min(value * second, LARGEST)  # multiplied, not raised to a power: ** would overflow
        elif name == "linear":
            value = min(value + second, LARGEST)
        elif name == "fibonacci":
            value, self._before = min(value + self._before, LARGEST), value
        self._value = value
        return _apply_stages(self._stages, value, self._draw) if self._stages else value


def _apply_stages(stages: tuple[Step, ...], delay: float, draw: Draw) -> float:
    """Pass a delay through every stage, in the order they were chained."""
    for stage, (bound, _) in stages:
        if stage == "maximum":
            delay = min(delay, bound)
        elif stage == "full_jitter":
            delay *= draw()
        elif stage == "minimum":
            delay = max(delay, bound)
        elif stage == "equal_jitter":
            delay = delay / 2 + draw() * (delay / 2)
        else:  # jitter
            delay = min(delay * (1 + bound * (2 * draw() - 1)), LARGEST)
    return delay


def reiterable(delays: object, option: str) -> Iterable[float]:
    """Return an iterable of seconds that can be iterated repeatedly; reject everything else."""
    if isinstance(delays, Backoff):
        return delays
    if isinstance(delays, str | bytes | bytearray | Mapping) or not isinstance(delays, Iterable):
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
        return tuple(seconds(delay, option) for delay in cast("Iterable[object]", delays))
    return cast("Iterable[float]", delays)
