"""Workers with a limit: who gets one, who waits, and until when an attempt holds one."""

from __future__ import annotations

import asyncio
import copy
import gc
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial
from math import inf
from threading import Event, Thread, current_thread
from typing import Any

import pytest
import trio

from redouble import Grant, Retry, RetryBudget, Timeout, Worker, cancelled, deadline, errors, observe, stats
from redouble._drivers import attempt_timeout as _attempt_timeout
from redouble._drivers.workers import threads as _threads
from redouble._drivers.workers import worker_slots as _worker_slots
from redouble._internal import reentrancy
from redouble._internal.locks import gil
from redouble._runtime import slots as _slots
from redouble.testing import virtual_time
from redouble.types import Event as Seen
from tests.support.bulkhead_callers import until
from tests.support.fakes import ASYNC, COLOURS, Boom, always, in_colour
from tests.support.interruption import SignalHandler, ctrl_c
from tests.support.thread_switching import switching
from tests.support.workers.calls import cancelled_when
from tests.support.workers.threads import idle

pytestmark = pytest.mark.usefixtures(idle.__name__)

SOON = 0.01
NOTHING = {"in_use": 0, "busy": 0, "abandoned": 0, "queued": 0}


def called(colour: str, policy: Retry, work: Callable[..., Any], *args: object) -> Any:
    return in_colour(colour, lambda: policy.call(work, *args), lambda: policy.acall(work, *args))


class Held:
    """A worker of one slot, which an attempt holds on another thread until the end of the block."""

    def __init__(self, worker: Worker) -> None:
        self.policy, self.worker = Retry(worker=worker), worker
        self.begun, self.over = Event(), Event()
        self.thread = Thread(target=self.policy.call, args=[self.work])

    def work(self) -> None:
        self.begun.set()
        self.over.wait()

    def __enter__(self) -> Held:
        self.thread.start()
        self.begun.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.thread.join()


# ------------------------------------------------------------------------------- the options


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"limit": 0}, ValueError, "limit=0: write a whole number, 1 or more, such as 20, or None"),
        ({"limit": 1.5}, TypeError, r"limit=1\.5: write a whole number"),
        ({"limit": True}, TypeError, "limit=True: write"),
        ({"wait": -1}, ValueError, "wait=-1: write a finite number of seconds"),
        ({"wait": "1s"}, TypeError, "wait='1s'"),
        ({"name": 5}, TypeError, "name=5: write a text, or None"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"Worker {message}"):
        Worker(**options)


def test_a_worker_with_a_limit_is_a_value_with_slots_of_its_own() -> None:
    """Equal ones have the same options. A copy is the object itself; another process has its own slots."""
    worker = Worker(limit=3, wait=None, name="io")
    assert worker == Worker(limit=3, wait=None, name="io") != Worker(limit=3)
    assert copy.copy(worker) is copy.deepcopy(worker) is worker
    sent = pickle.loads(pickle.dumps(worker))
    assert sent == worker == replace(worker)
    assert sent._slots is not worker._slots
    assert repr(worker) == (
        "Worker(kind='thread', grace=0.1, overlap=False, start='spawn', limit=3, wait=None, name='io')"
    )
    assert repr(Worker(limit=3)) == (
        "Worker(kind='thread', grace=0.1, overlap=False, start='spawn', limit=3, wait=1.0)"
    )


def test_the_snapshot() -> None:
    worker = Worker(limit=1, name="io of a test")
    assert worker.snapshot() == {"limit": 1, **NOTHING}
    with Held(worker):
        assert stats()["limits"]["io of a test"] == {
            "type": "Worker", "limit": 1, "in_use": 1, "busy": 1, "abandoned": 0, "queued": 0
        }  # fmt: skip
        waiting = Thread(target=Retry(worker=worker).call, args=[int])
        waiting.start()
        until(lambda: worker.snapshot()["queued"] == 1)
    waiting.join()
    assert worker.snapshot() == {"limit": 1, **NOTHING}
    assert Worker().snapshot() == {"limit": None, **NOTHING}
    assert (
        "of no limit" not in (Worker(name="of no limit").name or "") or "of no limit" not in stats()["limits"]
    )


