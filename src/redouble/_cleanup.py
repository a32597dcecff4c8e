"""Closing an async stream though nobody awaits it: whether that would have to wait, read off its code.

What waits for nothing is done at once. All other goes on in a task of its own; and Trio cannot take over a
coroutine that somebody else has begun to run, so it must be known beforehand.
"""

from __future__ import annotations

import dis
from collections.abc import Coroutine
from functools import lru_cache
from inspect import iscoroutinefunction
from types import AsyncGeneratorType, CodeType
from typing import Any, Protocol, cast, runtime_checkable

from redouble._internal.logger import ABANDONED, log

__all__ = ["at_once", "waits"]

# After these nothing comes next. Every `await`, spelled out or not, is compiled to a SEND.
ENDS = {"RERAISE", "RETURN_CONST", "RETURN_VALUE", "RAISE_VARARGS"}
JUMPS = {"JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "JUMP_FORWARD"}
WAIT = "SEND"


@runtime_checkable
class Tells(Protocol):
    """A stream of ours, which knows."""

    def may_wait(self) -> bool:
        """Say whether closing it may have to wait."""
        ...


def waits(stream: object) -> bool:
    """Say whether closing a stream, where it stands now, may have to wait."""
    try:
        if isinstance(stream, AsyncGeneratorType):
            frame = cast("Any", stream).ag_frame
            return frame is not None and _reaches_wait(frame.f_code, frame.f_lasti)
        if isinstance(stream, Tells):
            return stream.may_wait()
        aclose = getattr(stream, "aclose", None)
        close = aclose or getattr(stream, "close", None)
        if iscoroutinefunction(close):
            return any(step.opname == WAIT for step in dis.get_instructions(close))
    except Exception:
        return True  # who knows
    return aclose is not None


def at_once(work: Coroutine[Any, Any, None]) -> None:
    """Do what waits for nothing; should it wait after all, it is cut there, and that is logged."""
    try:
        work.send(None)
        work.close()
        log(ABANDONED)
    except StopIteration:
        pass
    except Exception:
        log(ABANDONED, trouble=True)


@lru_cache(maxsize=512)
def _reaches_wait(code: CodeType, last: int) -> bool:
    """Say whether a generator that stands at ``last`` can come to a wait when it is closed there."""
    bytecode = dis.Bytecode(code)
    steps = list(bytecode)
    index = {step.offset: place for place, step in enumerate(steps)}
    handlers: list[Any] = getattr(bytecode, "exception_entries")  # noqa: B009  not in the stubs
    # Closing raises where it stands; from there on, follow every way the code can take.
    ahead, seen = _caught(handlers, last), set[int]()
    while ahead:
        offset = ahead.pop()
        if offset in seen:
            continue
        seen.add(offset)
        step = steps[index[offset]]
        if step.opname == WAIT:
            return True
        ahead += _caught(handlers, offset)
        if step.opcode in dis.hasjrel or step.opcode in dis.hasjabs:
            ahead.append(int(step.argval))
        if step.opname not in ENDS | JUMPS:
            ahead.append(steps[index[offset] + 1].offset)
    return False


def _caught(handlers: list[Any], offset: int) -> list[int]:
    return [handler.target for handler in handlers if handler.start <= offset < handler.end]
