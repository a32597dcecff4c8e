"""A circuit breaker with a ratio counts the calls of a sliding window; slow calls are failed calls."""

from __future__ import annotations

from fractions import Fraction
from math import inf, nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redouble import CircuitBreaker, errors
from redouble._internal.sliding_counter import SLICES
from tests.support.fakes import Boom
from tests.support.layers.breaker_scripts import BreakerScript

# ------------------------------------------------------------------------------- a ratio


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        # not before the minimum is reached; a successful call may be the one that reaches it
        ({"ratio": 0.5, "minimum": 4}, "bad bad bad:closed bad:open"),
        ({"ratio": 0.5, "minimum": 4}, "bad bad bad good:open"),
        ({"ratio": 0.5, "minimum": 4}, "bad good good bad:open"),
        ({"ratio": 0.5, "minimum": 4}, "bad good good good bad:closed bad:open"),
        ({"ratio": 1, "minimum": 2}, "good bad bad bad bad bad bad bad:closed"),
        ({"ratio": 1, "minimum": 2}, "bad:closed bad:open"),
        ({"ratio": 0.5, "minimum": 1}, "bad:open"),
        # failures in a row are not looked at
        ({"ratio": 0.9, "minimum": 20, "failures": 1}, "bad bad bad:closed"),
        # neither good nor bad
        ({"ratio": 0.5, "minimum": 2}, "bad cancelled refused cancelled:closed good:open"),
        # calls older than the window are not counted
        ({"ratio": 0.5, "minimum": 2, "window": 10}, "bad +10 bad:closed +9.8 bad:open"),
        ({"ratio": 0.5, "minimum": 2, "window": 10}, "bad +100000 bad:closed"),
        ({"ratio": 0.5, "minimum": 3, "window": 10}, "good good good +5 bad bad:closed +5 good:open"),
        # a circuit that closes resets its counts
        ({"ratio": 0.5, "minimum": 2, "cooldown": 5}, "bad bad:open +5 good:closed bad:closed good:open"),
        ({"ratio": 0.5, "minimum": 2}, "bad close bad:closed bad:open"),
        # the result of a call from another epoch is not counted
        ({"ratio": 0.5, "minimum": 2}, "a> b> bad bad +30 good:closed a=bad b=bad:closed good good:closed"),
    ],
)
def test_the_state_after_each_step(options: dict[str, Any], steps: str) -> None:
    BreakerScript(**options).run(steps)


@pytest.mark.parametrize(
    ("ratio", "calls", "failures"),
    [
        (0.07, 100, 7),
        (0.29, 100, 29),
        (0.1, 30, 3),
        (0.3, 10, 3),
        (1e-3, 1000, 1),
        (0.7, 10, 7),
        (1 / 3, 30, 10),
    ],
)
def test_the_ratio_is_exact(ratio: float, calls: int, failures: int) -> None:
    """7 of 100 is 0.07, though 0.07 * 100 is a little more than 7."""
    for bad in (failures - 1, failures):
        script = BreakerScript(ratio=ratio, minimum=calls, window=1000)
        script.run("good " * (calls - bad) + "bad " * (bad - 1))
        script.run("bad:open" if bad == failures else "bad:closed" if bad else "good:closed")


