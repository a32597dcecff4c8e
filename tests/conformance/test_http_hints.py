"""Hints in headers, compared with httpware, go-retryablehttp, Envoy, smithy and botocore."""

from __future__ import annotations

from collections.abc import Generator
from datetime import UTC, datetime
from typing import Any

import pytest

from redouble import Hints, Kind, Reason, Retry, transient
from redouble.http import retry_after
from tests.support.http.clients import CLIENTS, Client, client
from tests.support.scripted import Virtual
from tests.support.servers import Server

NOW = datetime(1999, 12, 31, 23, 59, 57, tzinfo=UTC)
PLAIN = Hints(spread=0)


@pytest.fixture(scope="module")
def server() -> Generator[Server]:
    with Server() as found:
        yield found


@pytest.fixture(params=CLIENTS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def waits(
    http: Client, server: Server, script: str, clock: Virtual
) -> tuple[int | None, str | None, list[float]]:
    """Make one call, and return the status, the reason and the delays."""
    clock.waits.clear()
    seen = http.get(server.url(script))
    return seen.status, seen.report().reason, [*clock.waits]


def policy(clock: Virtual, **options: Any) -> Retry:
    said: dict[str, Any] = {"attempts": 2, "backoff": [1] * 9, "give_up_after": None, "hints": PLAIN}
    return Retry(**said | options, clock=clock)


# ------------------------------------------------------------------------------- parsing


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30", 30),
        ("0", 0),
        (" 7 ", 7),
        ("1e3", None),
        ("", None),
        ("tomorrow", None),
        ("2, 3", None),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0),
        ("2099-10-21T07:28:00Z", None),
        # httpware parses these as 0, 3, 1000, nothing, and infinity.
        ("-5", None),
        ("+3", None),
        ("1_000", None),
        ("5.0", 5),
        ("9" * 400, None),
    ],
)
def test_hw_ra_01(text: str, expected: float | None) -> None:
    """HW-RA-01: whole or fractional seconds, in the strict format of the standard, or a date."""
    assert retry_after({"Retry-After": text}, NOW.replace(year=2026)) == expected


@pytest.mark.parametrize(
    "text", ["Sat, 01 Jan 2000 00:00:57 GMT", "Saturday, 01-Jan-00 00:00:57 GMT", "Sat Jan  1 00:00:57 2000"]
)
def test_hw_ra_01_dates(text: str) -> None:
    """HW-RA-01: a date in each of its three formats, relative to the server's Date header if there is one."""
    assert retry_after({"Retry-After": text}, NOW) == 60
    assert retry_after({"Retry-After": text, "Date": "Sat, 01 Jan 2000 00:00:47 GMT"}, NOW) == 10


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["2"], 2),
        (["Fri, 31 Dec 1999 23:59:59 GMT"], 2),
        (["Fri, 31 Dec 1999 23:59:55 GMT"], 0),
        (["2", "3"], 2),
        (["0"], 0),
        (None, None),
        ([""], None),
        (["badvalue"], None),
    ],
)
def test_retry_after_parse(values: list[str] | None, expected: float | None) -> None:
    """retry_after.parse: the first value counts; a date in the past is zero."""
    assert retry_after({} if values is None else {"Retry-After": values}, NOW) == expected
    assert retry_after([("retry-after", value) for value in values or ()], NOW) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1500", 1.5),
        ("0", 0),
        ("20", 0.02),
        ("invalid", None),
        ("1.5", None),
        ("-100", None),
        ("", None),
    ],
)
def test_kt_http_02(text: str, expected: float | None) -> None:
    """KT-HTTP-02: whole milliseconds; without them the standard header counts (smithy never reads it)."""
    assert retry_after({"x-amz-retry-after": text}) == expected
    both = retry_after({"x-amz-retry-after": text, "retry-after": "9"})
    assert both == (9 if expected is None else expected)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"retry-after": "301"}, 301),
        ({"retry-after": "3", "x-ratelimit-reset": "1000000002"}, 3),
        ({"retry-after": "soon", "x-ratelimit-reset": "1000000002"}, 2),
        ({"x-ratelimit-reset": "1000000002"}, 2),
    ],
)
def test_retry_after_envoy_reset(headers: dict[str, str], expected: float) -> None:
    """retry_after.envoy_reset: the first valid header counts; the policy limits the wait."""
    assert retry_after(headers, 1_000_000_000) == expected


# ----------------------------------------------------------------------------- in a call


def test_a_hint_that_is_too_long_ends_the_call(name: str, server: Server) -> None:
    """retry_after.parse, retry_after.envoy_reset: there is no earlier retry.

    Linkerd shortens the hint to its maximum, Envoy uses its own backoff: both retry before the requested
    time.
    """
    clock = Virtual()
    with client(name, policy(clock, hints=Hints(longest=200, spread=0))) as http:
        assert waits(http, server, "429~ra=3600,200", clock) == (429, Reason.hint_too_long, [])
        assert waits(http, server, "429~ra=201,200", clock) == (429, Reason.hint_too_long, [])
        assert waits(http, server, "429~ra=200,200", clock) == (200, None, [200])
        assert waits(http, server, "429~ra=0,200", clock) == (200, None, [1])  # the backoff applies


@pytest.mark.parametrize(
    ("status", "waited"),
    [
        pytest.param(503, 7, id="retry_after.status_gate.503"),
        pytest.param(429, 7, id="retry_after.status_gate.429"),
        # As in .NET.
        pytest.param(502, 7, id="retry_after.status_gate.502"),
        pytest.param(408, 7, id="retry_after.status_gate.408"),
    ],
)
def test_retry_after_is_used_with_every_retried_status(
    name: str, server: Server, status: int, waited: float
) -> None:
    """Not only with 429 and 503."""
    clock = Virtual()
    with client(name, policy(clock)) as http:
        assert waits(http, server, f"{status}~ra=7,200", clock) == (200, None, [waited])


# ----------------------------------------------------------------------------------- AWS


def aws_error(status: int, code: str = "Unknown") -> Exception:
    """Return an error like botocore's, which is recognised by its name."""
    kind = type("ClientError", (Exception,), {"__module__": "botocore.exceptions"})
    error: Any = kind("no")
    error.response = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    assert isinstance(error, Exception)
    return error


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_aws_classification_transient(status: int) -> None:
    """aws.classification: these statuses are retried."""
    found = transient(aws_error(status))
    assert found is not None
    assert (found.action, found.kind) == ("retry", Kind.server)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 501])
def test_aws_classification_not_retried(status: int) -> None:
    """aws.classification: these statuses are not."""
    assert transient(aws_error(status)) is None


def test_aws_classification_429() -> None:
    """aws.classification: 429 is throttling even without such a code (botocore requires one)."""
    found = transient(aws_error(429))
    assert found is not None
    assert (found.action, found.kind) == ("retry", Kind.throttled)


@pytest.mark.parametrize(
    "code",
    [
        "Throttling",
        "ThrottlingException",
        "ThrottledException",
        "RequestThrottledException",
        "TooManyRequestsException",
        "ProvisionedThroughputExceededException",
        "TransactionInProgressException",
        "RequestLimitExceeded",
        "BandwidthLimitExceeded",
        "LimitExceededException",
        "RequestThrottled",
        "SlowDown",
        "PriorRequestNotComplete",
        "EC2ThrottledException",
    ],
)
def test_aws_classification_throttling(code: str) -> None:
    """aws.classification: these codes are throttling, with any status."""
    for status in (400, 429, 503):
        found = transient(aws_error(status, code))
        assert found is not None
        assert (found.action, found.kind) == ("retry", Kind.throttled)
