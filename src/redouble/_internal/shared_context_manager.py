"""Context managers that tasks and threads share: each ``with`` has a block of its own, and finds it again.

A signal handler that raises (Ctrl-C, a soft time limit) may interrupt `__enter__` and `__exit__`. It leaves
no block open: a `Block` that is interrupted while it begins or ends is ended once more.

CPython runs signal handlers at the start of a function, at the end of a call of a C function, and at
backward jumps; not between the `__enter__` of a ``with`` and its block, nor between the block and `__exit__`.
The start of a function is before every ``try`` in it, so a handler that raises there would skip a whole
`__exit__`, and what the block holds would be held for ever: see `try_from_start`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator
from contextlib import suppress
from contextvars import ContextVar
from opcode import opmap
from types import CodeType, FunctionType
from typing import Any, Generic, TypeAlias, TypeVar, cast

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

PendingExit: TypeAlias = "tuple[ContextExits, Block[Any]]"


# In the exception table each entry is a start, a length, a target and a depth: numbers of six bits a byte.
FIRST_BYTE, MORE_BYTES, BITS = 0x80, 0x40, 0x3F


def try_from_start(fn: F) -> F:
    """Let the ``try`` that is the first statement of a function cover its first instruction too.

    A local variable may not have a value yet in its handlers, so they use parameters only.
    """
    function = cast("FunctionType", fn)
    table = iter(function.__code__.co_exceptiontable)
    start, length = _read(table), _read(table)
    head = bytearray((*_varint(0), *_varint(start + length)))
    head[0] |= FIRST_BYTE
    function.__code__ = function.__code__.replace(co_exceptiontable=bytes((*head, *table)))
    return fn


def never_began(error: BaseException, fn: object) -> bool:
    """Return True if a call of ``fn`` raised this error before its first statement: a signal handler did."""
    code: CodeType | None = getattr(fn, "__code__", None)
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code is not code:
        trace = trace.tb_next  # the last frame is that of the handler
    return trace is not None and code is not None and code.co_code[trace.tb_lasti] == opmap["RESUME"]


def _read(table: Iterator[int]) -> int:
    byte = next(table)
    number = byte & BITS
    while byte & MORE_BYTES:
        byte = next(table)
        number = number << 6 | byte & BITS
    return number


def _varint(number: int) -> Iterable[int]:
    first, last = divmod(number, BITS + 1)
    return (*(byte | MORE_BYTES for byte in _varint(first)), last) if first else (last,)


class Block(Generic[T]):
    """What one ``with`` holds, from `begin` to `leave`; also a context manager, for one use."""

    claimed = False  # True once it is being left

    def begin(self) -> T:
        """Begin the block and return the value of ``as``."""
        raise NotImplementedError

    def leave(self, error: BaseException | None) -> bool | None:
        """End the block: do whatever of that has not been done, since this may be called again.

        Also called if `begin` was interrupted, at any point. Return True to swallow the error.
        """
        raise NotImplementedError

    async def abegin(self) -> T:
        """Begin the block in async code."""
        return self.begin()

    async def aleave(self, error: BaseException | None) -> bool | None:
        """End the block in async code."""
        return self.leave(error)

    def __enter__(self) -> T:
        try:
            return self.begin()
        except BaseException as error:
            self.leave(error)
            raise

    async def __aenter__(self) -> T:
        try:
            return await self.abegin()
        except BaseException as error:
            await self.aleave(error)
            raise

    @try_from_start
    def __exit__(self, kind: object, error: BaseException | None, tb: object) -> bool | None:
        try:
            return self.leave(error)
        except BaseException:
            self.leave(error)
            raise


class ContextExits:
    """The blocks of one context manager that are currently open."""

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open: dict[Block[Any], None] = {}

    def record(self, block: Block[Any]) -> None:
        """Record a block that begins."""
        # Blocks that were left in another context are dropped here, or this context would keep them for ever.
        _pending.set(((self, block), *(other for other in _pending.get() if not other[1].claimed)))
        self._open[block] = None

    def claim(self) -> Block[Any]:
        """Return the block that this task or thread entered last, and never again.

        If it was entered in another context (some frameworks run the two halves of a generator fixture in
        different contexts), any open block is returned: none may stay open.
        """
        entered_here = [block for owner, block in _pending.get() if owner is self]
        blocks: list[Block[Any]] = [*entered_here, *reversed([*self._open])]
        for block in blocks:
            if not block.claimed:
                block.claimed = True  # last: a signal handler cannot run before the caller has the block
                return block
        raise RuntimeError("a `with` block was left more often than it was entered")

    def forget(self, block: Block[Any]) -> None:
        """Drop a block that has ended."""
        block.claimed = True
        self._open.pop(block, None)
        _pending.set(tuple(other for other in _pending.get() if other[1] is not block))


class SharedContextManager(Generic[T]):
    """A context manager that tasks and threads share. It may be entered again while it is entered."""

    def _new_block(self) -> Block[T]:
        """Return the block of one ``with``, which has not begun."""
        raise NotImplementedError

    def __enter__(self) -> T:
        block = self._new_block()
        try:
            value = block.begin()
            self._blocks().record(block)
        except BaseException as error:
            self._end_block(block, error)
            raise
        return value

    @try_from_start
    def __exit__(self, kind: object, error: BaseException | None, tb: object) -> bool | None:
        try:
            tb = block = self._blocks().claim()  # a parameter has a value also if this is interrupted
            return self._end_block(block, error)
        except BaseException:
            self._end_interrupted(tb, error)
            raise

    def _blocks(self) -> ContextExits:
        """Return the open blocks. A subclass need not call ``__init__``."""
        exits: ContextExits = self.__dict__.setdefault("_open_blocks", ContextExits())
        return exits

    def _end_block(self, block: Block[T], error: BaseException | None) -> bool | None:
        swallowed = block.leave(error)
        self._blocks().forget(block)
        return swallowed

    def _end_interrupted(self, claimed: object, error: BaseException | None) -> None:
        """End the block of a ``with`` whose `__exit__` was interrupted; no block: before it was claimed."""
        with suppress(RuntimeError):  # there is none: `__exit__` raises that
            is_claimed = isinstance(claimed, Block)
            block: Block[T] = cast("Block[T]", claimed) if is_claimed else self._blocks().claim()
            self._end_block(block, error)


class AsyncSharedContextManager(SharedContextManager[T]):
    """The same for ``with`` and ``async with``."""

    async def __aenter__(self) -> T:
        block = self._new_block()
        try:
            value = await block.abegin()
            self._blocks().record(block)
        except BaseException as error:
            await self._aend_block(block, error)
            raise
        return value

    @try_from_start
    def __aexit__(self, kind: object, error: BaseException | None, tb: object) -> Awaitable[bool | None]:
        # No coroutine: a signal handler may run before it is awaited.
        try:
            tb = block = self._blocks().claim()
            self._end_block(block, error)
        except BaseException:
            self._end_interrupted(tb, error)
            raise
        return LEFT

    async def _aend_block(self, block: Block[T], error: BaseException | None) -> bool | None:
        swallowed = await block.aleave(error)
        self._blocks().forget(block)
        return swallowed


class AlreadyLeft(Awaitable[None]):
    """An awaitable whose result is there."""

    def __await__(self) -> Generator[Any, Any, None]:
        return
        yield  # pragma: no cover  which makes it a generator


LEFT = AlreadyLeft()

# Innermost first. A block entered in one task or thread is invisible to all others.
_pending: ContextVar[tuple[PendingExit, ...]] = ContextVar("redouble_context_exits", default=())
