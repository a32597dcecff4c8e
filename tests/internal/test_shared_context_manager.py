"""Exits of a shared context manager: each task and thread finds its own, and each exit is used once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from threading import Barrier
from typing import Any

import pytest

from redouble._internal.shared_context_manager import ContextExits, _pending


def entered(*values: object) -> ContextExits[object]:
    """Enter with these exits, each in another context."""
    exits = ContextExits[object]()
    for value in values:
        copy_context().run(exits.enter, value)
    return exits


def test_each_context_exits_what_it_entered_last() -> None:
    exits = ContextExits[str]()
    other = copy_context()
    exits.enter("first")
    other.run(exits.enter, "other")
    exits.enter("second")
    assert [exits.leave(), exits.leave(), other.run(exits.leave)] == ["second", "first", "other"]


def test_exits_of_other_contexts_are_used_if_there_is_no_own_one() -> None:
    exits = entered("first", "second")
    assert [exits.leave(), exits.leave()] == ["second", "first"]


def test_leaving_without_an_entry_raises() -> None:
    exits = ContextExits[str]()
    exits.enter("once")
    assert exits.leave() == "once"
    with pytest.raises(RuntimeError, match=r"^a `with` block was left more often than it was entered$"):
        exits.leave()


def test_exits_used_in_another_context_are_not_kept() -> None:
    exits = ContextExits[int]()
    for number in range(100):
        exits.enter(number)
        copy_context().run(exits.leave)
    assert len(_pending.get()) <= 1


class Contended(list[Any]):
    """A list from which another thread removes the item just before we do."""

    def __init__(self, items: list[Any], exits: ContextExits[object]) -> None:
        super().__init__(items)
        self.taken_first: list[object] = []
        self.exits = exits

    def remove(self, value: Any, /) -> None:
        if not self.taken_first:
            self.taken_first.append(None)
            self.taken_first.append(copy_context().run(self.exits.leave))
        super().remove(value)


def test_an_exit_that_another_thread_removed_first_is_skipped() -> None:
    exits = entered("first", "second")
    exits._open = open_ = Contended(exits._open, exits)
    assert exits.leave() == "first"
    assert open_.taken_first == [None, "second"]


def test_each_exit_is_used_by_one_of_many_threads() -> None:
    many, threads = 400, 8
    exits, together = entered(*range(many)), Barrier(threads)

    def leave(_: int) -> list[object]:
        together.wait()
        return [exits.leave() for _ in range(many // threads)]

    with ThreadPoolExecutor(threads) as pool:
        left = [value for some in pool.map(leave, range(threads)) for value in some]
    assert set(left) == set(range(many))
    assert len(left) == many
