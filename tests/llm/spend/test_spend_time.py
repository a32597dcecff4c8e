"""Spend with a window: a spent amount expires in time and never early; overdrawn amounts are paid first."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

import pytest

from redouble.llm import Spend
from redouble.testing import VirtualClock, virtual_time
from tests.support.fakes import COLOURS, in_colour
from tests.support.llm.spends import WIDTH, refusal, spent, tokens
from tests.support.virtual_time import at

PLACES = ["sync", "thread", "asyncio around", "asyncio inside", "trio around", "trio inside"]


@pytest.fixture
def clock() -> Iterator[VirtualClock]:
    with virtual_time() as clock:
        yield clock


# --------------------------------------------------------------------------------------- expiry


@pytest.mark.parametrize("per", [0.001, 0.1, 1, 60, 3600, 1e6])
@pytest.mark.parametrize("start", [0.0, 0.3, 1e5 / 3])
def test_a_spent_amount_expires_when_it_is_older_than_the_window(
    per: float, start: float, clock: VirtualClock
) -> None:
    spend = Spend(tokens=10, per=per)
    clock.advance(start)
    spent(spend, 10)
    clock.advance(per * 0.999)
    assert tokens(spend) == (10, 0, 0, 0)
    clock.advance(per * 0.001 + per * WIDTH * 1.001)
    assert tokens(spend) == (0, 0, 10, 0)


def test_an_amount_counts_from_its_commit(clock: VirtualClock) -> None:
    """Until then it is reserved, however long that takes."""
    spend = Spend(tokens=10, per=60)
    reservation = spend.reserve(tokens=10)
    clock.advance(600)
    assert tokens(spend) == (0, 10, 0, 0)
    reservation.commit(tokens=7)
    clock.advance(60)
    assert tokens(spend) == (7, 0, 3, 0)
    clock.advance(1)
    assert tokens(spend) == (0, 0, 10, 0)


def test_without_a_window_nothing_expires(clock: VirtualClock) -> None:
    spend = Spend(tokens=10)
    spent(spend, 9)
    clock.advance(1e12)
    assert tokens(spend) == (9, 0, 1, 0)
    assert refusal(spend, tokens=2).retry_after is None


def test_memory_does_not_grow(clock: VirtualClock) -> None:
    spend = Spend(tokens=10**9, per=1)
    for _ in range(3000):
        spent(spend, 3)
        clock.advance(0.001)
    assert len(spend._limited[0].slices) == 129
    assert tokens(spend)[0] <= 3 * 1010


# ------------------------------------------------------------------------------------ retry_after


@pytest.mark.parametrize("amount", [5, 10, 11, 30, 31, 60, 61, 100])
def test_a_call_is_admitted_after_retry_after(amount: int, clock: VirtualClock) -> None:
    """And not two slices earlier."""
    spend = Spend(tokens=100, requests=10, per=60)
    for earlier in (10, 20, 30, 40):
        spent(spend, earlier)
        clock.advance(5)
    wait = refusal(spend, tokens=amount).retry_after
    assert wait is not None
    clock.advance(wait - 2 * 60 * WIDTH)
    assert refusal(spend, tokens=amount).what == "tokens"
    clock.advance(2 * 60 * WIDTH)
    assert spend.reserve(tokens=amount).more(tokens=0)


@pytest.mark.parametrize("order", list(permutations(["tokens", "cost", "requests"])))
def test_retry_after_is_that_of_the_last_limit_to_fit(order: tuple[str, ...], clock: VirtualClock) -> None:
    spend = Spend(tokens=10, cost=10, requests=10, per=60, warn_at=None)
    for what in order:
        amounts = {"requests": 0, what: 9}
        spend.reserve(**amounts).commit()
        clock.advance(10)
    error = refusal(spend, tokens=2, cost=2, requests=2)
    assert error.what == order[-1]
    assert error.retry_after == pytest.approx(50, abs=60 * 2 * WIDTH)


def test_reserved_amounts_do_not_expire(clock: VirtualClock) -> None:
    spend = Spend(tokens=100, per=60)
    spent(spend, 50)
    kept = spend.reserve(tokens=50)
    assert refusal(spend, tokens=50).retry_after == pytest.approx(60, abs=60 * 2 * WIDTH)
    assert refusal(spend, tokens=51).retry_after is None
    kept.release()
    spend.reserve(tokens=50)
    assert clock.delays == []


# -------------------------------------------------------------------------------------- overdrawn


def test_an_overdrawn_amount_is_paid_before_new_calls(clock: VirtualClock) -> None:
    spend = Spend(tokens=100, per=60, warn_at=None)
    spend.reserve(tokens=10).commit(tokens=250)
    assert tokens(spend) == (100, 0, 0, 150)
    wait = refusal(spend, tokens=51).retry_after
    assert wait == pytest.approx(180, abs=3 * 60 * 2 * WIDTH)
    assert refusal(spend, tokens=50).retry_after == pytest.approx(120, abs=2 * 60 * 2 * WIDTH)
    clock.advance(61)
    assert tokens(spend) == (100, 0, 0, 50)
    clock.advance(61)
    assert tokens(spend) == (50, 0, 50, 0)
    clock.advance(61)
    assert tokens(spend) == (0, 0, 100, 0)


def test_a_released_amount_pays_for_an_overdrawn_one() -> None:
    spend = Spend(tokens=100, warn_at=None)
    first, second = spend.reserve(tokens=40), spend.reserve(tokens=60)
    first.commit(tokens=70)
    assert tokens(spend) == (40, 60, 0, 30)
    assert not second.more(tokens=1)
    assert second.more()
    second.commit(tokens=20)
    assert tokens(spend) == (90, 0, 10, 0)


def test_a_large_debt_over_many_windows_is_computed_at_once(clock: VirtualClock) -> None:
    """Windows in which the debt alone is paid are not simulated one by one."""
    spend = Spend(tokens=1000, per=0.001, warn_at=None)
    spend.reserve(tokens=1000).commit(tokens=10**12)
    assert tokens(spend) == (1000, 0, 0, 10**12 - 1000)
    clock.advance(1e5)
    windows = 1e5 / 0.001 * 128 / 129
    assert tokens(spend)[3] == pytest.approx(10**12 - 1000 * windows, rel=1e-6)
    clock.advance(1e7)
    assert tokens(spend) == (0, 0, 1000, 0)


# ---------------------------------------------------------------------------- warnings and clocks


def test_each_warning_is_logged_once_per_window(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    spend = Spend(tokens=10, per=60)
    for _ in range(3):
        spent(spend, 4)
        spent(spend, 4)
        spend.reserve(tokens=1).commit(tokens=5)
        assert [message.split(": ")[1] for message in caplog.messages] == [
            "8 of 10 are spent or reserved",
            "3 more were used than it allows",
        ]
        caplog.clear()
        clock.advance(200)


def test_a_clock_that_is_behind_does_not_expire_early(clock: VirtualClock) -> None:
    """The time that passed is unknown: amounts expire late rather than early."""
    spend = Spend(tokens=10, per=60)
    clock.advance(1e6)
    spent(spend, 4)
    clock.advance(30)
    spent(spend, 6)
    with virtual_time() as other:
        other.advance(7)
        assert tokens(spend) == (10, 0, 0, 0)
        wait = refusal(spend, tokens=1).retry_after
        assert wait == pytest.approx(30, abs=2)
        other.advance(28)
        assert tokens(spend) == (10, 0, 0, 0)
        other.advance(5)
        assert tokens(spend) == (6, 0, 4, 0)
        other.advance(30)
        assert tokens(spend) == (0, 0, 10, 0)


@pytest.mark.parametrize("place", PLACES)
def test_virtual_time_applies_in_every_place(place: str) -> None:
    spend = Spend(tokens=10, per=60)

    def blocking(clock: VirtualClock) -> list[float]:
        spent(spend, 10)
        clock.advance(59)
        before = tokens(spend)[0]
        clock.advance(2)
        return [before, tokens(spend)[0]]

    async def waiting(clock: VirtualClock) -> list[float]:
        return blocking(clock)

    assert at(place, blocking, waiting) == [10, 0]


def test_all_colours_share_one_clock() -> None:
    """One `Spend` may be used in all colours, so its times cannot be those of Trio's own clock."""
    spend = Spend(tokens=len(COLOURS), per=1e6)

    async def waiting() -> None:
        spent(spend, 1)

    for number, colour in enumerate(COLOURS):
        assert tokens(spend)[0] == number
        in_colour(colour, lambda: spent(spend, 1), waiting)
    assert refusal(spend, tokens=1).retry_after == pytest.approx(1e6, rel=0.02)
