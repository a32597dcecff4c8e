"""A circuit breaker emits its state changes in order and outside its lock, and logs rejections once."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import pytest

import redouble
from redouble import CircuitBreaker, errors
from redouble.testing import recorded
from redouble.types import Event
from tests.support.fakes import Boom, Panic, Virtual
from tests.support.layers.breaker_scripts import BreakerScript

PATIENCE = 30.0  # seconds, after which a thread that waits here is taken for stuck


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ("good bad good bad", ""),
        ("bad bad", "opened"),
        ("a> b> c> d> a=bad b=bad c=bad d=bad", "opened"),
        ("bad bad good good good", "opened rejected"),
        ("bad bad +30", "opened"),  # no call was made
        ("bad bad +30 a> good good", "opened half_open rejected"),
        ("bad bad +30 good", "opened half_open closed"),
        ("bad bad good +30 bad good +30 good", "opened rejected half_open opened half_open closed"),
        ("bad bad good +30 good bad bad good", "opened rejected half_open closed opened rejected"),
        ("isolate isolate good good close close", "isolated rejected closed"),
        ("close", ""),
        ("bad bad isolate close", "opened isolated closed"),
        ("bad bad +30 a> isolate a=good close", "opened half_open isolated closed"),
    ],
)
def test_emitted_events(steps: str, expected: str) -> None:
    script = BreakerScript(failures=2)
    with recorded() as events:
        script.run(steps)
    assert script.emitted == expected
    assert [event for event in events if event.what != "rejected"] == script.events


def test_the_fields_of_the_events() -> None:
    """How long the previous state lasted, the ``retry_after``, and how many calls were rejected."""
    script = BreakerScript(failures=1, cooldown=10, name="pay", start=100)
    script.run("+5 bad +1 good good good +9 a> +2 good a=bad +10 good +7 isolate +3 good close")
    assert {event.name for event in script.events} == {"pay"}
    assert [(event.what, event.elapsed, event.hint, event.rejected) for event in script.events] == [
        ("circuit_opened", 5, 10, 0),
        ("circuit_rejected", 1, 9, 1),
        ("circuit_half_open", 10, None, 3),
        ("circuit_opened", 2, 10, 4),
        ("circuit_half_open", 10, None, 4),
        ("circuit_closed", 0, None, 4),
        ("circuit_isolated", 7, None, 0),
        ("circuit_rejected", 3, None, 1),
        ("circuit_closed", 3, None, 1),
    ]


def test_reopening_is_one_long_half_open_state() -> None:
    script = BreakerScript(0.0, failures=1, cooldown=10, reopening=(0.1, 0.5))
    script.run("bad +10 good good +10 good +10 good")
    assert script.emitted == "opened half_open closed"
    assert script.events[-1].elapsed == 20


def test_a_clock_that_goes_back_makes_no_time_negative() -> None:
    script = BreakerScript(failures=1, start=100)
    script.run("-50 bad -20 good isolate -10 close")
    assert [event.elapsed for event in script.events] == [0, 0, 0, 0]


# ---------------------------------------------------------------------------- observers


def test_an_observer_may_use_the_breaker() -> None:
    """A change that the observer causes is emitted after the one it received, to all observers."""
    first, second = list[str](), list[str]()

    def closing(event: Event) -> None:
        first.append(event.what)
        if event.what == "circuit_opened":
            assert breaker.state == "open"
            breaker.isolate()
            assert breaker.snapshot()["state"] == "isolated"
            with pytest.raises(errors.CircuitOpen):
                breaker.call(int)
            breaker.close()
            assert breaker.call(int) == 0

    breaker = CircuitBreaker(failures=1, on_change=closing)
    with redouble.observe(lambda event: second.append(event.what)):
        with pytest.raises(Boom), breaker:
            raise Boom
        assert breaker.state == "closed"
    assert first == ["circuit_opened", "circuit_isolated", "circuit_rejected", "circuit_closed"]
    assert second == ["rejected", *first]  # a call's event is emitted at once, a state change in queue order


def test_an_observer_may_change_the_state_at_every_event() -> None:
    received: list[str] = []

    def toggling(event: Event) -> None:
        received.append(event.what)
        if len(received) < 100:
            (breaker.close if breaker.state == "isolated" else breaker.isolate)()

    breaker = CircuitBreaker(on_change=toggling)
    breaker.isolate()
    assert received == ["circuit_isolated", "circuit_closed"] * 50


def test_an_observer_that_fails_is_logged_and_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    received: list[str] = []

    def failing(event: Event) -> None:
        received.append(event.what)
        raise ZeroDivisionError

    breaker = CircuitBreaker(failures=1, on_change=failing)
    with pytest.raises(Boom), breaker:
        raise Boom
    breaker.close()
    assert received == ["circuit_opened", "circuit_closed"]
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]
    assert "failing failed on circuit_opened; it stays registered" in caplog.messages[0]


def test_a_crashing_observer_loses_no_probe() -> None:
    clock = Virtual()

    def crashing(event: Event) -> None:
        if event.what == "circuit_half_open":
            raise Panic

    breaker = CircuitBreaker(failures=1, clock=clock, on_change=crashing)
    with pytest.raises(Boom), breaker:
        raise Boom
    clock.time = 30
    with pytest.raises(Panic):
        breaker.call(int)
    clock.time = 60
    breaker.call(int)
    assert breaker.state == "closed"


def test_an_observer_may_wait_for_a_call_of_another_thread() -> None:
    """The observer is called without the lock, so another thread can call, reject, isolate and close."""
    done: list[str] = []

    def elsewhere() -> None:
        with pytest.raises(errors.CircuitOpen):
            breaker.call(int)
        breaker.isolate()
        breaker.close()
        done.append(f"{breaker.call(int)} {breaker.state} {breaker.snapshot()['state']}")

    def waiting(event: Event) -> None:
        received.append(event.what)
        if event.what == "circuit_opened":
            thread = threading.Thread(target=elsewhere)
            thread.start()
            thread.join(PATIENCE)
            assert done == ["0 closed closed"]

    received: list[str] = []
    breaker = CircuitBreaker(failures=1, on_change=waiting)
    with pytest.raises(Boom), breaker:
        raise Boom
    assert done
    assert received == ["circuit_opened", "circuit_rejected", "circuit_isolated", "circuit_closed"]


def test_a_forked_child_keeps_the_state() -> None:
    """The child keeps the state; pending changes are emitted by the parent only."""
    received: list[str] = []

    def crashing(event: Event) -> None:
        received.append(event.what)
        if len(received) == 1:
            breaker.close()
            raise Panic

    breaker = CircuitBreaker(on_change=crashing)
    with pytest.raises(Panic):
        breaker.isolate()
    breaker._after_fork()
    assert breaker.state == "closed"
    breaker.isolate()
    assert received == ["circuit_isolated", "circuit_isolated"]


# --------------------------------------------------------------------------------- logs


def logged(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname, record.getMessage()) for record in caplog.records]


def test_rejections_are_logged_once_and_then_counted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "redouble")
    script = BreakerScript(failures=1, name="pay")
    script.run("bad +5" + " good" * 100 + " +25 a> good good a=bad good +30 good")
    once = "pay is open after ScriptedError, for another 25 s; further rejections are counted, and not logged"
    assert logged(caplog) == [("WARNING", once), ("INFO", "pay is closed again, after 103 rejected calls")]


def test_each_outage_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "redouble")
    script = BreakerScript(failures=1)
    script.run("bad good +30 good bad good +30 good")
    assert [level for level, _ in logged(caplog)] == ["WARNING", "INFO"] * 2


@pytest.mark.parametrize("steps", ["bad +30 good", "isolate close", "bad bad +1", "good good"])
def test_an_outage_without_rejections_is_not_logged(caplog: pytest.LogCaptureFixture, steps: str) -> None:
    caplog.set_level(logging.DEBUG, "redouble")
    BreakerScript(failures=2 if "bad bad" in steps else 1).run(steps)
    assert logged(caplog) == []


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ("isolate good", "the circuit breaker is isolated, until close() is called; further rejections"),
        (
            "bad +30 a> good",
            "the circuit breaker is half open, and probes are testing whether the service is back",
        ),
    ],
)
def test_the_reason_of_a_rejection_is_logged(
    caplog: pytest.LogCaptureFixture, steps: str, message: str
) -> None:
    BreakerScript(failures=1).run(steps)
    [(level, text)] = logged(caplog)
    assert level == "WARNING"
    assert text.startswith(message)


def test_a_log_handler_may_use_the_breaker() -> None:
    breaker = CircuitBreaker()
    logger, seen = logging.getLogger("redouble"), list[str]()

    class UsingBreaker(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(f"{record.levelname} {breaker.snapshot()['state']}")
            self.then()

        then: Callable[[], None] = staticmethod(breaker.close)

    handler = UsingBreaker()
    logger.addHandler(handler)
    try:
        breaker.isolate()
        with pytest.raises(errors.CircuitOpen, match="isolated"):
            breaker.call(int)
    finally:
        logger.removeHandler(handler)
    assert seen == ["WARNING isolated"]
    assert breaker.state == "closed"
