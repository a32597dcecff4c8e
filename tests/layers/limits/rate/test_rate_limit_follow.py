"""`RateLimit.follow` applies the server's own limits, which slow calls down and never speed them up."""

from __future__ import annotations

import asyncio
from email.message import Message
from http import HTTPStatus
from types import SimpleNamespace

import pytest

from redouble import RateLimit, errors
from redouble.testing import virtual_time
from tests.support.fakes import Boom, nothing
from tests.support.layers.limits.quota_responses import Answer, Failure, OwnFailure, Response

DATE = "Mon, 16 Nov 2026 08:00:00 GMT"
LATER = "Mon, 16 Nov 2026 08:00:30 GMT"
EPOCH = 1794816000  # the same as DATE


def moments(limit: RateLimit, answer: object, calls: int = 3) -> list[float]:
    """Call once, follow an answer, and return when the next calls pass."""
    with virtual_time() as clock:
        limit.call(int)
        limit.follow(answer)
        return [limit.call(clock.now) for _ in range(calls)]


# ------------------------------------------------------------------------------- headers


@pytest.mark.parametrize(
    ("headers", "passed"),
    [
        ({}, [1, 2, 3]),
        # pauses
        ({"Retry-After": "5"}, [5, 6, 7]),
        ({"Retry-After": "0.25"}, [1, 2, 3]),
        ({"Retry-After": "0"}, [1, 2, 3]),
        ({"Retry-After": "soon"}, [1, 2, 3]),
        ({"Retry-After": LATER, "Date": DATE}, [30, 31, 32]),
        ({"Retry-After": DATE, "Date": LATER}, [1, 2, 3]),
        ({"retry-after-ms": "5500"}, [5.5, 6.5, 7.5]),
        ({"x-amz-retry-after": "2500"}, [2.5, 3.5, 4.5]),
        ({"Retry-After": "9" * 30}, [3600, 3601, 3602]),  # a mistake: capped at an hour
        # quotas that are used up
        ({"RateLimit": '"default";r=0;t=30'}, [30, 31, 32]),
        ({"RateLimit-Remaining": "0", "RateLimit-Reset": "30"}, [30, 31, 32]),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": f"{EPOCH + 30}", "Date": DATE}, [30, 31, 32]),
        ({"x-ratelimit-reset": "30"}, [30, 31, 32]),  # without the number left it counts as used up
        ({"x-ratelimit-remaining": "0"}, [1, 2, 3]),
        # quotas with calls left
        ({"RateLimit": '"default";r=2;t=20'}, [1, 11, 20, 21]),
        ({"RateLimit-Remaining": "2", "RateLimit-Reset": "20"}, [1, 11, 20, 21]),
        ({"x-ratelimit-remaining-requests": "4", "x-ratelimit-reset-requests": "20s"}, [1, 6, 11, 16, 20]),
        ({"RateLimit": '"minute";r=30;t=40, "hour";r=2;t=20'}, [1, 11, 20]),
        ({"RateLimit": '"minute";r=0;t=4, "hour";r=2;t=20'}, [4, 5, 6]),
        ({"RateLimit": '"default";r=100;t=20'}, [1, 2, 3]),  # it never makes calls faster
        ({"RateLimit": '"default";r=20;t=20'}, [1, 2, 3]),
        ({"RateLimit": '"default";r=2;t=0'}, [1, 2, 3]),
        ({"RateLimit": '"default";r=few;t=20'}, [1, 2, 3]),
        ({"RateLimit": '"day";r=960;t=86400'}, [1, 91, 181]),
        ({"RateLimit": '"default";r=2;t=20', "Retry-After": "7"}, [7, 17, 20, 21]),
    ],
)
def test_headers_delay_calls(headers: dict[str, str], passed: list[float]) -> None:
    for answer in (headers, list(headers.items()), Answer(headers, 429), Failure(Response(headers, 429))):
        assert moments(RateLimit(1), answer, len(passed)) == pytest.approx(passed)


