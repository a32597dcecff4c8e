"""Bodies of httpx and httpx2: which chunk counts as delivered, which streams are closed, time limits."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import httpx2
import pytest

import redouble
import redouble.httpx
import redouble.httpx2
from redouble import Layer, Reason, Retry, report
from redouble.testing import virtual_time

LIBRARIES = {"httpx": (httpx, redouble.httpx), "httpx2": (httpx2, redouble.httpx2)}
POLICY = Retry(attempts=3, backoff=[0] * 9)


@dataclass
class Source:
    """Responses with the given pieces; an exception among them is raised, a number advances the clock."""

    library: Any
    bodies: list[list[Any]]
    headers: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    closed: list[int] = field(default_factory=list[int])
    sent: int = 0
    clock: Any = None

    def answer(self) -> Any:
        number, self.sent = self.sent, self.sent + 1
        made = type("Body", (_Body, self.library.SyncByteStream, self.library.AsyncByteStream), {})
        headers = self.headers[number] if self.headers else {}
        return self.library.Response(200, headers=headers, stream=made(self, number))

    def transport(self, ours: Any, *, aio: bool, policy: Layer = POLICY) -> Any:
        source = self

        class Wrapped(self.library.BaseTransport, self.library.AsyncBaseTransport):  # type: ignore[name-defined,misc]
            def handle_request(self, request: Any) -> Any:
                return source.answer()

            async def handle_async_request(self, request: Any) -> Any:
                return source.answer()

        return (ours.AsyncTransport if aio else ours.Transport)(policy, wrapped=Wrapped())


class _Body:
    def __init__(self, source: Source, number: int) -> None:
        self.source, self.number = source, number

    def __iter__(self) -> Iterator[bytes]:
        for piece in self.source.bodies[self.number]:
            if isinstance(piece, Exception):
                raise piece
            if isinstance(piece, int):
                self.source.clock.advance(piece)
            else:
                yield piece

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self:
            yield piece

    def close(self) -> None:
        self.source.closed.append(self.number)

    async def aclose(self) -> None:
        self.close()


@dataclass
class Case:
    """One library in one colour."""

    name: str
    aio: bool

    def __post_init__(self) -> None:
        self.library, self.ours = LIBRARIES[self.name]

    def broken(self) -> Exception:
        found: Exception = self.library.ReadError("broken")
        return found

    def run(
        self, blocking: Callable[[Any], Any], waiting: Callable[[Any], Awaitable[Any]], source: Source
    ) -> Any:
        """Call ``blocking`` or ``waiting`` with a client."""
        transport = source.transport(self.ours, aio=self.aio)
        if not self.aio:
            with self.library.Client(transport=transport) as client:
                return blocking(client)

        async def main() -> Any:
            async with self.library.AsyncClient(transport=transport) as client:
                return await waiting(client)

        return asyncio.run(main())

    def source(self, *bodies: list[Any], **options: Any) -> Source:
        return Source(self.library, list(bodies), **options)


@pytest.fixture(params=[(name, aio) for name in LIBRARIES for aio in (False, True)], ids=str)
def case(request: pytest.FixtureRequest) -> Case:
    return Case(*request.param)


def read(case: Case, source: Source) -> Any:
    """Return a response whose body was read as a whole."""
    return case.run(
        lambda client: client.get("http://there/"), lambda client: client.get("http://there/"), source
    )


def iterate(case: Case, source: Source, had: list[bytes]) -> Any:
    """Return a response after iterating over its body; the pieces are added to ``had``."""

    def blocking(client: Any) -> Any:
        with client.stream("GET", "http://there/") as response:
            had.extend(response.iter_raw())
        return response

    async def waiting(client: Any) -> Any:
        async with client.stream("GET", "http://there/") as response:
            async for piece in response.aiter_raw():
                had.append(piece)  # noqa: PERF401  the iteration may end in an error
        return response

    return case.run(blocking, waiting, source)


def reason_and_attempts(found: object) -> tuple[Reason | None, int]:
    found_report = report(found)
    assert found_report is not None
    return found_report.reason, found_report.attempts


# ------------------------------------------------------------------------------ delivered pieces


def test_an_empty_piece_does_not_count_as_delivered(case: Case) -> None:
    source, had = case.source([b"", b"", case.broken()], [b"", b"all"]), list[bytes]()
    response = iterate(case, source, had)
    assert [piece for piece in had if piece] == [b"all"]
    assert reason_and_attempts(response) == (None, 2)


def test_after_the_first_piece_nothing_is_resent(case: Case) -> None:
    source, had = case.source([b"some", b"more", case.broken()], [b"never"]), list[bytes]()
    with pytest.raises(case.library.ReadError) as caught:
        iterate(case, source, had)
    assert had == [b"some", b"more"]
    assert reason_and_attempts(caught.value) == (Reason.committed, 1)
    assert source.sent == 1


def test_a_body_read_as_a_whole_is_that_of_one_response(case: Case) -> None:
    source = case.source([b"one", case.broken()], [b"two", b"two", case.broken()], [b"three"])
    response = read(case, source)
    assert (response.content, reason_and_attempts(response)) == (b"three", (None, 3))


def test_an_error_that_is_no_transport_error_is_raised(case: Case) -> None:
    """It is a mistake in a user-defined stream, and does not restart the request."""
    source = case.source([ValueError("mistake")], [b"never"])
    with pytest.raises(ValueError, match="mistake") as caught:
        read(case, source)
    assert reason_and_attempts(caught.value) == (Reason.stopped, 1)
    assert source.sent == 1


# --------------------------------------------------------------------------- closed streams


def test_each_broken_body_is_closed(case: Case) -> None:
    source = case.source([case.broken()], [case.broken()], [b"all"])
    read(case, source)
    assert set(source.closed) == {0, 1, 2}
    assert source.closed.index(0) < source.closed.index(1) < source.closed.index(2)


def test_a_new_response_with_another_encoding_is_closed(case: Case) -> None:
    """The decoder of the first response exists already."""
    source = case.source([case.broken()], [b"all"], headers=[{}, {"content-encoding": "gzip"}])
    with pytest.raises(case.library.ReadError) as caught:
        read(case, source)
    assert set(source.closed) == {0, 1}
    assert reason_and_attempts(caught.value) == (Reason.stopped, 2)


def test_the_last_error_is_raised_when_all_bodies_break(case: Case) -> None:
    source = case.source(*([case.broken()] for _ in range(3)))
    with pytest.raises(case.library.ReadError) as caught:
        read(case, source)
    assert reason_and_attempts(caught.value) == (Reason.attempts, 3)
    assert set(source.closed) == {0, 1, 2}


# ------------------------------------------------------------------------- unusual ways to read


def test_reading_twice_returns_the_same_content(case: Case) -> None:
    def blocking(client: Any) -> list[bytes]:
        with client.stream("GET", "http://h/") as response:
            read = response.read
            return [read(), read(), response.read()]

    async def waiting(client: Any) -> list[bytes]:
        async with client.stream("GET", "http://h/") as response:
            read = response.aread
            return [await read(), await read(), await response.aread()]

    assert case.run(blocking, waiting, case.source([b"ab", b"c"])) == [b"abc"] * 3


def test_a_second_iteration_raises_the_librarys_error(case: Case) -> None:
    """Nothing is resent."""
    source, had = case.source([b"all"]), list[bytes]()
    response = iterate(case, source, had)
    with pytest.raises(case.library.StreamConsumed):
        next(response.iter_raw()) if not case.aio else asyncio.run(anext(response.aiter_raw()))
    assert source.sent == 1


def test_a_stream_whose_response_was_dropped_restarts_too(case: Case) -> None:
    """The caller keeps the stream alone."""
    source = case.source([case.broken()], [b"all"])
    transport = source.transport(case.ours, aio=case.aio)
    request = case.library.Request("GET", "http://there/")

    async def main() -> bytes:
        stream = (await transport.handle_async_request(request)).stream
        gc.collect()
        return b"".join([piece async for piece in stream])

    if case.aio:
        assert asyncio.run(main()) == b"all"
    else:
        stream = transport.handle_request(request).stream
        gc.collect()
        assert b"".join(stream) == b"all"
    assert source.sent == 2


# ---------------------------------------------------------------------------------- time


@pytest.mark.parametrize("name", LIBRARIES)
def test_with_a_user_defined_transport_the_limit_is_checked_between_pieces(name: str) -> None:
    """Its blocking reads cannot be interrupted."""
    case = Case(name, aio=False)
    with virtual_time() as clock:
        source = case.source([b"a", 3, b"b", 3, b"c", 3, b"d"], clock=clock)
        transport = source.transport(case.ours, aio=False, policy=Retry(backoff=[0], timeout=5))
        with case.library.Client(transport=transport) as client:
            with pytest.raises(case.library.TimeoutException, match="the call's timeout") as caught:
                client.get("http://there/")
            assert clock.now() == 6
    assert reason_and_attempts(caught.value) == (Reason.timeout, 1)


@pytest.mark.parametrize("name", LIBRARIES)
def test_the_limit_ends_with_the_first_piece(name: str) -> None:
    case = Case(name, aio=False)
    with virtual_time() as clock:
        source = case.source([b"a", 3, b"b", 3, b"c"], clock=clock)
        transport = source.transport(case.ours, aio=False, policy=Retry(backoff=[0], timeout=5))
        with (
            case.library.Client(transport=transport) as client,
            client.stream("GET", "http://there/") as response,
        ):
            assert list(response.iter_raw()) == [b"a", b"b", b"c"]


class Slow(Layer):
    """A layer that advances the clock by the next number of seconds before each call."""

    def __init__(self, clock: Any, *seconds: float) -> None:
        self.clock, self.seconds = clock, iter(seconds)

    def around(self, fn: Callable[..., Any], /) -> Callable[..., Any]:
        def slow(*args: Any) -> Any:
            self.clock.advance(next(self.seconds))
            return fn(*args)

        return slow


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_restart_after_the_deadline_raises(name: str) -> None:
    """Time was left when the body broke, and an outer layer used it up."""
    case = Case(name, aio=False)
    with virtual_time() as clock, redouble.deadline(5):
        source = case.source([case.broken()], [b"never"])
        transport = source.transport(case.ours, aio=False, policy=Slow(clock, 0, 9) | Retry(backoff=[0]))
        with case.library.Client(transport=transport) as client, pytest.raises(Exception) as caught:  # noqa: PT011
            client.get("http://there/")
    assert isinstance(caught.value, case.library.TransportError)
    assert reason_and_attempts(caught.value) == (Reason.timeout, 1)
    assert source.sent == 1


# ------------------------------------------------------------- bodies that are read as a whole


def test_a_body_that_cannot_be_decoded_does_not_restart(case: Case) -> None:
    """It arrived completely; another attempt would get the same."""
    source = case.source([b"not gzip"], headers=[{"content-encoding": "gzip"}])
    with pytest.raises(case.library.DecodingError):
        read(case, source)
    assert source.sent == 1


def test_a_body_that_breaks_while_it_is_read_for_a_rule_is_a_failed_attempt(case: Case) -> None:
    source = case.source([b"ab", case.broken()], [b"abc"])
    policy = Retry(attempts=2, backoff=[0], until=lambda response: response.content == b"abc")
    transport = source.transport(case.ours, aio=case.aio, policy=policy)

    async def waiting() -> Any:
        async with case.library.AsyncClient(transport=transport) as client:
            return await client.get("http://there/")

    if case.aio:
        response = asyncio.run(waiting())
    else:
        with case.library.Client(transport=transport) as client:
            response = client.get("http://there/")
    assert (response.content, *reason_and_attempts(response)) == (b"abc", None, 2)
    assert source.closed[0] == 0
