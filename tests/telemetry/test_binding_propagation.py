"""Bound fields propagate into tasks, threads, workers and generators, and not back."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextvars import Context, copy_context
from typing import Any

import pytest
import trio

from redouble import Retry, Timeout, Worker, bind, observe
from redouble._telemetry.bound_fields import BOUND
from redouble.types import Event
from tests.support.fakes import ASYNC, in_colour
from tests.support.telemetry.bound_fields import bound
from tests.support.workers.calls import in_any, policy
from tests.support.workers.functions import bound_events

pytestmark = pytest.mark.usefixtures("no_fields_bound")

HERE = pytest.mark.parametrize("colour", ASYNC)


async def bound_in_events() -> dict[str, object]:
    """Make a call, and return the fields bound in its events."""
    events: list[Event] = []

    async def work() -> None: ...

    with observe(events.append):
        await Retry(name="bound")(work)()
    first, last = (dict[str, object](event.bound) for event in events if event.name == "bound")
    assert first == last
    return first


@HERE
def test_a_task_inherits_the_fields_and_keeps_its_own_to_itself(colour: str) -> None:
    seen: dict[str, object] = {}

    async def child(name: str) -> None:
        with bind(task=name):
            seen[name] = await bound_in_events()
        bind(left=name)

    async def in_asyncio() -> None:
        await asyncio.gather(child("a"), child("b"))

    async def in_trio() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(child, "a")
            nursery.start_soon(child, "b")

    async def main() -> None:
        with bind(run=1):
            await (in_trio if colour == "trio" else in_asyncio)()
            seen["after"] = bound()

    in_colour(colour, int, main)
    assert seen == {"a": {"run": 1, "task": "a"}, "b": {"run": 1, "task": "b"}, "after": {"run": 1}}


@HERE
def test_a_task_keeps_the_fields_after_the_block_has_ended(colour: str) -> None:
    seen: list[dict[str, object]] = []

    async def main() -> None:
        if colour == "trio":
            async with trio.open_nursery() as nursery:
                with bind(run=1):
                    nursery.start_soon(child)
        else:
            with bind(run=1):
                task = asyncio.ensure_future(child())
            await task
        assert bound() == {}

    async def child() -> None:
        seen.append(await bound_in_events())

    in_colour(colour, int, main)
    assert seen == [{"run": 1}]


def test_a_thread_starts_without_bound_fields() -> None:
    seen: list[dict[str, object]] = []
    with bind(run=1):
        threads = [threading.Thread(target=lambda: seen.append(bound()))]
        threads.append(threading.Thread(target=copy_context().run, args=[lambda: seen.append(bound())]))
        for thread in threads:
            thread.start()
            thread.join()
    assert seen == [{}, {"run": 1}]


WORKERS: dict[str, Callable[[Callable[[], Any]], Any]] = {
    "decorator": lambda fn: Retry(attempt_timeout=60, worker=Worker())(fn)(),
    "call": lambda fn: Retry(attempt_timeout=60, worker=Worker()).call(fn),
    "timeout": lambda fn: Timeout(60, worker=Worker())(fn)(),
}


@pytest.mark.parametrize("way", WORKERS)
def test_a_worker_thread_inherits_the_fields(way: str) -> None:
    def work() -> dict[str, object]:
        bind(inside=2)
        return bound()

    with bind(run=1):
        assert WORKERS[way](work) == {"run": 1, "inside": 2}
        assert bound() == {"run": 1}
    assert WORKERS[way](work) == {"inside": 2}


@HERE
def test_a_worker_thread_of_async_code_inherits_the_fields(colour: str) -> None:
    async def main() -> dict[str, object]:
        with bind(run=1):
            return await Retry().acall(bound)

    assert in_colour(colour, dict, main) == {"run": 1}


@pytest.mark.parametrize("colour", ["sync", *ASYNC])
def test_a_worker_process_inherits_the_fields(colour: str) -> None:
    """Events in the process have them; a later call of another caller has not."""
    with bind(run=1, tenant="acme"):
        there = in_any(colour, policy(), bound_events)
    assert [(event.what, dict(event.bound)) for event in there] == [
        ("before_attempt", {"run": 1, "tenant": "acme"}),
        ("success", {"run": 1, "tenant": "acme", "inside": True}),
    ]
    again = in_any(colour, policy(), bound_events)
    assert [dict(event.bound) for event in again] == [{}, {"inside": True}]


def test_a_generator_binds_fields_in_the_context_of_its_reader() -> None:
    """A generator has no context of its own."""

    def items() -> Iterator[dict[str, object]]:
        with bind(inside=1):
            yield bound()
            yield bound()

    with bind(run=1):
        reading = items()
        assert next(reading) == {"run": 1, "inside": 1}
        with bind(outside=2):
            assert next(reading) == {"run": 1, "inside": 1, "outside": 2}
            assert list(reading) == []
            assert bound() == {"run": 1, "outside": 2}
        assert bound() == {"run": 1}


def test_an_event_of_a_stream_has_the_fields_bound_at_its_time() -> None:
    events: list[Event] = []

    @Retry()
    def items() -> Iterator[int]:
        yield 1

    with observe(events.append):
        with bind(reader="first"):
            reading = items()
            assert next(reading) == 1
        with bind(reader="last"):
            assert list(reading) == []
    assert [(event.what, dict(event.bound)) for event in events] == [
        ("before_attempt", {"reader": "first"}),
        ("success", {"reader": "last"}),
    ]


def test_removing_a_handle_affects_the_current_context_only() -> None:
    binding = bind(run=1)
    other = copy_context()
    Context().run(binding.remove)
    assert bound() == {"run": 1}
    binding.remove()
    assert bound() == {}
    assert other.run(bound) == {"run": 1}
    other.run(binding.remove)
    assert other.run(bound) == {}


@HERE
def test_an_async_generator_binds_fields_in_the_context_of_its_reader(colour: str) -> None:
    async def items() -> AsyncIterator[dict[str, object]]:
        with bind(inside=1):
            yield bound()
        yield bound()

    async def main() -> list[dict[str, object]]:
        with bind(run=1):
            return [item async for item in items()]

    assert in_colour(colour, list, main) == [{"run": 1, "inside": 1}, {"run": 1}]
    assert dict(BOUND.get()) == {}
