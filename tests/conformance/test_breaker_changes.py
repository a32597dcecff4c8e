"""Circuit breakers: events and error attributes, cancelled calls, and reopening by stages."""

from __future__ import annotations

import pickle
import traceback
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest

from redouble import SYSTEM, CircuitBreaker, errors, observe
from tests.conformance.circuits import Service, Status, in_every_colour, run
from tests.conformance.flows import ASYNC, EVERY, in_colour
from tests.support.scripted import Virtual, cancelled_in

HOUR = 3600.0


def failing() -> None:
    raise Status(500)


def rejection(breaker: CircuitBreaker) -> errors.CircuitOpen:
    with pytest.raises(errors.CircuitOpen) as caught:
        breaker.call(failing)
    return caught.value


# -------------------------------------------------------------------------- error attributes


def test_cb_polly_transitions_tracebacks_of_rejections_do_not_grow() -> None:
    """cb.polly_transitions: the hundredth has as many frames as the first."""
    breaker = Service().breaker(failures=1)
    with pytest.raises(Status):
        breaker.call(failing)
    frames = [len(traceback.extract_tb(rejection(breaker).__traceback__)) for _ in range(100)]
    assert set(frames) == {frames[0]}


def test_cb_polly_transitions_attributes_of_a_rejection_deviate() -> None:
    """cb.polly_transitions: it has retry_after and the type of the last failure, but not the error itself."""
    service = Service()
    breaker = service.breaker(failures=1, name="search")
    with pytest.raises(Status):
        breaker.call(failing)
    service.clock.time += 10
    error = rejection(breaker)
    assert error.retry_after == 20
    assert str(error) == "search is open after Status, for another 20 s"
    assert (error.__cause__, error.__context__) == (None, None)
    breaker.isolate()
    assert rejection(breaker).retry_after is None


def test_cb_cockatiel_serialization_deviates() -> None:
    """cb.cockatiel.serialization: cockatiel can store and restore a state; here it belongs to its process."""
    with pytest.raises(TypeError, match="a CircuitBreaker is shared by the calls of one process"):
        pickle.dumps(CircuitBreaker())


# ----------------------------------------------------------------------------- cancelled calls


@in_every_colour
@pytest.mark.parametrize(
    ("counts", "decision", "unhealthy"),
    [
        pytest.param((5, 1, 10), "1/6", False, id="cb.abandoned_policy.ignore"),
        pytest.param((0, 0, 10), "0/0", False, id="cb.abandoned_policy.ignore-all"),
        pytest.param((1, 0, 10), "0/1", False, id="cb.abandoned_policy.rate-1"),
        pytest.param((0, 2, 10), "2/2", False, id="cb.abandoned_policy.rate-1-failures"),
        pytest.param((10, 0, 100), "0/10", False, id="cb.abandoned_policy.rate-1-healthy"),
        pytest.param((0, 2, 3), "2/2", False, id="cb.abandoned_policy.rate-1-too-few"),
        pytest.param((1, 9, 100), None, True, id="cb.abandoned_policy.rate-1-unhealthy"),
        pytest.param((0, 0, 100), "0/0", False, id="cb.abandoned_policy.ignore-healthy"),
        # seatbelt counts them as failures above a share: 10/10, 8/10 and 7/10.
        pytest.param((0, 0, 10), "0/0", False, id="cb.abandoned_policy.rate-1-all-deviates"),
        pytest.param((2, 1, 7), "1/3", False, id="cb.abandoned_policy.rate-0.5-deviates"),
        pytest.param((3, 2, 5), "2/5", False, id="cb.abandoned_policy.rate-0.5-second-deviates"),
    ],
)
def test_cancelled_calls_count_as_nothing(
    colour: str, counts: tuple[int, int, int], decision: str | None, unhealthy: bool
) -> None:
    """Successes, failures and cancelled calls, and the counts that decide."""
    good, bad, cancelled = counts
    script = "cancelled " * cancelled + "S " * good + "F " * (4 if unhealthy else bad)
    script += f"closed failed:{decision}" if decision else "open"
    run(colour, script, ratio=0.5, minimum=5 if decision != "2/5" else 6)


@pytest.mark.parametrize("colour", ASYNC)
def test_retry_cancellation_of_a_probe(colour: str) -> None:
    """retry.cancellation.probe: its slot is free at once, and the next call is the probe."""
    service = Service()
    breaker = service.breaker(failures=1)

    @breaker
    async def for_ever() -> None:
        await SYSTEM.asleep(HOUR)

    @breaker
    async def healthy() -> str:
        return "ok"

    async def waiting() -> str:
        await cancelled_in(colour, for_ever)
        assert breaker.state == "half_open"
        return await healthy()

    with pytest.raises(Status):
        breaker.call(failing)
    service.clock.time += 30
    assert in_colour(colour, lambda: None, waiting) == "ok"
    assert breaker.state == "closed"


