"""Responses of httpx and httpx2 as streams: an error status raises, and they are always closed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import httpx2
import pytest

from redouble import report
from tests.support.llm.guarded_streams import PLACES, in_place, model

LIBRARIES: dict[str, Any] = {"httpx": httpx, "httpx2": httpx2}
EVERY = pytest.mark.parametrize("library", LIBRARIES.values(), ids=LIBRARIES)
EVERY_PLACE = pytest.mark.parametrize("place", PLACES)
BODY = [b"data: 1\n\n", b"data: [DO", b"NE]\n\n"]


class Server:
    """Responds as scripted; the last response repeats. ``trail`` records responses opened and closed."""

    def __init__(self, library: Any, *script: tuple[int, list[bytes | type[Exception]]]) -> None:
        self.library, self.script = library, [*script]
        self.trail: list[str] = []

    def answer(self, request: Any) -> Any:
        status, body = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        self.trail.append(f"open:{status}")
        return self.library.Response(status, stream=self.body(body), request=request)

    async def aanswer(self, request: Any) -> Any:
        return self.answer(request)

    def body(self, steps: list[bytes | type[Exception]]) -> Any:
        trail = self.trail

        class Body(self.library.SyncByteStream, self.library.AsyncByteStream):  # type: ignore[misc, name-defined]
            def __iter__(self) -> Iterator[bytes]:
                for step in steps:
                    if isinstance(step, type):
                        raise step("lost")
                    yield step

            async def __aiter__(self) -> AsyncIterator[bytes]:
                for step in self:
                    yield step

            def close(self) -> None:
                trail.append("close")

            async def aclose(self) -> None:
                trail.append("close")

        return Body()

    def read(self, place: str, *, managed: bool, most: int = 99) -> list[bytes]:
        """Read at most ``most`` chunks of a response, or of a context manager that yields it."""
        asked = model(place, protocol="auto")
        taken: list[bytes] = []

        def blocking() -> None:
            with self.library.Client(transport=self.library.MockTransport(self.answer)) as client:
                opened = (
                    asked.stream(client.stream, "POST", "http://model/")
                    if managed
                    else asked.stream(client.send, client.build_request("POST", "http://model/"), stream=True)
                )
                for chunk in opened:
                    taken.append(chunk)
                    if len(taken) == most:
                        opened.close()

        async def waiting() -> None:
            transport = self.library.MockTransport(self.aanswer)
            async with self.library.AsyncClient(transport=transport) as client:
                opened = (
                    asked.stream(client.stream, "POST", "http://model/")
                    if managed
                    else asked.stream(client.send, client.build_request("POST", "http://model/"), stream=True)
                )
                async for chunk in opened:
                    taken.append(chunk)
                    if len(taken) == most:
                        await opened.aclose()

        in_place(place, blocking, waiting)
        return taken


@EVERY
@EVERY_PLACE
@pytest.mark.parametrize("managed", [False, True], ids=["answer", "manager"])
def test_the_chunks_are_the_bytes_of_the_response(library: Any, place: str, managed: bool) -> None:
    server = Server(library, (200, [*BODY]))
    assert server.read(place, managed=managed) == BODY
    assert server.trail == ["open:200", "close"]


@EVERY
@EVERY_PLACE
@pytest.mark.parametrize("managed", [False, True], ids=["answer", "manager"])
def test_closing_a_stream_early_closes_the_response(library: Any, place: str, managed: bool) -> None:
    if library is httpx and place == "trio":
        pytest.skip("httpx leaves a generator of its own open there")
    server = Server(library, (200, [*BODY]))
    assert server.read(place, managed=managed, most=1) == BODY[:1]
    assert server.trail == ["open:200", "close"]


@EVERY
@EVERY_PLACE
@pytest.mark.parametrize("managed", [False, True], ids=["answer", "manager"])
def test_an_error_status_raises_with_the_body(library: Any, place: str, managed: bool) -> None:
    server = Server(library, (503, [b"busy"]), (400, [b"too", b" long"]))
    with pytest.raises(library.HTTPStatusError) as caught:
        server.read(place, managed=managed)
    assert caught.value.response.content == b"too long"
    call_report = report(caught.value)
    assert call_report is not None
    assert (call_report.reason, call_report.attempts) == ("stopped", 2)
    assert server.trail == ["open:503", "close", "open:400", "close"]


@EVERY
@EVERY_PLACE
def test_a_response_that_breaks_while_its_error_body_is_read_is_retried(library: Any, place: str) -> None:
    server = Server(library, (503, [b"bu", library.ReadError]), (200, [*BODY]))
    assert server.read(place, managed=False) == BODY
    assert server.trail == ["open:503", "close", "open:200", "close"]
