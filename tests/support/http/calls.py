"""Calls with each HTTP client, and their results. `tests.support.http.clients` opens the clients."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from anyio.from_thread import BlockingPortal

import redouble
from redouble import Report

__all__ = ["Aiohttp", "AsyncHttpx", "Client", "HttpResult", "Httpx", "Requests"]

UNSET: Any = object()


@dataclass
class HttpResult:
    """The result of one call: a response, an error, or a response whose body ended in an error."""

    response: Any = None
    error: Exception | None = None
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict[str, str])  # lower-case names
    content: bytes | None = None
    pieces: list[bytes] = field(default_factory=list[bytes])  # if the body was iterated

    @property
    def notes(self) -> list[str]:
        """The notes on the error."""
        return list(getattr(self.error, "__notes__", ()))

    @property
    def outcome(self) -> int | str | None:
        """The status or, without one, the name of the error."""
        return self.status if self.error is None else type(self.error).__name__

    def report(self) -> Report:
        """Return the report of the error if there is one, else of the response."""
        found = redouble.report(self.response if self.error is None else self.error)
        assert found is not None, "there is no report"
        return found

    def raise_for_status(self) -> None:
        """Call the client's method of this name."""
        self.response.raise_for_status()

    def _record(self, response: Any) -> None:
        self.response = response
        self.status = getattr(response, "status_code", None) or response.status
        pairs = getattr(response.headers, "multi_items", response.headers.items)()
        for name, text in pairs:
            before = self.headers.get(name.lower())
            self.headers[name.lower()] = text if before is None else f"{before}, {text}"


class Client:
    """One client of one library, behind an interface that all share.

    raw: the client or session of the library.
    """

    raw: Any

    def __init__(self, name: str) -> None:
        self.name = name

    def request(
        self,
        method: str,
        url: str,
        *,
        body: Any = None,
        headers: dict[str, str] | None = None,
        stream: bool = False,
        piece: int | None = None,
        timeout: Any = UNSET,
        options: Any = UNSET,
        within: float | None = None,
        follow: bool = False,
        **others: Any,
    ) -> HttpResult:
        """Make a call and return the result; a `BaseException` that is no `Exception` is raised.

        stream: iterate over the body, in pieces as they arrive or of ``piece`` bytes. requests cannot do the
            former, and reads 1 byte at a time.
        timeout: seconds for both connecting and reading, a pair of these, or a timeout of the library.
        options: of the request alone, which only httpx and httpx2 support.
        within: a `redouble.deadline` around the call.
        follow: follow redirects.
        others: arguments of the library's method, such as ``json``.
        """
        result = HttpResult()
        arguments = {"headers": headers, **self._arguments(body, timeout, options, follow), **others}
        limit = nullcontext() if within is None else redouble.deadline(within)
        self.run(self._call, result, limit, (method, url, stream, arguments), piece if stream else UNSET)
        return result

    def get(self, url: str, **options: Any) -> HttpResult:
        """Make a call with GET."""
        return self.request("GET", url, **options)

    def run(self, fn: Callable[..., Any], *args: Any) -> Any:
        """Call a function; for an async client a coroutine function, on the client's event loop."""
        return fn(*args)

    def cookies(self) -> dict[str, str]:
        """Return the cookies that the client keeps."""
        jar = getattr(self.raw.cookies, "jar", self.raw.cookies)
        return {cookie.name: cookie.value for cookie in jar}

    def _arguments(self, body: Any, timeout: Any, options: Any, follow: bool) -> dict[str, Any]:
        """Return the arguments of the library for these options."""
        raise NotImplementedError

    def _call(self, result: HttpResult, limit: Any, request: Any, piece: Any) -> Any:
        try:
            with limit, self._open(*request) as response:
                result._record(response)
                if piece is UNSET:
                    result.content = response.content
                    return
                for found in self._pieces(response, piece):
                    result.pieces.append(found)
            result.content = b"".join(result.pieces)
        except Exception as error:
            result.error = error

    def _open(self, method: str, url: str, stream: bool, arguments: Any) -> Any:
        """Send the request, and return a context manager of the response."""
        raise NotImplementedError

    def _pieces(self, response: Any, piece: int | None) -> Any:
        """Return an iterator over the body."""
        raise NotImplementedError


