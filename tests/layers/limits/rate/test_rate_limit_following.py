"""A rate limit with ``following=True`` applies the headers of every response and error."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redouble import RateLimit
from redouble.testing import VirtualClock, virtual_time
from tests.support.fakes import Boom, nothing
from tests.support.layers.breaker_scripts import SHAPES, Service
from tests.support.layers.limits.quota_responses import Answer, Failure, OwnFailure, Response
from tests.support.virtual_time import in_virtual_colour


class Answering(Service):
    """A service that returns ``answer``, or raises ``down``."""

    answer: Any = None

    def __call__(self, item: int = 0, *, scale: int = 1) -> Any:
        super().__call__(item, scale=scale)
        return self.answer


PAUSE = {"Retry-After": "5"}


@pytest.mark.parametrize(
    ("shape", "answer", "down", "passes"),
    [
        ("call", Response(PAUSE, 429), None, 5),
        ("method", Answer(PAUSE, 503), None, 5),
        ("call", Response(PAUSE, 202), None, 1),  # it says when to ask for the result of this request
        ("decorator", None, Failure(Response(PAUSE, 503)), 5),
        ("decorator", None, Failure(Response(PAUSE, 200)), 1),
        ("call", PAUSE, None, 1),  # a plain dict is a result, not headers
        ("decorator", None, Failure(Response(PAUSE, 429)), 5),
        ("block", None, OwnFailure(PAUSE), 5),
        ("block", Response(PAUSE), None, 1),  # a block has no result that could be read
        ("stream", None, Failure(Response(PAUSE, 429)), 5),
        ("call", None, Boom(), 1),
    ],
)
def test_responses_and_errors_are_followed_in_every_colour(
    colour: str, shape: str, answer: Any, down: Exception | None, passes: float
) -> None:
    limit: Any = RateLimit(1, following=True)
    service = Answering()
    service.answer, service.down = answer, down
    blocking, waiting = SHAPES[shape]

    def here(clock: VirtualClock) -> float:
        try:
            assert blocking(limit, service) is answer
        except Exception as error:
            assert error is down  # noqa: PT017
        limit.call(int)
        return clock.now()

    async def ahere(clock: VirtualClock) -> float:
        try:
            assert await waiting(limit, service) is answer
        except Exception as error:
            assert error is down  # noqa: PT017
        await limit.call(nothing)
        return clock.now()

    assert in_virtual_colour(colour, here, ahere) == passes


def test_without_following_no_headers_are_applied() -> None:
    limit = RateLimit(1)
    with virtual_time() as clock:
        limit.call(Response, PAUSE)
        with pytest.raises(OwnFailure), limit:
            raise OwnFailure(PAUSE)
        limit.call(int)
        assert clock.now() == 2


# ------------------------------------------------------------------------- odd answers


class Odd:
    """A response whose headers cannot be read."""

    @property
    def headers(self) -> dict[str, str]:
        raise ValueError("do not ask")


class OddFailure(Exception):
    @property
    def response(self) -> object:
        raise RuntimeError("do not ask")


def endless() -> Iterator[tuple[str, str]]:
    while True:
        yield ("retry-after", "5")


@pytest.mark.parametrize(
    "answer",
    [Odd(), SimpleNamespace(headers=Odd()), SimpleNamespace(headers=endless()), SimpleNamespace(headers=0)],
)
def test_a_result_with_unreadable_headers_is_returned(answer: object) -> None:
    limit = RateLimit(10, following=True)
    assert limit.call(lambda: answer) is answer
    limit.follow(answer)


def test_an_error_with_an_unreadable_response_is_raised() -> None:
    limit, error = RateLimit(10, following=True), OddFailure()

    def fails() -> None:
        raise error

    with pytest.raises(OddFailure) as caught:
        limit.call(fails)
    assert caught.value is error
    with pytest.raises(OddFailure) as caught, limit:
        raise error
    assert caught.value is error


def test_an_iterator_is_not_consumed() -> None:
    limit = RateLimit(10, following=True)
    assert list(limit.call(iter, ["a", "b"])) == ["a", "b"]
    items = iter([("retry-after", "5")])
    limit.follow(items)
    assert list(items) == [("retry-after", "5")]
    assert limit.snapshot()["retry_after"] < 1


# -------------------------------------------------------------------------- never faster

HEADERS = st.fixed_dictionaries(
    {},
    optional={
        "Retry-After": st.sampled_from(["0", "1", "2.5", "7", "-1", "x"]),
        "RateLimit-Remaining": st.sampled_from(["0", "1", "3", "50", "x"]),
        "RateLimit-Reset": st.sampled_from(["0", "1", "10", "60", "x"]),
    },
)
STEPS = st.lists(st.tuples(st.floats(0, 3), st.none() | HEADERS), max_size=25)


def passed(
    limit: RateLimit, steps: list[tuple[float, dict[str, str] | None]], *, follow: bool
) -> list[float]:
    """Make one call after the other; return when each passed."""
    with virtual_time() as clock:
        moments: list[float] = []
        for gap, headers in steps:
            clock.advance(gap)
            moments.append(limit.call(clock.now))
            if follow and headers is not None:
                limit.follow(headers)
        return moments


@settings(max_examples=50)
@given(st.sampled_from([0.5, 1, 4]), st.integers(1, 4), STEPS)
def test_headers_never_let_a_call_pass_earlier(
    rate: float, burst: int, steps: list[tuple[float, dict[str, str] | None]]
) -> None:
    plain = passed(RateLimit(rate, burst=burst), steps, follow=False)
    followed = passed(RateLimit(rate, burst=burst), steps, follow=True)
    assert all(with_it >= without - 1e-6 for with_it, without in zip(followed, plain, strict=True))
