"""Sources that cannot be closed: never instead of the error that matters, and never only half."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from redouble import Retry, report
from redouble.types import Event
from tests.support.fakes import Boom, Panic, Virtual, in_colour
from tests.support.streams import HOOKS

COMPLAINT = "a stream that had failed could not be closed either"


class Reading:
    """The iterator of a response, in both colours."""

    def __init__(self, response: Response) -> None:
        self.response = response

    def _next(self, end: type[Exception]) -> Any:
        if not self.response.left:
            raise end
        item = self.response.left.pop(0)
        if isinstance(item, BaseException):
            raise item
        return item

    def __iter__(self) -> Reading:
        return self

    def __next__(self) -> Any:
        return self._next(StopIteration)

    def __aiter__(self) -> Reading:
        return self

    async def __anext__(self) -> Any:
        return self._next(StopAsyncIteration)

    def close(self) -> None:
        self.response.log.append("iterator")
        self.response.spoil("iterator")

    async def aclose(self) -> None:
        self.close()


class Response:
    """A stream of which the iterator has to be closed too; closing either may fail."""

    spoilt: BaseException | None = None
    where = "response"

    def __init__(self, log: list[str], items: list[Any]) -> None:
        self.log, self.left = log, [*items]
        log.append("open")

    def spoil(self, where: str) -> None:
        if self.spoilt is not None and self.where == where:
            raise self.spoilt

    def __iter__(self) -> Iterator[Any]:
        return Reading(self)

    def __aiter__(self) -> AsyncIterator[Any]:
        return Reading(self)

    def close(self) -> None:
        self.log.append("response")
        self.spoil("response")


class Play:
    """Reads responses as a script says; remembers all that happens."""

    def __init__(self, *script: list[Any], spoilt: BaseException | None, where: str = "response") -> None:
        self.log: list[str] = []
        self.taken: list[Any] = []
        self.script = [*script]
        self.spoilt, self.where = spoilt, where
        hooks: dict[str, Any] = dict.fromkeys(HOOKS[1:], self.hear)
        self.policy = Retry(on=Boom, backoff=[0] * 9, clock=Virtual(), **hooks)

    def hear(self, event: Event) -> None:
        self.log.append(event.what)

    def open(self) -> Any:
        response = Response(self.log, self.script.pop(0))
        response.spoilt, response.where = self.spoilt, self.where
        return response

    def after(self, last: object) -> Any:
        return self.open()

    def read(self, colour: str, most: int = 99, *, resume: bool = False) -> None:
        stream: Any = self.policy.stream(self.open, resume=self.after if resume else None)

        def blocking() -> None:
            for item in stream:
                self.taken.append(item)
                if len(self.taken) == most:
                    stream.close()

        async def waiting() -> None:
            async for item in stream:
                self.taken.append(item)
                if len(self.taken) == most:
                    await stream.aclose()

        in_colour(colour, blocking, waiting)


def test_before_a_retry(colour: str, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged; the retry goes on."""
    play = Play([Boom()], [1], spoilt=KeyError("spoilt"))
    with pytest.raises(KeyError, match="spoilt"):
        play.read(colour)
    assert play.taken == [1]
    first = ["open", "iterator", "response", "failure", "retry"]
    assert play.log == [*first, "open", "iterator", "response", "failure", "give_up"]
    assert [record.getMessage() for record in caplog.records] == [COMPLAINT]


def test_after_a_late_error(colour: str, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged; the late error comes out."""
    late = Boom("late")
    play = Play([1, late], spoilt=KeyError("spoilt"))
    with pytest.raises(Boom) as caught:
        play.read(colour)
    assert caught.value is late
    assert play.log == ["open", "iterator", "response", "failure", "give_up"]
    assert [record.getMessage() for record in caplog.records] == [COMPLAINT]


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("most", [1, 99])
def test_at_the_end_and_when_left(
    colour: str, most: int, resume: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """There it is the only error there is, items had been handed out, and nothing is left to resume."""
    spoilt = Boom("spoilt")
    play = Play([1, 2], spoilt=spoilt)
    with pytest.raises(Boom) as caught:
        play.read(colour, most, resume=resume)
    assert caught.value is spoilt
    assert play.taken == [1, 2][:most]
    assert play.log == ["open", "iterator", "response", "failure", "give_up"]
    said = report(spoilt)
    assert said is not None
    assert said.reason == "committed"
    assert not caplog.records


ENDS = pytest.mark.parametrize("script", [[Boom()], [1, Boom()], [1], []])


@ENDS
def test_a_crash(colour: str, script: list[Any]) -> None:
    """It comes out whatever else happened."""
    play = Play(script, spoilt=Panic())
    with pytest.raises(Panic):
        play.read(colour)
    assert play.log == ["open", "iterator", "response"]


@ENDS
@pytest.mark.parametrize("spoilt", [KeyError("spoilt"), Panic()], ids=repr)
def test_the_rest_is_closed_all_the_same(colour: str, script: list[Any], spoilt: BaseException) -> None:
    """An iterator that cannot be closed keeps no connection open."""
    play = Play(script, [], spoilt=spoilt, where="iterator")
    with pytest.raises((KeyError, Boom, Panic)):
        play.read(colour)
    assert play.log.count("open") == play.log.count("iterator") == play.log.count("response")


@pytest.mark.parametrize("items", [0, 1, 2])
def test_a_crash_in_the_source(colour: str, items: int) -> None:
    """Blocking code closes what it left behind; async code may ask again, until it leaves the block."""
    play = Play([*[1, 2][:items], Panic()], spoilt=None)

    def blocking() -> None:
        stream: Any = play.policy.stream(play.open)
        with pytest.raises(Panic):
            play.taken.extend(stream)
        assert list(stream) == []

    async def waiting() -> None:
        async with play.policy.stream(play.open) as stream:
            with pytest.raises(Panic):
                async for item in stream:
                    play.taken.append(item)

    in_colour(colour, blocking, waiting)
    assert play.taken == [1, 2][:items]
    assert [word for word in play.log if word != "success"] == ["open", "iterator", "response"]


@pytest.mark.parametrize("spoilt", [None, Boom("spoilt")])
def test_not_begun(colour: str, spoilt: Exception | None) -> None:
    """Closing it opens nothing, and it stays closed."""
    play = Play([1], spoilt=spoilt)
    stream: Any = play.policy.stream(play.open)

    def blocking() -> list[Any]:
        stream.close()
        stream.close()
        return list(stream)

    async def waiting() -> list[Any]:
        await stream.aclose()
        await stream.aclose()
        return [item async for item in stream]

    assert in_colour(colour, blocking, waiting) == []
    assert play.log == []