@given(
    ratio=st.integers(1, 100),
    minimum=st.integers(1, 12),
    calls=st.lists(st.tuples(st.integers(0, SLICES // 4), st.booleans()), min_size=1, max_size=60),
)
def test_it_opens_exactly_when_the_window_reaches_the_ratio(
    ratio: int, minimum: int, calls: list[tuple[int, bool]]
) -> None:
    """Compared with a plain list of all calls; a slice of the window is one second."""
    script = BreakerScript(ratio=ratio / 100, minimum=minimum, window=SLICES)
    seen: list[tuple[float, bool]] = []
    for passed, bad in calls:
        script.clock.time += passed
        seen.append((script.clock.now(), bad))
        recent = [failed for when, failed in seen if when > script.clock.now() - SLICES]
        open_now = len(recent) >= minimum and Fraction(sum(recent), len(recent)) >= Fraction(ratio, 100)
        script.run("bad" if bad else "good")
        assert script.breaker.state == ("open" if open_now else "closed")
        if open_now:
            return
        snapshot = script.breaker.snapshot()
        assert (snapshot["calls"], snapshot["failures"]) == (len(recent), sum(recent))


def test_the_snapshot_counts_the_window() -> None:
    script = BreakerScript(ratio=0.5, window=10, minimum=10)
    script.run("good bad good +5 bad")
    assert [script.breaker.snapshot()[word] for word in ("failures", "calls")] == [2, 4]
    script.run("+5.5")
    assert [script.breaker.snapshot()[word] for word in ("failures", "calls")] == [1, 1]


# -------------------------------------------------------------------------- the last calls


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        # however long ago they were
        ({"calls": 4, "minimum": 4}, "bad +1000000 bad +1000000 good:closed +1000000 good:open"),
        ({"calls": 4, "minimum": 4}, "bad good good good:closed good:closed bad:closed bad:open"),
        ({"calls": 4, "minimum": 2}, "bad:closed good:open"),
        # a minimum above the size of the window is never needed
        ({"calls": 2}, "bad:closed bad:open"),
        ({"calls": 1}, "good:closed bad:open"),
        ({"calls": 4}, "bad bad bad:closed cancelled refused:closed good:open"),
        # a circuit that closes resets the window
        ({"calls": 2, "cooldown": 5}, "bad bad:open +5 good:closed bad:closed good:open"),
        # slow calls count as failed
        ({"calls": 2, "slow": 5}, "good a> +5 a=good:open"),
    ],
)
def test_a_window_of_the_last_calls(options: dict[str, Any], steps: str) -> None:
    BreakerScript(ratio=0.5, **options).run(steps)


def test_the_snapshot_counts_the_last_calls() -> None:
    script = BreakerScript(ratio=1, calls=3)
    script.run("bad bad good +1000000 good")
    assert [script.breaker.snapshot()[word] for word in ("failures", "calls")] == [1, 3]


@pytest.mark.parametrize(("calls", "kind"), [(0, ValueError), (1.5, TypeError), (1_000_001, ValueError)])
def test_wrong_window_of_calls(calls: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind, match=r"^CircuitBreaker calls="):
        CircuitBreaker(ratio=0.5, calls=calls)


def test_a_window_of_calls_needs_a_share() -> None:
    """Without one it would be ignored, and five failures in a row would open the breaker."""
    with pytest.raises(ValueError, match=r"^CircuitBreaker calls=100: write ratio= or slow_ratio= too"):
        CircuitBreaker(calls=100)


# --------------------------------------------------------------------- a share of slow calls


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        # slow calls are no failures
        ({"failures": 1, "slow_ratio": 1, "minimum": 3}, "a> +2 a=good:closed a> +2 a=good:closed bad:open"),
        ({"failures": 1, "slow_ratio": 1, "minimum": 2}, "a> b> +2 a=good:open"),
        ({"failures": 9, "slow_ratio": 0.5, "minimum": 4}, "a> b> +2 a=good b=good good:closed good:open"),
        ({"ratio": 1, "slow_ratio": 0.5, "minimum": 2}, "a> good:closed +2 a=good:open"),
        ({"ratio": 0.5, "slow_ratio": 1, "minimum": 2}, "a> +2 a=bad:closed good:open"),
        # a call in flight counts as slow when another begins or ends, and fails when it ends
        ({"failures": 1, "slow_ratio": 1, "minimum": 9}, "a> +2 good:closed a=bad:open"),
        ({"failures": 9, "slow_ratio": 1, "minimum": 2}, "a> b> +2 c>:no"),
        ({"failures": 1, "slow_ratio": 1, "minimum": 9}, "a> +2 a=cancelled:closed"),
        ({"failures": 9, "slow_ratio": 1, "minimum": 1}, "a> +2 a=cancelled:open"),
        # the last calls, or those of the window
        ({"slow_ratio": 1, "calls": 2}, "a> +2 a=good good:closed a> b> +2 a=good:open"),
        ({"slow_ratio": 1, "minimum": 2, "window": 10}, "a> +2 a=good +10 a> +2 a=good:closed"),
        # as a share of reopening stages too
        (
            {"failures": 1, "slow_ratio": 1, "minimum": 2, "cooldown": 5, "reopening": (0.5,)},
            "bad +5 good:half_open a> b> +2 a=good:open",
        ),
        # calls of an earlier epoch do not count
        ({"slow_ratio": 1, "minimum": 1}, "a> close +2 good:closed a=good:closed"),
    ],
)
def test_a_share_of_slow_calls(options: dict[str, Any], steps: str) -> None:
    BreakerScript(slow=2, **options).run(steps)


