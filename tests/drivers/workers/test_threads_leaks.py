"""A worker thread keeps no reference to a result, an argument or a frame of a job that has ended."""

from __future__ import annotations

import asyncio
import traceback
import weakref
from threading import Event

import pytest

from redouble import SYSTEM, Retry, Worker, errors
from redouble.testing import virtual_time
from tests.support.fakes import Boom, Panic
from tests.support.garbage_collection import Thing, without_gc
from tests.support.workers.threads import idle, settled

pytestmark = pytest.mark.usefixtures(idle.__name__)


@pytest.mark.usefixtures(without_gc.__name__)
@pytest.mark.parametrize("error", [None, Boom, Panic])
def test_nothing_keeps_arguments_and_results_alive(error: type[BaseException] | None) -> None:
    def work(thing: Thing, *, other: Thing) -> Thing:
        local.append(weakref.ref(made := Thing()))
        if error is not None:
            raise error
        return made

    local: list[weakref.ref[Thing]] = []
    thing, other = Thing(), Thing()
    watched = [weakref.ref(thing), weakref.ref(other)]
    try:
        assert isinstance(Retry(on=Boom, backoff=[0], worker=Worker()).call(work, thing, other=other), Thing)
    except (Boom, Panic):
        assert error is not None
    del thing, other
    settled()
    assert [ref() for ref in watched + local] == [None] * (2 + len(local))


@pytest.mark.usefixtures(without_gc.__name__)
@pytest.mark.parametrize("fails", [False, True])
def test_a_late_result_is_discarded_and_freed(fails: bool) -> None:
    """It is freed when the job ends, even if the error of the call is still referenced."""
    go, gone = Event(), Event()

    def work(thing: Thing) -> Thing:
        go.wait()
        if fails:
            raise Boom(thing)
        return thing

    thing = Thing()
    watched = weakref.finalize(thing, gone.set)
    with pytest.raises(errors.WorkerStillRunning) as caught:
        Retry(attempt_timeout=0.001, worker=Worker(grace=0)).call(work, thing)
    cause = caught.value.__cause__
    assert cause is not None
    traceback.clear_frames(cause.__traceback__)  # which hold the arguments of the call
    traceback.clear_frames(caught.value.__traceback__)
    del thing
    go.set()
    assert gone.wait(60)
    assert not watched.alive


@pytest.mark.usefixtures(without_gc.__name__)
def test_an_error_that_is_late_in_virtual_time_is_freed() -> None:
    """The worker has ended before it could be cancelled."""
    watched: list[weakref.ref[Thing]] = []

    def work(thing: Thing) -> None:
        watched.append(weakref.ref(thing))
        SYSTEM.sleep(10)
        raise Boom

    with virtual_time(), pytest.raises(errors.AttemptTimeout):
        Retry(attempt_timeout=1, attempts=1, worker=Worker()).call(work, Thing())
    settled()
    assert watched[0]() is None


def test_a_slow_destructor_of_a_late_result_delays_no_call() -> None:
    """Its thread takes no other job until the destructor has returned."""
    go, freeing, freed = Event(), Event(), Event()

    class Slow:
        def __del__(self) -> None:
            freeing.set()
            freed.wait()

    def work() -> Slow:
        go.wait()
        return Slow()

    try:
        with pytest.raises(errors.WorkerStillRunning):
            Retry(attempt_timeout=0.001, worker=Worker(grace=0)).call(work)
        go.set()
        freeing.wait()
        done = Retry(attempt_timeout=60, attempts=1, worker=Worker(grace=0)).run(str, "done")
        assert done.value == "done"
    finally:
        freed.set()


@pytest.mark.usefixtures(without_gc.__name__)
@pytest.mark.parametrize("error", [None, Boom])
def test_nothing_keeps_the_arguments_of_async_calls_alive(error: type[Exception] | None) -> None:
    watched: list[weakref.ref[Thing]] = []

    def work(thing: Thing) -> Thing:
        watched.append(weakref.ref(thing))
        if error is not None:
            raise error
        return thing

    async def main() -> None:
        try:
            await Retry(on=Boom, backoff=[0]).acall(work, Thing())
        except Boom:
            assert error is not None
        settled()
        assert [ref() for ref in watched] == [None] * len(watched)

    asyncio.run(main())
