"""Closing of unused results of any kind; in every async colour."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable
from io import StringIO
from typing import Any

import pytest

from redouble._layers.hedge.race import close_all, close_method
from redouble._runtime.backend import backend
from tests.support.fakes import Boom, Panic
from tests.support.layers.hedge_attempts import LOOPS, timed


class Both:
    """An object like httpx's responses: close() and aclose(), of which only one works."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.closed: list[str] = []
        self._error = error

    async def aclose(self) -> None:
        await backend().sleep(1)
        self.closed.append("aclose")
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        self.closed.append("close")


class Session:
    """A session as in aiohttp; ``waits``: `close()` has to be awaited."""

    def __init__(self, *, waits: bool) -> None:
        self.closed = 0
        self._waits = waits

    def close(self) -> Awaitable[None] | None:
        if self._waits:
            return self._closing()
        self.closed += 1
        return None

    async def _closing(self) -> None:
        await backend().sleep(1)
        self.closed += 1


class Worded:
    """A record with data fields named ``close`` and ``aclose``."""

    aclose = None
    close = "of business"


def closed(colour: str, *results: Any) -> None:
    async def main() -> None:
        await close_all(list(results))

    timed(colour, main)


@LOOPS
def test_aclose_is_preferred_to_close(colour: str) -> None:
    result = Both()
    closed(colour, result)
    assert result.closed == ["aclose"]


@LOOPS
@pytest.mark.parametrize("waits", [False, True])
def test_close_is_awaited_if_it_has_to_be(colour: str, waits: bool) -> None:
    result = Session(waits=waits)
    closed(colour, result)
    assert result.closed == 1


@LOOPS
def test_a_started_stream_is_closed(colour: str) -> None:
    ended: list[str] = []

    async def items() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            ended.append("closed")

    async def main() -> None:
        stream = items()
        await anext(stream)
        await close_all([stream])

    timed(colour, main)
    assert ended == ["closed"]


def test_a_file_is_closed() -> None:
    file = StringIO()
    closed("asyncio", file)
    assert file.closed


@pytest.mark.parametrize("result", [None, 3, "text", {"close": 1}, [], Worded(), object()])
def test_a_result_that_is_not_closable_is_ignored(result: object) -> None:
    assert close_method(result) is None
    closed("asyncio", result)


@pytest.mark.parametrize("result", [Both(), Session(waits=False), StringIO()])
def test_objects_with_a_close_method_are_closable(result: object) -> None:
    assert close_method(result) is not None


@LOOPS
def test_an_error_while_closing_is_logged_and_dropped(colour: str, caplog: pytest.LogCaptureFixture) -> None:
    error, other = Boom("no more"), Both()
    closed(colour, Both(error), 3, other)
    assert other.closed == ["aclose"]
    [record] = caplog.records
    assert (record.name, record.levelno) == ("redouble", logging.ERROR)
    message = "the result of an attempt that lost could not be closed: ScriptedError: no more ("
    assert record.getMessage().startswith(message)


@LOOPS
def test_a_base_exception_while_closing_propagates(colour: str, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(Panic):
        closed(colour, Both(Panic()))
    assert caplog.records == []
