"""Exits of a shared context manager: each task and thread finds its own, and each exit is used once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from threading import Barrier

import pytest

from redouble._internal.shared_context_manager import (
    AsyncSharedContextManager,
    Block,
    ContextExits,
    SharedContextManager,
    _pending,
)


class Named(Block[None]):
    """A block with a name, which does nothing."""

    def __init__(self, name: object) -> None:
        self.name = name

    def begin(self) -> None: ...

    def leave(self, error: BaseException | None) -> None: ...


def enter(exits: ContextExits, name: object) -> None:
    exits.record(Named(name))


def leave(exits: ContextExits) -> object:
    block = exits.claim()
    exits.forget(block)
    return block.name if isinstance(block, Named) else None


def entered(*names: object) -> ContextExits:
    """Enter blocks with these names, each in another context."""
    exits = ContextExits()
    for name in names:
        copy_context().run(enter, exits, name)
    return exits


def test_each_context_exits_what_it_entered_last() -> None:
    exits = ContextExits()
    other = copy_context()
    enter(exits, "first")
    other.run(enter, exits, "other")
    enter(exits, "second")
    assert [leave(exits), leave(exits), other.run(leave, exits)] == ["second", "first", "other"]


def test_exits_of_other_contexts_are_used_if_there_is_no_own_one() -> None:
    exits = entered("first", "second")
    assert [leave(exits), leave(exits)] == ["second", "first"]


def test_leaving_without_an_entry_raises() -> None:
    class Manager(SharedContextManager[None]):
        def _new_block(self) -> Named:
            return Named("once")

    manager = Manager()
    with manager:
        pass
    with pytest.raises(RuntimeError, match=r"^a `with` block was left more often than it was entered$"):
        manager.__exit__(None, None, None)


def test_blocks_left_in_another_context_are_not_kept() -> None:
    exits = ContextExits()
    for number in range(100):
        enter(exits, number)
        copy_context().run(leave, exits)
    assert len(_pending.get()) <= 1


def test_a_block_that_is_being_left_is_skipped() -> None:
    exits = entered("first", "second")
    second = exits.claim()
    assert isinstance(second, Named)
    assert second.name == "second"
    assert leave(exits) == "first"


def test_each_exit_is_used_by_one_of_many_threads() -> None:
    many, threads = 400, 8
    exits, together = entered(*range(many)), Barrier(threads)

    def leave_some(_: int) -> list[object]:
        together.wait()
        return [leave(exits) for _ in range(many // threads)]

    with ThreadPoolExecutor(threads) as pool:
        left = [value for some in pool.map(leave_some, range(threads)) for value in some]
    assert set(left) == set(range(many))
    assert len(left) == many


class Interrupted(Named):
    """A block whose end is interrupted once."""

    ends = 0

    async def aleave(self, error: BaseException | None) -> None:
        self.leave(error)

    def leave(self, error: BaseException | None) -> None:
        self.ends += 1
        if self.ends == 1:
            raise KeyboardInterrupt


class Manager(AsyncSharedContextManager[None]):
    def __init__(self) -> None:
        self.block = Interrupted("block")

    def _new_block(self) -> Interrupted:
        return self.block


def test_a_block_that_is_interrupted_at_its_end_is_ended_once_more() -> None:
    manager = Manager()
    with pytest.raises(KeyboardInterrupt), manager:
        pass
    assert manager.block.ends == 2

    async def main() -> None:
        async with manager:
            pass

    manager = Manager()
    with pytest.raises(KeyboardInterrupt):
        main().send(None)
    assert manager.block.ends == 2


def test_a_block_is_a_context_manager_too() -> None:
    block = Interrupted("block")
    with pytest.raises(KeyboardInterrupt), block:
        pass
    assert block.ends == 2
