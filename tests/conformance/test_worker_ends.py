"""Workers that cannot start, and callers that are cancelled: qubit-retry 0.9 (Q) and 0.19 (N)."""

from __future__ import annotations

import asyncio
from contextvars import copy_context
from threading import Event

import pytest
import trio

from redouble import Reason, Retry, Worker, cancelled, errors
from redouble._drivers.workers import threads
from redouble._runtime.backend import under_trio
from tests.conformance.flows import Flow, answers, check, in_every_colour
from tests.conformance.limited_flows import MS, STUCK, worked
from tests.conformance.observables import asserts
from tests.support.scripted import Operation, Step, Virtual, ok

NO_THREAD = "no thread could be started for a worker: can't start new thread"


class NoThread(threads._WorkerThread):
    """A thread that cannot be started."""

    def start(self) -> None:
        raise RuntimeError("can't start new thread")


@pytest.fixture
def no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_idle", [])
    monkeypatch.setattr(threads, "_WorkerThread", NoThread)


@in_every_colour(
    [
        worked(
            "N-19.1-deviates",
            ok("never-reached"),
            attempts=3,
            on=[answers({})],
            expected={
                "type": errors.WorkerFailed,
                "raises": NO_THREAD,
                "reason": Reason.stopped,
                "attempts": 1,
                "calls": 0,
            },
        ),
        worked(
            "N-19.1-retried",
            ok("never-reached"),
            attempts=3,
            on=[answers({NO_THREAD: True})],
            expected={"type": errors.WorkerFailed, "reason": Reason.attempts, "attempts": 3, "calls": 0},
        ),
        worked(
            "Q-V04.executor",
            ok("never-reached"),
            wrap=True,
            on=[answers({})],
            expected={"type": errors.Stopped, "cause": NO_THREAD},
        ),
    ]
)
@pytest.mark.usefixtures(no_threads.__name__)
def test_a_worker_that_cannot_start(colour: str, row: Flow) -> None:
    """N-19: the attempt has failed, and ends the call unless a rule retries it."""
    check(colour, row)


# --------------------------------------------------------------------------- cancellation


@asserts("N-17", "attempts", "events", "last_failure", "rule_calls", "terminal")
@pytest.mark.parametrize("colour", ["asyncio", "trio"])
@pytest.mark.parametrize(
    "step",
    [
        pytest.param(Step("completed", stops="when cancelled"), id="N-17.2"),
        pytest.param(Step(error="late", stops="when cancelled"), id="N-17.3"),
        pytest.param(STUCK, id="N-18.3-deviates"),
    ],
)
def test_cancelling_the_caller_cancels_the_worker(colour: str, step: Step) -> None:
    """It is not waited for; its result is discarded, and no rule is called."""
    operation, seen = Operation([step], Virtual()), list[str]()

    def rule(error: Exception) -> bool:
        seen.append("rule")
        return True

    policy = Retry(on=rule, on_failure=lambda _: seen.append("failed"))

    async def main() -> str:
        ended = await cancelled_while(operation, policy)
        operation.release()
        return ended

    if colour == "asyncio":
        assert asyncio.run(main()) == "cancelled"
    else:
        assert trio.run(main) == "cancelled"
    assert (operation.calls, operation.was_cancelled, seen) == (1, [True], [])


async def cancelled_while(operation: Operation, policy: Retry) -> str:
    """Run the operation on a worker, and cancel the call once it runs."""
    ended: list[str] = []

    async def inside() -> None:
        try:
            await policy.acall(operation)
        except (asyncio.CancelledError, trio.Cancelled):
            ended.append("cancelled")
            raise
        ended.append("returned")

    if under_trio():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(inside)
            await trio.to_thread.run_sync(operation.started.wait)
            nursery.cancel_scope.cancel()
    else:
        task = asyncio.ensure_future(inside())
        await asyncio.to_thread(operation.started.wait)
        task.cancel()
        await asyncio.wait([task])
    return ended[0]


@asserts("N-21", "new_is_cancelled", "cancel_is_permanent_and_idempotent", "copies_share_source")
def test_n_21_cancelled_is_true_after_the_limit() -> None:
    """N-21: for the operation and its callees only. It is polled, not awaited."""
    seen, over = list[bool](), Event()

    def operation() -> None:
        seen.append(cancelled())
        while not cancelled() and not over.is_set():
            over.wait(MS)
        seen.extend((cancelled(), cancelled(), copy_context().run(cancelled)))

    assert not cancelled()
    with pytest.raises(errors.AttemptTimeout):
        Retry(attempts=1, attempt_timeout=5 * MS, worker=Worker(grace=60)).call(operation)
    assert seen == [False, True, True, True]
    assert not cancelled()
    assert not Retry(worker=Worker()).call(cancelled)
