"""After the cooldown a few calls are admitted as probes; their results, or their loss, decide."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from redouble import CircuitBreaker, Retry, errors
from tests.support.fakes import Boom, Draws, Virtual
from tests.support.layers.breaker_scripts import BreakerScript

OPENED = "bad:open +10:half_open"


# ------------------------------------------------------------------------------- probes


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        # one at a time
        ({}, "a>:half_open b>:no c>:no a=good:closed b>:closed"),
        ({}, "a> a=bad:open b>:no +9.9 b>:no +0.1 b>:half_open b=good:closed"),
        # a probe without a verdict frees its slot for the next
        ({}, "a> b>:no a=cancelled:half_open b>:half_open b=good:closed"),
        ({}, "refused:half_open cancelled:half_open refused:half_open good:closed"),
        # several: all of them must succeed, and no more than that many are admitted
        (
            {"probes": 3},
            "a> b> c>:half_open d>:no a=good:half_open d>:no b=good:half_open d>:no c=good:closed",
        ),
        ({"probes": 3}, "good good:half_open good:closed"),
        ({"probes": 3}, "good good bad:open"),
        ({"probes": 2}, "a> b> a=bad:open b=good:open +10 good:half_open good:closed"),
        ({"probes": 2}, "a> b> a=cancelled c>:half_open d>:no b=good c=good:closed"),
        # a new round needs all of them again
        ({"probes": 2}, "good bad:open +10 good:half_open good:closed"),
    ],
)
def test_the_results_of_probes_decide_the_state(options: dict[str, Any], steps: str) -> None:
    script = BreakerScript(failures=1, cooldown=10, **options)
    script.run(OPENED)
    script.run(steps)


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        # it opens as soon as the share is reached, and closes as soon as it cannot be reached
        ({"probes": 4, "probe_ratio": 0.5}, "bad:half_open good:half_open bad:open"),
        ({"probes": 4, "probe_ratio": 0.5}, "good good good:closed"),
        ({"probes": 4, "probe_ratio": 0.5}, "bad good good:half_open good:closed"),
        ({"probes": 3, "probe_ratio": 1}, "bad bad:half_open bad:open"),
        ({"probes": 3, "probe_ratio": 1}, "bad bad:half_open good:closed"),
        ({"probes": 3, "probe_ratio": 0.01}, "good bad:open"),
        ({"probes": 1, "probe_ratio": 0.5}, "bad:open"),
        ({"probes": 1, "probe_ratio": 0.5}, "good:closed"),
        # no more than that many at once, or in all
        ({"probes": 3, "probe_ratio": 0.6}, "a> b> c>:half_open d>:no a=bad d>:no b=good c=good:closed d>"),
        ({"probes": 2, "probe_ratio": 1}, "a> a=bad b> c>:no b=cancelled:half_open b> b=good:closed"),
        # a lost probe makes room for another, and its result is ignored
        ({"probes": 2, "probe_ratio": 1}, "a> b> +10 c>:half_open a=bad b=bad:half_open c=good:closed"),
        # another round begins afresh
        ({"probes": 2, "probe_ratio": 1}, "bad bad:open +10 bad:half_open good:closed"),
        # a slow probe is a failed one
        ({"probes": 2, "probe_ratio": 1, "slow": 2}, "a> +2 a=good:half_open good:closed"),
        ({"probes": 2, "probe_ratio": 1, "slow": 2}, "a> b> +2 a=good:open"),
        # unless there is a share of slow calls
        ({"probes": 3, "slow": 2, "slow_ratio": 1}, "a> +2 a=good good:half_open good:closed"),
        ({"probes": 3, "slow": 2, "slow_ratio": 0.6}, "a> b> c> +2 a=good:open"),
        (
            {"probes": 3, "slow": 2, "slow_ratio": 0.6},
            "a> +2 b>:half_open c> d>:no b=good c=good a=good:closed",
        ),
        ({"probes": 3, "slow": 2, "slow_ratio": 0.6}, "a> +2 b> b=bad:open"),
        ({"probes": 2, "slow": 2, "slow_ratio": 0.5, "probe_ratio": 1}, "bad:half_open a> +2 a=good:open"),
        ({"probes": 2, "slow": 2, "slow_ratio": 1, "probe_ratio": 1}, "bad a> +2:half_open a=good:closed"),
        # then the stages of reopening
        ({"probes": 2, "probe_ratio": 1, "reopening": (0.5,)}, "bad good:half_open good +10 good:closed"),
    ],
)
def test_a_share_of_the_probes_decides_the_state(options: dict[str, Any], steps: str) -> None:
    script = BreakerScript(failures=1, cooldown=10, **options)
    script.run(OPENED)
    script.run(steps)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"probes": 1, "probe_ratio": 0.5}, "CircuitBreaker probe_ratio=0.5 of probes=1: one failed probe"),
        ({"probes": 2, "probe_ratio": 0.5}, "CircuitBreaker probe_ratio=0.5 of probes=2: one failed probe"),
        ({"probes": 3, "probe_ratio": 0.5}, ""),
        ({"probes": 1}, ""),
    ],
)
def test_lint_of_a_share_that_one_probe_reaches(options: dict[str, Any], problem: str) -> None:
    found = (Retry() | CircuitBreaker(**options)).check()
    assert [text[: len(problem)] for text in found] == ([problem] if problem else [])
    assert all("such as probes=10" in text for text in found)


@pytest.mark.parametrize(
    ("cooldown", "options", "steps"),
    [
        # after the cooldown another probe is admitted, and the result of the lost one is ignored
        (10, {}, "a> +9.9 b>:no +0.1 b>:half_open a=bad:half_open c>:no b=good:closed"),
        (10, {}, "a> +10 b> a=good:half_open b=bad:open"),
        (10, {}, "a> +10 b> +10 c> +10 d>:half_open a=good b=bad c=good:half_open d=good:closed"),
        (10, {}, "a> +1000000 good:closed"),
        # but at least a second
        (0, {}, "a> +0.9 b>:no +0.1 b>:half_open b=good:closed"),
        (0.5, {}, "a> +0.9 b>:no +0.1 b>:half_open b=good:closed"),
        # every probe expires on its own
        (
            10,
            {"probes": 2},
            "a> +5 b> +4.9 c>:no +0.1 c>:half_open d>:no +5 d>:half_open c=good d=good:closed",
        ),
        (10, {"probes": 2}, "good a> +10 b>:half_open a=bad:half_open b=good:closed"),
        # a lost probe is not slow later
        (1, {"slow": 5}, "a> +1 b>:half_open +4.5 c>:half_open c=good:closed"),
        (10, {"probes": 3}, "a> b> c> +10 d> e> f>:half_open g>:no d=good e=good f=good:closed"),
    ],
)
def test_a_lost_probe_does_not_block_the_breaker(
    cooldown: float, options: dict[str, Any], steps: str
) -> None:
    """The task of the probe was dropped, or hangs."""
    script = BreakerScript(failures=1, cooldown=cooldown, **options)
    script.run(f"bad +{cooldown}:half_open")
    script.run(steps)


def test_a_dropped_generator_releases_its_probe_slot() -> None:
    clock = Virtual()
    breaker = CircuitBreaker(failures=1, probes=2, clock=clock)
    with pytest.raises(Boom), breaker:
        raise Boom
    clock.time = 30

    def steps() -> Any:
        with breaker:
            yield

    first, second = steps(), steps()
    next(first)
    next(second)
    with pytest.raises(errors.CircuitOpen):
        breaker.call(int)
    del first  # a GeneratorExit is no verdict about the service
    breaker.call(int)
    with pytest.raises(errors.CircuitOpen):
        breaker.call(int)
    second.close()
    breaker.call(int)
    assert breaker.state == "closed"


# ------------------------------------------------------------------ progressive reopening

LOW, HIGH = 0.05, 0.95


@pytest.mark.parametrize(
    ("draws", "options", "steps"),
    [
        # each stage admits its share of the calls for a while; then all are admitted
        ([LOW], {}, "good:half_open good good +9.9 good:half_open +0.1 good:half_open +10 good:closed"),
        ([0.3], {}, "good:half_open good:no good:no +10 good:half_open good:half_open good:half_open"),
        # a random number decides about each call
        ([LOW, HIGH, HIGH, LOW], {}, "good:half_open a>:half_open b>:no c>:no d>:half_open"),
        # too many failures: opens again, as a closed breaker would
        ([LOW], {"failures": 2}, "good bad:half_open bad:open"),
        ([LOW], {"failures": 2}, "good bad good bad:half_open bad:open +10 good:half_open good:half_open"),
        ([LOW], {"ratio": 0.5, "minimum": 4}, "good good bad good:half_open bad:open"),
        ([LOW], {"failures": 9, "slow": 5}, "good a> a=good b> +5 b=good:half_open +5 good:no"),
        # failing at the end of a stage, though not enough to open before
        ([LOW], {"failures": 3}, "good good bad +10 good:no"),
        ([LOW], {"failures": 3}, "good bad good +10 good:half_open +10 good:closed"),
        ([LOW], {"ratio": 0.5, "minimum": 20}, "good bad bad good +10 good:no"),
        ([LOW], {"ratio": 0.5, "minimum": 20}, "good bad good good +10 good +10 good:closed"),
        # few calls: a stage lasts until one has ended; when it is overdue, a call is always admitted
        ([HIGH], {}, "good a>:no +9.9 a>:no +0.1 a>:half_open b>:no a=good c>:no +10 c>:half_open"),
        ([HIGH], {}, "good +100 good +100 good:no +10 good:closed good:closed"),
        ([HIGH], {}, "good +10 cancelled:half_open good:half_open"),
        ([LOW], {}, "good +10 bad:open a>:no"),
        # such a call may be lost as well
        ([HIGH], {}, "good +10 a> +9.9 b>:no +0.1 b>:half_open b=good"),
        ([LOW, LOW, HIGH], {}, "good a> b> +10 c>:no c>:half_open a=bad b=bad:half_open c=good"),
        # calls of one stage are ignored in the next
        ([LOW], {"failures": 1}, "good a> good +10 good:half_open a=bad:half_open"),
        # by hand
        ([LOW], {}, "good close:closed"),
        ([LOW], {}, "good a> isolate:isolated a=good +10 b>:no close:closed"),
    ],
)
def test_reopening_by_stages(draws: list[float], options: dict[str, Any], steps: str) -> None:
    defaults: dict[str, Any] = {"cooldown": 10, "reopening": (0.1, 0.5), "failures": 3} | options
    script = BreakerScript(*draws, **defaults)
    while script.breaker.state != "open":
        script.run("bad")
    script.run("+10:half_open")
    script.run(steps)


@pytest.mark.parametrize("cooldown", [0, 0.25, 4])
def test_a_stage_lasts_as_long_as_the_cooldown_but_at_least_a_second(cooldown: float) -> None:
    script = BreakerScript(LOW, failures=1, cooldown=cooldown, reopening=(0.5,))
    lasts = max(cooldown, 1)
    script.run(f"bad +{cooldown} good:half_open good:half_open +{lasts * 0.9} good:half_open")
    script.run(f"+{lasts * 0.2} good:closed")


def _passes(breaker: CircuitBreaker) -> bool:
    with suppress(errors.CircuitOpen):
        breaker.call(int)
        return True
    return False


def test_each_stage_admits_its_share() -> None:
    """Of a thousand calls exactly the share of the stage is admitted: random numbers are evenly spaced."""
    script = BreakerScript(
        *(number / 1000 for number in range(1000)), failures=1, cooldown=10, reopening=(0.125, 0.5)
    )
    script.run("bad +10 good")
    for share in (0.125, 0.5):
        script.chance.drawn = 0
        passed = sum(_passes(script.breaker) for _ in range(1000))
        assert passed == share * 1000
        script.chance.drawn = 0
        script.run("+10 good")
    script.run("+10 good:closed")


def test_a_call_made_by_the_random_source_is_rejected() -> None:
    """The number is drawn in the middle of an admission, before there is a change to emit."""

    class CallingDraws(Draws):
        def random(self) -> float:
            with pytest.raises(errors.CircuitOpen, match="half open"):
                breaker.call(int)
            return super().random()

    clock = Virtual()
    breaker = CircuitBreaker(failures=1, cooldown=0, reopening=(0.5,), random=CallingDraws(LOW), clock=clock)
    with pytest.raises(Boom), breaker:
        raise Boom
    assert [breaker.call(int) for _ in range(3)] == [0, 0, 0]
    assert breaker.state == "half_open"


def test_no_random_number_is_drawn_without_reopening() -> None:
    chance, clock = Draws(0.5), Virtual()
    breaker = CircuitBreaker(failures=1, cooldown=1, random=chance, clock=clock)
    for end in (Boom(), None, Boom()):
        breaker.ended(breaker.admit(clock.now()), end, clock.now())
        clock.time += 1
    assert chance.drawn == 0


def test_the_state_is_the_one_that_the_next_call_finds() -> None:
    """Also at the end of the last stage."""
    for last, state in (("good", "closed"), ("bad", "open")):
        script = BreakerScript(LOW, failures=2, cooldown=10, reopening=(0.5,))
        script.run(f"bad bad +10 good {last}:half_open +10:{state}")
        assert script.breaker.snapshot()["state"] == state
        script.run("a>:closed" if state == "closed" else "a>:no")
