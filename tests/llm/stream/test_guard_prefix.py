"""The delivered chunks are a prefix of one source: in order, nothing twice, no byte left out.

Sources fail at random places, and bodies are split at random borders.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redouble import Retry
from redouble.errors import RedoubleError
from redouble.llm import Context, CutShort, Model
from tests.support.llm.guarded_streams import in_place
from tests.support.llm.provider_events import MESSAGE, RESPONSE, chat, sse

PLACES = pytest.mark.parametrize("place", ["worker", "alone", "asyncio", "trio"])
FAULTS = (ConnectionResetError, TimeoutError, KeyError)
BODIES = {
    "chat": sse(chat("Hel", "lö", "wörld"), done=True).encode(),
    "response": sse(RESPONSE).encode(),
    "message": sse(MESSAGE).encode(),
}

# A source: the number of its chunks, and the error with which it ends.
ends = st.sampled_from([None, *FAULTS])
sources = st.lists(st.tuples(st.integers(0, 5), ends), min_size=1, max_size=5)


def model(place: str, **options: Any) -> Model:
    policy = Retry(attempts=4, backoff=[0] * 3)
    return Model("a", "m", policy=policy, **options, **({"worker": None} if place == "alone" else {}))


class Sources:
    """Opens one source after the other; the last one repeats."""

    def __init__(self, *scripts: tuple[list[Any], type[Exception] | None]) -> None:
        self.scripts, self.opened = scripts, 0
        self.taken: list[Any] = []
        self.error: Exception | None = None

    def _next(self) -> tuple[list[Any], type[Exception] | None]:
        self.opened += 1
        return self.scripts[min(self.opened, len(self.scripts)) - 1]

    def chunks(self) -> Iterator[Any]:
        chunks, end = self._next()
        yield from chunks
        if end is not None:
            raise end

    async def achunks(self) -> AsyncIterator[Any]:
        chunks, end = self._next()
        for chunk in chunks:
            yield chunk
        if end is not None:
            raise end

    def read(self, place: str, **options: Any) -> None:
        """Read a stream to its end or its error."""
        asked = model(place, **options)

        def blocking() -> None:
            for chunk in asked.stream(self.chunks):
                self.taken.append(chunk)

        async def waiting() -> None:
            async for chunk in asked.stream(self.achunks):
                self.taken.append(chunk)

        try:
            in_place(place, blocking, waiting)
        except (*FAULTS, RedoubleError) as error:
            self.error = error


@PLACES
@given(drawn=sources, protocol=st.sampled_from(["auto", None]))
@settings(max_examples=60)
def test_the_chunks_are_those_of_one_source(
    place: str, drawn: list[tuple[int, type[Exception] | None]], protocol: str | None
) -> None:
    scripts = [
        ([(number, place) for place in range(many)], end) for number, (many, end) in enumerate(drawn, 1)
    ]
    feed = Sources(*scripts)
    feed.read(place, protocol=protocol, retry_if=yes)
    chunks, end = scripts[min(feed.opened, len(scripts)) - 1]
    assert feed.taken == chunks  # all chunks of the source that was opened last
    assert feed.opened <= 4
    if feed.taken:
        assert (feed.error is None) == (end is None)
        assert all(not before for before, _ in scripts[: feed.opened - 1])
    elif protocol is None and end is None:
        assert feed.error is None
    else:
        assert feed.error is not None
        assert feed.opened == 4


@PLACES
@given(data=st.data())
@settings(max_examples=60)
def test_the_borders_of_the_pieces_do_not_change_the_bytes(place: str, data: st.DataObject) -> None:
    """A truncated body raises an error."""
    body = BODIES[data.draw(st.sampled_from(sorted(BODIES)))]
    stop = data.draw(st.one_of(st.just(len(body)), st.integers(1, len(body))))
    borders = sorted(data.draw(st.sets(st.integers(1, stop - 1), max_size=12))) if stop > 1 else []
    pieces = [body[a:b] for a, b in zip([0, *borders], [*borders, stop], strict=True)]
    end = data.draw(ends)
    feed = Sources((pieces, end))
    feed.read(place)
    assert b"".join(feed.taken) == body[:stop]
    assert feed.taken == pieces
    assert feed.opened == 1
    if stop == len(body):
        # A connection that breaks after the end marker is ignored; a programming error is raised.
        assert (feed.error is None) == (end is not KeyError)
    elif end is not None:
        assert isinstance(feed.error, end) or feed.error is None
    if feed.error is None:
        last = body.rstrip(b"\n").rsplit(b"\n", 1)[1]
        assert body[:stop].rstrip(b"\n").endswith(last) or not known(body[:stop])
    elif end is None:
        assert isinstance(feed.error, CutShort)


def yes(error: Exception, attempt: int, context: Context) -> bool:
    return True


def known(body: bytes) -> bool:
    """Return True if there is a whole event, from which the protocol can be detected."""
    return b"\n\n" in body
