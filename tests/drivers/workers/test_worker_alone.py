"""No second worker runs beside one that is stuck, whichever layers surround its policy."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest

from redouble import SYSTEM, Layer, Retry, Timeout, Worker, errors, report
from redouble.testing import virtual_time
from tests.drivers.test_attempt import AT_ONCE, BESIDE, LONG, SOON, STUCK, Stuck
from tests.support.fakes import ASYNC, always, in_colour
from tests.support.virtual_time import at

COLOURS = pytest.mark.parametrize("colour", ["sync", *ASYNC])

# Each leaves its worker behind, and each says so in another way.
LEAVING: dict[str, Layer] = {
    "attempts": Retry(attempts=1, attempt_timeout=SOON, worker=AT_ONCE),
    "another attempt": Retry(attempt_timeout=SOON, worker=AT_ONCE),
    "total": Retry(timeout=SOON, worker=AT_ONCE),
    "work": Retry(work_timeout=SOON, worker=AT_ONCE),
    "wrapped": Retry(timeout=SOON, worker=AT_ONCE, wrap=True),
    "stopped": Retry(on=always(False), attempt_timeout=SOON, worker=AT_ONCE),
    "timeout": Timeout(SOON, worker=AT_ONCE),
}
EVERY_LEAVING = pytest.mark.parametrize("inner", LEAVING.values(), ids=LEAVING)


def around(**options: Any) -> Retry:
    """Make a policy that goes on: a busy machine may not come to the operation in its first attempt."""
    said: dict[str, Any] = {"on": Exception, "attempts": 20, "backoff": [0] * 20, "nested": "allow"}
    return Retry(**said | options)


def failure(colour: str, policy: Retry, work: Callable[[], object]) -> Exception:
    with pytest.raises(Exception) as caught:  # noqa: PT011  any: the row says which
        in_colour(colour, lambda: policy.call(work), lambda: policy.acall(work))
    return caught.value


def is_said(error: Exception) -> bool:
    """Return True if the report of this error has a worker left."""
    said = report(error)
    return said is not None and (said.reason, said.workers_left) == (STUCK, 1)


# ------------------------------------------------------------------- a policy around another


@COLOURS
@EVERY_LEAVING
def test_a_policy_around_one_that_has_left_its_worker(colour: str, inner: Layer) -> None:
    with Stuck() as stuck:
        assert is_said(failure(colour, around(), lambda: inner.call(stuck)))
        assert stuck.called(1)


@pytest.mark.parametrize("colour", ASYNC)
@pytest.mark.parametrize("limit", ["attempt_timeout", "timeout"])
def test_async_code_around_one_that_has_left_its_worker(colour: str, limit: str) -> None:
    limits: dict[str, Any] = {limit: SOON}
    inner = Retry(attempts=1, worker=AT_ONCE, **limits)

    async def work() -> None:
        await inner.acall(stuck)

    async def main() -> None:
        with pytest.raises(Exception) as caught:  # noqa: PT011  any: the row says which
            await around().call(work)
        assert is_said(caught.value)

    with Stuck() as stuck:
        in_colour(colour, lambda: None, main)
        assert stuck.called(1)


def chained(error: Exception) -> Exception:
    wrapped = LookupError()
    wrapped.__cause__ = error
    return wrapped


def grouped(error: Exception) -> Exception:
    return ExceptionGroup("several", [ValueError(), error])


def pickled(error: Exception) -> Exception:
    """As it comes from a worker process, where the stamp is a report."""
    copy: Exception = pickle.loads(pickle.dumps(error))
    return copy


TRAVELS = pytest.mark.parametrize("travel", [chained, grouped, pickled])


def failing(inner: Layer, stuck: Stuck, travel: Callable[[Exception], Exception]) -> Callable[[], None]:
    """Make an operation that makes of an inner error what comes out."""

    def work() -> None:
        ended: list[Exception] = []
        try:
            inner.call(stuck)
        except Exception as error:
            ended.append(travel(error))
        raise ended.pop()

    return work


@TRAVELS
@EVERY_LEAVING
@pytest.mark.parametrize("nested", ["allow", "warn"])
def test_however_that_error_travels(
    travel: Callable[[Exception], Exception], inner: Layer, nested: str
) -> None:
    """And whatever the outer policy says about the inner one's attempts."""
    with Stuck() as stuck:
        assert is_said(failure("sync", around(nested=nested), failing(inner, stuck, travel)))
        assert stuck.called(1)


