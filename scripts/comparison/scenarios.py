"""The rows of the tables: what is asked of a server that misbehaves, and what would be right."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import formatdate

from comparison.asked import Asked, Seen

HOUR = 3600
EVENTS = 62  # bytes of the whole stream


@dataclass(frozen=True)
class Scenario:
    """One row. ``script`` is what the server plays, see ``tests/servers``."""

    name: str
    script: str | Callable[[], str]
    asked: Asked
    wanted: str
    right: Callable[[Seen], bool]


def answered(requests: int, *, after: float = 0.0, size: int | None = None) -> Callable[[Seen], bool]:
    """Expect a 200, all of it, and nothing lost on the way."""

    def right(seen: Seen) -> bool:
        whole = not seen.lost and (size is None or len(seen.received) == size)
        return seen.status == 200 and seen.requests == requests and seen.pause >= after and whole

    return right


def passed_on(seen: Seen) -> bool:
    """Expect the 503 of the only request, at once."""
    return seen.requests == 1 and seen.status == 503 and not seen.lost and not seen.waiting


def failed(seen: Seen) -> bool:
    """Expect the error of the only request."""
    return seen.requests == 1 and seen.error is not None


def in_time(seen: Seen) -> bool:
    """Expect an error before the server is done."""
    return failed(seen) and seen.took < 4


def honest(seen: Seen) -> bool:
    """Expect the 503; or a 200 with all of it, of a client that had read the pipe before it sent anything."""
    return passed_on(seen) or answered(2)(seen)


def dated() -> str:
    """Make an answer of a server whose clock is an hour slow, and which asks for two seconds."""
    now = time.time() - HOUR
    asked, date = formatdate(now + 2, usegmt=True), formatdate(now, usegmt=True)
    return f"503~ra={asked.replace(',', '%2C')}~date={date.replace(',', '%2C')},200"


GET, HURRIED, STREAM = Asked(), Asked(total=1.5), Asked(iterate=True)
POST, UNLUCKY = Asked("POST", "bytes"), Asked("POST", "bytes", refused=True)
CUT = "200~size=5000~cut=100,200~size=5000"

SCENARIOS = [
    Scenario("GET: reset", "rst~late,200", GET, "2 → 200", answered(2)),
    Scenario("GET: 503 twice", "503*2,200", GET, "3 → 200", answered(3)),
    Scenario("GET: a body cut short", CUT, GET, "2 → 200", answered(2, size=5000)),
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
    Scenario("PUT of a generator: 503", "503,200", Asked("PUT", "generator"), "1 → 503", passed_on),
    Scenario("PUT of a file: 503", "503,200", Asked("PUT", "file"), "2 → 200", answered(2)),
    Scenario(
        "PUT of a form with a file: 503", "503,200", Asked("PUT", "form with a file"), "2 → 200", answered(2)
    ),
    Scenario(
        "PUT of a form with a pipe: 503",
        "503,200",
        Asked("PUT", "form with a pipe"),
        "1 → 503, or 2 → 200",
        honest,
    ),
    Scenario("POST: 503", "503,200", POST, "1 → 503", passed_on),
    Scenario("POST: reset", "rst~late,200", POST, "1 → error", failed),
    Scenario("POST: connection refused, then not", "200", UNLUCKY, "1 → 200", answered(1)),
    Scenario(
        "stream: broken before the first byte", "sse~cut=0,sse", STREAM, "2 → 200", answered(2, size=EVENTS)
    ),
    Scenario("stream: broken after the first byte", "sse~cut=1,sse", STREAM, "1 → error", failed),
]
