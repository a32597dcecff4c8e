"""The class of a call: blocks, tasks, threads and workers that inherit it, and wrong use."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextvars import copy_context
from typing import Any

import pytest

import redouble
from redouble import Retry, Worker, priority
from redouble._runtime.priority import PRIORITY, inherit
from tests.support.fakes import ASYNC, COLOURS, Boom, in_colour
from tests.support.runtime.tasks import together


def test_blocks_nest() -> None:
    assert PRIORITY.get() is None
    with priority("batch"):
        assert PRIORITY.get() == "batch"
        with priority("interactive"):
            assert PRIORITY.get() == "interactive"
        with priority(None):
            assert PRIORITY.get() is None
        assert PRIORITY.get() == "batch"
    assert PRIORITY.get() is None


def test_a_block_that_raises_ends_its_class() -> None:
    with pytest.raises(Boom), priority("batch"):
        raise Boom
    assert PRIORITY.get() is None


def test_one_object_may_be_entered_again() -> None:
    batch = priority("batch")
    with batch, priority("interactive"), batch:
        assert PRIORITY.get() == "batch"
    assert PRIORITY.get() is None


def numbers(name: str) -> Iterator[int]:
    with priority(name):
        yield 1
        yield 2


def test_blocks_of_generators_may_end_in_any_order() -> None:
    first, second = numbers("batch"), numbers("interactive")
    next(first)
    next(second)
    assert list(first) == [2]
    assert PRIORITY.get() == "interactive"
    assert list(second) == [2]
    assert PRIORITY.get() is None


def test_a_block_that_is_left_in_another_context_changes_nothing_there() -> None:
    items = numbers("batch")
    copy_context().run(next, items)
    with priority("interactive"):
        assert list(items) == [2]
        assert PRIORITY.get() == "interactive"


@pytest.mark.parametrize("place", ["asyncio around", "asyncio inside", "trio around", "trio inside"])
def test_tasks_inherit_it(place: str) -> None:
    seen = list[str | None]()

    async def child() -> None:
        await redouble.SYSTEM.asleep(0)
        seen.append(PRIORITY.get())

    async def main() -> None:
        with priority("batch"):
            await together(place, child, child)

    in_colour(place.split(maxsplit=1)[0], lambda: None, main)
    assert seen == ["batch", "batch"]


def test_a_task_keeps_it_after_the_block() -> None:
    async def child(left: asyncio.Event) -> str | None:
        await left.wait()
        return PRIORITY.get()

    async def main() -> str | None:
        left = asyncio.Event()
        with priority("batch"):
            task = asyncio.create_task(child(left))
            await asyncio.sleep(0)
        left.set()
        return await task

    assert asyncio.run(main()) == "batch"


def current() -> str | None:
    """Return the class of a worker's context."""
    return PRIORITY.get()


@pytest.mark.parametrize("kind", ["thread", "process"])
@pytest.mark.parametrize("colour", ["sync", *ASYNC])
def test_workers_inherit_it(colour: str, kind: Any) -> None:
    policy = Retry(worker=Worker(kind))

    async def waiting() -> list[str | None]:
        with priority("batch"):
            first = await policy.acall(current)
        return [first, await policy.acall(current)]

    def blocking() -> list[str | None]:
        with priority("batch"):
            first = policy.call(current)
        return [first, policy.call(current)]

    assert in_colour(colour, blocking, waiting) == ["batch", None]


def test_what_a_process_inherits_replaces_all_else() -> None:
    def inherited() -> list[str | None]:
        seen = list[str | None]()
        with priority("batch"):
            inherit("interactive")
            seen.append(PRIORITY.get())
        return [*seen, PRIORITY.get()]

    assert copy_context().run(inherited) == ["interactive", "interactive"]


@pytest.mark.parametrize("colour", [colour for colour in COLOURS if colour in ASYNC])
def test_it_is_no_async_context_manager(colour: str) -> None:
    async def main() -> None:
        wrong: Any = priority("batch")
        async with wrong:
            pass

    with pytest.raises(TypeError, match=r"write `with priority\(...\)` also in async code"):
        in_colour(colour, lambda: None, main)
    wrong: Any = priority("batch")
    asyncio.run(wrong.__aexit__(None, None, None))


@pytest.mark.parametrize("wrong", [1, b"batch", ["batch"]])
def test_wrong_names(wrong: Any) -> None:
    with pytest.raises(TypeError, match="write the name of a class, such as 'batch', or None"):
        priority(wrong)


def test_a_class_has_a_name() -> None:
    with pytest.raises(ValueError, match="priority='': write the name of a class, such as 'batch', or None"):
        priority("")
