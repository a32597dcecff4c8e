"""`Retry.stream`: retried until the first item; with ``resume``, reopened after the last delivered item."""

from __future__ import annotations

from typing import Any

import pytest

from redouble import Verdict, errors, report
from tests.support.drivers.resumable_feed import Feed
from tests.support.fakes import Boom, Ledger, Panic, always, in_colour

B1, B2 = "before_attempt:1", "before_attempt:2"
BROKE = f"failure:1 retry:1 {B2}"


def test_a_broken_stream_is_resumed_after_its_last_item(colour: str) -> None:
    """`resume` gets the last item after each break; no item is lost or repeated."""
    feed = Feed(1, 2, 1, "end")
    assert feed.play(colour) == [1, 2, 3, 4, 5, 6]
    assert feed.resumed_after == [1, 3, 4]
    assert feed.clock.waits == [1, 1, 1]
    assert " ".join(feed.trail) == (
        f"{B1} open:1 item:1 close:1 {BROKE} open:2 item:2 item:3 close:2 {BROKE} open:3 item:4 close:3 "
        f"{BROKE} open:4 item:5 item:6 close:4 success:2"
    )


def test_progress_resets_the_run(colour: str) -> None:
    """The break counts as the first attempt, and the policy allows as many failures after each item."""
    feed = Feed(1, None, None, 1, None, None, 1, None, None, "end", attempts=4)
    assert feed.play(colour) == [1, 2, 3, 4, 5, 6]
    assert feed.resumed_after == [1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert feed.clock.waits == [1, 2, 4] * 3
    again = "open:2 close:2 failure:2 retry:2 before_attempt:3 open:3 close:3 failure:3 retry:3"
    assert f"item:1 close:1 {BROKE} {again} before_attempt:4 open:4 item:2 close:4 {BROKE}" in " ".join(
        feed.trail
    )


def test_limits_restart_with_each_item(colour: str) -> None:
    """A subscription may last for ever if its items are never too far apart."""
    feed = Feed(1, None, give_up_after=5, timeout=5)
    with pytest.raises(Boom) as caught:
        feed.play(colour)
    reported = report(caught.value)
    assert reported is not None
    assert (reported.reason, reported.attempts, reported.limit) == ("timeout", 3, "total")
    assert reported.elapsed == 3  # since the break
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
def test_a_stream_that_cannot_be_resumed_is_given_up(
    colour: str, script: list[Any], options: dict[str, Any], reason: str, attempts: int, taken: int
) -> None:
    """Attempts are counted from the last item, and the reason is that of the policy."""
    feed = Feed(*script, **options)
    with pytest.raises((Boom, KeyError)) as caught:
        feed.play(colour)
    reported = report(caught.value)
    assert reported is not None
    assert (reported.reason, reported.attempts) == (reason, attempts)
    assert len(feed.taken) == taken
    assert feed.trail[-1] == f"give_up:{attempts}"
    assert sum(word.startswith("open") for word in feed.trail) == feed.opened
    assert sum(word.startswith("close") for word in feed.trail) == feed.opened


def test_wrap_wraps_the_error_of_a_stream(colour: str) -> None:
    feed = Feed((2, KeyError("x")), wrap=True)
    with pytest.raises(errors.Stopped) as caught:
        feed.play(colour)
    assert isinstance(caught.value.__cause__, KeyError)
    assert caught.value.report is not None
    assert caught.value.report.reason == "stopped"


def test_resuming_at_the_end_is_a_success(colour: str) -> None:
    """The source broke after its last item. The success is emitted before the stream is dropped."""
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


def test_a_resumed_stream_that_is_left_early_is_closed(colour: str) -> None:
    feed = Feed(2, "end")
    assert feed.play(colour, most=3) == [1, 2, 3]
    assert feed.trail[-3:] == ["item:3", "close:2", "success:2"]


def test_a_failing_resume_is_retried(colour: str) -> None:
    """Each call of `resume` is an attempt."""
    feed = Feed(2, "refused", "refused", "end")
    assert feed.play(colour) == [1, 2, 3, 4, 5, 6]
    assert feed.resumed_after == [2, 2, 2]
    assert feed.clock.waits == [1, 2, 4]


def test_the_budget_of_a_resumed_stream(colour: str) -> None:
    """Every break counts as a failure; every retry is spent, and credited with its first item."""
    feed = Feed(1, None, "end", budget=Ledger)
    assert feed.play(colour) == [1, 2, 3, 4, 5, 6]
    assert feed.ledger is not None
    first = ["start", "credit None"]
    assert feed.ledger.lines[:2] == first
    spent = ["failed unknown", "spend unknown", "failed unknown", "spend unknown", "credit 2"]
    assert [line for line in feed.ledger.lines[2:] if line != "start"] == spent


def test_an_accepted_break_is_no_second_success(colour: str) -> None:
    """The budget was credited for this source at its first item."""
    feed = Feed(1, on=always(Verdict.accept()), budget=Ledger)
    with pytest.raises(Boom):
        feed.play(colour)
    assert feed.trail == [B1, "open:1", "item:1", "close:1", "success:1"]
    assert feed.ledger is not None
    assert [line for line in feed.ledger.lines if line.startswith("credit")] == ["credit None"]


def test_a_base_exception_is_not_resumed(colour: str) -> None:
    feed = Feed((2, Panic()))
    with pytest.raises(Panic):
        feed.play(colour)
    assert (feed.opened, feed.resumed_after) == (1, [])
    assert feed.trail[-1] == "close:1"
