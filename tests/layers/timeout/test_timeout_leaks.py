"""A call that timed out is freed at once, even without garbage collection."""

from __future__ import annotations

import weakref
from collections.abc import AsyncIterator
from typing import Any

import pytest

from redouble import Layer, Retry, Timeout, Worker, deadline, errors
from redouble._runtime.backend import backend
from tests.support.drivers.stuck_operations import SOON
from tests.support.drivers.worker_attempts import until_cancelled
from tests.support.fakes import ASYNC, in_colour
from tests.support.garbage_collection import Thing, without_gc
from tests.support.workers.threads import idle, settled

COLOURS = pytest.mark.parametrize("colour", ASYNC)

pytestmark = pytest.mark.usefixtures(idle.__name__, without_gc.__name__)


async def for_ever(thing: Thing) -> None:
    await backend().sleep(1000)


async def items_for_ever(thing: Thing) -> AsyncIterator[Thing]:
    await backend().sleep(1000)
    yield thing


async def timed_out(limit: Layer, *, stream: bool) -> list[weakref.ref[Any]]:
    """Make a call that times out; return weak references to its argument and its error."""
    thing = Thing()
    watched: list[weakref.ref[Any]] = [weakref.ref(thing)]
    try:
        if stream:
            async for _ in limit(items_for_ever)(thing):
                raise AssertionError
        else:
            await limit(for_ever)(thing)
    except errors.AttemptTimeout as error:
        watched.append(weakref.ref(error))
    del thing
    return watched


@COLOURS
@pytest.mark.parametrize("stream", [False, True], ids=["call", "stream"])
@pytest.mark.parametrize("how", ["itself", "retried", "deadline", "never begun"])
def test_a_call_that_timed_out_is_freed(colour: str, stream: bool, how: str) -> None:
    async def main() -> None:
        match how:
            case "itself":
                watched = await timed_out(Timeout(SOON), stream=stream)
            case "retried":
                policy = Retry(attempts=2, backoff=[0], on=errors.AttemptTimeout)
                watched = await timed_out(policy | Timeout(SOON), stream=stream)
            case _:
                with deadline(SOON if how == "deadline" else 0):
                    watched = await timed_out(Timeout(60), stream=stream)
        for _ in range(2):
            await backend().sleep(0)  # the loop refers to the cancellation until its next iteration
        assert len(watched) == 2
        assert [ref() for ref in watched] == [None, None]

    in_colour(colour, lambda: None, main)


def test_a_call_on_a_worker_that_timed_out_is_freed() -> None:
    watched: list[weakref.ref[Any]] = []

    def work(thing: Thing) -> None:
        watched.append(weakref.ref(thing))
        until_cancelled()

    try:
        Timeout(SOON, worker=Worker(grace=60)).call(work, Thing())
    except errors.AttemptTimeout as error:
        watched.append(weakref.ref(error))
    settled()
    assert [ref() for ref in watched] == [None, None]
