"""How long a call waits for a permit: up to its limit, and not at all for one that comes later."""

from __future__ import annotations

import pytest

from redouble import SYSTEM, deadline
from redouble.errors import RateLimited
from redouble.testing import VirtualClock
from tests.support.fakes import ASYNC, in_colour
from tests.support.layers.limits.wait_queues import FAR, Permits, queue_after_one_call, queue_of
from tests.support.virtual_time import VIRTUAL_COLOURS, in_virtual_colour


@VIRTUAL_COLOURS
@pytest.mark.parametrize(
    ("patience", "within", "expected"),
    [
        (None, None, (1.0, "")),
        (1, None, (1.0, "")),
        (5, None, (1.0, "")),
        (0.5, None, (0.0, "and the wait would be longer than 0.5 s")),
        (0, None, (0.0, "and it does not wait")),
        (None, 1, (1.0, "")),
        (None, 0.25, (0.0, "and the wait would be longer than 0.25 s")),
        (5, 0.25, (0.0, "and the wait would be longer than 0.25 s")),
        (0.5, 0.75, (0.0, "and the wait would be longer than 0.5 s")),
        (None, 0, (0.0, "and it does not wait")),
        (0, 9, (0.0, "and it does not wait")),
    ],
)
def test_a_call_waits_only_for_a_permit_in_time(
    colour: str, patience: float | None, within: float | None, expected: tuple[float, str]
) -> None:
    """A call whose permit comes after its limit, or after a deadline (``within``), is rejected at once."""
    _, queue = queue_after_one_call(max_wait=patience)

    def blocking(clock: VirtualClock) -> tuple[float, str]:
        try:
            with deadline(FAR if within is None else within):
                queue.enter()
        except RateLimited as error:
            return clock.now(), str(error)
        return clock.now(), ""

    async def waiting(clock: VirtualClock) -> tuple[float, str]:
        try:
            with deadline(FAR if within is None else within):
                await queue.aenter()
        except RateLimited as error:
            return clock.now(), str(error)
        return clock.now(), ""

    assert in_virtual_colour(colour, blocking, waiting) == expected
    assert len(queue) == 0


@VIRTUAL_COLOURS
def test_a_waiter_whose_permit_is_delayed_is_rejected_when_its_time_runs_out(colour: str) -> None:
    pacer, queue = queue_after_one_call(max_wait=3)
    pauses = [lambda: pacer.pause(60, SYSTEM.now())]

    def pause_once() -> None:
        while pauses:
            pauses.pop()()

    pacer.open_fast_path = pause_once  # type: ignore[method-assign]  # the pause follows the first check
    with pytest.raises(RateLimited, match="no permit came free in time") as caught:
        in_virtual_colour(colour, lambda clock: queue.enter(), lambda clock: queue.aenter())
    assert caught.value.retry_after == 57
    assert len(queue) == 0


# --------------------------------------------------- a blocking call on the thread of a loop


@pytest.mark.parametrize("colour", ASYNC)
@pytest.mark.parametrize("patience", [None, 0, 1000])
def test_a_blocking_call_never_waits_on_the_thread_of_a_loop(colour: str, patience: float | None) -> None:
    pacer = Permits(1)
    queue = queue_of(pacer, patience)

    async def main() -> None:
        queue.enter()  # an available permit needs no waiting
        with pytest.raises(RateLimited) as caught:
            queue.enter()
        why = "it does not wait" if patience == 0 else "cannot wait on the thread of an event loop"
        assert why in str(caught.value)

    in_colour(colour, lambda: None, main)
    assert (len(queue), pacer.fast_path_closed) == (0, False)