# ----------------------------------------------------------------------------- many loops


@pytest.mark.parametrize("first", EVERY)
@pytest.mark.parametrize("second", EVERY)
def test_hw_bh_07_a_breaker_serves_many_event_loops_deviates(first: str, second: str) -> None:
    """HW-BH-07: httpware refuses a second event loop; here all loops share the state."""
    breaker = Service().breaker(failures=1)

    async def afailing() -> None:
        failing()

    for colour, error in ((first, Status), (second, errors.CircuitOpen)):
        with pytest.raises(error):
            in_colour(colour, lambda: breaker.call(failing), lambda: breaker.call(afailing))


# ----------------------------------------------------------------------------- reopening by stages

STAGES = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5)


@in_every_colour
@pytest.mark.parametrize(
    ("script", "draw", "terms"),
    [
        pytest.param("F later:9 S half_open " + "S later:9 " * 6 + "S closed", 0.0, {}, id="stages"),
        pytest.param("F later:9 S " + "S later:8.9 " * 6 + "half_open", 0.0, {}, id="too-soon"),
        pytest.param(
            "F later:0 S " + "S later:0.9 " * 6 + "half_open", 0.0, {"cooldown": 0}, id="at-least-1-s"
        ),
        pytest.param("F later:9 S S F open", 0.0, {}, id="failure"),
        pytest.param(
            "F F later:9 S S F half_open later:9 rejected:9", 0.0, {"failures": 2}, id="failure-in-the-end"
        ),
        pytest.param("F later:9 S rejected later:8 rejected later:1.1 S", 0.999, {}, id="no-call-drawn"),
        pytest.param("F later:9 S rejected", 0.001, {}, id="exactly-the-share"),
        pytest.param("F later:9 S S", 0.0009, {}, id="below-the-share"),
    ],
)
def test_cb_seatbelt_progressive_recovery(colour: str, script: str, draw: float, terms: Any) -> None:
    """cb.seatbelt_progressive_recovery: a probe, then growing shares, each for the cooldown, at least 1 s."""
    given = {"failures": 1, "cooldown": 9, "reopening": STAGES, "random": (draw,)}
    run(colour, script, **(given | terms))


# -------------------------------------------------------------------------------- events


def test_cb_ordering_of_transition_events_are_emitted_in_order() -> None:
    """cb.ordering_of_transition_events: changes by several threads too, one at a time."""
    current: list[str] = []
    overlapping: list[str] = []
    emitted: list[str] = []

    def listen(event: Any) -> None:
        current.append(event.what)
        if len(current) > 1:
            overlapping.append(event.what)
        emitted.append(event.what)
        current.pop()

    breaker = CircuitBreaker(on_change=listen)

    def change(number: int) -> None:
        for _ in range(100):
            (breaker.isolate if number % 2 else breaker.close)()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(change, range(4)))
    breaker.close()
    assert overlapping == []
    assert emitted == ["circuit_isolated", "circuit_closed"] * (len(emitted) // 2)


@in_every_colour
def test_cb_ordering_of_transition_events_with_a_failing_observer(colour: str) -> None:
    """cb.ordering_of_transition_events: other observers receive all events, and the probe is released."""
    emitted: list[str] = []

    def fails(event: Any) -> None:
        raise RuntimeError("this observer fails")

    with observe(lambda event: emitted.append(event.what)):
        run(colour, "F later:30 S closed S", failures=1, on_change=fails)
    assert emitted == ["circuit_opened", "circuit_half_open", "circuit_closed"]


@in_every_colour
def test_cb_ordering_of_transition_events_a_change_by_an_observer(colour: str) -> None:
    """cb.ordering_of_transition_events: its event is emitted after the current one."""
    emitted: list[str] = []
    made: list[CircuitBreaker] = []

    def reopens(event: Any) -> None:
        if event.what == "circuit_opened":
            made[0].close()
        emitted.append(event.what)

    clock = Virtual()
    made.append(CircuitBreaker(failures=1, on_change=reopens, clock=clock))

    async def afailing() -> None:
        failing()

    with pytest.raises(Status):
        in_colour(colour, lambda: made[0].call(failing), lambda: made[0].call(afailing))
    assert emitted == ["circuit_opened", "circuit_closed"]
    assert made[0].state == "closed"


def test_cb_ordering_of_transition_events_concurrent_failures() -> None:
    """cb.ordering_of_transition_events: they open the breaker once."""
    service, together = Service(), Barrier(8)
    breaker = service.breaker(failures=5)

    @breaker
    def fail_together(_: int) -> None:
        together.wait()
        failing()

    def quietly(number: int) -> None:
        with pytest.raises(Status):
            fail_together(number)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(quietly, range(8)))
    assert [event.what for event in service.events] == ["circuit_opened"]
