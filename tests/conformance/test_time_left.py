"""Facts about the time that is left of a call: what its attempts are told, and delays that do not fit."""

from __future__ import annotations

import pytest

from redouble import Retry, remaining
from redouble.testing import VirtualClock
from tests.support.fakes import Boom
from tests.support.virtual_time import in_virtual_colour


@pytest.mark.parametrize(
    ("total", "taken", "backoff", "budgets"),
    [(0.15, [0.01, 0.1], [0, 0], [0.1, 0.1, 0.04]), (0.25, [0.1, 0.1], [0.005, 0.005], [0.1, 0.1, 0.04])],
)
@pytest.mark.parametrize("colour", ["asyncio", "trio"])
def test_timeout_deadline_math(
    colour: str, total: float, taken: list[float], backoff: list[float], budgets: list[float]
) -> None:
    """timeout.deadline_math: an attempt has its own limit, or what is left of the call if that is less.

    An attempt that took its whole limit has failed by it.
    """
    seen: list[float] = []

    async def waiting(clock: VirtualClock) -> str:
        async def attempt() -> str:
            seen.append(remaining(0.0))
            if len(seen) > len(taken):
                return "done"
            await clock.asleep(taken[len(seen) - 1])
            raise Boom

        policy = Retry(on=(Boom, TimeoutError), timeout=total, attempt_timeout=0.1, backoff=backoff)
        return await policy.call(attempt)

    assert in_virtual_colour(colour, lambda clock: None, waiting) == "done"
    assert seen == pytest.approx(budgets)


@pytest.mark.parametrize(("delay", "attempts", "elapsed"), [(5, 1, 0), (60, 1, 0), (1, 2, 1)])
@pytest.mark.parametrize("colour", ["sync", "thread"])
def test_retry_deadline_aware(colour: str, delay: float, attempts: int, elapsed: float) -> None:
    """retry.deadline_aware: with 3 s left around the call, a longer delay is not begun, a shorter one is.

    The last real failure comes out, and no timeout.
    """

    def fails() -> None:
        raise Boom

    def blocking(clock: VirtualClock) -> tuple[int, float]:
        outcome = Retry(timeout=3).call(Retry(on=Boom, backoff=[delay], attempts=2).run, fails)
        assert isinstance(outcome.error, Boom)
        return outcome.report.attempts, outcome.report.elapsed

    async def waiting(clock: VirtualClock) -> tuple[int, float]:
        return blocking(clock)

    assert in_virtual_colour(colour, blocking, waiting) == (attempts, elapsed)