class Async(Client):
    def __init__(self, name: str, portal: BlockingPortal) -> None:
        super().__init__(name)
        self._portal = portal

    def run(self, fn: Callable[..., Any], *args: Any) -> Any:
        return self._portal.call(fn, *args)

    async def _call(self, result: HttpResult, limit: Any, request: Any, piece: Any) -> Any:
        try:
            with limit:
                async with await self._open(*request) as response:
                    result._record(response)
                    if piece is UNSET:
                        result.content = await response.read() if self.name == "aiohttp" else response.content
                        return
                    async for found in self._pieces(response, piece):
                        result.pieces.append(found)
            result.content = b"".join(result.pieces)
        except Exception as error:
            result.error = error


class Httpx(Client):
    def _arguments(self, body: Any, timeout: Any, options: Any, follow: bool) -> dict[str, Any]:
        arguments: dict[str, Any] = {} if body is None else {"content": body}
        if isinstance(timeout, tuple):
            timeout = (*_both(timeout), None, None)
        if timeout is not UNSET:
            arguments["timeout"] = timeout
        if options is not UNSET:
            arguments["extensions"] = {"redouble": options}
        return arguments | {"follow_redirects": follow}

    def _open(self, method: str, url: str, stream: bool, arguments: Any) -> Any:
        if stream:
            return self.raw.stream(method, url, **arguments)
        return nullcontext(self.raw.request(method, url, **arguments))

    def _pieces(self, response: Any, piece: int | None) -> Any:
        return response.iter_bytes(piece)


class AsyncHttpx(Async, Httpx):
    async def _open(self, method: str, url: str, stream: bool, arguments: Any) -> Any:
        if stream:
            return self.raw.stream(method, url, **arguments)
        return nullcontext(await self.raw.request(method, url, **arguments))

    def _pieces(self, response: Any, piece: int | None) -> Any:
        return response.aiter_bytes(piece)


class Requests(Client):
    def _arguments(self, body: Any, timeout: Any, options: Any, follow: bool) -> dict[str, Any]:
        assert options is UNSET, "requests has no place for options of one request"
        arguments: dict[str, Any] = {} if body is None else {"data": body}
        return arguments | {"timeout": None if timeout is UNSET else timeout, "allow_redirects": follow}

    def _open(self, method: str, url: str, stream: bool, arguments: Any) -> Any:
        return self.raw.request(method, url, stream=stream, **arguments)

    def _pieces(self, response: Any, piece: int | None) -> Any:
        return response.iter_content(piece or 1)


class Aiohttp(Async):
    def cookies(self) -> dict[str, str]:
        return {cookie.key: cookie.value for cookie in self.raw.cookie_jar}

    def _arguments(self, body: Any, timeout: Any, options: Any, follow: bool) -> dict[str, Any]:
        assert options is UNSET, "aiohttp has no place for options of one request"
        arguments: dict[str, Any] = {} if body is None else {"data": body}
        if isinstance(timeout, int | float | tuple):
            connect, read = _both(timeout)
            timeout = aiohttp.ClientTimeout(sock_connect=connect, sock_read=read)
        if timeout is not UNSET:
            arguments["timeout"] = timeout
        return arguments | {"allow_redirects": follow}

    async def _open(self, method: str, url: str, stream: bool, arguments: Any) -> Any:
        return await self.raw.request(method, url, **arguments)

    def _pieces(self, response: Any, piece: int | None) -> Any:
        return response.content.iter_chunked(piece) if piece else response.content.iter_any()


def _both(timeout: Any) -> tuple[Any, Any]:
    return (timeout, timeout) if isinstance(timeout, int | float) else timeout
