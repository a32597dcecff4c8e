"""Streams: llm-fiber, gRPC and others agree to retry before the first item, and never after it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

import pytest
import trio

from redouble import Gate, Layer, Retry, report
from tests.conformance.flows import EVERY
from tests.support.scripted import Virtual

EVERY_COLOUR = pytest.mark.parametrize("colour", EVERY)

Steps: TypeAlias = Sequence[str | float | Exception]


class Unavailable(Exception):
    """A status 503, or trailers instead of a first frame."""


class Silence(TimeoutError):
    """The read timeout of the client."""


class Server:
    """Responds to each request with a stream of pieces of text, pauses in seconds, and errors."""

    def __init__(self, *streams: Steps) -> None:
        self.streams = streams
        self.clock = Virtual()
        self.log: list[str] = []

    @property
    def requests(self) -> int:
        return self.log.count("request")

    def pieces(self, key: str | None = None) -> Generator[str]:
        answer = self.streams[min(self.requests, len(self.streams) - 1)]
        self.log.append("request")
        try:
            for step in answer:
                if isinstance(step, Exception):
                    raise step
                if isinstance(step, str):
                    yield step
                else:
                    self.clock.time += step
        finally:
            self.log.append("closed")

    async def apieces(self, key: str | None = None) -> AsyncGenerator[str]:
        for piece in self.pieces(key):
            yield piece

    def policy(self, **options: Any) -> Retry:
        found: dict[str, Any] = {"on": Exception, "attempts": 4, "backoff": [0] * 9, "clock": self.clock}
        return Retry(**found | options)


class Watching(Gate):
    """A gate that records how each stream ended."""

    def __init__(self) -> None:
        self.seen: list[BaseException | None] = []

    def admit(self, now: float, /) -> None: ...

    def ended(self, ticket: None, error: BaseException | None, now: float, /) -> None:
        self.seen.append(error)


def in_colour(colour: str, blocking: Callable[[], object], waiting: Callable[[], Awaitable[object]]) -> Any:
    """Run ``blocking`` or ``waiting``."""

    async def main() -> object:
        return await waiting()

    match colour:
        case "sync":
            return blocking()
        case "thread":
            with ThreadPoolExecutor(1) as pool:
                return pool.submit(blocking).result()
        case "asyncio":
            return asyncio.run(main())
        case _:
            return trio.run(main)


def read(
    colour: str, server: Server, layer: Layer, key: str | None = None
) -> tuple[list[str], Exception | None]:
    """Read a stream to its end, and return the pieces and the error, if any."""
    pieces: list[str] = []

    def blocking() -> None:
        for piece in layer(server.pieces)(key):
            pieces.append(piece)  # noqa: PERF402  items before an error count

    async def waiting() -> None:
        async for piece in layer(server.apieces)(key):
            pieces.append(piece)  # noqa: PERF401

    try:
        in_colour(colour, blocking, waiting)
    except Exception as error:
        return pieces, error
    return pieces, None


RESET, SILENCE = ConnectionResetError("reset"), Silence("read")


@EVERY_COLOUR
@pytest.mark.parametrize(
    ("streams", "key", "pieces", "error", "requests"),
    [
        pytest.param(
            [[Unavailable()], ["a", "b"]], None, ["a", "b"], None, 2, id="LF-ADR-05.before-any-chunk"
        ),
        pytest.param([["a", RESET], ["a", "b"]], None, ["a"], RESET, 1, id="LF-ADR-05.reset-after-1"),
        pytest.param([["a", 30.0, SILENCE], ["a"]], None, ["a"], SILENCE, 1, id="LF-ADR-05.silence-after-1"),
        pytest.param([["a", RESET], ["a", "b"]], "key", ["a"], RESET, 1, id="LF-ADR-05.idempotency-key"),
    ],
)
def test_lf_adr_05(
    colour: str, streams: list[Steps], key: str | None, pieces: list[str], error: Exception, requests: int
) -> None:
    """LF-ADR-05: retried before any chunk, raised at once after one, for every request."""
    server = Server(*streams)
    assert read(colour, server, server.policy(), key) == (pieces, error)
    assert server.requests == requests
    assert server.clock.waits in ([], [0])


@EVERY_COLOUR
@pytest.mark.parametrize("inside", [False, True])
def test_stream_commit_points_first_item(colour: str, inside: bool) -> None:
    """stream.commit_points: after the first item nothing is retried; a gate receives the final outcome."""
    server, watching = Server([Unavailable("x")], ["a", "b", RESET], ["a"]), Watching()
    policy = server.policy()
    pieces, error = read(colour, server, policy | watching if inside else watching | policy)
    assert (pieces, error) == (["a", "b"], RESET)
    assert server.requests == 2
    assert watching.seen[-1] is RESET
    assert len(watching.seen) == (2 if inside else 1)
    found = report(RESET)
    assert found is not None
    assert (found.reason, found.attempts) == ("committed", 2)


@EVERY_COLOUR
def test_stream_commit_points_trailers_only(colour: str) -> None:
    """stream.commit_points: an error instead of the first frame does not commit."""
    server = Server([0.5, Unavailable()], [0.5, Unavailable()], ["a"])
    assert read(colour, server, server.policy()) == (["a"], None)
    assert server.requests == 3


@EVERY_COLOUR
def test_stream_commit_points_mid_way(colour: str) -> None:
    """stream.commit_points: a break is raised, unless there is a function that resumes after an item."""
    server = Server(["a", "b", RESET], ["c", "d"])
    assert read(colour, server, server.policy()) == (["a", "b"], RESET)
    server = Server(["a", "b", RESET], ["c", "d"])
    after: list[str] = []

    def resumed(pieces: Callable[[], Any]) -> Callable[[str], Any]:
        def resume(last: str) -> Any:
            after.append(last)
            return pieces()

        return resume

    def blocking() -> list[str]:
        return list(server.policy().stream(server.pieces, resume=resumed(server.pieces)))

    async def waiting() -> list[str]:
        stream = server.policy().stream(server.apieces, resume=resumed(server.apieces))
        return [piece async for piece in stream]

    assert in_colour(colour, blocking, waiting) == ["a", "b", "c", "d"]
    assert after == ["b"]


@EVERY_COLOUR
@pytest.mark.parametrize("limit", ["timeout", "give_up_after", "work_timeout"])
def test_stream_commit_points_time_after_commit(colour: str, limit: str) -> None:
    """stream.commit_points: a limit that passes after the commit does not cancel the stream."""
    server = Server(["a", 60.0, "b", 60.0, "c"])
    assert read(colour, server, server.policy(**{limit: 10})) == (["a", "b", "c"], None)
    assert server.log == ["request", "closed"]


@EVERY_COLOUR
def test_stream_commit_points_discarded(colour: str) -> None:
    """stream.commit_points: a discarded stream is closed before the next attempt."""
    server = Server([Unavailable()], [Unavailable()], ["a"])
    assert read(colour, server, server.policy()) == (["a"], None)
    assert server.log == ["request", "closed"] * 3
