"""Exits of a shared context manager: each task and thread finds its own, and each exit is used once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from threading import Barrier
from typing import Any

import pytest

from redouble._internal.context_exits import ContextExits, _pending


def entered(*ways_out: object) -> ContextExits[object]:
    """Enter, in a context that is not this one."""
    ways = ContextExits[object]()
    for way_out in ways_out:
        copy_context().run(ways.enter, way_out)
    return ways


def test_each_leaves_as_it_entered_last() -> None:
    ways = ContextExits[str]()
    other = copy_context()
    ways.enter("first")
    other.run(ways.enter, "other")
    ways.enter("second")
    assert [ways.leave(), ways.leave(), other.run(ways.leave)] == ["second", "first", "other"]


def test_what_was_entered_elsewhere_is_left_too() -> None:
    ways = entered("first", "second")
    assert [ways.leave(), ways.leave()] == ["second", "first"]


def test_nothing_is_left_that_was_not_entered() -> None:
    ways = ContextExits[str]()
    ways.enter("once")
    assert ways.leave() == "once"
    with pytest.raises(RuntimeError, match=r"^something was left that had not been entered$"):
        ways.leave()


def test_what_was_left_elsewhere_is_not_kept() -> None:
    ways = ContextExits[int]()
    for number in range(100):
        ways.enter(number)
        copy_context().run(ways.leave)
    assert len(_pending.get()) <= 1


class Contended(list[Any]):
    """A list from which another thread removes the item just before we do."""

    def __init__(self, items: list[Any], ways: ContextExits[object]) -> None:
        super().__init__(items)
        self.quicker: list[object] = []
        self.ways = ways

    def remove(self, way: Any, /) -> None:
        if not self.quicker:
            self.quicker.append(None)
            self.quicker.append(copy_context().run(self.ways.leave))
        super().remove(way)


def test_another_thread_removes_the_exit_first() -> None:
    ways = entered("first", "second")
    ways._open = open_ = Contended(ways._open, ways)
    assert ways.leave() == "first"
    assert open_.quicker == [None, "second"]


def test_many_threads_leave_at_once() -> None:
    many, threads = 400, 8
    ways, together = entered(*range(many)), Barrier(threads)

    def leave(_: int) -> list[object]:
        together.wait()
        return [ways.leave() for _ in range(many // threads)]

    with ThreadPoolExecutor(threads) as pool:
        left = [way_out for some in pool.map(leave, range(threads)) for way_out in some]
    assert set(left) == set(range(many))
    assert len(left) == many
