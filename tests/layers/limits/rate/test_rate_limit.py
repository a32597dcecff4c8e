"""`RateLimit`: its options and errors, its description and lint in a pipeline, and its snapshot."""

from __future__ import annotations

import asyncio
import copy
import pickle
from datetime import timedelta
from math import inf, nan
from typing import Any

import pytest

from redouble import Hints, Pipeline, RateLimit, Retry, Timeout, errors, policy_of
from redouble.testing import VirtualClock, virtual_time
from tests.support.fakes import nothing
from tests.support.virtual_time import in_virtual_colour

# ------------------------------------------------------------------------------ options


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((0,), ValueError, "RateLimit rate=0: write calls, from 1e-9 to 1e9, such as 10"),
        ((-3,), ValueError, "RateLimit rate=-3"),
        ((1e10,), ValueError, "RateLimit rate=10000000000.0"),
        ((nan,), ValueError, "RateLimit rate=nan"),
        ((True,), TypeError, "RateLimit rate=True: write calls"),
        (("10",), TypeError, "RateLimit rate='10': write calls"),
        ((None,), TypeError, "RateLimit rate=None"),
        ((print,), TypeError, r"write @RateLimit\(10\), with the rate"),
        ((10, 0), ValueError, "RateLimit per=0: write the seconds that the rate is for, such as 1"),
        ((10, timedelta()), ValueError, "RateLimit per=0"),
        ((10, -1), ValueError, "RateLimit per=-1: write a finite number of seconds"),
        ((10, inf), ValueError, "RateLimit per=inf"),
        ((10, "1s"), TypeError, "RateLimit per='1s': write seconds as a number, or a timedelta"),
        ((10, 1, 0), ValueError, "RateLimit burst=0: write 1 or more: how many may begin at once"),
        ((10, 1, 1.5), TypeError, "RateLimit burst=1.5: write 1 or more"),
        ((10, 1, True), TypeError, "RateLimit burst=True"),
        ((10, 1, 1, -1), ValueError, "RateLimit wait=-1: write a finite number of seconds, 0 or more"),
        ((10, 1, 1, inf), ValueError, "RateLimit wait=inf"),
        ((10, 1, 1, "1s"), TypeError, "RateLimit wait='1s'"),
        ((1, 1, 10**400), ValueError, "write a rate that a clock can measure, and a burst of up to"),
        ((1e-9, 1e300), ValueError, "write a rate that a clock can measure, and a burst of up to"),
        ((1e9, 1e-300), ValueError, "write a rate that a clock can measure, and a burst of up to"),
    ],
)
def test_wrong_options_are_reported(arguments: tuple[Any, ...], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        RateLimit(*arguments)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"following": 1}, "RateLimit following=1: write True or False"),
        ({"following": None}, "RateLimit following=None"),
        ({"name": 3}, "RateLimit name=3: write a text, or None"),
    ],
)
def test_wrong_keyword_options_are_reported(options: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        RateLimit(10, **options)


@pytest.mark.parametrize(
    ("limit", "text"),
    [
        (RateLimit(10), "RateLimit(10, per=1, burst=1, wait=None)"),
        (RateLimit(0.5, 60, 3, 0), "RateLimit(0.5, per=60, burst=3, wait=0.0)"),
        (RateLimit(123456789.5), "RateLimit(123456789.5, per=1, burst=1, wait=None)"),
        (
            RateLimit(7, timedelta(minutes=1), wait=timedelta(seconds=2), following=True, name="db"),
            "RateLimit(7, per=60, burst=1, wait=2.0, following=True, name='db')",
        ),
    ],
)
def test_its_repr_recreates_it(limit: RateLimit, text: str) -> None:
    assert repr(limit) == text
    other = eval(text)  # noqa: S307
    assert repr(other) == text
    assert (other.rate, other.per, other.burst, other.wait, other.name) == (
        limit.rate,
        limit.per,
        limit.burst,
        limit.wait,
        limit.name,
    )


def test_it_is_shared_and_never_copied() -> None:
    limit = RateLimit(1, wait=0)
    assert copy.copy(limit) is copy.deepcopy(limit) is limit
    with pytest.raises(TypeError, match="a RateLimit is shared by the calls of one process"):
        pickle.dumps(limit)
    with pytest.raises(TypeError, match="is shared by the calls of one process"):
        pickle.dumps(Retry() | limit)


# ------------------------------------------------------------- errors, description, lint


@pytest.mark.parametrize(
    ("options", "message", "retry_after"),
    [
        ({"rate": 10, "wait": 0}, "the rate limit is used up: 10 a second, and it does not wait", 0.1),
        (
            {"rate": 0.5, "per": 60, "wait": 0, "name": "db"},
            "the rate limit db is used up: 0.5 in 60 s, and it does not wait",
            120,
        ),
        (
            {"rate": 2, "wait": 0.4},
            "the rate limit is used up: 2 a second, and the wait would be longer than 0.4 s",
            0.5,
        ),
    ],
)
def test_the_error_of_a_rejected_call(
    colour: str, options: dict[str, Any], message: str, retry_after: float
) -> None:
    limit = RateLimit(**options)

    def blocking(clock: VirtualClock) -> None:
        limit.call(int)
        limit.call(int)

    async def waiting(clock: VirtualClock) -> None:
        await limit.call(nothing)
        await limit.call(nothing)

    with pytest.raises(errors.RateLimited) as caught:
        in_virtual_colour(colour, blocking, waiting)
    assert str(caught.value) == message
    assert caught.value.retry_after == retry_after
    assert isinstance(caught.value, errors.Rejected)
    sent = pickle.loads(pickle.dumps(caught.value))
    assert (str(sent), vars(sent)) == (message, vars(caught.value))


@pytest.mark.parametrize(
    ("limit", "description", "at_worst"),
    [
        (RateLimit(10), "10 a second, others wait", "function takes and any amount of waiting"),
        (RateLimit(10, wait=2), "10 a second, others wait up to 2 s", "function takes and 2 s of waiting"),
        (RateLimit(3, 60, wait=0), "3 in 60 s, others are refused", "for as long as your function takes"),
    ],
)
def test_its_description(limit: RateLimit, description: str, at_worst: str) -> None:
    drawn, *_, worst = Pipeline(limit).explain().splitlines()
    assert drawn.endswith(description)
    assert worst.endswith(at_worst)


@pytest.mark.parametrize(
    ("pipeline", "expected"),
    [
        (Retry() | RateLimit(10), []),
        (RateLimit(10) | Timeout(5), []),
        (RateLimit(10) | Retry(), ["RateLimit outside Retry: retries pass without a permit"]),
    ],
)
def test_lint_in_a_pipeline(pipeline: Any, expected: list[str]) -> None:
    found = [text for text in pipeline.check() if text.startswith("RateLimit")]
    assert [text[: len(start)] for text, start in zip(found, expected, strict=True)] == expected


def test_policy_of_a_decorated_function() -> None:
    limit = RateLimit(10)

    @limit
    def fetch() -> None: ...

    @limit
    async def afetch() -> None: ...

    following = RateLimit(10, following=True)
    assert policy_of(fetch) is policy_of(afetch) is limit
    assert policy_of(following(nothing)) is following
    pipeline = Retry() | limit
    assert policy_of(pipeline(nothing)) is pipeline
    assert fetch.__name__ == "fetch"


def test_a_plain_function_that_returns_a_coroutine_raises_type_error() -> None:
    def later() -> object:
        return nothing()

    for limit in (RateLimit(10), RateLimit(10, following=True)):
        with pytest.raises(TypeError, match="coroutine"):
            limit.call(later)


# ------------------------------------------------------------------------------ snapshot


def test_the_snapshot() -> None:
    limit = RateLimit(2, burst=3)
    with virtual_time() as clock:
        assert limit.snapshot() == {"rate": 2, "available": 3, "queued": 0, "retry_after": 0}
        for left in (2, 1, 0):
            limit.call(int)
            assert limit.snapshot()["available"] == left
        assert limit.snapshot() == {"rate": 2, "available": 0, "queued": 0, "retry_after": 0.5}
        clock.advance(0.75)
        assert limit.snapshot() == {"rate": 2, "available": 1, "queued": 0, "retry_after": 0}


def test_the_snapshot_counts_the_waiters() -> None:
    limit = RateLimit(2)

    async def main() -> None:
        with virtual_time():
            tasks = [asyncio.ensure_future(limit.call(nothing)) for _ in range(4)]
            await asyncio.sleep(0)
            assert limit.snapshot() == {"rate": 2, "available": 0, "queued": 3, "retry_after": 2}
            await asyncio.gather(*tasks)
            assert limit.snapshot() == {"rate": 2, "available": 0, "queued": 0, "retry_after": 0.5}

    asyncio.run(main())


def test_admit_never_waits() -> None:
    limit = RateLimit(2, burst=2)
    limit.admit(10.0)
    limit.admit(10.0)
    with pytest.raises(errors.RateLimited, match="and it does not wait") as caught:
        limit.admit(10.25)
    assert caught.value.retry_after == 0.25
    limit.admit(10.5)


def test_a_policy_outside_waits_exactly_for_the_retry_after() -> None:
    limit = RateLimit(2, wait=0)
    policy = Retry(backoff=[0.01] * 3, hints=Hints(spread=0)) | limit
    with virtual_time() as clock:
        assert [policy.call(clock.now) for _ in range(3)] == [0, 0.5, 1]
        assert clock.delays == [0.5, 0.5]
