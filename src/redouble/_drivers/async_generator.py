"""The async generator around the sources of a stream: `yield from`, for async code.

It forwards what the consumer sends and throws, and informs its owner how a source ended. An item costs one
more frame; errors cost nothing until one is raised.

A consumer that leaves its loop early drops the generator without closing it. A finaliser then closes it, in
the event loop that reads it: asyncio runs the cleanup up to its first wait at once, and the remainder in a
task; Trio runs all of it in a system task. The finalisers that event loops set for every async generator do
less: asyncio's begins later, and Trio's warns and cancels each wait of the cleanup.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Any

from redouble._drivers.opened_stream import (
    END,
    ConsumerReply,
    StreamOwner,
    aclose_failed,
    close_generator,
)
from redouble._runtime.backend import backend
from redouble._runtime.call_stack import EnclosingCall, holds_call, variables_of


def async_items(owner: StreamOwner) -> AsyncGenerator[Any, Any]:
    """Return the items of the sources that ``owner`` opens."""
    items = _items(owner)
    hooks = sys.get_asyncgen_hooks()
    try:
        sys.set_asyncgen_hooks(None, partial(_close_abandoned, owner))
        with suppress(TypeError):
            # A generator keeps the finaliser that is set at its first use. This one fails and starts nothing.
            items.asend("a just-started generator accepts None only").send(None)
    finally:
        sys.set_asyncgen_hooks(*hooks)
    return items


async def _items(owner: StreamOwner) -> AsyncGenerator[Any, Any]:
    here = backend()
    owner.home = here, here.home()
    resumes = True
    while resumes:
        source, item = await owner.aopen()
        items: Any = source.items
        reply = ConsumerReply(items)
        recorded = resumes = False
        try:
            try:
                while item is not END:
                    with reply:
                        sent = yield item
                        if sent is None:
                            reply.asked = True
                            async for item in items:
                                sent = yield item
                                if sent is not None:
                                    break
                            else:
                                break
                        reply.sent = sent
                    item = await _forward(items, reply)
            except GeneratorExit:
                await source.aclose()
                raise
            await source.aclose()
        except Exception as error:
            closing_failed = not source.is_open
            source.last = item
            await aclose_failed(source)
            recorded = True
            # As in blocking code: only an error thrown before the second item is known to be the consumer's.
            if error is reply.thrown and not reply.asked:
                owner.returned(error)
                raise
            resumes = owner.failed(error, final=closing_failed)
            if not resumes:
                raise
        except GeneratorExit:
            recorded = True
            owner.ended()
            raise
        else:
            recorded = True
            owner.ended()
        finally:
            reply.thrown = None  # the error refers to this frame
            if not recorded:
                owner.cut(sys.exception())
                await aclose_failed(source)


def _read_call(frame: FrameType) -> EnclosingCall | None:
    """Return the call of a frame of `_items`."""
    owner: StreamOwner = variables_of(frame)["owner"]
    return owner.call()


holds_call("_items", async_items.__code__.co_filename, _read_call)


async def _forward(items: Any, reply: ConsumerReply) -> Any:
    """Send the value, or throw the exception, into the source; return its next item, or `END`."""
    try:
        return await (items.asend(reply.sent) if reply.thrown is None else items.athrow(reply.thrown))
    except StopAsyncIteration:
        return END


def _close_abandoned(owner: StreamOwner, items: AsyncGenerator[Any, Any]) -> None:
    """Close a generator that is about to be deallocated."""
    if owner.home is None:
        return  # it was never read
    here, loop = owner.home
    if here.is_home(loop):
        here.run_detached(close_generator(items))
    else:  # another thread, or the event loop has ended: only the finaliser of the source can close it
        owner.cut(None)
