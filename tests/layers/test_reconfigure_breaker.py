"""A circuit breaker with other settings: its state, the start of the state and the counts stay."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from redouble import CircuitBreaker, errors
from tests.support.fakes import Boom, options
from tests.support.layers.breaker_scripts import BreakerScript, at_every_line


def longer(reopened: int) -> float:
    return 22 * reopened


def seven(reopened: int) -> float:
    return 7


@pytest.mark.parametrize(
    ("before", "script", "after", "then"),
    [
        # Open: for the new cooldown, counted from when it opened.
        (
            options(failures=1, cooldown=10),
            "bad:open +4",
            options(cooldown=30),
            "+25:open good:no +1:half_open good:closed",
        ),
        (options(failures=1, cooldown=10), "bad:open +4", options(cooldown=5), "good:no +1:half_open"),
        (options(failures=1, cooldown=10), "bad:open +4", options(cooldown=3), "+0:half_open good:closed"),
        (options(failures=1, cooldown=10), "bad:open +11:half_open", options(cooldown=20), "+0:open good:no"),
        # Closed: failures in a row stay, and the next one counts by the new settings.
        (options(failures=9), "bad bad bad:closed", options(failures=3), "+0:closed bad:open"),
        (options(failures=9), "bad bad bad:closed", options(failures=3), "good bad bad:closed bad:open"),
        (options(failures=3), "bad bad:closed", options(failures=5), "bad bad:closed bad:open"),
        # By ratio: the counts of the window stay.
        (
            options(ratio=0.5, minimum=8, window=60),
            "good good good bad bad bad:closed",
            options(ratio=0.5, minimum=6, window=120),
            "bad:open",
        ),
        (
            options(ratio=0.5, minimum=4, window=60),
            "bad bad bad +30",
            options(ratio=0.5, minimum=4, window=10),
            "bad:closed bad bad:closed bad:open",
        ),
        (
            options(ratio=0.5, minimum=4, window=10),
            "bad +9 bad bad",
            options(ratio=0.5, minimum=3, window=100),
            "+80:closed good:open",
        ),
        # A change from one way of counting to the other resets the counts.
        (
            options(failures=9),
            "bad bad bad",
            options(ratio=0.5, minimum=3, window=10),
            "bad bad:closed bad:open",
        ),
        (
            options(ratio=1, minimum=9, window=10),
            "bad bad bad",
            options(failures=3),
            "bad bad:closed good bad bad:closed bad:open",
        ),
        # Half open: successful probes count.
        (
            options(failures=1, cooldown=1, probes=4),
            "bad +1 good good:half_open",
            options(cooldown=1, probes=2),
            "+0:closed good:closed",
        ),
        (
            options(failures=1, cooldown=1, probes=3),
            "bad +1 good good:half_open",
            options(cooldown=1, probes=4),
            "good:half_open good:closed",
        ),
        (
            options(failures=1, cooldown=1, probes=4),
            "bad +1 good good:half_open",
            options(cooldown=1, probes=1, reopening=(0.5,)),
            "+0:half_open +1 good:closed",
        ),
        (
            options(failures=1, cooldown=1, probes=2),
            "bad +1 a> good:half_open",
            options(cooldown=1, probes=3, failures=1),
            "a=good:half_open good:closed",
        ),
        # Reopening: the stage stays if there still is one.
        (
            options(failures=1, cooldown=1, reopening=(0.2, 0.5, 0.9)),
            "bad +1 good +1 good +1 good:half_open",
            options(cooldown=1, reopening=(0.3,)),
            "+1 good:closed",
        ),
        (
            options(failures=1, cooldown=1, reopening=(0.2, 0.5)),
            "bad +1 good:half_open",
            options(cooldown=1),
            "+0:closed good:closed",
        ),
        (
            options(failures=1, cooldown=1, reopening=(0.5,)),
            "bad +1 good good:half_open",
            options(cooldown=10, reopening=(0.5,)),
            "+8:half_open +2:closed",
        ),
        # From time to calls and back: the counts restart. Another number of calls: the latest stay.
        (
            options(ratio=0.5, minimum=2, window=60),
            "bad:closed",
            options(ratio=0.5, minimum=2, calls=9),
            "bad:closed bad:open",
        ),
        (
            options(ratio=0.5, minimum=2, calls=9),
            "bad:closed",
            options(ratio=0.5, minimum=2, window=60),
            "bad:closed bad:open",
        ),
        (
            options(ratio=0.5, minimum=4, calls=9),
            "bad bad good:closed",
            options(ratio=0.5, minimum=4, calls=4),
            "good:open",
        ),
        (
            options(ratio=0.9, calls=4),
            "bad bad good:closed",
            options(ratio=0.9, calls=2),
            "bad:closed bad:open",
        ),
        # Slow calls become a share of their own, and failures again.
        (
            options(failures=9, slow=2),
            "a> b> +2 good a=good b=good:closed",
            options(failures=9, slow=2, slow_ratio=0.5, calls=2),
            "a> +2 a=good:closed good:open",
        ),
        (
            options(failures=2, slow=2, slow_ratio=0.5, calls=3),
            "a> +2 a=good:closed",
            options(failures=2, slow=2, slow_ratio=0.5, calls=2),
            "good:open",
        ),
        (
            options(failures=2, slow=2, slow_ratio=1),
            "a> +2 a=good:closed b>",
            options(failures=2, slow=2),
            "+2 b=good:closed bad:open",
        ),
        # Half open: a share of the probes, or all.
        (
            options(failures=1, cooldown=1, probes=4, probe_ratio=0.5),
            "bad +1 bad good:half_open",
            options(cooldown=1, probes=2),
            "+0:open",
        ),
        (
            options(failures=1, cooldown=1, probes=4),
            "bad +1 good good:half_open",
            options(cooldown=1, probes=4, probe_ratio=0.75),
            "+0:closed",
        ),
        # The cooldown: a number, a backoff, a function, by how often it has reopened.
        (
            options(failures=1, cooldown=10),
            "bad +10 bad +4:open",
            options(cooldown=[5, 30]),
            "+25:open +1:half_open bad +30:half_open good:closed",
        ),
        (
            options(failures=1, cooldown=[5, 30, 40]),
            "bad +5 bad +20:open",
            options(cooldown=longer),
            "+1:open +1:half_open bad:open +43:open +1:half_open",
        ),
        (
            options(failures=1, cooldown=seven),
            "bad +3",
            options(cooldown=4),
            "+0:open +1:half_open bad +4:half_open",
        ),
        (options(failures=1, cooldown=[5]), "good", options(failures=1, cooldown=[3]), "bad +3:half_open"),
        # Another state in the options is a change of state; the same one is none.
        (
            options(state="metrics_only", failures=1),
            "bad:metrics_only",
            options(failures=1),
            "+0:closed bad:open",
        ),
        (options(failures=1), "bad:open", options(state="disabled"), "+0:disabled bad:disabled"),
        (options(failures=1), "disable", options(failures=2), "+0:disabled close bad bad:open"),
        # Isolated: it stays isolated.
        (options(), "isolate:isolated", options(failures=1), "good:no close:closed bad:open"),
    ],
)
def test_the_state_and_the_counts_stay(
    before: dict[str, Any], script: str, after: dict[str, Any], then: str
) -> None:
    breaker_script = BreakerScript(**before)
    breaker_script.run(script)
    breaker_script.breaker.reconfigure(CircuitBreaker(**after))
    breaker_script.run(then)


def test_the_observer_and_the_clock_stay() -> None:
    script = BreakerScript(failures=1, cooldown=10, name="db")
    script.run("bad:open +4")
    others: list[object] = []
    script.breaker.reconfigure(CircuitBreaker(cooldown=20, name="other", on_change=others.append))
    script.run("+15:open +1:half_open good:closed")
    assert [event.what for event in script.events] == [
        "circuit_opened",
        "circuit_half_open",
        "circuit_closed",
    ]
    assert {event.name for event in script.events} == {"db"}
    assert not others


def test_a_breaker_that_closes_by_its_new_settings_emits_it() -> None:
    script = BreakerScript(failures=1, cooldown=1, probes=4)
    script.run("bad +1 good good:half_open")
    script.breaker.reconfigure(CircuitBreaker(cooldown=1))
    assert script.events[-1].what == "circuit_closed"


def test_the_errors_that_count_can_change() -> None:
    breaker = CircuitBreaker(OSError, failures=1)

    @breaker
    def fail() -> None:
        raise Boom

    with pytest.raises(Boom):
        fail()
    breaker.reconfigure(CircuitBreaker(Boom, failures=1))
    with pytest.raises(Boom):
        fail()
    with pytest.raises(errors.CircuitOpen):
        fail()
    assert breaker.traits().handles is Boom


def test_functions_decorated_before_use_the_new_limit_of_slow_calls() -> None:
    script = BreakerScript(failures=1)
    breaker, clock = script.breaker, script.clock

    @breaker
    def work(seconds: float) -> None:
        clock.time += seconds

    work(5)
    breaker.reconfigure(CircuitBreaker(failures=1, slow=3))
    assert breaker._fast_epoch is None, "every call is tracked"
    work(2)
    work(3)
    with pytest.raises(errors.CircuitOpen):
        work(0)
    breaker.close()
    breaker.reconfigure(CircuitBreaker(failures=1))
    work(5)
    work(5)
    assert breaker._fast_epoch is not None, "calls take the fast path"


def test_calls_in_flight_while_slow_is_set_or_removed_are_not_slow() -> None:
    script = BreakerScript(failures=1)
    script.run("a>")
    script.breaker.reconfigure(CircuitBreaker(failures=1, slow=3))
    script.run("+9 a=good:closed b>")
    script.breaker.reconfigure(CircuitBreaker(failures=1))
    script.run("+9 b=good:closed")


def opened() -> BreakerScript:
    script = BreakerScript(failures=1, cooldown=10)
    script.run("bad:open +10")
    return script


def reconfigured(script: BreakerScript) -> None:
    script.breaker.reconfigure(CircuitBreaker(failures=2, cooldown=12, probes=2))


def called(script: BreakerScript) -> None:
    with suppress(errors.CircuitOpen):
        script.run("good")


@pytest.mark.parametrize(
    ("operation", "interruption"),
    [(reconfigured, called), (called, reconfigured), (reconfigured, reconfigured)],
)
def test_an_operation_may_interrupt_another_at_any_point(
    operation: Callable[[BreakerScript], object], interruption: Callable[[BreakerScript], object]
) -> None:
    """As a signal handler does: the new settings apply in the end, and the circuit works."""
    for script in at_every_line(opened, operation, interruption):
        settings = script.breaker.settings
        assert script.breaker._circuit._settings is settings
        assert (settings.failures, settings.cooldown, settings.probes) == (2, 12, 2)
        assert settings.clock is script.breaker.clock
        script.run("+12 good good:closed bad:closed bad:open")


def test_a_change_that_interrupts_an_operation_is_applied_after_it() -> None:
    """As a signal handler does: the operation that is running uses the old settings."""
    script = BreakerScript(failures=1, cooldown=10)
    breaker = script.breaker

    def interrupted() -> None:
        breaker.reconfigure(CircuitBreaker(cooldown=50))
        assert breaker.settings.cooldown == 10
        breaker._circuit.change_state(0, "open")

    breaker._change(interrupted)
    assert breaker.settings.cooldown == 50
    script.run("+49:open +1:half_open")


def test_retry_after_follows_the_new_cooldown() -> None:
    script = BreakerScript(failures=1, cooldown=10)
    script.run("bad:open +4")
    script.breaker.reconfigure(CircuitBreaker(cooldown=20))
    with pytest.raises(errors.CircuitOpen) as raised:
        script.breaker.admit(script.clock.now())
    assert raised.value.retry_after == 16
