"""A caller of `Coalesce` that ends early: the others are left alone, or one of them takes over."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable
from typing import Any

import pytest
import trio

from redouble import Coalesce, Fallback, Retry, Timeout, deadline, errors
from redouble._internal.callables import UsageError
from redouble._layers.results.flight import Flight
from redouble._runtime.backend import backend
from redouble.testing import VirtualClock, virtual_time
from tests.support.bulkhead_callers import until
from tests.support.fakes import ASYNC, Boom, Panic, in_colour
from tests.support.layers.coalesced_calls import Group, Service
from tests.support.runtime.cancellation import CANCELLATIONS
from tests.support.runtime.tasks import Task, loop_of, settled, together
from tests.support.virtual_time import HOUR, LOOP_PLACES, in_virtual_time

LOOPS = pytest.mark.parametrize("colour", ASYNC)
IDLE = {"in_flight": 0, "waiting": 0}


def in_tasks(colour: str, main: Callable[[Callable[[Callable[[], Any]], Task]], Any]) -> None:
    """Run async code that starts tasks with the function it is given."""

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            await main(lambda work: Task(colour, nursery, work))

    async def arun() -> None:
        started: list[Task] = []

        def start(work: Callable[[], Any]) -> Task:
            started.append(Task(colour, None, work))
            return started[-1]

        await main(start)
        await asyncio.gather(*(task.task for task in started), return_exceptions=True)

    in_colour(colour, lambda: None, run if colour == "trio" else arun)


class Callers:
    """Callers of one service, each a task, and what they got."""

    def __init__(self, colour: str, *steps: Any) -> None:
        self.colour, self.coalesce, self.service = colour, Coalesce(), Service(*steps)
        self.fn = self.coalesce(self.service.afetch)
        self.got: list[tuple[str, object]] = []

    def caller(self, name: str) -> Callable[[], Any]:
        async def call() -> None:
            try:
                self.got.append((name, await self.fn()))
            except Exception as error:
                self.got.append((name, error))

        return call

    async def begin(self, start: Callable[[Callable[[], Any]], Task], names: str) -> list[Task]:
        tasks = list[Task]()
        for name in names:
            tasks.append(start(self.caller(name)))
            await settled(self.colour)
        assert self.coalesce.snapshot() == {"in_flight": 1, "waiting": len(names) - 1}
        return tasks


@LOOPS
def test_a_cancelled_waiter_leaves_the_others_alone(colour: str) -> None:
    callers = Callers(colour, "done")

    async def main(start: Callable[[Callable[[], Any]], Task]) -> None:
        tasks = await callers.begin(start, "abc")
        tasks[1].cancel()
        await settled(colour)
        assert callers.coalesce.snapshot() == {"in_flight": 1, "waiting": 1}
        callers.service.release()
        await settled(colour)
        assert sorted(callers.got) == [("a", "done"), ("c", "done")]

    in_tasks(colour, main)
    assert len(callers.service.calls) == 1
    assert callers.coalesce.snapshot() == IDLE


@LOOPS
@pytest.mark.parametrize("cancelled", ["a", "ab", "ac", "abc"])
def test_if_the_call_in_flight_is_cancelled_a_waiter_takes_over(colour: str, cancelled: str) -> None:
    callers = Callers(colour, "first", "second", "third")

    async def main(start: Callable[[Callable[[], Any]], Task]) -> None:
        tasks = await callers.begin(start, "abc")
        for name, task in zip("abc", tasks, strict=True):
            if name in cancelled:
                task.cancel()
        await settled(colour)
        left = len("abc") - len(cancelled)
        assert callers.coalesce.snapshot() == {"in_flight": bool(left), "waiting": max(left - 1, 0)}
        assert callers.service._running == bool(left)
        callers.service.release()
        await settled(colour)
        assert {name for name, _ in callers.got} == set("abc") - set(cancelled)
        assert all(value in ("second", "third") for _, value in callers.got)

    in_tasks(colour, main)
    assert callers.service.most == 1
    assert callers.coalesce.snapshot() == IDLE


@LOOPS
def test_each_of_many_takes_over_in_turn(colour: str) -> None:
    callers = Callers(colour)

    async def main(start: Callable[[Callable[[], Any]], Task]) -> None:
        tasks = await callers.begin(start, "abcdefgh")
        for task in tasks:
            task.cancel()
            await settled(colour)
            left = sum(one.ended is None for one in tasks)
            assert sum(callers.coalesce.snapshot().values()) == left
            assert callers.service._running == bool(left)

    in_tasks(colour, main)
    assert callers.service.most == 1
    assert callers.coalesce.snapshot() == IDLE


@pytest.mark.parametrize("colour", ASYNC)
def test_an_error_raised_from_a_cancellation_is_not_shared(colour: str) -> None:
    """Database drivers raise such errors."""
    coalesce, calls, got = Coalesce(), list[None](), list[object]()
    lost = OSError("connection lost")

    @coalesce
    async def fetch() -> str:
        calls.append(None)
        if len(calls) > 1:
            return "second"
        try:
            await backend().sleep(1e6)
        except CANCELLATIONS:
            raise lost from None
        return "first"

    async def call() -> None:
        try:
            got.append(await fetch())
        except OSError as error:
            got.append(error)

    async def main(start: Callable[[Callable[[], Any]], Task]) -> None:
        task = start(call)
        await settled(colour)
        start(call)
        await settled(colour)
        task.cancel()
        await settled(colour)

    in_tasks(colour, main)
    assert got == [lost, "second"]


@pytest.mark.parametrize("colour", [colour for colour in ASYNC if colour != "trio"])
def test_a_call_in_flight_that_is_collected_with_its_loop_is_taken_over(colour: str) -> None:
    """A waiter on another event loop is not lost."""
    coalesce, service, got = Coalesce(), Service("first", "second"), list[object]()
    fn, loop = coalesce(service.afetch), loop_of(colour)
    work = fn()
    loop.run_until_complete(stepped(work))

    async def main() -> None:
        got.append(await fn())

    other = threading.Thread(target=lambda: in_colour(colour, lambda: None, main))
    other.start()
    until(lambda: coalesce.snapshot()["waiting"] == 1)
    del work
    loop.close()
    gc.collect()
    until(lambda: len(service.calls) == 2)
    service.release()
    other.join()
    assert got == ["second"]
    assert coalesce.snapshot() == IDLE


async def stepped(work: Any) -> None:
    """Run a coroutine up to its first wait."""
    work.send(None)


# --------------------------------------------------------------------------- other endings


@pytest.mark.parametrize(
    "crash", [KeyboardInterrupt(), SystemExit(), Panic()], ids=["ctrl_c", "exit", "panic"]
)
def test_a_base_exception_on_a_thread_is_not_shared(crash: BaseException) -> None:
    service = Service(crash, "second")
    found = Group("thread", Coalesce(), service).outcomes((), (), (), rounds=2)
    assert found[0] is crash
    assert found[1:] == ["second"] * 2
    assert service.most == 1


def test_a_mistake_in_the_program_is_shared(colour: str) -> None:
    found = Group(colour, Coalesce(), Service(UsageError("x"))).outcomes((), ())
    assert [type(one) for one in found] == [UsageError] * 2


@pytest.mark.parametrize("place", LOOP_PLACES)
def test_a_waiter_waits_no_longer_than_its_deadline(place: str) -> None:
    coalesce, got = Coalesce(), list[object]()

    async def main(clock: VirtualClock) -> None:
        @coalesce
        async def fetch() -> str:
            await clock.asleep(HOUR)
            return "done"

        async def leading() -> None:
            got.append(await fetch())

        async def waiting(seconds: float) -> None:
            await clock.asleep(1)
            with deadline(seconds):
                try:
                    got.append(await fetch())
                except errors.AttemptTimeout as error:
                    got.append((clock.now(), error.limit, error.seconds))

        async def hurried() -> None:
            await waiting(2)

        async def patient() -> None:
            await waiting(2 * HOUR)

        await together(place, leading, hurried, patient)

    in_virtual_time(place, main)
    assert got == [(3, "deadline", 2), "done", "done"]


@pytest.mark.parametrize("place", LOOP_PLACES)
@pytest.mark.parametrize("short", ["deadline", "timeout"])
def test_a_call_in_flight_whose_own_time_is_up_is_taken_over(place: str, short: str) -> None:
    """By its deadline, or by a `Timeout` around; a waiter has more time."""
    coalesce, got = Coalesce(), list[object]()

    async def main(clock: VirtualClock) -> None:
        async def work() -> str:
            await clock.asleep(10)
            return "done"

        fetch = (coalesce | Timeout(60))(work)
        hurried = (Timeout(2) | coalesce | Timeout(60))(work)

        async def leading() -> None:
            with pytest.raises(errors.AttemptTimeout):
                if short == "timeout":
                    await hurried()
                with deadline(2):
                    await fetch()

        async def waiting() -> None:
            await clock.asleep(1)
            got.append((await fetch(), clock.now()))

        await together(place, leading, waiting)

    in_virtual_time(place, main)
    assert got == [("done", 12)]


@pytest.mark.parametrize("place", LOOP_PLACES)
def test_a_limit_that_cuts_nothing_ends_no_wait_and_hides_no_error(place: str) -> None:
    coalesce, calls, got = Coalesce(), list[None](), list[object]()

    async def main(clock: VirtualClock) -> None:
        @(Retry(attempts=1, give_up_after=2) | coalesce)
        async def fetch() -> str:
            calls.append(None)
            await clock.asleep(10)
            raise Boom

        async def call() -> None:
            with pytest.raises(Boom):
                await fetch()
            got.append(clock.now())

        await together(place, call, call)

    in_virtual_time(place, main)
    assert (len(calls), got) == (1, [10, 10])


def test_an_error_of_a_blocking_call_whose_deadline_has_passed_is_not_shared() -> None:
    coalesce, flights = Coalesce(), list[Flight]()

    def work() -> None:
        flights.extend(coalesce._table_of(work).values())
        clock.advance(3)
        raise Boom

    for limited in (False, True):
        with virtual_time() as clock, pytest.raises(Boom), deadline(2 if limited else 60):
            coalesce(work)()
    assert [flight.landed for flight in flights] == [True, False]


def test_a_blocking_waiter_waits_no_longer_than_its_deadline() -> None:
    service, coalesce = Service("done"), Coalesce()
    fn = coalesce(service.fetch)
    other = threading.Thread(target=fn)
    other.start()
    until(lambda: coalesce.snapshot()["in_flight"] == 1)
    with (
        deadline(0.01),
        pytest.raises(errors.AttemptTimeout, match="an identical call in flight"),
    ):
        fn()
    with virtual_time() as clock, deadline(5):
        with pytest.raises(errors.AttemptTimeout):
            fn()
        assert clock.now() == 5
    assert coalesce.snapshot() == {"in_flight": 1, "waiting": 0}
    service.release()
    other.join()
    assert coalesce.snapshot() == IDLE


@LOOPS
def test_the_function_runs_in_the_context_of_the_first_call(colour: str) -> None:
    """Outside it are layers of each caller: a retry or a fallback acts on the copy that the caller gets."""
    coalesce = Coalesce()
    layer = Fallback(lambda error: f"instead of {error}") | coalesce | Retry(on=Boom, attempts=1)
    found = Group(colour, coalesce, Service(Boom("x")), layer).outcomes((), ())
    assert found == ["instead of x"] * 2


@LOOPS
def test_waiters_on_other_event_loops_and_threads(colour: str) -> None:
    """The call in flight is on one loop, and callers on others of every colour wait for it."""
    coalesce, service, got = Coalesce(), Service("done"), list[object]()
    fn = coalesce(service.afetch)

    async def main() -> None:
        got.append(await fn())

    threads = list[threading.Thread]()
    for index, kind in enumerate((colour, *ASYNC)):
        threads.append(threading.Thread(target=in_colour, args=(kind, lambda: None, main)))
        threads[-1].start()
        until(lambda count=index + 1: sum(coalesce.snapshot().values()) == count)  # type: ignore[misc]
    service.release()
    for thread in threads:
        thread.join()
    assert got == ["done"] * len(threads)
    assert len(service.calls) == 1


@LOOPS
def test_a_waiter_whose_loop_has_ended_does_no_harm(colour: str) -> None:
    """It is woken in vain."""
    wakes: list[Callable[[], bool]] = []

    async def main() -> None:
        wake, woken = backend().direct_waker()
        wakes.append(wake)
        assert wake()
        assert wake()
        await woken()

    in_colour(colour, lambda: None, main)
    assert wakes[0]() is False
