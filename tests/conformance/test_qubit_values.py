"""qubit-retry 0.9 and 0.19: delays, jitter, rejected values, and error messages."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from redouble import Backoff, Hints, Reason, Retry, errors, report
from tests.conformance.flows import EVERY, NONE, Flow, answers, check, drive, flow, in_every_colour
from tests.conformance.observables import asserts
from tests.support.scripted import fail, ok, series

HUGE = 20_000_000_000_000


@pytest.mark.parametrize(
    ("backoff", "first", "delays"),
    [
        pytest.param(NONE, 1, [0], id="Q-D01.none"),
        pytest.param(Backoff.constant(12), 9, [12], id="Q-D01.fixed"),
        pytest.param(Backoff.random(7, 7), 1, [7], id="Q-D01.random"),
        pytest.param(Backoff.exponential(100).maximum(500), 1, [100, 200, 400, 500], id="Q-D01.exponential"),
        pytest.param(Backoff.exponential(100).maximum(500), 9999, [500], id="Q-D01.far"),
        pytest.param(
            Backoff.exponential(100, 1.7).maximum(180), 1, [100, 170, 180, 180], id="Q-D01.fraction"
        ),
        pytest.param(Backoff.exponential(100, 10).maximum(120), 2, [120, 120], id="Q-D01.steep"),
        pytest.param(
            Backoff.exponential(HUGE).maximum(2 * HUGE), 1, [HUGE, 2 * HUGE, 2 * HUGE], id="Q-D01.huge"
        ),
        pytest.param(Backoff.exponential(10).maximum(80), 1, [10, 20, 40, 80, 80], id="Q-B05.exponential"),
    ],
)
def test_delays_from_a_given_attempt_on(backoff: Backoff, first: int, delays: list[float]) -> None:
    """From the retry after attempt ``first`` on."""
    assert series(backoff, first - 1 + len(delays))[first - 1 :] == pytest.approx(delays)


def test_random_delays_stay_between_their_bounds() -> None:
    """Q-D01: random 5 to 8."""
    chance = random.Random(1)
    drawn = Backoff.random(5, 8).delays(chance)
    assert all(5 <= next(drawn) <= 8 for _ in range(1000))


@pytest.mark.parametrize(
    ("factor", "base", "u", "expected"),
    [
        pytest.param(0, 100, 0.3, 100, id="Q-J01.none"),
        pytest.param(0.5, 0, 0.3, 0, id="Q-J01.zero"),
        pytest.param(0.2, 100, -1, 80, id="Q-J01.lowest"),
        pytest.param(0.2, 100, 1, 120, id="Q-J01.highest"),
        pytest.param(0.2, 50, -1, 40, id="Q-J01.lowest-of-50"),
        pytest.param(0.2, 50, 1, 60, id="Q-J01.highest-of-50"),
        pytest.param(1, 100, -1, 0, id="Q-J01.whole"),
        # Beyond 2^64 ns qubit adds no jitter; a float has no such limit.
        pytest.param(0.5, HUGE, 1, 1.5 * HUGE, id="Q-J01.huge-deviates"),
    ],
)
def test_jitter_moves_a_delay(factor: float, base: float, u: float, expected: float) -> None:
    """A random number ``u`` in [-1, 1] moves the delay by ``u`` times the factor."""
    assert series(Backoff.constant(base).jitter(factor), 1, (u + 1) / 2) == pytest.approx([expected])


@pytest.mark.parametrize(
    ("make", "named"),
    [
        pytest.param(lambda: Retry(attempts=0), "attempts", id="Q-D03.attempts"),
        pytest.param(lambda: Backoff.random(2, 1), "low", id="Q-D03.random"),
        pytest.param(lambda: Backoff.exponential(1000, math.inf), "factor", id="Q-D03.factor"),
        pytest.param(lambda: NONE.jitter(-0.1), "jitter", id="Q-D03.jitter-low"),
        pytest.param(lambda: NONE.jitter(1.1), "jitter", id="Q-D03.jitter-high"),
        pytest.param(lambda: NONE.jitter(math.nan), "jitter", id="Q-D03.jitter-nan"),
        pytest.param(lambda: NONE.jitter(1.5), "jitter", id="Q-B05.jitter"),
        pytest.param(lambda: NONE.jitter(math.inf), "jitter", id="Q-J01.infinite"),
        pytest.param(lambda: NONE.jitter(-math.inf), "jitter", id="Q-J01.minus-infinite"),
        pytest.param(lambda: Retry(attempts=0), "attempts", id="N-09.attempts"),
        pytest.param(lambda: Backoff.random(2000, 1000), "low", id="N-09.uniform"),
        pytest.param(lambda: Backoff.exponential(10, math.nan), "factor", id="N-09.factor-nan"),
        pytest.param(lambda: Backoff.exponential(10, 0.5), "factor", id="N-09.factor-low"),
        pytest.param(lambda: NONE.jitter(math.nan), "jitter", id="N-09.jitter-nan"),
        pytest.param(lambda: NONE.jitter(-0.1), "jitter", id="N-09.jitter-low"),
        pytest.param(lambda: NONE.jitter(1.1), "jitter", id="N-09.jitter-high"),
    ],
)
def test_invalid_options_are_rejected(make: Callable[[], object], named: str) -> None:
    """The error names the option."""
    with pytest.raises(ValueError, match=named):
        make()


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: Backoff.random(2, 2), id="Q-D03.random-equal"),
        pytest.param(lambda: NONE.jitter(0), id="Q-D03.jitter-0"),
        pytest.param(lambda: NONE.jitter(1), id="Q-D03.jitter-1"),
        pytest.param(lambda: Retry(work_timeout=0, timeout=0), id="Q-D03.zero-limits"),
        pytest.param(lambda: Retry(attempts=4294967295), id="Q-B05.most-attempts"),
        pytest.param(lambda: Backoff.exponential(10, 1.0).maximum(1000), id="N-09.factor-1"),
        pytest.param(lambda: Backoff.constant(0), id="N-09.fixed-0"),
    ],
)
def test_unusual_values_are_accepted(make: Callable[[], object]) -> None:
    """They are valid."""
    make()


def hinted(fact: str, hints: Hints, hint: float | None, delay: float, *draws: float) -> Flow:
    backoff = Backoff.constant(1000).full_jitter() if draws else Backoff.constant(1000)
    rules = [answers({"*": hint})]
    expected = {"ok": "ok", "sleeps": [delay], "hints": [hint]}
    return flow(
        fact, fail(), ok(), expected=expected, rules=rules, hints=hints, backoff=backoff, random=draws or (0,)
    )


AT_LEAST, PREFER, IGNORE = Hints(spread=0), Hints(mode="instead", spread=0), Hints(mode="ignore")


@in_every_colour(
    [
        hinted("N-07.longer-at-least", AT_LEAST, 3000, 3000),
        hinted("N-07.shorter-at-least", AT_LEAST, 200, 1000),
        hinted("N-07.longer-preferred", PREFER, 3000, 3000),
        hinted("N-07.shorter-preferred", PREFER, 200, 200),
        hinted("N-07.ignored", IGNORE, 3000, 1000),
        hinted("N-07.none", AT_LEAST, None, 1000),
        # In qubit jitter may shorten the merged delay to 1500; here it is never shorter than the hint.
        hinted("N-07.jittered-deviates", AT_LEAST, 3000, 3000, 0.5),
    ]
)
def test_hints_in_each_mode(colour: str, row: Flow) -> None:
    """A hint is a delay that the other side requests."""
    check(colour, row)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        pytest.param(
            flow("", fail("fatal"), expected={}, rules=[answers({"*": False})], wrap=True),
            ["not worth retrying", "1 attempt", "fatal"],
            id="Q-V03.stopped",
        ),
        pytest.param(
            flow("", fail("failed"), expected={}, attempts=1, wrap=True),
            ["attempts exhausted", "1 attempt", "failed"],
            id="Q-V03.attempts",
        ),
        pytest.param(
            flow("", fail("slow", takes=2), expected={}, work_timeout=1, wrap=True),
            ["work time", "1 attempt", "slow"],
            id="Q-V03.work",
        ),
        pytest.param(
            flow("", ok(), expected={}, work_timeout=0), ["work time", "0 attempts"], id="Q-V03.work-0"
        ),
        pytest.param(
            flow("", ok(), expected={}, total=0), ["no time left", "0 attempts"], id="Q-V03.total-0"
        ),
        pytest.param(
            flow("", fail("operation failed"), expected={}, wrap=True), ["operation failed"], id="Q-V02"
        ),
    ],
)
def test_errors_of_redouble_name_the_reason(row: Flow, said: list[str]) -> None:
    """With the number of attempts, and the last error if there was one."""
    error = drive("sync", row).error
    assert isinstance(error, errors.RetryError)
    assert [words for words in said if words not in str(error)] == []


@asserts("Q-V04", "cause", "last_error")
@pytest.mark.parametrize("colour", EVERY)
def test_q_v04_the_cause_chain(colour: str) -> None:
    """Q-V04: a wrapping error has its cause, or none if nothing failed."""
    wrapped = drive(colour, flow("", fail("source"), expected={}, attempts=1, wrap=True))
    assert wrapped.words()["cause"] == "source"
    assert str(wrapped.words()["last"]) == "source"
    unstarted = drive(colour, flow("", ok(), expected={}, total=0, wrap=True))
    assert isinstance(unstarted.error, errors.DeadlineExceeded)
    assert (unstarted.error.__cause__, unstarted.error.last) == (None, None)


def test_q_v02_a_record_keeps_the_text() -> None:
    """Q-V02: a record of a failure has the text of the error."""
    error = drive("sync", flow("", fail("operation failed"), expected={}, attempts=1)).error
    assert error is not None
    said = report(error)
    assert said is not None
    assert said.reason is Reason.attempts
    assert said.history[0].error_text == "operation failed"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        pytest.param(errors.ConfigError("missing value"), "missing value", id="Q-V07.no-path"),
        pytest.param(
            errors.ConfigError("must be positive", path="retry.max_attempts"),
            "retry.max_attempts: must be positive",
            id="Q-V07.path",
        ),
    ],
)
def test_a_config_error_begins_with_its_path(error: errors.ConfigError, said: str) -> None:
    """If it has a path."""
    assert str(error) == said
