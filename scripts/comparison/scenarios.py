"""The rows of the tables: requests to a misbehaving server, and their right outcomes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import formatdate

from comparison.request import Outcome, Request

HOUR = 3600
EVENTS = 62  # bytes of the whole stream


@dataclass(frozen=True)
class Scenario:
    """One row. ``script`` is the server's script, see ``tests/support/servers``."""

    name: str
    script: str | Callable[[], str]
    request: Request
    wanted: str
    right: Callable[[Outcome], bool]
    ours: bool = False  # True if only Redouble is called: the others have no such layers


def answered(requests: int, *, after: float = 0.0, size: int | None = None) -> Callable[[Outcome], bool]:
    """Expect a complete 200 after this many requests, none without its body."""

    def right(outcome: Outcome) -> bool:
        whole = not outcome.lost and (size is None or len(outcome.received) == size)
        whole = whole and not outcome.unrecorded
        return outcome.status == 200 and outcome.requests == requests and outcome.pause >= after and whole

    return right


def passed_on(outcome: Outcome) -> bool:
    """Expect the 503 of the only request, without a wait."""
    return outcome.requests == 1 and outcome.status == 503 and not outcome.lost and not outcome.waiting


def failed(outcome: Outcome) -> bool:
    """Expect the error of the only request."""
    return outcome.requests == 1 and outcome.error is not None


def in_time(outcome: Outcome) -> bool:
    """Expect an error before the server has sent everything."""
    return failed(outcome) and outcome.took < 4


def stopped(outcome: Outcome) -> bool:
    """Expect that a breaker of three failures has opened."""
    return outcome.requests == 3 and type(outcome.error).__name__ == "CircuitOpen"


def honest(outcome: Outcome) -> bool:
    """Expect the 503; or a complete 200 if the client had read the whole pipe before it sent the request."""
    return passed_on(outcome) or answered(2)(outcome)


def dated() -> str:
    """Return the script of a server whose clock is an hour slow, with a ``Retry-After`` in two seconds."""
    now = time.time() - HOUR
    retry_after, date = formatdate(now + 2, usegmt=True), formatdate(now, usegmt=True)
    return f"503~ra={retry_after.replace(',', '%2C')}~date={date.replace(',', '%2C')},200"


GET, HURRIED, STREAM = Request(), Request(total=1.5), Request(iterate=True)
PATIENT = Request(total=1.5, own_limit=True)
POST, UNLUCKY = Request("POST", "bytes"), Request("POST", "bytes", refuse_first=True)
CUT = "200~size=5000~cut=100,200~size=5000"

SCENARIOS = [
    Scenario("GET: reset", "rst~late,200", GET, "2 → 200", answered(2)),
    Scenario("GET: 503 twice", "503*2,200", GET, "3 → 200", answered(3)),
    Scenario("GET: 503 twice, recorded", "503*2,200", Request(recorded=True), "3 → 200", answered(3)),
    Scenario("GET: a body cut short", CUT, GET, "2 → 200", answered(2, size=5000)),
    Scenario(
        "GET: 503 twice, read by a transport below",
        "503*2~size=9,200~size=5000",
        Request(read_below=True),
        "3 → 200",
        answered(3, size=5000),
        ours=True,
    ),
    Scenario(
        "six GETs: bodies cut short; a breaker for 3 failures",
        "200~size=5000~cut=100",
        Request(calls=6, breaker=3),
        "3 → CircuitOpen",
        stopped,
        ours=True,
    ),
    Scenario("GET: 503, `Retry-After: 1`", "503~ra=1,200", GET, "2 → 200, 1 s later", answered(2, after=1)),
    Scenario(
        "GET: 503, `Retry-After` a date 2 s ahead, by a clock that is an hour slow",
        dated,
        GET,
        "2 → 200, 2 s later",
        answered(2, after=2),
    ),
    Scenario("GET: 503, `Retry-After: 600`; 30 s in all", "503~ra=600,200", GET, "1 → 503", passed_on),
    Scenario("GET: dripped for 6 s; 1.5 s in all", "200~size=120~drip=0.05", HURRIED, "1 → timeout", in_time),
    Scenario(
        "GET: silence; 1.5 s in all, by the client's own limit", "stall", PATIENT, "1 → timeout", in_time
    ),
    Scenario("PUT of a generator: 503", "503,200", Request("PUT", "generator"), "1 → 503", passed_on),
    Scenario("PUT of a file: 503", "503,200", Request("PUT", "file"), "2 → 200", answered(2)),
    Scenario(
        "PUT of a form with a file: 503",
        "503,200",
        Request("PUT", "form with a file"),
        "2 → 200",
        answered(2),
    ),
    Scenario(
        "PUT of a form with a pipe: 503",
        "503,200",
        Request("PUT", "form with a pipe"),
        "1 → 503, or 2 → 200",
        honest,
    ),
    Scenario("POST: 503", "503,200", POST, "1 → 503", passed_on),
    Scenario("POST: reset", "rst~late,200", POST, "1 → error", failed),
    Scenario("POST: connection refuse_first, then not", "200", UNLUCKY, "1 → 200", answered(1)),
    Scenario(
        "stream: broken before the first byte", "sse~cut=0,sse", STREAM, "2 → 200", answered(2, size=EVENTS)
    ),
    Scenario("stream: broken after the first byte", "sse~cut=1,sse", STREAM, "1 → error", failed),
]
