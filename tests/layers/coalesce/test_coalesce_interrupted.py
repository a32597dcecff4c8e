"""Ctrl-C at any point of a call through `Coalesce`: no key stays in flight, and no waiter is lost."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from redouble import Coalesce
from redouble._layers.results import coalesce as _coalesce
from redouble._layers.results import flight as _flight
from tests.support.bulkhead_callers import until
from tests.support.fakes import Boom, in_colour
from tests.support.interruption import SignalHandler, ctrl_c
from tests.support.layers.coalesced_calls import Service

FILES = {module.__file__ for module in (_coalesce, _flight)} | {"<redouble> coalesced call"}
IDLE = {"in_flight": 0, "waiting": 0}


def interrupted(number: int, work: Callable[[], object]) -> bool:
    """Run ``work`` with Ctrl-C at the n-th point; return True if there is such a point."""
    return SignalHandler(FILES, ctrl_c, number).interrupt(work, KeyboardInterrupt, Boom)


def alone(number: int, error: Exception | None) -> bool:
    coalesce = Coalesce()

    @coalesce
    def fetch() -> None:
        if error is not None:
            raise error

    more = interrupted(number, fetch)
    assert coalesce.snapshot() == IDLE
    with suppress(Boom):
        fetch()
    assert coalesce.snapshot() == IDLE
    return more


def in_flight(number: int, error: Exception | None) -> bool:
    """Interrupt a call that another one waits for: the other gets its outcome, or takes over."""
    coalesce, outcomes, waiting = Coalesce(), list[object](), list[threading.Thread]()

    def wait() -> None:
        try:
            outcomes.append(fetch())
        except Boom:
            outcomes.append("failed")

    @coalesce
    def fetch() -> str:
        if not waiting:
            waiting.append(threading.Thread(target=wait, daemon=True))
            waiting[0].start()
            until(lambda: coalesce.snapshot()["waiting"] == 1)
        if error is not None:
            raise error
        return "done"

    more = interrupted(number, fetch)
    for thread in waiting:
        thread.join(60)
        assert not thread.is_alive()
        assert outcomes == ["done" if error is None else "failed"]
    assert coalesce.snapshot() == IDLE
    return more


def waiter(number: int, error: Exception | None) -> bool:
    """Interrupt a call that waits: those that it waits for and with do not notice."""
    coalesce, outcomes = Coalesce(), list[object]()
    service = Service("done" if error is None else error)
    fetch = coalesce(service.fetch)

    def call() -> None:
        try:
            outcomes.append(fetch())
        except Boom:
            outcomes.append("failed")

    def release() -> None:
        until(lambda: over.is_set() or coalesce.snapshot()["waiting"] == 2)
        service.release()

    over, threads = threading.Event(), [threading.Thread(target=call, daemon=True) for _ in range(2)]
    for present, thread in enumerate(threads, 1):
        thread.start()
        until(lambda count=present: sum(coalesce.snapshot().values()) == count)  # type: ignore[misc]
    threads.append(threading.Thread(target=release, daemon=True))
    threads[-1].start()
    more = interrupted(number, fetch)
    over.set()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert outcomes == ["done" if error is None else "failed"] * 2
    assert coalesce.snapshot() == IDLE
    assert len(service.calls) == 1
    return more


@pytest.mark.parametrize("case", [alone, in_flight, waiter])
@pytest.mark.parametrize("error", [None, Boom("x")], ids=["value", "error"])
def test_ctrl_c_at_any_point(case: Callable[[int, Exception | None], bool], error: Exception | None) -> None:
    number = 1
    while case(number, error):
        number += 1
    assert number > 3


@pytest.mark.parametrize("everywhere", [False, True], ids=["signal handler", "finaliser"])
@pytest.mark.parametrize("error", [None, Boom("x")], ids=["value", "error"])
def test_the_same_call_inside_a_call_never_waits_for_it(error: Exception | None, everywhere: bool) -> None:
    number = 1
    while same_call_inside(number, error, everywhere=everywhere):
        number += 1
    assert number > 10


def same_call_inside(number: int, error: Exception | None, *, everywhere: bool) -> bool:
    """Make a call at the n-th point of the same call on the same thread; False if there is no such point."""
    coalesce, calls, reached = Coalesce(), list[None](), list[bool]()

    @coalesce
    def fetch() -> None:
        calls.append(None)
        if error is not None:
            raise error

    def call() -> None:
        with suppress(Boom):
            fetch()

    handler = SignalHandler(FILES, call, number, everywhere=everywhere)
    thread = threading.Thread(target=lambda: reached.append(handler.interrupt(call)), daemon=True)
    thread.start()
    thread.join(10)
    assert reached, number  # else it waits for itself
    assert len(calls) == 1 + reached[0]
    assert coalesce.snapshot() == IDLE
    return reached[0]


def test_an_entry_of_an_ended_call_is_dropped_by_the_next() -> None:
    """Two interruptions in one call could leave it."""
    coalesce, calls = Coalesce(), list[None]()

    def work() -> None:
        calls.append(None)

    fetch, table = coalesce(work), coalesce._table_of(work)
    left = _flight.Flight()
    left.value, left.landed, left.ended = "old", True, True
    table[()] = left
    fetch()
    assert len(calls) == 1
    assert coalesce.snapshot() == IDLE


class EndingFlight(_flight.Flight):
    """A call in flight that ends while another call begins to wait for it."""

    class Waiters(dict[Any, Any]):
        """Waiters of a flight that ends when the first is added."""

        def __init__(self, flight: _flight.Flight) -> None:
            super().__init__()
            self._flight = flight

        def __setitem__(self, waiter: Any, wake: Any) -> None:
            super().__setitem__(waiter, wake)
            flight = self._flight
            flight.value, flight.landed, flight.ended = "in flight", True, True

    def __init__(self) -> None:
        super().__init__()
        self.waiters = EndingFlight.Waiters(self)


@pytest.mark.parametrize("colour", ["sync", "asyncio", "trio"])
@pytest.mark.parametrize("ended", [False, True])
def test_no_call_waits_for_one_that_has_just_ended(colour: str, ended: bool) -> None:
    """It shares the result; if the call had ended before, it makes its own."""

    def work() -> str:
        return "own"

    async def awork() -> str:
        return "own"

    coalesce, got = Coalesce(), list[str]()
    for_sync, for_async = coalesce(work), coalesce(awork)
    flight = EndingFlight()
    flight.ended = ended
    coalesce._table_of(work if colour == "sync" else awork)[()] = flight

    async def waiting() -> None:
        got.append(await for_async())

    in_colour(colour, lambda: got.append(for_sync()), waiting)
    assert got == ["own" if ended else "in flight"]
    assert not flight.waiters


@pytest.mark.parametrize("mode", ["generator exit", "collected"])
def test_a_coroutine_that_is_dropped_ends_its_call(mode: str) -> None:
    coalesce, service = Coalesce(), Service()
    fn = coalesce(service.afetch)
    work = fn()
    service_begins(work)
    assert coalesce.snapshot() == {"in_flight": 1, "waiting": 0}
    if mode == "collected":
        del work
        gc.collect()
    else:
        work.close()
    assert coalesce.snapshot() == IDLE


def service_begins(work: Any) -> None:
    """Run a coroutine up to its first wait, in an event loop that then ends."""

    async def main() -> None:
        work.send(None)

    asyncio.run(main())


def test_a_forked_process_waits_for_no_call_of_its_parent() -> None:
    coalesce, service = Coalesce(), Service("parent")
    fetch = coalesce(service.fetch)
    other = threading.Thread(target=fetch)
    other.start()
    until(lambda: coalesce.snapshot()["in_flight"] == 1)
    coalesce._after_fork()
    assert coalesce.snapshot() == IDLE
    service.release()
    other.join()
    assert coalesce.snapshot() == IDLE