def test_the_snapshot_counts_slow_calls() -> None:
    script = BreakerScript(ratio=1, slow=5, slow_ratio=1)
    script.run("a> b> +5 a=bad b=good good")
    snapshot = script.breaker.snapshot()
    assert (snapshot["slow"], snapshot["failures"], snapshot["calls"]) == (2, 1, 3)
    assert BreakerScript(slow=5).breaker.snapshot()["slow"] == 0


def test_a_share_of_slow_calls_needs_slow() -> None:
    with pytest.raises(ValueError, match=r"^CircuitBreaker slow_ratio=0.5: write slow= too"):
        CircuitBreaker(slow_ratio=0.5)


@pytest.mark.parametrize("option", ["slow_ratio", "probe_ratio"])
@pytest.mark.parametrize("value", [0, 1.1, nan])
def test_wrong_shares(option: str, value: float) -> None:
    with pytest.raises(ValueError, match=rf"^CircuitBreaker {option}=.*: write a share above 0 and up to 1"):
        CircuitBreaker(slow=1, **{option: value})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"ratio": 0.5}, "opens after 50% failures of at least 20 calls in 30 s, for 30 s"),
        (
            {"ratio": 0.5, "calls": 50},
            "opens after 50% failures of at least 20 of the last 50 calls, for 30 s",
        ),
        ({"ratio": 0.5, "calls": 10}, "opens after 50% failures of the last 10 calls, for 30 s"),
        (
            {"slow": 2, "slow_ratio": 0.8, "failures": 3},
            (
                "opens after 3 failures in a row or 80% calls of 2 s or more of at least 20 calls in 30 s, "
                "for 30 s"
            ),
        ),
        (
            {"ratio": 0.5, "slow": 2, "slow_ratio": 0.8},
            "opens after 50% failures or 80% calls of 2 s or more of at least 20 calls in 30 s, for 30 s",
        ),
        (
            {"probes": 10, "probe_ratio": 0.5},
            "opens after 5 failures in a row, for 30 s, and again if 0.5 of 10 probes fail",
        ),
        ({"state": "disabled"}, "admits all calls: it is disabled"),
        ({"state": "metrics_only"}, "would open after 5 failures in a row, for 30 s (metrics_only)"),
        ({"state": "isolated"}, "opens after 5 failures in a row, for 30 s (isolated)"),
    ],
)
def test_its_description(options: dict[str, Any], text: str) -> None:
    assert CircuitBreaker(**options).describe() == text


# ---------------------------------------------------------------------------- slow calls


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        # the end of a slow call is a failure, whatever its result
        ({"failures": 1}, "a> +1.9 a=good:closed b> +2 b=good:open"),
        ({"failures": 2}, "a> +2 a=good:closed b> +3 b=bad:open"),
        ({"failures": 2}, "a> +2 a=good:closed good bad:closed bad:open"),
        ({"failures": 1}, "a> +2 a=cancelled:open"),
        ({"failures": 1}, "a> +1.9 a=cancelled:closed"),
        # a slow call in flight counts too, once, when another call starts or ends
        ({"failures": 1}, "a> +2:closed b>:no a=good:open"),
        ({"failures": 1}, "a> +1 b> +1 b=good:open a=good:open +30 good:closed"),
        ({"failures": 3}, "a> +2 b>:closed a=bad:closed bad:closed bad:open"),
        ({"failures": 3}, "a> b> c> +2 d>:no a=good b=good c=good d>:no"),
        ({"failures": 2}, "a> +2 b> a=good b=good:closed bad:closed bad:open"),
        ({"failures": 3}, "a> b> +2 c> c=good:closed bad bad:closed bad:open"),
        # as a part of a ratio
        ({"ratio": 0.5, "minimum": 4}, "a> good good good:closed +2 good b> b> b> b>:closed +2 good:no"),
        ({"ratio": 0.5, "minimum": 2}, "a> good +2:closed good:no"),
        # slow calls of an earlier epoch do not count
        ({"failures": 1, "cooldown": 1}, "a> bad:open +1 good:closed +1 b>:closed a=bad:closed"),
        ({"failures": 1, "cooldown": 1}, "a> close +2 good:closed a=bad:closed"),
        # a slow probe fails, even while it is in flight
        ({"failures": 1, "cooldown": 5}, "bad +5 a> +2 a=good:open"),
        ({"failures": 1, "cooldown": 5}, "bad +5 a> +2 b>:no +4.9:open b>:no +0.1 good:closed a=bad:closed"),
        ({"failures": 1, "cooldown": 0}, "bad a> +2 b>:half_open b=good:closed a=bad:closed"),
    ],
)
def test_slow_calls_count_as_failures(options: dict[str, Any], steps: str) -> None:
    BreakerScript(slow=2, **options).run(steps)


