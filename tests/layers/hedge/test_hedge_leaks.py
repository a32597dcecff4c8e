"""A race leaves nothing behind, even without garbage collection."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable
from contextlib import suppress
from typing import Any

import pytest
import trio

from redouble import Hedge
from redouble._runtime.backend import backend, under_trio
from tests.support.fakes import Boom
from tests.support.garbage_collection import Thing, without_gc
from tests.support.layers.hedge_attempts import LOOPS, Other, ScriptedAttempts, timed
from tests.support.virtual_time import no_real_waits

pytestmark = pytest.mark.usefixtures(no_real_waits.__name__, without_gc.__name__)


async def cancelled(call: Awaitable[object]) -> None:
    """Cancel a call after four seconds; not by a context manager of ours, which would keep the outcome."""
    if under_trio():
        with trio.move_on_after(4):
            await call
        return
    with suppress(TimeoutError):
        async with asyncio.timeout(4):
            await call


FREED: dict[str, list[tuple[float, Any]]] = {
    "in time": [(0.5, Boom)],
    "both fail": [(2, Boom), (2, Boom)],
    "both fail, the first one last": [(4, Boom), (1, Boom)],
    "unhandled": [(4, "a"), (1, Other)],
    "unhandled, in the first one": [(2, Other), (9, "b")],
    "lost": [(2, Boom), (3, "b")],
    "the second one is cancelled": [(2, "a"), (9, "b")],
    "cancelled": [(2, Boom), (9, "b")],
}


@LOOPS
@pytest.mark.parametrize("how", FREED)
def test_errors_and_arguments_are_freed(colour: str, how: str) -> None:
    watched: list[weakref.ref[Any]] = []
    work, hedge = ScriptedAttempts(FREED[how]), Hedge(1, None, on=Boom)

    async def failing(thing: Thing) -> None:
        try:
            await work()
        except Exception as error:
            watched.append(weakref.ref(error))
            raise

    async def once() -> None:
        thing = Thing()
        watched.append(weakref.ref(thing))
        if how == "cancelled":
            await cancelled(hedge.call(failing, thing))
        else:
            with suppress(Boom, Other):
                await hedge.call(failing, thing)

    async def main() -> list[Any]:
        await once()
        for _ in range(3):
            await backend().sleep(0)  # the loop refers to tasks that have just ended
        return [ref() for ref in watched]

    found = timed(colour, main)
    assert found == [None] * len(watched)
