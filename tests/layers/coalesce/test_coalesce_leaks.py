"""A call through `Coalesce` leaves nothing behind, even without garbage collection."""

from __future__ import annotations

import contextvars
import threading
import weakref
from typing import Any

import pytest

from redouble import Coalesce
from tests.support.bulkhead_callers import until
from tests.support.fakes import ASYNC, Boom, run_async
from tests.support.garbage_collection import Thing, without_gc

ASYNCS = pytest.mark.parametrize("colour", ASYNC)
pytestmark = pytest.mark.usefixtures(without_gc.__name__)


def test_the_error_and_the_arguments_of_a_shared_call_are_freed() -> None:
    coalesce, watched, go = Coalesce(), list[weakref.ref[Any]](), threading.Event()

    @coalesce
    def fetch(thing: Thing) -> None:
        go.wait(60)
        raise Boom

    def call(thing: Thing) -> None:
        try:
            fetch(thing)
        except Boom as error:
            watched.append(weakref.ref(error))

    thing = Thing()
    threads = [threading.Thread(target=call, args=(thing,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    until(lambda: coalesce.snapshot() == {"in_flight": 1, "waiting": 2})
    go.set()
    for thread in threads:
        thread.join()
    watched.append(weakref.ref(thing))
    del thing, threads
    assert [reference() for reference in watched] == [None] * 4


@ASYNCS
def test_the_error_and_the_arguments_of_an_async_call_are_freed(colour: str) -> None:
    @Coalesce()
    async def fetch(thing: Thing) -> None:
        raise Boom

    async def main() -> weakref.ref[Thing]:
        thing = Thing()
        with pytest.raises(Boom):
            await fetch(thing)
        return weakref.ref(thing)

    assert run_async(colour, main)() is None


@ASYNCS
def test_what_a_call_leaves_behind_does_not_keep_its_result(colour: str) -> None:
    """A task, and a timer such as that of a connection pool, keep the context in which they were started."""
    kept = list[contextvars.Context]()

    @Coalesce()
    async def fetch() -> Thing:
        kept.append(contextvars.copy_context())
        return Thing()

    async def main() -> weakref.ref[Thing]:
        return weakref.ref(await fetch())

    assert run_async(colour, main)() is None


def test_a_context_does_not_keep_the_result_of_a_blocking_call() -> None:
    kept = list[contextvars.Context]()

    @Coalesce()
    def fetch() -> Thing:
        kept.append(contextvars.copy_context())
        return Thing()

    watched = weakref.ref(fetch())
    assert watched() is None
    assert kept[0].run(fetch) is not None  # a call in that context later is one of its own
