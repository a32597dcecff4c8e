"""Sources whose closing fails: the first error is raised, and everything that was opened is closed."""

from __future__ import annotations

from typing import Any

import pytest

from redouble import Retry, report
from redouble.types import Event
from tests.support.drivers.closable_responses import Response
from tests.support.fakes import Boom, Panic, Virtual, in_colour
from tests.support.streams import HOOKS

MESSAGE = "a stream that had failed could not be closed either"


class Play:
    """Reads the responses of a script, and records what is opened, closed and emitted."""

    def __init__(self, *script: list[Any], spoilt: BaseException | None, where: str = "response") -> None:
        self.log: list[str] = []
        self.taken: list[Any] = []
        self.script = [*script]
        self.close_error, self.failing_part = spoilt, where
        hooks: dict[str, Any] = dict.fromkeys(HOOKS[1:], self.record)
        self.policy = Retry(on=Boom, backoff=[0] * 9, clock=Virtual(), **hooks)

    def record(self, event: Event) -> None:
        self.log.append(event.what)

    def open(self) -> Any:
        response = Response(self.log, self.script.pop(0))
        response.close_error, response.failing_part = self.close_error, self.failing_part
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


def test_a_failing_close_before_a_retry_is_logged(colour: str, caplog: pytest.LogCaptureFixture) -> None:
    """The retry is made."""
    play = Play([Boom()], [1], spoilt=KeyError("spoilt"))
    with pytest.raises(KeyError, match="spoilt"):
        play.read(colour)
    assert play.taken == [1]
    first = ["open", "iterator", "response", "failure", "retry"]
    assert play.log == [*first, "open", "iterator", "response", "failure", "give_up"]
    assert [record.getMessage().partition(": ")[0] for record in caplog.records] == [MESSAGE]


def test_a_failing_close_after_a_late_error_is_logged(colour: str, caplog: pytest.LogCaptureFixture) -> None:
    """The late error is raised."""
    late = Boom("late")
    play = Play([1, late], spoilt=KeyError("spoilt"))
    with pytest.raises(Boom) as caught:
        play.read(colour)
    assert caught.value is late
    assert play.log == ["open", "iterator", "response", "failure", "give_up"]
    assert [record.getMessage().partition(": ")[0] for record in caplog.records] == [MESSAGE]


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("most", [1, 99])
def test_a_failing_close_of_an_ended_stream_is_raised(
    colour: str, most: int, resume: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """It is the only error. Items have been delivered, and nothing is left to resume."""
    spoilt = Boom("spoilt")
    play = Play([1, 2], spoilt=spoilt)
    with pytest.raises(Boom) as caught:
        play.read(colour, most, resume=resume)
    assert caught.value is spoilt
    assert play.taken == [1, 2][:most]
    assert play.log == ["open", "iterator", "response", "failure", "give_up"]
    reported = report(spoilt)
    assert reported is not None
    assert reported.reason == "committed"
    assert not caplog.records


ENDS = pytest.mark.parametrize("script", [[Boom()], [1, Boom()], [1], []])


@ENDS
def test_a_base_exception_of_close_is_raised(colour: str, script: list[Any]) -> None:
    """It is raised, however the source ended."""
    play = Play(script, spoilt=Panic())
    with pytest.raises(Panic):
        play.read(colour)
    assert play.log == ["open", "iterator", "response"]


@ENDS
@pytest.mark.parametrize("spoilt", [KeyError("spoilt"), Panic()], ids=repr)
def test_a_failing_close_of_the_iterator_does_not_leave_the_response_open(
    colour: str, script: list[Any], spoilt: BaseException
) -> None:
    play = Play(script, [], spoilt=spoilt, where="iterator")
    with pytest.raises((KeyError, Boom, Panic)):
        play.read(colour)
    assert play.log.count("open") == play.log.count("iterator") == play.log.count("response")


@pytest.mark.parametrize("items", [0, 1, 2])
def test_a_base_exception_of_the_source_closes_it(colour: str, items: int) -> None:
    """Blocking code closes the source at once; async code at the end of its ``async with`` block."""
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
def test_closing_an_unread_stream_opens_nothing(colour: str, spoilt: Exception | None) -> None:
    """It stays closed."""
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