@COLOURS
def test_beside_it_if_that_is_allowed(colour: str) -> None:
    inner = Retry(attempts=1, attempt_timeout=SOON, worker=BESIDE)
    with Stuck() as stuck:
        error = failure(colour, around(attempts=3), lambda: inner.call(stuck))
        said = report(error)
        assert said is not None
        assert (said.reason, said.attempts) == ("attempts", 3)
        assert stuck.called(3)


def test_a_worker_that_was_left_before_is_no_concern_of_this_attempt() -> None:
    old = Retry(attempts=1, attempt_timeout=SOON, worker=AT_ONCE)
    with Stuck() as stuck, virtual_time():
        error = old.run(stuck).error
        assert error is not None
        SYSTEM.sleep(1)
        again: list[Exception] = [error, error]
        assert around().call(lambda: fail(again.pop()) if again else "done") == "done"


def fail(error: Exception) -> None:
    raise error


# ---------------------------------------------------------------- a worker on a worker


@COLOURS
@pytest.mark.parametrize(
    "inner",
    [
        Timeout(LONG, worker=AT_ONCE),
        Retry(timeout=LONG, worker=AT_ONCE),
        Retry(attempts=1, attempt_timeout=LONG, worker=AT_ONCE),
        Retry(worker=AT_ONCE, wrap=True),
    ],
    ids=["timeout", "total", "attempts", "wrapped"],
)
def test_a_worker_that_stops_when_asked_but_leaves_another_one(colour: str, inner: Layer) -> None:
    """Its limit is a deadline for what runs there, which ends by that, and has left a worker of its own."""
    with Stuck() as stuck:
        policy = around(attempt_timeout=SOON, worker=Worker(grace=LONG))
        error = failure(colour, policy, lambda: inner.call(stuck))
        assert is_said(error)
        assert type(error) is errors.WorkerStillRunning
        assert stuck.called(1)


@COLOURS
@TRAVELS
@pytest.mark.parametrize(
    "inner", [Retry(timeout=LONG, worker=AT_ONCE), Timeout(LONG, worker=AT_ONCE)], ids=["retry", "timeout"]
)
def test_however_its_error_travels(
    colour: str, travel: Callable[[Exception], Exception], inner: Layer
) -> None:
    with Stuck() as stuck:
        policy = around(attempt_timeout=SOON, worker=Worker(grace=LONG))
        assert is_said(failure(colour, policy, failing(inner, stuck, travel)))
        assert stuck.called(1)


@COLOURS
def test_one_that_left_another_before_it_was_asked_to_stop(colour: str) -> None:
    """By the virtual clock it is late, though it was not asked to stop."""
    calls: list[None] = []

    def work() -> None:
        calls.append(None)
        SYSTEM.sleep(10)
        raise errors.WorkerStillRunning("somebody else's")

    policy = around(attempt_timeout=1, worker=Worker(grace=LONG))
    with pytest.raises(errors.WorkerStillRunning) as caught:
        at(f"{colour} inside", lambda _: policy.call(work), lambda _: policy.acall(work))
    assert is_said(caught.value)
    assert len(calls) == 1


@COLOURS
def test_a_timeout_around_a_timeout(colour: str) -> None:
    inner, outer = Timeout(LONG, worker=AT_ONCE), Timeout(SOON, worker=Worker(grace=LONG))
    with Stuck() as stuck:
        error = failure(colour, around(), lambda: (outer | inner).call(stuck))
        assert is_said(error)
        assert type(error) is errors.WorkerStillRunning
        assert stuck.called(1)
