"""`Throttle` rejects exactly the share of its formula, and recovers with the service."""

from __future__ import annotations

import pytest

from redouble import Throttle, errors
from redouble.testing import virtual_time
from tests.support.fakes import Boom, Draws
from tests.support.layers.limits.throttles import NEVER, fails, with_history


def rejects(throttle: Throttle, now: float = 0.0) -> bool:
    """Return True if a call is rejected."""
    try:
        throttle.admit(now)
    except errors.Rejected:
        return True
    return False


# ---------------------------------------------------------------------------- the formula


@pytest.mark.parametrize(
    ("requests", "accepts", "k", "most", "share"),
    [
        (0, 0, 2, 1, 0),
        (1, 0, 2, 1, 1 / 2),
        (3, 0, 2, 1, 3 / 4),
        (100, 0, 2, 1, 100 / 101),
        (100, 50, 2, 1, 0),
        (100, 49, 2, 1, 2 / 101),
        (100, 100, 2, 1, 0),
        (100, 40, 2, 1, 20 / 101),
        (100, 40, 1, 1, 60 / 101),
        (100, 90, 1.1, 1, 1 / 101),
        (100, 0, 2, 0.9, 0.9),
        (100, 40, 2, 0, 0),
        (120, 90, 1 / 0.9, 0.8, 20 / 121),
    ],
)
def test_the_share_follows_the_formula(
    requests: int, accepts: int, k: float, most: float, share: float
) -> None:
    with virtual_time():
        throttle = with_history(Throttle(k, most=most), accepts, requests - accepts)
        seen = throttle.snapshot()
    assert seen == {"share": pytest.approx(share, abs=1e-12), "requests": requests, "accepts": accepts}


@pytest.mark.parametrize(("draw", "rejected"), [(0.0, True), (0.4999, True), (0.5, False), (0.9999, False)])
def test_a_draw_below_the_share_rejects_the_call(draw: float, rejected: bool) -> None:
    assert rejects(with_history(Throttle(random=Draws(draw)), 0, 1), 0.0) is rejected


def test_rejected_calls_count_as_requests() -> None:
    """So the calls sent go down to k times the accepted ones."""
    with virtual_time():
        throttle = with_history(Throttle(random=Draws(0.0)), 1, 3)
        for requests in range(5, 10):
            assert rejects(throttle)
            assert throttle.snapshot() == {
                "share": (requests - 2) / (requests + 1),
                "requests": requests,
                "accepts": 1,
            }


def test_no_random_number_is_drawn_while_all_calls_are_accepted() -> None:
    chance = Draws(0.0)
    throttle = Throttle(random=chance)
    with virtual_time() as clock:
        for _ in range(100):
            throttle.call(int)
        assert chance.drawn == 0
        with pytest.raises(Boom):
            throttle.call(fails)
        assert not rejects(throttle)
        assert chance.drawn == 1
        clock.advance(120)
        assert throttle.snapshot() == {"share": 0, "requests": 0, "accepts": 0}
        assert not rejects(throttle, clock.now())
        assert chance.drawn == 1


@pytest.mark.parametrize(("minimum", "rejected"), [(0, True), (4, True), (5, False), (100, False)])
def test_no_call_is_rejected_below_the_minimum_of_calls(minimum: int, rejected: bool) -> None:
    with virtual_time():
        throttle = with_history(Throttle(minimum=minimum, random=Draws(0.0)), 0, 4)
        assert (throttle.snapshot()["share"] > 0) is rejected
        assert rejects(throttle) is rejected


def test_the_share_never_exceeds_most() -> None:
    throttle = with_history(Throttle(most=0.9, random=Draws(0.89, 0.9, 0.95)), 0, 1000)
    assert [rejects(throttle) for _ in range(3)] == [True, False, False]


def test_it_recovers_with_the_service() -> None:
    """Accepted calls lower the share, down to 0."""
    throttle, shares = with_history(Throttle(random=Draws(NEVER)), 0, 9), list[float]()
    with virtual_time():
        for _ in range(9):
            assert throttle.call(int) == 0
            shares.append(throttle.snapshot()["share"])
    assert shares == [pytest.approx(max(0, (9 + n - 2 * n) / (10 + n))) for n in range(1, 10)]
    assert shares[-1] == 0
