"""The cost of classifying an error by `transient`, for the first error of a class and for later ones.

The targets are absolute, in nanoseconds; the base of the ratios is a hand-written chain of `isinstance`. The
rule's table of libraries is loaded before the clock starts, since that happens once per process. The classes
are created before the clock starts too, and discarded after each sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import repeat
from time import perf_counter_ns

from benchmarks.table_row import Row
from benchmarks.timing import Effort, Sample, race
from redouble import transient

Rule = Callable[[Exception], object]

CLASSES = 500  # per sample: creating one takes longer than classifying it


class LibraryError(Exception):
    """The base class of the errors of an unknown library."""


def by_hand(error: Exception) -> bool:
    """Classify by hand: five types, none of which match."""
    if isinstance(error, TimeoutError):
        return True
    if isinstance(error, ConnectionError):
        return True
    if isinstance(error, OSError):
        return error.errno in (11, 104, 110, 111)
    return isinstance(error, EOFError | BlockingIOError)


def classification(effort: Effort) -> Iterator[Row]:
    """Measure and yield the rows."""
    rules: dict[str, Rule] = {"by hand": by_hand, "redouble": transient}
    for work, figure, ratio, sampled in (
        ("judging an unknown error, the first of its class", 3000, 9.0, first_of_its_class),
        ("judging an unknown error, not the first of its class", 500, 2.0, again),
    ):
        timings = race({name: sampled(rule) for name, rule in rules.items()}, effort)
        taken = timings["redouble"].best
        problems = () if taken <= figure else (f"{taken:.0f} ns, to reach <= {figure} ns",)
        yield Row(work, timings, ratio, problems=problems)


def again(rule: Rule) -> Sample:
    """Sample calls with the same error."""
    error = LibraryError()

    def sample(count: int) -> float:
        started = perf_counter_ns()
        for one in repeat(error, count):
            rule(one)
        return (perf_counter_ns() - started) / count

    return sample


def first_of_its_class(rule: Rule) -> Sample:
    """Sample calls with errors of new classes."""
    rule(LibraryError())  # loads the table

    def sample(count: int) -> float:
        errors = [type(f"Unknown{n}", (LibraryError,), {})() for n in range(min(count, CLASSES))]
        started = perf_counter_ns()
        for error in errors:
            rule(error)
        return (perf_counter_ns() - started) / len(errors)

    return sample
