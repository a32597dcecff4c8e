"""The class of a call, carried in a context variable: gates with shares read it."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, NoReturn

from redouble._internal.public import public
from redouble._internal.shared_context_manager import Block, SharedContextManager
from redouble._internal.validation import instance

PRIORITY: ContextVar[str | None] = ContextVar("redouble_priority", default=None)


class PriorityBlock(Block[None]):
    """The class of one ``with``."""

    def __init__(self, name: str | None) -> None:
        self.name = name

    def begin(self) -> None:
        """Set the class in this context."""
        _apply((*_open_blocks.get(), self))

    def leave(self, error: BaseException | None) -> None:  # noqa: ARG002
        """Restore the class of the block around it; if this one is not the innermost, it only ends."""
        blocks = _open_blocks.get()
        if self in blocks:  # else it is left in another context
            _apply(tuple(block for block in blocks if block is not self))


_open_blocks: ContextVar[tuple[PriorityBlock, ...]] = ContextVar("redouble_priority_blocks", default=())


def _apply(blocks: tuple[PriorityBlock, ...]) -> None:
    _open_blocks.set(blocks)
    PRIORITY.set(blocks[-1].name if blocks else None)


class Priority(SharedContextManager[None]):
    """The context manager that `priority` returns."""

    def __init__(self, name: str | None) -> None:
        self._name = name

    def _new_block(self) -> PriorityBlock:
        return PriorityBlock(self._name)

    if not TYPE_CHECKING:  # pragma: no branch  so that type checkers reject `async with`

        async def __aenter__(self) -> NoReturn:
            raise TypeError("write `with priority(...)` also in async code: entering and leaving never wait")

        async def __aexit__(self, *_: object) -> None:
            """Exist, so that `async with` reaches the message above."""


@public("redouble")
def priority(name: str | None, /) -> Priority:
    """Set the class of all calls inside: ``with redouble.priority("batch"): ...``, also in async code.

    A gate with ``shares`` admits calls by their class. Tasks and workers that are started inside inherit it,
    and keep it after the end of the block. Of several blocks the innermost counts; None: no class.
    """
    wanted = "the name of a class, such as 'batch', or None"
    instance(name, "priority", str | None, wanted)
    if name == "":
        raise ValueError(f"priority='': write {wanted}")
    return Priority(name)


def inherit(name: str | None) -> None:
    """Set the class that another process has sent with a call, and forget all others."""
    _apply((PriorityBlock(name),))
