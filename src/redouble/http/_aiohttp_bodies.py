"""Bodies of requests of aiohttp's: which can be sent again, and how to make them ready for it."""

from __future__ import annotations

from typing import Any

import aiohttp

from redouble.http._body import AGAIN, Content, Once, content_of, contents_of
from redouble.http._exchange import Exchange

__all__ = ["ready_again", "source_of"]


def source_of(body: Any) -> Content:
    """Find out whether the body of a request can be sent again."""
    if not body or isinstance(body, bytes | aiohttp.BytesPayload):
        return AGAIN
    if isinstance(body, aiohttp.MultipartWriter):
        return contents_of(_value(part) for part, _, _ in body._parts)
    found = content_of(_value(body))
    if isinstance(found, Once):
        return Unused(body)
    return found if found is AGAIN else Unclosed(body, found)


def _value(payload: Any) -> object:
    return getattr(payload, "_value", payload)


class Unused(Once):
    """A body of which aiohttp knows whether it was begun."""

    def rewind(self) -> bool:
        return getattr(self._source, "consumed", True) is False


class Unclosed(Content):
    """A file, which aiohttp closes with the head of an answer: it says so at once, and does it later."""

    def __init__(self, payload: Any, file: Content) -> None:
        self._payload, self._file = payload, file

    def rewind(self) -> bool:
        return getattr(self._payload, "consumed", False) is False and self._file.rewind()


async def ready_again(exchange: Exchange) -> None:
    """Wait until nobody writes the body any more, and make it ready to be written again."""
    if exchange.unread is not None:
        response, exchange.unread = exchange.unread, None
        response.close()
    request: aiohttp.ClientRequest = exchange.request
    await request.close()
    waiting: Any = getattr(request, "_continue", None)
    if waiting is not None and waiting.done():
        request.update_expect_continue(True)  # the one that was waited for is gone with the last attempt
    body: Any = request.body
    if isinstance(body, aiohttp.AsyncIterablePayload) and body.consumed:
        await request.update_body(_value(body))  # it gives its bytes anew each time it is iterated
