"""Swift Async Algorithms, Retry & Backoff: the loop, and backoffs whose modifiers apply in order."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from itertools import islice

import pytest

from redouble import Backoff, Reason, Retry
from tests.conformance.flows import ASYNC, EVERY, NONE, Flow, answers, check, drive, flow, in_every_colour
from tests.conformance.observables import asserts
from tests.support.scripted import SplitMix64, Virtual, fail, ok, series

FLOWS = [
    flow("S-02.1", ok("v"), attempts=3, expected={"ok": "v", "calls": 1, "waits": []}),
    flow("S-02.2", fail("Failure"), ok("v"), attempts=3, expected={"ok": "v", "calls": 2, "retried": [1]}),
    flow(
        "S-03",
        fail("Failure"),
        attempts=3,
        expected={"raises": "Failure", "same": True, "calls": 3, "waits": [0, 0]},
        colours=ASYNC,
    ),
    flow(
        "S-03",
        fail("Failure"),
        attempts=3,
        expected={"raises": "Failure", "same": True, "calls": 3, "retried": [1, 2]},
    ),
    flow(
        "S-04",
        fail("Retryable"),
        fail("NonRetryable"),
        attempts=5,
        rules=[answers({"NonRetryable": False, "*": True})],
        expected={
            "raises": "NonRetryable",
            "calls": 2,
            "reason": Reason.stopped,
            "events": ["before:1", "failure:1", "retry:1:0", "before:2", "failure:2", "error:stopped"],
        },
    ),
    flow(
        "S-06",
        fail("Failure"),
        attempts=4,
        backoff=Backoff.exponential(100),
        expected={"raises": "Failure", "calls": 4, "sleeps": [100, 200, 400], "retried": [1, 2, 3]},
    ),
    flow(
        "S-07.1",
        fail(),
        fail(),
        ok("success"),
        attempts=3,
        expected={"ok": "success", "calls": 3, "sleeps": []},
    ),
    flow(
        "S-07.2",
        fail(),
        fail(),
        ok("success"),
        attempts=3,
        backoff=NONE.full_jitter(),
        expected={"ok": "success", "calls": 3, "sleeps": []},
    ),
    flow(
        "S-08",
        fail("first"),
        fail("second"),
        attempts=5,
        rules=[answers({"first": True, "second": False})],
        expected={"raises": "second", "calls": 2},
    ),
    flow(
        "S-13.1",
        fail("TooManyRequests"),
        ok("v"),
        attempts=5,
        rules=[answers({"TooManyRequests": 7000, "*": False})],
        expected={"ok": "v", "calls": 2, "sleeps": [7000]},
    ),
    flow(
        "S-13.2",
        fail("Other"),
        attempts=5,
        rules=[answers({"TooManyRequests": 7000, "*": False})],
        expected={"raises": "Other", "calls": 1, "sleeps": []},
    ),
]


@in_every_colour(FLOWS)
def test_one_call(colour: str, row: Flow) -> None:
    """The last error is raised unchanged; a zero delay is still a wait in async code."""
    check(colour, row)


class Counting:
    """Delays that count the iterators created and the delays drawn."""

    def __init__(self) -> None:
        self.iterators = self.drawn = 0

    def __iter__(self) -> Iterator[float]:
        self.iterators += 1
        for delay in (100.0, 200.0, 400.0, 800.0):
            self.drawn += 1
            yield delay


@pytest.mark.parametrize("colour", EVERY)
def test_s_06_no_delay_is_drawn_after_the_last_attempt(colour: str) -> None:
    """S-06: four attempts draw three delays. Here the rule is called four times, in Swift three times."""
    delays, asked = Counting(), list[Exception]()
    rules: list[Callable[[Exception], bool | None]] = [asked.append]
    drive(colour, flow("S-06", fail(), attempts=4, backoff=delays, rules=rules, expected={}))
    assert delays.drawn == 3
    assert len(asked) == 4


@asserts("S-15", "each_call_starts_a_fresh_iterator")
def test_s_15_each_call_starts_afresh() -> None:
    """S-15: two calls with one backoff have the same delays."""
    delays, clock = Counting(), Virtual()
    policy = Retry(on=OSError, attempts=3, backoff=delays, give_up_after=None, clock=clock)

    def fails() -> None:
        raise OSError

    for _ in range(2):
        with pytest.raises(OSError):  # noqa: PT011  the error has no text
            policy.call(fails)
    assert clock.waits == [100, 200, 100, 200]
    assert delays.iterators == 2


@pytest.mark.parametrize(
    ("backoff", "delays"),
    [
        pytest.param(Backoff.constant(5), [5, 5], id="S-20.constant"),
        pytest.param(Backoff.linear(1, 2), [1, 3, 5, 7], id="S-20.linear"),
        pytest.param(Backoff.exponential(1), [1, 2, 4, 8], id="S-20.exponential"),
        pytest.param(Backoff.exponential(9, 1), [9, 9, 9], id="S-20.factor-1"),
        pytest.param(Backoff.linear(9, 0), [9, 9, 9], id="S-20.increment-0"),
        pytest.param(Backoff.constant(10).maximum(3).minimum(7), [7, 7], id="S-24.minimum-last"),
        pytest.param(Backoff.constant(10).minimum(70).maximum(30), [30, 30], id="S-24.maximum-last"),
        pytest.param(Backoff.exponential(1).maximum(5), [1, 2, 4, 5], id="backoff.swift.maximum"),
    ],
)
def test_the_delays_of_backoffs_with_modifiers(backoff: Backoff, delays: list[float]) -> None:
    """Of two bounds the later one wins."""
    assert series(backoff, len(delays)) == delays


@pytest.mark.parametrize(
    ("backoff", "attoseconds"),
    [
        pytest.param(
            Backoff.constant(0.1).full_jitter().maximum(0.05),
            [15991039287692012, 34419071652363758, 50000000000000000, 50000000000000000],
            id="S-23.full-then-maximum",
        ),
        pytest.param(
            Backoff.constant(0.1).equal_jitter().maximum(0.06),
            [57995519643846006, 60000000000000000, 60000000000000000, 60000000000000000],
            id="S-23.equal-then-maximum",
        ),
        pytest.param(
            Backoff.constant(0.1).maximum(0.05).full_jitter(),
            [7995519643846006, 17209535826181879, 43411403827326619, 40031593835675172],
            id="S-23.maximum-then-full",
        ),
    ],
)
def test_the_random_delays_equal_those_of_swift(backoff: Backoff, attoseconds: list[int]) -> None:
    """With the same generator, seed and order of modifiers, up to the precision of a float."""
    delays = islice(backoff.delays(SplitMix64(42)), 4)
    assert list(delays) == pytest.approx([number / 1e18 for number in attoseconds], rel=1e-15)


@pytest.mark.parametrize(
    "backoff",
    [
        pytest.param(Backoff.exponential(5), id="S-25.exponential"),
        pytest.param(Backoff.linear(sys.float_info.max / 1.5, sys.float_info.max / 4), id="S-25.linear"),
        pytest.param(Backoff.fibonacci(1e308), id="S-25.fibonacci"),
    ],
)
def test_s_25_delays_saturate(backoff: Backoff) -> None:
    """S-25: Swift's limit is 127 bits of attoseconds; here it is the largest float."""
    delays = series(backoff, 1100)
    assert delays == sorted(delays)
    assert delays[-1] == delays[-2] == sys.float_info.max


