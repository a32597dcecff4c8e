"""Whether closing an async stream would have to wait, read off its code.

Trio cannot take over a coroutine that somebody else has begun to run. So for an abandoned stream it must
be known beforehand: cleaning up that waits for nothing is done at once, all other in a task of its own.
"""

from __future__ import annotations

import dis
from inspect import iscoroutinefunction
from types import AsyncGeneratorType
from typing import Any, Protocol, runtime_checkable

__all__ = ["waits"]

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
    if isinstance(stream, AsyncGeneratorType):
        return _generator_waits(stream)
    if isinstance(stream, Tells):
        return stream.may_wait()
    aclose = getattr(stream, "aclose", None)
    close = aclose or getattr(stream, "close", None)
    if iscoroutinefunction(close):
        return any(step.opname == WAIT for step in dis.get_instructions(close))
    return aclose is not None


def _generator_waits(generator: Any) -> bool:
    frame = generator.ag_frame
    if frame is None:
        return False
    code = dis.Bytecode(generator.ag_code)
    steps = list(code)
    index = {step.offset: place for place, step in enumerate(steps)}
    handlers: list[Any] = getattr(code, "exception_entries")  # noqa: B009  not in the stubs
    # Closing raises where it stands; from there on, follow every way the code can take.
    ahead, seen = _caught(handlers, frame.f_lasti), set[int]()
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