def test_a_call_that_never_ends_is_not_kept_for_ever() -> None:
    script = BreakerScript(slow=1, failures=10**9)
    for number in range(1000):
        script.run(f"{number}> +1")
    assert len(script.breaker._circuit.epoch.calls) <= 1
    assert script.breaker.snapshot()["failures"] == 999


def test_the_duration_of_a_call_is_measured_by_its_clock() -> None:
    script = BreakerScript(slow=3, failures=1)

    @script.breaker
    def work(takes: float) -> None:
        script.clock.time += takes

    work(2.5)
    work(3)
    with pytest.raises(
        errors.CircuitOpen, match=r"^the circuit breaker is open after a slow call, for another 30 s$"
    ):
        work(0)


# ------------------------------------------------------------------------------- clocks


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        # an open circuit: never open for longer than the cooldown, on any clock
        ({"failures": 1}, "bad -500:open good:no +29 good:no +1:half_open good:closed"),
        ({"failures": 1}, "bad -1 good:no +30 good:closed"),
        ({"failures": 1, "cooldown": 0}, "bad -500 good:closed"),
        # a window: the counts restart
        ({"ratio": 0.5, "minimum": 2}, "bad -500 bad:closed bad:open"),
        ({"ratio": 0.5, "minimum": 2}, "bad -0.1 bad:open"),
        # a lost probe
        ({"failures": 1}, "bad +30 a> -500 +30 b>:half_open b=good:closed"),
        ({"failures": 1, "probes": 2}, "bad +30 good a> -500 +30 b>:half_open b=good:closed"),
        # a call that may be slow
        ({"failures": 1, "slow": 2}, "a> -500 good:closed a=good:closed +2 good:closed"),
        # a stage of reopening
        ({"failures": 1, "reopening": (0.5,)}, "bad +30 good -500 good +30 good:closed"),
        (
            {"failures": 1, "reopening": (0.5,)},
            "bad +30 good a> -500 +30 b> +30 a=good b=good +30 good:closed",
        ),
    ],
)
@pytest.mark.parametrize("start", [0.0, 1e6])
def test_a_clock_that_goes_back_does_not_block_the_breaker(
    options: dict[str, Any], steps: str, start: float
) -> None:
    BreakerScript(start=start, **options).run(steps)


@pytest.mark.parametrize(
    "options", [{"failures": 2}, {"ratio": 0.5, "minimum": 2}, {"failures": 2, "slow": 9}]
)
@pytest.mark.parametrize("nonsense", [nan, inf, -inf])
@pytest.mark.parametrize("step", range(6))
def test_a_clock_that_returns_nan_once(options: dict[str, Any], nonsense: float, step: int) -> None:
    """Only the call's own error is raised, and the breaker closes again later."""
    script = BreakerScript(cooldown=5, **options)

    @script.breaker
    def fail() -> None:
        raise Boom

    for number in range(6):
        script.clock.time = nonsense if number == step else number * 5
        with pytest.raises((Boom, errors.CircuitOpen)):
            fail()
    script.clock.time = 100
    for _ in range(3):
        script.clock.time += 100
        script.run("good")
    script.run("good:closed")
    assert script.breaker.snapshot()["rejected"] == 0