@pytest.mark.parametrize(
    ("make", "named"),
    [
        pytest.param(lambda: Backoff.constant(-1), "constant", id="S-27.constant"),
        pytest.param(lambda: Backoff.linear(-1, 1), "initial", id="S-27.linear-initial"),
        pytest.param(lambda: Backoff.linear(1, -1), "increment", id="S-27.linear-increment"),
        pytest.param(lambda: Backoff.linear(-1, -1), "initial", id="S-27.linear-both"),
        pytest.param(lambda: Backoff.exponential(-1, 1), "initial", id="S-27.exponential-initial"),
        pytest.param(lambda: Backoff.exponential(1, 0), "factor", id="S-27.factor-0"),
        pytest.param(lambda: Backoff.exponential(1, -1), "factor", id="S-27.factor-negative"),
        # Swift accepts it, without effect.
        pytest.param(lambda: Backoff.constant(5).minimum(-3), "minimum", id="S-27.minimum-deviates"),
        pytest.param(lambda: Backoff.constant(math.nan), "constant", id="S-27.constant-nan"),
    ],
)
def test_invalid_options_are_rejected(make: Callable[[], object], named: str) -> None:
    """Swift aborts the process; here a ValueError names the argument."""
    with pytest.raises(ValueError, match=named):
        make()


@pytest.mark.parametrize(
    "backoff",
    [
        pytest.param(Backoff.constant(1), id="S-27.constant-1"),
        pytest.param(Backoff.linear(1, 1), id="S-27.linear-1"),
        pytest.param(Backoff.exponential(1, 1), id="S-27.exponential-1"),
    ],
)
def test_unusual_backoffs_are_accepted(backoff: Backoff) -> None:
    """They are valid."""
    assert series(backoff, 1) == [1]
