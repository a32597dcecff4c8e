"""Deadlines entered in one context and exited in another, in any order: none stays in force or in memory."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redouble import deadline, remaining
from redouble._runtime.ambient import ambient
from redouble._runtime.deadline import ActiveDeadline
from redouble.testing import VirtualClock, virtual_time
from tests.support.fakes import ASYNC, in_colour
from tests.support.virtual_time import no_real_waits

pytestmark = pytest.mark.usefixtures(no_real_waits.__name__)


# -------------------------------------------------------------- generators and fixtures


def numbers() -> Iterator[int]:
    with deadline(10):
        yield 1
        yield 2


async def anumbers() -> AsyncIterator[int]:
    with deadline(10):
        yield 1
        yield 2


def test_a_generator_that_is_closed_early_exits_its_deadline() -> None:
    for _ in numbers():
        assert remaining() is not None
        break
    assert remaining() is None


def test_generators_may_end_in_any_order() -> None:
    with virtual_time() as clock:
        first = numbers()
        next(first)
        clock.advance(1)
        second = numbers()
        next(second)
        assert remaining() == 9
        assert list(first) == [2]
        assert remaining() == 10
        assert list(second) == [2]
        assert remaining() is None


@pytest.mark.parametrize("colour", ASYNC)
def test_an_async_generator_exits_its_deadline_at_its_end(colour: str) -> None:
    async def waiting() -> None:
        items = anumbers()
        assert await anext(items) == 1
        assert remaining() is not None
        assert [item async for item in items] == [2]
        assert remaining() is None

    in_colour(colour, lambda: None, waiting)


def alive() -> int:
    gc.collect()
    return sum(type(thing) is ActiveDeadline for thing in gc.get_objects())


def test_deadlines_of_generators_closed_by_the_loop_are_freed() -> None:
    """They are exited in another task; the task that entered them keeps no reference."""

    async def main() -> int:
        for _ in range(50):
            async for _ in anumbers():
                break
            for _ in range(3):  # loop iterations, of which it needs two
                await asyncio.sleep(0)
            assert remaining() is None
        return alive()

    before = alive()
    assert asyncio.run(main()) <= before + 1


def test_a_fixture_may_be_exited_in_another_context() -> None:
    @contextmanager
    def fixture() -> Generator[float | None]:
        with deadline(10):
            yield remaining()

    manager, entering, leaving = fixture(), copy_context(), copy_context()
    assert entering.run(manager.__enter__) is not None
    assert leaving.run(remaining) is None
    leaving.run(manager.__exit__, None, None, None)
    assert entering.run(remaining) is None
    assert not ambient.active


# -------------------------------------------------------------------------------- any order

Ids: TypeAlias = tuple[int, ...]


class Model:
    """The expected state: the deadlines that each context entered or inherited, and which are open."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.blocks = [deadline(seconds) for seconds in (5, 20, 60)]
        self.contexts = [copy_context()]
        self.known: list[Ids] = [()]  # by context, innermost last
        self.open: list[tuple[int, int]] = []  # a number, and the block it belongs to
        self.until: list[float] = []

    def enter(self, context: int, block: int) -> None:
        self.contexts[context].run(self.blocks[block].__enter__)
        number = len(self.until)
        self.until.append(self.clock.now() + (5, 20, 60)[block])
        self.open.append((number, block))
        self.known[context] += (number,)

    def leave(self, context: int, block: int) -> None:
        """Exit the block that this context entered last, or else any open one."""
        own = [pair for pair in self.open if pair[1] == block]
        if own:
            here = [pair for pair in own if pair[0] in self.known[context]]
            self.contexts[context].run(self.blocks[block].__exit__, None, None, None)
            self.open.remove(max(here or own))

    def copy(self, context: int) -> None:
        self.contexts.append(self.contexts[context].copy())
        self.known.append(self.known[context])

    def check(self) -> None:
        still_open = {number for number, _ in self.open}
        for context, known in zip(self.contexts, self.known, strict=True):
            moments = [self.until[number] for number in known if number in still_open]
            expected = max(0.0, min(moments) - self.clock.now()) if moments else None
            assert context.run(remaining) == expected


STEPS = st.tuples(st.sampled_from(["enter", "leave", "copy", "wait"]), st.integers(0, 9), st.integers(0, 2))


@given(st.lists(STEPS, max_size=40))
def test_entering_and_leaving_in_any_order_in_any_context(steps: list[tuple[str, int, int]]) -> None:
    with virtual_time() as clock:
        model = Model(clock)
        for step, where, block in steps:
            context = where % len(model.contexts)
            match step:
                case "enter":
                    model.enter(context, block)
                case "leave":
                    model.leave(context, block)
                case "copy":
                    model.copy(context)
                case _:
                    clock.advance(where)
            model.check()
        while model.open:
            model.leave(0, model.open[0][1])
            model.check()
    assert not ambient.active
