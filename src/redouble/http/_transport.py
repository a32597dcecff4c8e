"""What the blocking and the async transport of httpx share: all that does not wait."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from redouble._clients.call_record import Told
from redouble._clients.idempotency import Keys
from redouble._clients.socket_deadline import Shrunk
from redouble._layers.layer import Layer
from redouble.http._answer import KEY
from redouble.http._body import AGAIN
from redouble.http._client import NOW, Going, Terms
from redouble.http._exchange import Exchange, spelled_status
from redouble.http._family import Family
from redouble.http._options import NOTHING
from redouble.http._sockets import refuse_retries

__all__ = ["Common", "shortened"]

LIMITS = ("connect", "read", "write", "pool")


def shortened(extensions: Any, rest: float) -> Any:
    """Shorten the client's own timeouts to what is left."""
    said: dict[str, float | None] = extensions.get("timeout") or {}
    return {**extensions, "timeout": {name: Shrunk(said.get(name), rest) for name in LIMITS}}


class Common:
    """What both transports share: all that does not wait."""

    _family: ClassVar[Family]
    _attempt: Callable[[Exchange], Any]

    def __init__(self, policy: Layer | None, wrapped: Any, idempotency: Keys, *, aio: bool) -> None:
        library, a = self._family.library, "Async" if aio else ""
        if wrapped is None:
            wrapped = getattr(library, f"{a}HTTPTransport")()
        if not isinstance(wrapped, getattr(library, f"{a}BaseTransport")):
            name, other = library.__name__, "" if aio else "Async"
            raise TypeError(
                f"wrapped={wrapped!r}: write an {name}.{a}HTTPTransport(); "
                f"for {other}Client use {other}Transport"
            )
        refuse_retries(wrapped)
        if isinstance(wrapped, Common):
            raise ValueError("wrapped is a transport of ours, so attempts would multiply: leave it out")
        self._wrapped = wrapped
        self._going = Going(self._family.name, policy, idempotency, self._attempt, aio=aio)

    @property
    def _terms(self) -> Terms:
        return self._going.terms

    def _begin(self, request: Any) -> Exchange:
        """Look at a request before anything of it is sent."""
        stream, family = request.stream, self._family
        if not isinstance(request, family.library.Request):
            other = type(request).__module__.partition(".")[0]
            raise TypeError(
                f"redouble.{family.name} is under a client of {other}: use redouble.{other} there"
            )
        source = AGAIN if type(stream) is family.ByteStream else family.source_of(stream)
        options = request.extensions.get(KEY, NOTHING)
        return self._terms.exchange(request, source, request.url.netloc.decode("ascii"), options)

    def _status_error(self, exchange: Exchange, response: Any) -> Exception:
        """Make the library's own error of a bad status, without its URL: it ends up in histories."""
        message = spelled_status(response.status_code)
        error = self._family.HTTPStatusError(message, request=exchange.request, response=response)
        return exchange.failed(error, response)

    def _handed_out(self, exchange: Exchange, response: Any, received: Any) -> Any:
        """Leave the story on an answer, and let its body begin anew should it break."""
        if not isinstance(response, self._family.library.Response):
            name = self._family.name
            raise TypeError(f"the policy returned {response!r}: write a layer that gives an {name}.Response")
        exchange.ended(response)
        if exchange.final or exchange.plan.reads:
            self._family.fresh(response)
        if type(response.stream) is not self._family.ByteStream:  # else it is in memory
            body = received(self._terms, exchange.request, response)
            body._made = exchange
        return response

    def _answered(self, request: Any, response: Any, started: float, received: Any) -> Any:
        """Do the same where there was nothing to decide."""
        terms, now = self._terms, NOW()
        if terms.credited:
            url = request.url
            key = (url.raw_host, url.port)
            (terms.credits.get(key) or terms.credit_for(key, url.netloc.decode("ascii")))(now)
        response.__redouble__ = Told(terms.plan, started, now)
        if type(response.stream) is not self._family.ByteStream:
            received(terms, request, response, started)
        return response
