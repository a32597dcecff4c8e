"""The states of a breaker that a person chooses: isolated, disabled, metrics only; and closing by hand."""

from __future__ import annotations

import logging
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest

from redouble import CircuitBreaker, errors
from tests.support.fakes import Boom, Virtual
from tests.support.layers.breaker_scripts import (
    SHAPES,
    BreakerScript,
    Service,
    after_script,
    at_every_line,
    outcome_of,
)
from tests.support.thread_switching import run_in_threads, switching

MANUAL = ("isolated", "disabled", "metrics_only", "closed")


@pytest.mark.parametrize(
    ("options", "steps", "events"),
    [
        # disabled: admits all, records nothing
        ({"failures": 1}, "disable:disabled bad bad good:disabled +1000 bad:disabled", "disabled"),
        (
            {"failures": 1},
            "bad:open disable:disabled good:disabled close:closed bad:open",
            "opened disabled closed opened",
        ),
        ({"failures": 2}, "bad disable bad bad close:closed bad:closed bad:open", "disabled closed opened"),
        (
            {"ratio": 0.5, "calls": 2, "slow": 2},
            "disable a> b> +2 a=bad b=bad:disabled bad:disabled",
            "disabled",
        ),
        (
            {"failures": 1},
            "isolate:isolated good:no disable good:disabled isolate good:no",
            "isolated rejected disabled isolated rejected",
        ),
        (
            {"failures": 1},
            "a> disable a=bad:disabled close:closed b> disable close b=bad:closed",
            "disabled closed disabled closed",
        ),
        (
            {"failures": 1},
            "disable disable:disabled metrics_only metrics_only:metrics_only",
            "disabled metrics_only",
        ),
        # metrics_only: admits all, records, and says when it would have opened
        ({"failures": 2}, "metrics_only bad bad:metrics_only good:metrics_only", "metrics_only exceeded"),
        (
            {"failures": 1, "cooldown": 10},
            "metrics_only bad +9.9 bad +0.1 bad",
            "metrics_only exceeded exceeded",
        ),
        ({"failures": 1, "cooldown": 0}, "metrics_only bad bad", "metrics_only exceeded exceeded"),
        ({"failures": 1, "cooldown": 10}, "metrics_only bad -500 bad", "metrics_only exceeded exceeded"),
        (
            {"failures": 2, "cooldown": 1},
            "metrics_only bad bad +1 good bad +1 bad",
            "metrics_only exceeded exceeded",
        ),
        (
            {"ratio": 0.5, "calls": 2},
            "metrics_only bad good:metrics_only good good:metrics_only",
            "metrics_only exceeded",
        ),
        (
            {"failures": 1, "slow": 2},
            "metrics_only a> +2 b>:metrics_only a=good b=good",
            "metrics_only exceeded",
        ),
        (
            {"failures": 9, "slow": 2, "slow_ratio": 1, "calls": 2},
            "metrics_only a> b> +2 a=good",
            "metrics_only exceeded",
        ),
        (
            {"failures": 1},
            "metrics_only bad isolate bad:no close bad:open",
            "metrics_only exceeded isolated rejected closed opened",
        ),
        ({"failures": 1}, "bad +30 a> metrics_only a=bad:metrics_only", "opened half_open metrics_only"),
    ],
)
def test_the_states_after_each_step(options: dict[str, Any], steps: str, events: str) -> None:
    script = BreakerScript(**options)
    script.run(steps)
    assert script.emitted == events


@pytest.mark.parametrize("state", MANUAL)
def test_the_first_state_is_an_option(state: Any) -> None:
    script = BreakerScript(state=state, failures=2)
    assert script.breaker.state == state
    assert script.events == []
    script.run("a> a=bad:closed bad:open" if state == "closed" else f"+0:{state}")


@pytest.mark.parametrize("state", ["open", "half_open", "off", None, 3])
def test_other_states_are_no_option(state: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"^CircuitBreaker state="):
        CircuitBreaker(state=state)


def test_the_snapshot_of_metrics_only() -> None:
    script = BreakerScript(ratio=0.5, calls=4, cooldown=10, name="pay", start=5)
    script.run("metrics_only bad bad good good +20 bad")
    snapshot = script.breaker.snapshot()
    assert (snapshot["state"], snapshot["state_number"]) == ("metrics_only", 5)
    assert (snapshot["failures"], snapshot["calls"], snapshot["exceeded"]) == (2, 4, 2)
    assert (snapshot["retry_after"], snapshot["rejected"]) == (None, 0)
    assert [(event.what, event.elapsed, event.hint, event.rejected) for event in script.events] == [
        ("circuit_metrics_only", 0, None, 0),
        ("circuit_exceeded", 0, 10, 0),
        ("circuit_exceeded", 20, 10, 0),
    ]


