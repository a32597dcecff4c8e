"""How long one waits in the line for a permit: no longer than one may, nor for what cannot come in time."""

from __future__ import annotations

import pytest

from redouble import SYSTEM, deadline
from redouble.errors import RateLimited
from redouble.testing import VirtualClock
from tests.layers.limits.bulkhead.test_bulkhead_waiting import VIRTUAL, turned
from tests.layers.limits.rate.test_wait_queue import FAR, Permits, line_of, one_after
from tests.support.fakes import ASYNC, in_colour


@VIRTUAL
@pytest.mark.parametrize(
    ("patience", "before", "out"),
    [
        (None, None, (1.0, "")),
        (1, None, (1.0, "")),
        (5, None, (1.0, "")),
        (0.5, None, (0.0, "and it waits for no more than 0.5 s")),
        (0, None, (0.0, "and it does not wait")),
        (None, 1, (1.0, "")),
        (None, 0.25, (0.0, "and it waits for no more than 0.25 s")),
        (5, 0.25, (0.0, "and it waits for no more than 0.25 s")),
        (0.5, 0.75, (0.0, "and it waits for no more than 0.5 s")),
        (None, 0, (0.0, "and it does not wait")),
        (0, 9, (0.0, "and it does not wait")),
    ],
)
def test_how_long(colour: str, patience: float | None, before: float | None, out: tuple[float, str]) -> None:
    """Nobody waits for what cannot come in time, and a deadline (``before``) is a time too."""
    _, line = one_after(patience=patience)

    def blocking(clock: VirtualClock) -> tuple[float, str]:
        try:
            with deadline(FAR if before is None else before):
                line.enter()
        except RateLimited as error:
            return clock.now(), str(error)
        return clock.now(), ""

    async def waiting(clock: VirtualClock) -> tuple[float, str]:
        try:
            with deadline(FAR if before is None else before):
                await line.aenter()
        except RateLimited as error:
            return clock.now(), str(error)
        return clock.now(), ""

    assert turned(colour, blocking, waiting) == out
    assert len(line) == 0


@VIRTUAL
def test_who_was_promised_a_permit_that_does_not_come_is_refused_in_time(colour: str) -> None:
    flow, line = one_after(patience=3)
    pauses = [lambda: flow.pause(60, SYSTEM.now())]

    def settle() -> None:
        while pauses:
            pauses.pop()()

    line._reopen_if_empty = settle  # type: ignore[method-assign]  # somebody tells us to slow down, a moment after
    with pytest.raises(RateLimited, match="nothing came free in time") as caught:
        turned(colour, lambda clock: line.enter(), lambda clock: line.aenter())
    assert caught.value.retry_after == 57
    assert len(line) == 0


# --------------------------------------------------- a blocking call on the thread of a loop


@pytest.mark.parametrize("colour", ASYNC)
@pytest.mark.parametrize("patience", [None, 0, 1000])
def test_a_blocking_call_never_waits_on_the_thread_of_a_loop(colour: str, patience: float | None) -> None:
    pace = Permits(1)
    line = line_of(pace, patience)

    async def main() -> None:
        line.enter()  # with a permit to be had it is as good as any
        with pytest.raises(RateLimited) as caught:
            line.enter()
        why = "it does not wait" if patience == 0 else "cannot wait on the thread of an event loop"
        assert why in str(caught.value)

    in_colour(colour, lambda: None, main)
    assert (len(line), pace.held) == (0, False)
