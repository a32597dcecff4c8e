"""A rate limit inside a retry and under a deadline, and in front of streams."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator

import pytest

from redouble import RateLimit, Retry, Timeout, deadline, errors
from redouble.testing import VirtualClock
from tests.support.fakes import Boom, nothing
from tests.support.virtual_time import in_virtual_colour


def test_every_attempt_takes_a_permit_and_a_deadline_ends_the_wait(colour: str) -> None:
    limit = RateLimit(1)
    policy = Timeout(100) | Retry(on=Boom, attempts=3, backoff=[0, 0]) | limit
    called_at: list[float] = []

    def fails(clock: VirtualClock) -> None:
        called_at.append(clock.now())
        raise Boom

    async def afails(clock: VirtualClock) -> None:
        fails(clock)

    def blocking(clock: VirtualClock) -> None:
        with pytest.raises(Boom):
            (Retry(on=Boom, attempts=3, backoff=[0, 0]) | limit).call(fails, clock)
        with deadline(0.5), pytest.raises(errors.RateLimited, match=r"wait would be longer than 0\.5 s"):
            limit.call(int)

    async def waiting(clock: VirtualClock) -> None:
        with pytest.raises(Boom):
            await policy.call(afails, clock)
        with deadline(0.5), pytest.raises(errors.RateLimited, match=r"wait would be longer than 0\.5 s"):
            await limit.call(nothing)

    in_virtual_colour(colour, blocking, waiting)
    assert called_at == [0, 1, 2]


# -------------------------------------------------------------------------------- streams


def test_a_stream_is_one_call_and_waits_when_it_begins(colour: str) -> None:
    limit = RateLimit(1)

    @limit
    def items() -> Generator[int]:
        yield from (1, 2)

    @limit
    async def aitems() -> AsyncGenerator[int]:
        for item in (1, 2):
            yield item

    def blocking(clock: VirtualClock) -> list[float]:
        streams = [items(), items()]
        assert clock.now() == 0
        return [*streams[0], clock.now(), *streams[1], clock.now()]

    async def waiting(clock: VirtualClock) -> list[float]:
        streams = [aitems(), aitems()]
        assert clock.now() == 0
        seen: list[float] = []
        for stream in streams:
            seen += [item async for item in stream]
            seen.append(clock.now())
        return seen

    assert in_virtual_colour(colour, blocking, waiting) == [1, 2, 0, 1, 2, 1]