@pytest.mark.parametrize(
    ("state", "number"),
    [("isolate", 4), ("disable", 3), ("metrics_only", 5), ("close", 0), ("bad", 1), ("bad +30", 2)],
)
def test_the_state_as_a_number(state: str, number: int) -> None:
    script = BreakerScript(failures=1)
    script.run(state)
    assert script.breaker.snapshot()["state_number"] == number


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("state", ["disabled", "metrics_only"])
@pytest.mark.parametrize(
    "options", [{}, {"ratio": 1, "minimum": 1}, {"slow": 9}, {"slow": 9, "slow_ratio": 1}]
)
def test_all_calls_pass(colour: str, shape: str, state: Any, options: dict[str, Any]) -> None:
    service, boom = Service(), Boom()
    breaker = CircuitBreaker(failures=1, state=state, clock=Virtual(), **options)
    for down in (boom, boom, None, boom):
        service.down = down
        assert outcome_of(colour, shape, breaker, service) == (down or 6)
    recorded = (breaker.snapshot()["failures"], breaker.snapshot()["exceeded"])
    assert recorded == ((0, 0) if state == "disabled" else (3 if options.get("ratio") else 1, 1))


def test_no_rule_is_called_while_it_is_disabled() -> None:
    def rule(error: Exception) -> bool:
        raise AssertionError

    breaker = CircuitBreaker(on=rule, state="disabled")
    with pytest.raises(Boom), breaker:
        raise Boom


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ("bad good good disable", "pay is disabled, after 2 rejected calls"),
        ("bad good metrics_only", "pay is only measuring now, after 1 rejected calls"),
        ("bad good close", "pay is closed again, after 1 rejected calls"),
    ],
)
def test_the_number_of_rejected_calls_is_logged(
    caplog: pytest.LogCaptureFixture, steps: str, message: str
) -> None:
    caplog.set_level(logging.INFO, "redouble")
    script = BreakerScript(failures=1, name="pay")
    script.run(steps)
    assert caplog.messages[-1] == message
    assert script.breaker.snapshot()["rejected"] == 0


@pytest.mark.parametrize(
    ("options", "before", "call"),
    [
        ({"failures": 1}, "good", "bad"),
        ({"failures": 1, "cooldown": [5, 9]}, "bad +5", "bad"),
        ({"failures": 1, "probes": 3, "probe_ratio": 0.5}, "bad +30 good", "good"),
        ({"ratio": 0.5, "calls": 2, "slow": 5, "slow_ratio": 0.5}, "a> bad +5", "good"),
        ({"failures": 1, "state": "metrics_only"}, "good", "bad"),
    ],
)
@pytest.mark.parametrize("chosen", ["disable", "metrics_only", "isolate"])
def test_a_choice_by_a_signal_handler_holds(
    options: dict[str, Any], before: str, call: str, chosen: str
) -> None:
    """Wherever it interrupts a call."""
    state = {"disable": "disabled", "isolate": "isolated"}.get(chosen, chosen)
    for seen in at_every_line(
        after_script(before, **options), lambda made: made.run(call), lambda made: made.run(chosen)
    ):
        assert seen.breaker.state == state
        changes = [word for word in seen.emitted.split() if word not in ("rejected", "exceeded")]
        assert all(one != other for one, other in pairwise(changes))
        seen.run("close:closed")
        assert not seen.breaker._circuit.epoch.probes


@pytest.mark.one_python
@pytest.mark.usefixtures(switching.__name__)
def test_threads_that_choose_states_while_others_call() -> None:
    breaker = CircuitBreaker(failures=2, cooldown=0, probes=2, probe_ratio=1, slow=9, slow_ratio=1)

    def by_hand(owner: str) -> None:
        for _ in range(40):
            for method in (breaker.disable, breaker.metrics_only, breaker.isolate, breaker.close):
                method()

    def calling(owner: str) -> None:
        for number in range(150):
            make_call(breaker, number % 3 == 0)

    run_in_threads(by_hand, calling, threads=6)
    breaker.close()
    assert breaker.call(int) == 0
    epoch = breaker._circuit.epoch
    assert (epoch.state, len(epoch.calls), len(epoch.probes)) == ("closed", 0, 0)


def make_call(breaker: CircuitBreaker, fails: bool) -> None:
    """Make a call, and ignore its result."""
    with suppress(ValueError, errors.CircuitOpen):
        breaker.call(int, "x" if fails else "1")