# ------------------------------------------------------------------------------- the limit


@pytest.mark.parametrize("limit", [1, 3])
def test_there_are_no_more_threads_than_the_limit(limit: int, idle: list[Thread]) -> None:
    """However many callers there are, and of however many policies."""
    worker = Worker(limit=limit, wait=None)
    policies = [
        Retry(worker=worker),
        Retry(worker=worker, attempt_timeout=60),
        Retry(worker=worker, name="a"),
    ]
    running, most = list[None](), list[int]()

    def work() -> Thread:
        running.append(None)
        most.append(len(running))
        running.pop()
        return current_thread()

    def decorated(number: int) -> Thread:
        return policies[number % 3](work)()

    with ThreadPoolExecutor(20) as pool:
        threads = set(pool.map(decorated, range(200)))
    assert max(most) <= limit
    assert len(threads) == len(idle) <= limit
    assert worker.snapshot() == {"limit": limit, **NOTHING}


@pytest.mark.parametrize("colour", ASYNC)
def test_async_callers_wait_without_blocking_the_loop(colour: str, idle: list[Thread]) -> None:
    worker, begun, go, order = Worker(limit=2, wait=None), list[int](), Event(), list[int]()

    def work(number: int) -> None:
        begun.append(number)
        go.wait()
        order.append(number)

    policy = Retry(worker=worker)

    async def call(number: int) -> None:
        await policy.acall(work, number)

    def free() -> None:
        until(lambda: worker.snapshot()["queued"] == 3 and len(begun) == 2)
        go.set()

    async def main() -> None:
        if colour == "trio":
            async with trio.open_nursery() as nursery:
                for number in range(5):
                    nursery.start_soon(call, number)
                await trio.to_thread.run_sync(free)
        else:
            await asyncio.gather(*(call(number) for number in range(5)), asyncio.to_thread(free))

    in_colour(colour, lambda: None, main)
    assert sorted(order) == [0, 1, 2, 3, 4]
    assert len(idle) <= 2
    assert worker.snapshot() == {"limit": 2, **NOTHING}


def test_all_colours_wait_in_one_queue() -> None:
    worker, order = Worker(limit=1, wait=None), list[str]()
    threads = list[Thread]()
    with Held(worker):
        for number, colour in enumerate(COLOURS, 1):
            threads.append(Thread(target=called, args=[colour, Retry(worker=worker), order.append, colour]))
            threads[-1].start()
            until(lambda number=number: worker.snapshot()["queued"] == number)  # type: ignore[misc]
    for thread in threads:
        thread.join()
    assert order == list(COLOURS)


@pytest.mark.parametrize("kind", ["blocking", "async"])
def test_processes_have_a_limit_too(kind: str) -> None:
    worker = Worker("process", limit=1, wait=None)
    policy = Retry(worker=worker, timeout=60)
    if kind == "blocking":
        with ThreadPoolExecutor(4) as pool:
            futures = [pool.submit(policy.call, abs, number) for number in range(4)]
            assert [future.result() for future in futures] == [0, 1, 2, 3]
    else:

        async def main() -> list[int]:
            return await asyncio.gather(*(policy.acall(abs, number) for number in range(4)))

        assert asyncio.run(main()) == [0, 1, 2, 3]
    assert worker.snapshot() == {"limit": 1, **NOTHING}


# ------------------------------------------------------------------- what gets no worker


@pytest.mark.parametrize(
    ("wait", "limits", "message"),
    [
        (0, {}, "worker io is busy: 1 attempt is running, and it does not wait"),
        (SOON, {}, "and no slot came free within 0.01 s"),
        (50, {"attempt_timeout": SOON}, "and no slot came free within 0.01 s"),
        (None, {"timeout": SOON}, "and no slot came free within 0.0"),
        (None, {"work_timeout": SOON}, "and no slot came free within 0.0"),
    ],
)
@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("process", [False, True])
def test_an_attempt_that_gets_no_worker_is_rejected(
    colour: str, process: bool, wait: float | None, limits: dict[str, Any], message: str
) -> None:
    """Not later than its own limit."""
    worker = Worker(limit=1, wait=wait, name="io")
    if process and "attempt_timeout" in limits:
        limits = {"timeout": SOON}  # the wait for a process is not time of the attempt
    with Held(worker):
        given = replace(worker, kind="process") if process else worker
        object.__setattr__(given, "_slots", worker._slots)
        with pytest.raises(errors.WorkersBusy, match=message) as caught:
            called(colour, Retry(attempts=1, worker=given, **limits), int)
        assert (caught.value.limit, caught.value.wait) == (1, wait)
        assert isinstance(caught.value, errors.Rejected)
        assert worker.snapshot() == {"limit": 1, **NOTHING, "in_use": 1, "busy": 1}


