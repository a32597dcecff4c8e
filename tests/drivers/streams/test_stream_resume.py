"""`Retry.stream`: retried until the first item, and with ``resume`` opened again after the last one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, cast

import pytest

from redouble import SYSTEM, Retry, Verdict, errors, report
from redouble.types import Event
from tests.support.fakes import Boom, Ledger, Panic, Virtual, always, in_colour
from tests.support.streams import HOOKS

B1, B2 = "before_attempt:1", "before_attempt:2"
BROKE = f"failure:1 retry:1 {B2}"


class Feed:
    """Numbers; each connection does what its turn in the script says, the last for good.

    A number is how many items it gives before it breaks, None one that breaks before any, an error
    what it breaks with, a tuple both; "refused" is one that cannot be opened, "end" goes to the end.
    """

    def __init__(self, *script: Any, most: int = 6, **options: Any) -> None:
        self.script, self.most = script, most
        self.clock = Virtual()
        self.trail: list[str] = []
        self.asked: list[object] = []
        self.opened = 0
        self.taken: list[int] = []
        ledger = options.pop("budget", None)
        self.ledger: Ledger | None = ledger() if ledger else None
        said: dict[str, Any] = {"on": Boom, "backoff": [1, 2, 4, 8], "clock": self.clock}
        hooks: dict[str, Any] = dict.fromkeys(HOOKS, self.hear)
        self.policy = Retry(**said | hooks | options, budget=self.ledger)

    def hear(self, event: Event) -> None:
        self.trail.append(f"{event.what}:{event.attempt}")

    def _turn(self) -> tuple[int, int, Exception | None]:
        self.opened += 1
        turn: Any = self.script[min(self.opened, len(self.script)) - 1]
        count: Any = turn
        error: Any = Boom("broken")
        if isinstance(turn, tuple):
            count, error = cast("tuple[Any, Any]", turn)
        if isinstance(count, Exception):
            count, error = 0, count
        return self.opened, count, None if count == "end" else error

    def read(self, after: int) -> Iterator[int]:
        number, count, error = self._turn()
        self.trail.append(f"open:{number}")
        try:
            last = self.most if error is None else after + (count or 0)
            yield from range(after + 1, last + 1)
            if error is not None:
                raise error
        finally:
            self.trail.append(f"close:{number}")

    async def aread(self, after: int) -> AsyncIterator[int]:
        await SYSTEM.asleep(0)
        for item in self.read(after):
            yield item

    def _after(self, read: Callable[[int], Any]) -> Callable[[int], Any]:
        def resume(last: int) -> Any:
            self.asked.append(last)
            if self.script[min(self.opened + 1, len(self.script)) - 1] == "refused":
                self.opened += 1
                raise Boom("refused")
            return read(last)

        return resume

    def stream(self, read: Callable[[int], Any]) -> Any:
        return self.policy.stream(lambda: read(0), resume=self._after(read))

    def play(self, colour: str, most: int = 99) -> list[int]:
        def blocking() -> None:
            for item in self.stream(self.read):
                self.trail.append(f"item:{item}")
                self.taken.append(item)
                if len(self.taken) == most:
                    break

        async def waiting() -> None:
            async for item in self.stream(self.aread):
                self.trail.append(f"item:{item}")
                self.taken.append(item)
                if len(self.taken) == most:
                    break

        in_colour(colour, blocking, waiting)
        return self.taken


def test_after_the_last_item(colour: str) -> None:
    """Each break asks for what follows the last item; nothing is lost and nothing comes twice."""
    feed = Feed(1, 2, 1, "end")
    assert feed.play(colour) == [1, 2, 3, 4, 5, 6]
    assert feed.asked == [1, 3, 4]
    assert feed.clock.waits == [1, 1, 1]
    assert " ".join(feed.trail) == (
        f"{B1} open:1 item:1 close:1 {BROKE} open:2 item:2 item:3 close:2 {BROKE} open:3 item:4 close:3 "
        f"{BROKE} open:4 item:5 item:6 close:4 success:2"
    )


def test_progress_resets_the_run(colour: str) -> None:
    """The break is the first attempt; after it as many failures as the policy allows, time and again."""
    feed = Feed(1, None, None, 1, None, None, 1, None, None, "end", attempts=4)
    assert feed.play(colour) == [1, 2, 3, 4, 5, 6]
    assert feed.asked == [1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert feed.clock.waits == [1, 2, 4] * 3
    again = "open:2 close:2 failure:2 retry:2 before_attempt:3 open:3 close:3 failure:3 retry:3"
    assert f"item:1 close:1 {BROKE} {again} before_attempt:4 open:4 item:2 close:4 {BROKE}" in " ".join(
        feed.trail
    )


def test_limits_restart(colour: str) -> None:
    """A subscription may live for ever, if it is never silent for too long."""
    feed = Feed(1, None, give_up_after=5, timeout=5)
    with pytest.raises(Boom) as caught:
        feed.play(colour)
    said = report(caught.value)
    assert said is not None
    assert (said.reason, said.attempts, said.limit) == ("timeout", 3, "total")
    assert said.elapsed == 3  # since the break
    feed = Feed(*[1] * 5, "end", give_up_after=2, work_timeout=2)
    assert feed.play(colour) == [1, 2, 3, 4, 5, 6]
    assert feed.clock.waits == [1] * 5


@pytest.mark.parametrize(
    ("script", "options", "reason", "attempts", "taken"),
    [
        ([2, None], {"attempts": 3}, "attempts", 3, 2),
        ([2, None], {"attempts": 1}, "attempts", 1, 2),
        ([2, None], {"backoff": [0]}, "backoff_ended", 2, 2),
        ([2, None], {"backoff": [40]}, "timeout", 1, 2),
        ([(2, KeyError("x"))], {}, "stopped", 1, 2),
        ([2, KeyError("x")], {}, "stopped", 2, 2),
        ([2, 1, (1, KeyError("x"))], {}, "stopped", 1, 4),
        ([None], {"attempts": 2}, "attempts", 2, 0),
    ],
)
def test_giving_up(
    colour: str, script: list[Any], options: dict[str, Any], reason: str, attempts: int, taken: int
) -> None:
    """For the reason that there was, counted from the last item."""
    feed = Feed(*script, **options)
    with pytest.raises((Boom, KeyError)) as caught:
        feed.play(colour)
    said = report(caught.value)
    assert said is not None
    assert (said.reason, said.attempts) == (reason, attempts)
    assert len(feed.taken) == taken
    assert feed.trail[-1] == f"give_up:{attempts}"
    assert sum(word.startswith("open") for word in feed.trail) == feed.opened
    assert sum(word.startswith("close") for word in feed.trail) == feed.opened


def test_wrapped(colour: str) -> None:
    feed = Feed((2, KeyError("x")), wrap=True)
    with pytest.raises(errors.Stopped) as caught:
        feed.play(colour)
    assert isinstance(caught.value.__cause__, KeyError)
    assert caught.value.report is not None
    assert caught.value.report.reason == "stopped"


def test_a_resume_that_finds_nothing(colour: str) -> None:
    """It broke at the very end: the rest is empty, which is a success, told before the stream is dropped."""
    feed = Feed(6, "end")

    def blocking() -> list[int]:
        stream = feed.stream(feed.read)
        return [*stream, len(feed.trail)]

    async def waiting() -> list[int]:
        stream = feed.stream(feed.aread)
        return [*[item async for item in stream], len(feed.trail)]

    taken = in_colour(colour, blocking, waiting)
    assert taken == [1, 2, 3, 4, 5, 6, len(feed.trail)]
    assert " ".join(feed.trail[-5:]) == f"retry:1 {B2} open:2 close:2 success:2"


def test_leaving_early(colour: str) -> None:
    feed = Feed(2, "end")
    assert feed.play(colour, most=3) == [1, 2, 3]
    assert feed.trail[-3:] == ["item:3", "close:2", "success:2"]


def test_a_resume_that_fails_itself(colour: str) -> None:
    """Opening again is an attempt, whoever fails at it."""
    feed = Feed(2, "refused", "refused", "end")
    assert feed.play(colour) == [1, 2, 3, 4, 5, 6]
    assert feed.asked == [2, 2, 2]
    assert feed.clock.waits == [1, 2, 4]


def test_the_budget(colour: str) -> None:
    """Every break is a failure, every retry is spent and, with its first item, credited."""
    feed = Feed(1, None, "end", budget=Ledger)
    assert feed.play(colour) == [1, 2, 3, 4, 5, 6]
    assert feed.ledger is not None
    first = ["start", "credit None"]
    assert feed.ledger.lines[:2] == first
    spent = ["failed unknown", "spend unknown", "failed unknown", "spend unknown", "credit 2"]
    assert [line for line in feed.ledger.lines[2:] if line != "start"] == spent


def test_an_accepted_break_is_no_second_success(colour: str) -> None:
    """The budget was credited for this source when its first item came."""
    feed = Feed(1, on=always(Verdict.accept()), budget=Ledger)
    with pytest.raises(Boom):
        feed.play(colour)
    assert feed.trail == [B1, "open:1", "item:1", "close:1", "success:1"]
    assert feed.ledger is not None
    assert [line for line in feed.ledger.lines if line.startswith("credit")] == ["credit None"]


def test_a_crash_is_not_resumed(colour: str) -> None:
    feed = Feed((2, Panic()))
    with pytest.raises(Panic):
        feed.play(colour)
    assert (feed.opened, feed.asked) == (1, [])
    assert feed.trail[-1] == "close:1"
