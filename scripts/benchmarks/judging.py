"""Judging errors: what `transient` takes for a class it has never seen, and what for one it has.

The figures to reach are absolute, in nanoseconds; beside them stands the chain of `isinstance` that one would
write by hand, as the base of a ratio. The rule's table of libraries is loaded before the clock runs: that
happens once in a process. The classes are made before it runs too, and thrown away after each sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import repeat
from time import perf_counter_ns

from benchmarks.row import Row
from benchmarks.timing import Effort, Sample, race
from redouble import transient

Judge = Callable[[Exception], object]

CLASSES = 500  # per sample: making one takes longer than judging it


class LibraryError(Exception):
    """The parent of all errors of a library that nobody has told us about."""


def by_hand(error: Exception) -> bool:
    """Judge by hand: five types, of which it is none."""
    if isinstance(error, TimeoutError):
        return True
    if isinstance(error, ConnectionError):
        return True
    if isinstance(error, OSError):
        return error.errno in (11, 104, 110, 111)
    return isinstance(error, EOFError | BlockingIOError)


def judging(effort: Effort) -> Iterator[Row]:
    """Measure both."""
    judges: dict[str, Judge] = {"by hand": by_hand, "redouble": transient}
    for work, figure, ratio, sampled in (
        ("judging an unknown error, the first of its class", 3000, 9.0, first_of_its_class),
        ("judging an unknown error, not the first of its class", 500, 2.0, again),
    ):
        timings = race({name: sampled(judge) for name, judge in judges.items()}, effort)
        taken = timings["redouble"].best
        problems = () if taken <= figure else (f"{taken:.0f} ns, to reach <= {figure} ns",)
        yield Row(work, timings, ratio, problems=problems)


def again(judge: Judge) -> Sample:
    """Sample calls with the same error."""
    error = LibraryError()

    def sample(count: int) -> float:
        started = perf_counter_ns()
        for one in repeat(error, count):
            judge(one)
        return (perf_counter_ns() - started) / count

    return sample


def first_of_its_class(judge: Judge) -> Sample:
    """Sample calls with an error of a new class each."""
    judge(LibraryError())  # loads the table

    def sample(count: int) -> float:
        errors = [type(f"Unknown{n}", (LibraryError,), {})() for n in range(min(count, CLASSES))]
        started = perf_counter_ns()
        for error in errors:
            judge(error)
        return (perf_counter_ns() - started) / len(errors)

    return sample