@pytest.mark.parametrize("colour", ["sync", *ASYNC])
def test_a_deadline_ends_the_wait(colour: str) -> None:
    worker = Worker(limit=1, wait=None)
    with Held(worker), deadline(SOON), pytest.raises(errors.WorkersBusy):
        called(colour, Retry(attempts=1, worker=worker), int)


def test_two_attempts_of_two_in_the_message() -> None:
    worker = Worker(limit=2, wait=0)
    with (
        Held(worker),
        Held(worker),
        pytest.raises(errors.WorkersBusy, match="busy: 2 attempts are running, and"),
    ):
        Retry(attempts=1, worker=worker).call(int)


def test_a_blocking_call_never_waits_on_the_thread_of_a_loop() -> None:
    """It would stop the tasks that hold the workers."""
    worker = Worker(limit=1, wait=None)

    async def main() -> None:
        with pytest.raises(errors.WorkersBusy, match="on the thread of an event loop"):
            Retry(attempts=1, worker=worker).call(int)

    with Held(worker):
        asyncio.run(main())
    assert Retry(worker=worker).call(int) == 0


@pytest.mark.parametrize("colour", COLOURS)
def test_a_slot_that_comes_free_at_once_needs_no_wait(colour: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another caller, which is rejected, had added its lease just then."""
    worker = Worker(limit=1, wait=0)
    assert worker._slots is not None
    monkeypatch.setattr(worker._slots, "try_acquire", always(False))
    assert called(colour, Retry(attempts=1, worker=worker), int) == 0
    assert worker.snapshot() == {"limit": 1, **NOTHING}


def test_a_function_that_calls_its_own_worker_is_refused_in_the_end() -> None:
    """It waits for itself."""
    policy = Retry(attempts=1, worker=Worker(limit=1, wait=SOON))
    with pytest.raises(errors.WorkersBusy):
        policy.call(policy.call, int)
    assert policy.call(int) == 0


@pytest.mark.parametrize("colour", COLOURS)
def test_a_rejection_is_retried_and_costs_no_grant(colour: str) -> None:
    """Nothing was called, so nothing is spent from the budget."""
    worker, budget = Worker(limit=1, wait=0), RetryBudget(0, per_second=10)
    held = Held(worker)
    policy = Retry(worker=worker, backoff=[0], budget=budget, on_retry=lambda _: held.__exit__())
    with held:
        assert called(colour, policy, int) == 0
    assert budget.snapshot()["granted"] == 1
    with Held(worker), pytest.raises(errors.WorkersBusy):
        called(colour, Retry(worker=worker, backoff=[0, 0], attempts=3, budget=budget), int)
    assert budget.snapshot()["granted"] == 1  # all that were rejected are refunded
    assert isinstance(budget.spend(), Grant)


@pytest.mark.parametrize("colour", COLOURS)
def test_the_events(colour: str) -> None:
    worker, events = Worker(limit=1, wait=None, name="io"), list[Seen]()
    unnamed = Worker(limit=1, wait=0)
    with observe(events.append, only=["waited", "rejected"]):
        with Held(unnamed), pytest.raises(errors.WorkersBusy) as caught:
            called(colour, Retry(attempts=1, worker=unnamed), int)
        with Held(worker) as held:
            waiting = Thread(target=called, args=[colour, Retry(worker=worker), int])
            waiting.start()
            until(lambda: worker.snapshot()["queued"] == 1)
            held.over.set()
            waiting.join()
    rejected, waited = events
    assert (rejected.what, rejected.by, rejected.name, rejected.error) == (
        "rejected", "worker", "worker", caught.value
    )  # fmt: skip
    assert (waited.what, waited.by, waited.name) == ("waited", "worker", "io")
    assert waited.delay is not None
    assert waited.delay >= 0


@pytest.mark.parametrize("colour", ["sync", "asyncio"])
def test_a_wait_moves_the_virtual_clock(colour: str) -> None:
    worker = Worker(limit=1, wait=SOON)
    with Held(worker), virtual_time() as clock:
        before = clock.now()
        with pytest.raises(errors.WorkersBusy):
            called(colour, Retry(attempts=1, worker=worker), int)
        assert clock.now() - before == pytest.approx(SOON)


def test_a_timeout_with_a_worker() -> None:
    worker = Worker(limit=1, wait=None)
    with Held(worker), pytest.raises(errors.WorkersBusy):
        Timeout(SOON, worker=worker).call(int)
    assert Timeout(60, worker=worker).call(int) == 0


# -------------------------------------------------------------------------- what is abandoned


@pytest.mark.parametrize("colour", COLOURS)
def test_an_abandoned_thread_keeps_its_slot_until_it_ends(colour: str) -> None:
    worker, go = Worker(limit=1, wait=0, grace=0), Event()
    policy = Retry(attempts=1, attempt_timeout=SOON, worker=worker)
    with pytest.raises(errors.AttemptTimeout):
        called(colour, policy, go.wait)
    assert worker.snapshot() == {"limit": 1, **NOTHING, "in_use": 1, "abandoned": 1}
    with pytest.raises(errors.WorkersBusy, match="1 attempt is running, of which 1 abandoned, and"):
        called(colour, policy, int)
    go.set()
    until(lambda: worker.snapshot()["in_use"] == 0)
    assert called(colour, Retry(worker=worker), int) == 0


@pytest.mark.parametrize("colour", COLOURS)
def test_a_thread_that_stops_when_asked_frees_its_slot(colour: str) -> None:
    worker = Worker(limit=1, wait=0, grace=50)

    def obedient() -> None:
        while not cancelled():
            pass

    with pytest.raises(errors.AttemptTimeout):
        called(colour, Retry(attempts=1, attempt_timeout=SOON, worker=worker), obedient)
    assert worker.snapshot() == {"limit": 1, **NOTHING}


@pytest.mark.parametrize("colour", ASYNC)
@pytest.mark.parametrize("when", ["waiting", "running"])
def test_a_cancelled_call_leaves_its_place(colour: str, when: str) -> None:
    """At once if it waits; when its thread ends if it runs."""
    worker, go, begun = Worker(limit=1, wait=None), Event(), Event()

    def work() -> None:
        begun.set()
        go.wait()

    def ready() -> None:
        until(lambda: begun.is_set() if when == "running" else worker.snapshot()["queued"] == 1)

    def cancel() -> None:
        cancelled_when(colour, ready, partial(Retry(worker=worker).acall, work))

    if when == "waiting":
        with Held(worker):
            cancel()
            assert worker.snapshot() == {"limit": 1, **NOTHING, "in_use": 1, "busy": 1}
    else:
        cancel()
        assert worker.snapshot() == {"limit": 1, **NOTHING, "in_use": 1, "abandoned": 1}
        go.set()
    until(lambda: worker.snapshot()["in_use"] == 0)
    assert not begun.is_set() or when == "running"
    assert Retry(worker=worker).call(int) == 0


@pytest.mark.parametrize("colour", COLOURS)
def test_no_thread_can_be_started(colour: str, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker(limit=1, wait=0)

    def failing(_: Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as broken:
        broken.setattr(_threads._WorkerThread, "start", failing)
        with pytest.raises(errors.WorkerFailed):
            called(colour, Retry(attempts=1, worker=worker), int)
    assert worker.snapshot() == {"limit": 1, **NOTHING}
    assert called(colour, Retry(worker=worker), int) == 0


def test_a_thread_makes_no_call_for_a_caller_that_has_left() -> None:
    """It was late: the caller was interrupted after it had handed over the job."""
    worker, calls = Worker(limit=1), list[int]()
    slots = worker._slots
    assert slots is not None
    slot = _worker_slots.WorkerSlot(worker, slots)
    slot.acquire(inf)
    job = slot.job(lambda: 0.0, calls.append, (1,), {})
    slot.leave()
    assert worker.snapshot() == {"limit": 1, **NOTHING}
    job.perform()()
    slot.leave()
    assert not calls


# ------------------------------------------------------------------------------------ Ctrl-C

FILES = {
    module.__file__ for module in (_worker_slots, _slots, _attempt_timeout, _threads, reentrancy)
}  # fmt: skip


@pytest.mark.parametrize("case", ["free", "waits", "rejected", "abandoned", "admitted later"])
def test_ctrl_c_at_any_point_loses_no_slot(case: str) -> None:
    number, more = 0, True
    while more:
        number += 1
        worker = Worker(limit=1, wait={"rejected": 0, "waits": 0.001}.get(case), grace=0)
        go = Event()
        go.set() if case != "abandoned" else None
        policy = Retry(attempts=1, attempt_timeout=0.001 if case == "abandoned" else 50, worker=worker)
        held = Held(worker) if case in ("waits", "rejected", "admitted later") else None
        with held or nullcontext():
            if held is not None and case == "admitted later":
                free = Thread(target=free_when_a_call_waits, args=[worker, held])
                free.start()
            more = SignalHandler(FILES, ctrl_c, number).interrupt(
                partial(policy.call, go.wait), KeyboardInterrupt, errors.WorkersBusy, errors.AttemptTimeout
            )
            if held is not None:
                held.over.set()
        go.set()
        until(lambda worker=worker: worker.snapshot()["in_use"] == 0)  # type: ignore[misc]
        assert worker.snapshot() == {"limit": 1, **NOTHING}
        assert Retry(worker=worker).call(int) == 0
    assert number > 5


def free_when_a_call_waits(worker: Worker, held: Held) -> None:
    until(lambda: held.over.is_set() or worker.snapshot()["queued"] == 1)
    held.over.set()


# -------------------------------------------------------------------------------------- stress


@pytest.mark.stress
@pytest.mark.usefixtures(switching.__name__)
@pytest.mark.parametrize("with_gil", [True, False])
def test_many_callers_of_all_colours_that_time_out_and_are_cancelled(
    with_gil: bool, idle: list[Thread], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No slot is lost, and there are never more attempts at once than slots."""
    monkeypatch.setattr(gil, "enabled", with_gil)
    worker, running, most = Worker(limit=4, wait=None, grace=0, overlap=True), set[object](), list[int]()
    policy = Retry(
        on=(Boom, errors.AttemptTimeout), attempts=2, backoff=[0], attempt_timeout=0.002, worker=worker
    )

    def work(number: int) -> None:
        me = object()
        running.add(me)
        most.append(len(running))
        if number % 5 == 0:
            Event().wait(0.003)
        running.discard(me)
        if number % 3 == 0:
            raise Boom

    async def some(first: int) -> None:
        tasks = [asyncio.ensure_future(policy.acall(work, first + number)) for number in range(20)]
        await asyncio.sleep(0)
        for task in tasks[::4]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def blocking(first: int) -> None:
        for number in range(20):
            with suppress(Boom, errors.RedoubleError):
                policy.call(work, first + number)

    with ThreadPoolExecutor(12) as pool:
        futures = [pool.submit(blocking, turn) for turn in range(12)]
        futures += [pool.submit(asyncio.run, some(turn)) for turn in range(12)]
        for future in futures:
            future.result()
    until(lambda: worker.snapshot()["in_use"] == 0)
    assert max(most) <= 4
    assert len(idle) <= 4
    assert worker.snapshot() == {"limit": 4, **NOTHING}


def test_a_slot_keeps_nothing_alive() -> None:
    worker = Worker(limit=1)

    class Big:
        pass

    alive = list[int]()

    def work(big: Big) -> None:
        alive.append(len([each for each in gc.get_objects() if isinstance(each, Big)]))
        del big

    gc.collect()
    Retry(worker=worker).call(work, Big())
    Retry(worker=worker).call(int)
    assert alive == [1]
    assert not [each for each in gc.get_objects() if isinstance(each, Big)]
