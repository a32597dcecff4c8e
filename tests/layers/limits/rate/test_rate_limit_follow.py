"""A rate limit that follows what the other side says about its own: slower at times, and never faster."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from email.message import Message
from typing import Any

import pytest

from redouble import RateLimit, errors
from redouble.testing import virtual_time
from tests.layers.limits.bulkhead.test_bulkhead_waiting import nothing
from tests.support.fakes import Boom

DATE = "Mon, 16 Nov 2026 08:00:00 GMT"
LATER = "Mon, 16 Nov 2026 08:00:30 GMT"
EPOCH = 1794816000  # the same as DATE


@dataclass
class Response:
    """An answer as httpx and requests have it."""

    headers: Any
    status_code: int = 200


@dataclass
class Answer:
    """An answer as aiohttp and urllib have it."""

    headers: Any
    status: int = 200


@dataclass(eq=False)
class Failure(Exception):
    """An error that carries an answer."""

    response: object = None


@dataclass(eq=False)
class OwnFailure(Exception):
    """An error that is the answer."""

    headers: Any = field(default_factory=dict[str, str])
    status: int = 429


def moments(limit: RateLimit, answer: object, calls: int = 3) -> list[float]:
    """Call once, follow an answer, and tell when the next calls pass."""
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
        ({"Retry-After": "9" * 30}, [3600, 3601, 3602]),  # a mistake is no reason to stop for ever
        # quotas that are used up
        ({"RateLimit": '"default";r=0;t=30'}, [30, 31, 32]),
        ({"RateLimit-Remaining": "0", "RateLimit-Reset": "30"}, [30, 31, 32]),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": f"{EPOCH + 30}", "Date": DATE}, [30, 31, 32]),
        ({"x-ratelimit-reset": "30"}, [30, 31, 32]),  # one that does not say is
        ({"x-ratelimit-remaining": "0"}, [1, 2, 3]),
        # quotas of which something is left
        ({"RateLimit": '"default";r=2;t=20'}, [1, 11, 20, 21]),
        ({"RateLimit-Remaining": "2", "RateLimit-Reset": "20"}, [1, 11, 20, 21]),
        ({"x-ratelimit-remaining-requests": "4", "x-ratelimit-reset-requests": "20s"}, [1, 6, 11, 16, 20]),
        ({"RateLimit": '"minute";r=30;t=40, "hour";r=2;t=20'}, [1, 11, 20]),
        ({"RateLimit": '"minute";r=0;t=4, "hour";r=2;t=20'}, [4, 5, 6]),
        ({"RateLimit": '"default";r=100;t=20'}, [1, 2, 3]),  # it is no reason to be faster
        ({"RateLimit": '"default";r=20;t=20'}, [1, 2, 3]),
        ({"RateLimit": '"default";r=2;t=0'}, [1, 2, 3]),
        ({"RateLimit": '"default";r=few;t=20'}, [1, 2, 3]),
        ({"RateLimit": '"day";r=960;t=86400'}, [1, 91, 181]),
        ({"RateLimit": '"default";r=2;t=20', "Retry-After": "7"}, [7, 17, 20, 21]),
    ],
)
def test_what_headers_say(headers: dict[str, str], passed: list[float]) -> None:
    for answer in (headers, list(headers.items()), Answer(headers, 429), Failure(Response(headers, 429))):
        assert moments(RateLimit(1), answer, len(passed)) == pytest.approx(passed)


def message(**headers: str) -> Message:
    """Make the headers of urllib."""
    made = Message()
    for name, text in headers.items():
        made[name.replace("_", "-")] = text
    return made


@pytest.mark.parametrize(
    ("answer", "passes"),
    [
        (Response({"Retry-After": "5"}), 5),
        (Answer([("retry-after", "5")]), 5),
        (Answer(message(Retry_After="5")), 5),
        (message(Retry_After="5"), 5),
        ([(b"Retry-After", b"5")], 5),
        ((("Retry-After", "5"),), 5),
        (Failure(Answer({"Retry-After": "5"})), 5),
        (OwnFailure({"Retry-After": "5"}), 5),
        # a quota that does not say what is left has only something to say if it refused
        (Response({"x-ratelimit-reset": "5"}, 429), 5),
        (Answer({"x-ratelimit-reset": "5"}, 403), 5),
        (Response({"x-ratelimit-reset": "5"}, 200), 1),
        (Failure(Response({"x-ratelimit-reset": "5"}, 503)), 1),
        # nothing that could be read
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
def test_where_they_are_found(answer: object, passes: float) -> None:
    assert moments(RateLimit(1), answer, 1) == [passes]


def test_those_who_wait_already_wait_longer() -> None:
    limit, came = RateLimit(1), list[float]()

    async def main() -> None:
        with virtual_time() as clock:

            async def one() -> None:
                await limit.call(nothing)
                came.append(clock.now())

            tasks = [asyncio.ensure_future(one()) for _ in range(3)]
            await asyncio.sleep(0)
            limit.follow({"Retry-After": "10"})
            await asyncio.gather(*tasks)

    asyncio.run(main())
    assert came == [0, 10, 11]


def test_who_cannot_wait_so_long_is_refused_in_time() -> None:
    limit = RateLimit(1, wait=2)

    async def main() -> None:
        with virtual_time() as clock:
            await limit.call(nothing)
            task = asyncio.ensure_future(limit.call(nothing))
            await asyncio.sleep(0)
            limit.follow({"Retry-After": "10"})
            with pytest.raises(errors.RateLimited, match="nothing came free in time") as caught:
                await task
            assert (clock.now(), caught.value.retry_after) == (2, 8)

    asyncio.run(main())
