"""Stamps across colours: an old stamp is recognised, whichever colour and clock left it."""

from __future__ import annotations

import pytest

from redouble import Retry
from tests.support.fakes import ASYNC, Boom, Virtual, in_colour


@pytest.mark.parametrize("inner", ["blocking", "async"])
@pytest.mark.parametrize("colour", ASYNC)
def test_an_old_stamp_does_not_count(colour: str, inner: str) -> None:
    """Another policy gave up on the same instance before this call began."""
    clock, singleton, calls = Virtual(), Boom("the one"), list[float]()
    earlier = Retry(on=Boom, attempts=2, backoff=[1], clock=clock)
    policy = Retry(on=Boom, attempts=3, backoff=[1, 1], nested="stop", clock=clock)

    def fails() -> None:
        calls.append(clock.time)
        raise singleton

    async def afails() -> None:
        fails()

    async def main() -> str | None:
        if inner == "blocking":
            earlier.run(fails)
        else:
            await earlier.run(afails)
        clock.time += 10
        calls.clear()
        return (await policy.run(afails)).report.reason

    reason = in_colour(colour, lambda: None, main)
    assert (reason, len(calls)) == ("attempts", 3)
