"""Headers in which servers state when to retry and whether to, through every HTTP client."""

from __future__ import annotations

from collections.abc import Generator
from datetime import UTC, datetime
from typing import Any

import pytest

from redouble import Hints, Retry, transient
from redouble._failures import retry_after as parser
from redouble._failures.transient import Transient
from redouble.http import rule
from tests.support.fakes import Draws, Virtual, options
from tests.support.http.clients import CLIENTS, client
from tests.support.servers import Server, value

# A server whose clock is wrong by decades: the delay is the difference of its two dates.
THEN, LATER = "Sat, 06 Nov 2004 08:49:37 GMT", "Sat, 06 Nov 2004 08:49:44 GMT"
RFC_850, ASCTIME = "Saturday, 06-Nov-04 08:49:44 GMT", "Sat Nov  6 08:49:44 2004"
EPOCH = 1_099_730_984  # `LATER` in seconds since the epoch


@pytest.fixture(scope="module")
def server() -> Generator[Server]:
    with Server() as found:
        yield found


@pytest.fixture(params=CLIENTS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def header(name: str, text: object) -> str:
    """Return a header as an option of a step."""
    return f"h.{name}={value(str(text))}"


ASKED: dict[str, tuple[str, float | None]] = {
    "seconds": ("ra=7", 7.0),
    "a fraction": ("ra=7.25", 7.25),
    "zero": ("ra=0", 0.0),
    "milliseconds": ("rams=7250", 7.25),
    "milliseconds before seconds": ("rams=7000~ra=9", 7.0),
    "seconds where milliseconds cannot be read": ("rams=soon~ra=9", 9.0),
    "a date": (f"ra={value(LATER)}~date={value(THEN)}", 7.0),
    "a date of RFC 850": (f"ra={value(RFC_850)}~date={value(THEN)}", 7.0),
    "a date of asctime": (f"ra={value(ASCTIME)}~date={value(THEN)}", 7.0),
    "a date that has passed": (f"ra={value(THEN)}~date={value(LATER)}", 0.0),
    "a date in the past, and no Date": (f"ra={value(LATER)}~date=none", 0.0),
    "nothing that can be read": ("ra=1_000", None),
    "an infinity": ("ra=inf", None),
    "a negative number": ("ra=-7", None),
    "5,000 digits": (f"ra={'9' * 5000}", None),
    "a year of 20 digits": (f"ra={value('Sun, 06 Nov ' + '9' * 20 + ' 08:49:44 GMT')}", None),
    "digits of another script": ("h.retry-after=%25D9%25A3", None),
    "nothing": ("ra=", None),
}

# The state of a quota is a hint only in a response that rejects for it, with status 429.
QUOTAS: dict[str, tuple[str, float | None]] = {
    "x-ratelimit-reset in seconds": (header("x-ratelimit-reset", 7), 7.0),
    "x-ratelimit-reset as a moment": (f"{header('x-ratelimit-reset', EPOCH)}~date={value(THEN)}", 7.0),
    "x-ratelimit-reset-requests of OpenAI": (header("x-ratelimit-reset-requests", "1m7s"), 67.0),
    "a quota that is not used up": ("h.x-ratelimit-reset=7~h.x-ratelimit-remaining=1", None),
    "RateLimit-Reset": ("h.ratelimit-reset=7~h.ratelimit-remaining=0", 7.0),
    "RateLimit of the draft": (header("ratelimit", '"default";r=0;t=7'), 7.0),
    "RateLimit of older drafts": (header("ratelimit", "limit=9, remaining=0, reset=7"), 7.0),
    "the longest of two quotas": (header("ratelimit", '"a";r=0;t=7, "b";r=0;t=3'), 7.0),
    "anthropic's, as a date": (
        f"{header('anthropic-ratelimit-tokens-reset', '2004-11-06T08:49:44Z')}~date={value(THEN)}",
        7.0,
    ),
}

ROWS = [
    *((status, form, asked) for form, asked in ASKED.items() for status in (429, 503)),
    *((429, form, asked) for form, asked in QUOTAS.items()),
    *((503, form, (asked, None)) for form, (asked, _) in QUOTAS.items()),
]


@pytest.mark.parametrize(
    ("status", "row"),
    [(status, row) for status, _, row in ROWS],
    ids=[f"{status} {form}" for status, form, _ in ROWS],
)
def test_the_delay_follows_the_hint(
    name: str, server: Server, status: int, row: tuple[str, float | None]
) -> None:
    """In every format; the report contains the hint."""
    asked, seconds = row
    clock = Virtual()
    policy = Retry(backoff=[0.5], hints=Hints(spread=0), give_up_after=None, clock=clock)
    with client(name, policy) as http:
        seen = http.get(server.url(f"{status}~{asked},200"))
    record = seen.report().history[0]
    assert (seen.status, clock.waits, record.hint) == (200, [max(0.5, seconds or 0)], seconds)


def test_the_delay_is_never_shorter_than_the_hint(name: str, server: Server) -> None:
    """The random spread only adds to it."""
    clock = Virtual()
    policy = Retry(backoff=[0, 0], clock=clock, random=Draws(0.0, 0.5), give_up_after=None)
    with client(name, policy) as http:
        assert http.get(server.url("429*2~ra=10,200")).status == 200
    assert clock.waits == [10.0, 10.5]


# ------------------------------------------------------------------------- hints too long

TOO_LONG: list[tuple[str, dict[str, Any], str, float]] = [
    ("429~ra=3600,200", options(hints=Hints(longest=60)), "hint_too_long", 3600.0),
    ("503~ra=3600,200", options(hints=Hints(longest=60)), "hint_too_long", 3600.0),
    ("429~ra=3600,200", options(), "timeout", 3600.0),
    ("429~ra=3600,200", options(give_up_after=None, timeout=60), "timeout", 3600.0),
    ("429~ra=99999999999999999999,200", options(), "timeout", 1e20),
    ("429~rams=3600000,200", options(), "timeout", 3600.0),
]


@pytest.mark.parametrize(("script", "policy", "reason", "hint"), TOO_LONG)
@pytest.mark.parametrize("stream", [False, True])
def test_a_hint_that_is_too_long_ends_the_call_at_once(
    name: str, server: Server, script: str, policy: dict[str, Any], reason: str, hint: float, stream: bool
) -> None:
    """The caller receives the response, and the report contains the hint, and the delay that was refused."""
    clock = Virtual()
    url = server.url(script)
    with client(name, Retry(**policy, backoff=[0.5], clock=clock)) as http:
        seen = http.get(url, stream=stream)
    report = seen.report()
    assert (seen.error, seen.status, len(server.ledger(url)), clock.waits) == (None, int(script[:3]), 1, [])
    assert seen.content == b'{"ok": false, "step": 1}'
    assert (report.reason, report.attempts, report.history[0].hint) == (reason, 1, hint)
    assert report.history[0].delay == hint


@pytest.mark.parametrize(
    ("hints", "waits"),
    [
        (Hints(mode="ignore"), [0.5]),
        (Hints(mode="instead", spread=0), [7.0]),
        (Hints(over=2, spread=0), [2.5]),
    ],
)
def test_the_policy_may_ignore_or_cap_hints(
    name: str, server: Server, hints: Hints, waits: list[float]
) -> None:
    """Or use a hint instead of its own delay."""
    clock = Virtual()
    with client(name, Retry(backoff=[0.5], hints=hints, clock=clock)) as http:
        assert http.get(server.url("429~ra=7,200")).status == 200
    assert clock.waits == waits


# ----------------------------------------------------------------------- x-should-retry

SHOULD_RETRY: list[tuple[str, str, dict[str, Any], tuple[int, str | None]]] = [
    ("GET", "503~h.x-should-retry=false,200", {}, (503, "stopped")),
    ("GET", "503~h.x-should-retry=FALSE,200", {}, (503, "stopped")),
    ("GET", "503~h.x-should-retry=true,200", {}, (200, None)),
    ("GET", "503~h.x-should-retry=perhaps,200", {}, (200, None)),
    ("GET", "500~h.x-should-retry=true,200", {}, (200, None)),
    ("GET", "404~h.x-should-retry=true,200", {}, (200, None)),
    ("GET", "404~h.x-should-retry=false,200", {}, (404, None)),
    ("GET", "404~h.x-should-retry=true,404", {}, (404, None)),
    ("GET", "302~h.x-should-retry=true~loc=/,200", {}, (302, None)),
    ("GET", "200~h.x-should-retry=true,503", {}, (200, None)),
    ("GET", "404~h.x-should-retry=true,200", {"on": rule()}, (200, None)),
    ("GET", "503~h.x-should-retry=false,200", {"on": rule()}, (503, "stopped")),
    ("GET", "404~h.x-should-retry=true", {"attempts": 2}, (404, "attempts")),
    ("POST", "404~h.x-should-retry=true,200", {}, (404, "stopped")),
]


@pytest.mark.parametrize(("method", "script", "policy", "expected"), SHOULD_RETRY)
def test_x_should_retry_decides(
    name: str, server: Server, method: str, script: str, policy: Any, expected: tuple[int, str | None]
) -> None:
    """It overrides the status, and not the method."""
    with client(name, Retry(backoff=[0] * 3, **policy)) as http:
        seen = http.request(method, server.url(script))
    assert (seen.error, seen.status, seen.report().reason) == (None, *expected)


def test_the_hint_of_a_response_with_x_should_retry_is_used(name: str, server: Server) -> None:
    """The status alone would not be retried."""
    clock = Virtual()
    with client(name, Retry(backoff=[0], hints=Hints(spread=0), clock=clock)) as http:
        assert http.get(server.url("409~h.x-should-retry=true~ra=7,200")).status == 200
    assert clock.waits == [7.0]


def test_without_a_date_header_the_local_clock_is_used(name: str, server: Server) -> None:
    """The delay is the difference between the date in ``Retry-After`` and the local time."""
    year = datetime.now(UTC).year + 2
    url = server.url(f"503~ra={value(f'Mon, 01 Jan {year} 00:00:00 GMT')}~date=none,200")
    with client(name, Retry(backoff=[0], hints=Hints(longest=3600))) as http:
        seen = http.get(url)
    hint = seen.report().history[0].hint
    assert seen.report().reason == "hint_too_long"
    assert hint is not None
    assert hint > 300 * 86_400


@pytest.mark.parametrize("script", ["503*2~ra=1,200", "409*2~h.x-should-retry=true~ra=1,200", "503~ra=1"])
@pytest.mark.parametrize("on", [transient, rule()], ids=["transient", "rule"])
def test_a_failure_is_judged_once_and_its_headers_are_parsed_once(
    name: str, server: Server, monkeypatch: pytest.MonkeyPatch, on: Any, script: str
) -> None:
    """By the policy's rule; the decision whether to resend reads its verdict."""
    judged: list[type[Exception]] = []
    parsed: list[object] = []
    parse = parser._fields

    def counted(headers: object) -> dict[str, str]:
        parsed.append(headers)
        return parse(headers)

    def judging(error: Exception) -> Any:
        judged.append(type(error))
        return on(error)

    monkeypatch.setattr(parser, "_fields", counted)
    url = server.url(script)
    with client(name, Retry(on=judging, attempts=3, backoff=[1, 1], clock=Virtual())) as http:
        status = http.get(url).status
    failures = len(server.ledger(url)) - (status == 200)
    assert (len(judged), len(parsed)) == (failures, failures)


@pytest.mark.parametrize("on", [transient, rule()], ids=["transient", "rule"])
def test_a_failure_without_a_response_is_judged_once(
    name: str, server: Server, monkeypatch: pytest.MonkeyPatch, on: Any
) -> None:
    """`transient` judges it for the rule; no headers are parsed."""
    judged: list[Exception] = []
    judge = Transient.__call__

    def counted(self: Transient, error: Exception, /, depth: int = 0) -> Any:
        if not depth:  # else it is the cause of the failure
            judged.append(error)
        return judge(self, error, depth)

    monkeypatch.setattr(Transient, "__call__", counted)
    url = server.url("close*2,200")
    with client(name, Retry(on=on, attempts=3, backoff=[1, 1], clock=Virtual())) as http:
        assert http.get(url).status == 200
    assert len(judged) == 2
