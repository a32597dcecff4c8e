"""`Throttle`: the share it refuses is exactly what is said, and it recovers with the service."""

from __future__ import annotations

import pytest

from redouble import Throttle, errors
from redouble._layers.limits.throttle import rejection_share
from redouble.testing import virtual_time
from tests.support.fakes import Boom, Draws

NEVER = 0.999_999_999  # a draw that nothing refuses


def fails() -> None:
    raise Boom


def told(throttle: Throttle, good: int, bad: int, now: float = 0.0) -> Throttle:
    """Tell it of so many calls that went well, and so many that did not."""
    for _ in range(good):
        throttle.ended(None, None, now)
    for _ in range(bad):
        throttle.ended(None, Boom(), now)
    return throttle


def refused(throttle: Throttle, now: float = 0.0) -> bool:
    """Ask once."""
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
def test_the_share(requests: int, accepts: int, k: float, most: float, share: float) -> None:
    assert rejection_share(requests, accepts, k, most) == pytest.approx(share, abs=1e-12)
    with virtual_time():
        throttle = told(Throttle(k, most=most), accepts, requests - accepts)
        seen = throttle.snapshot()
    assert seen == {"share": pytest.approx(share, abs=1e-12), "requests": requests, "accepts": accepts}


@pytest.mark.parametrize(("draw", "refuses"), [(0.0, True), (0.4999, True), (0.5, False), (0.9999, False)])
def test_chance_decides_with_that_share(draw: float, refuses: bool) -> None:
    assert refused(told(Throttle(random=Draws(draw)), 0, 1), 0.0) is refuses


def test_calls_that_are_refused_count_as_requests() -> None:
    """So that what is sent goes down to k times what is accepted, and not to a share of what was sent."""
    with virtual_time():
        throttle = told(Throttle(random=Draws(0.0)), 1, 3)
        for requests in range(5, 10):
            assert refused(throttle)
            assert throttle.snapshot() == {
                "share": (requests - 2) / (requests + 1),
                "requests": requests,
                "accepts": 1,
            }


def test_nobody_is_asked_by_chance_while_all_is_well() -> None:
    chance = Draws(0.0)
    throttle = Throttle(random=chance)
    with virtual_time() as clock:
        for _ in range(100):
            throttle.call(int)
        assert chance.drawn == 0
        with pytest.raises(Boom):
            throttle.call(fails)
        assert not refused(throttle)
        assert chance.drawn == 1
        clock.advance(120)
        assert throttle.snapshot() == {"share": 0, "requests": 0, "accepts": 0}
        assert not refused(throttle, clock.now())
        assert chance.drawn == 1


@pytest.mark.parametrize(("minimum", "refuses"), [(0, True), (4, True), (5, False), (100, False)])
def test_nothing_is_refused_while_there_were_few(minimum: int, refuses: bool) -> None:
    with virtual_time():
        throttle = told(Throttle(minimum=minimum, random=Draws(0.0)), 0, 4)
        assert (throttle.snapshot()["share"] > 0) is refuses
        assert refused(throttle) is refuses


def test_some_always_pass_if_told_so() -> None:
    throttle = told(Throttle(most=0.9, random=Draws(0.89, 0.9, 0.95)), 0, 1000)
    assert [refused(throttle) for _ in range(3)] == [True, False, False]


def test_it_recovers_with_the_service() -> None:
    """Calls that pass and are accepted bring the share down, to none."""
    throttle, shares = told(Throttle(random=Draws(NEVER)), 0, 9), list[float]()
    with virtual_time():
        for _ in range(9):
            assert throttle.call(int) == 0
            shares.append(throttle.snapshot()["share"])
    assert shares == [pytest.approx(max(0, (9 + n - 2 * n) / (10 + n))) for n in range(1, 10)]
    assert shares[-1] == 0