def message(**headers: str) -> Message:
    """Return headers as urllib has them."""
    made = Message()
    for name, text in headers.items():
        made[name.replace("_", "-")] = text
    return made


@pytest.mark.parametrize(
    ("answer", "passes"),
    [
        (Response({"Retry-After": "5"}, 429), 5),
        (Answer([("retry-after", "5")], 503), 5),
        (Answer(message(Retry_After="5"), 403), 5),
        (message(Retry_After="5"), 5),
        ([(b"Retry-After", b"5")], 5),
        ((("Retry-After", "5"),), 5),
        (Failure(Answer({"Retry-After": "5"}, HTTPStatus.TOO_MANY_REQUESTS)), 5),
        (OwnFailure({"Retry-After": "5"}), 5),
        # an error without a status counts as one with 429, a result does not
        (OwnFailure({"Retry-After": "5"}, None), 5),
        (Failure(SimpleNamespace(headers={"Retry-After": "5"})), 5),
        (SimpleNamespace(headers={"Retry-After": "5"}), 1),
        (Response({"Retry-After": "5"}, None), 1),
        (Response({"Retry-After": "5"}, "429"), 1),
        # `Retry-After` with another status is not about the rate
        *[
            (Response({"Retry-After": "5", "retry-after-ms": "5000"}, status), 1)
            for status in (200, 201, 202, 301, 302, 303, 307, 404, 409, 425, 500, 502, 504)
        ],
        (Failure(Response({"Retry-After": "5"}, 202)), 1),
        # a quota counts with any status
        (Response({"RateLimit-Remaining": "0", "RateLimit-Reset": "5"}, 200), 5),
        (Response({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "5"}, 304), 5),
        (Response({"RateLimit": '"default";r=0;t=5', "Retry-After": "9"}, 202), 5),
        # a quota without the number left applies only if the request was rejected with 429 or 403
        (Response({"x-ratelimit-reset": "5"}, 429), 5),
        (Answer({"x-ratelimit-reset": "5"}, 403), 5),
        (Response({"x-ratelimit-reset": "5"}, 200), 1),
        (Failure(Response({"x-ratelimit-reset": "5"}, 503)), 1),
        # no readable headers
        (Failure(), 1),
        (Failure({"ResponseMetadata": {}}), 1),
        (Boom(), 1),
        (Response(None), 1),
        (Response(3), 1),
        (None, 1),
        (3, 1),
        ("Retry-After: 5", 1),
        (b"Retry-After: 5", 1),
    ],
)
def test_headers_are_found_on_responses_and_errors(answer: object, passes: float) -> None:
    assert moments(RateLimit(1), answer, 1) == [passes]


def test_a_pause_delays_the_calls_that_wait_already() -> None:
    limit, admitted = RateLimit(1), list[float]()

    async def main() -> None:
        with virtual_time() as clock:

            async def one() -> None:
                await limit.call(nothing)
                admitted.append(clock.now())

            tasks = [asyncio.ensure_future(one()) for _ in range(3)]
            await asyncio.sleep(0)
            limit.follow({"Retry-After": "10"})
            await asyncio.gather(*tasks)

    asyncio.run(main())
    assert admitted == [0, 10, 11]


def test_a_waiter_that_a_pause_delays_too_long_is_rejected_when_its_wait_runs_out() -> None:
    limit = RateLimit(1, wait=2)

    async def main() -> None:
        with virtual_time() as clock:
            await limit.call(nothing)
            task = asyncio.ensure_future(limit.call(nothing))
            await asyncio.sleep(0)
            limit.follow({"Retry-After": "10"})
            with pytest.raises(errors.RateLimited, match="no permit came free in time") as caught:
                await task
            assert (clock.now(), caught.value.retry_after) == (2, 8)

    asyncio.run(main())
