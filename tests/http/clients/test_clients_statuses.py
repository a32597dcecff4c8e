"""Statuses, through every HTTP client: which are retried, for which methods, and the result."""

from __future__ import annotations

import gc
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

import pytest

from redouble import Bulkhead, CircuitBreaker, Retry, errors, presets
from redouble.http import rule
from tests.support.fakes import Ledger, Virtual, options
from tests.support.http.clients import CLIENTS, HttpResult, client
from tests.support.servers import Server

GIVEN = options(backoff=[1, 2, 4], give_up_after=None)
POST = rule(methods={"POST"})


@pytest.fixture(scope="module")
def server() -> Generator[Server]:
    with Server() as found:
        yield found


@pytest.fixture(params=CLIENTS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@dataclass(frozen=True)
class Row:
    """The script of the server and the policy; the expected status, number of requests, reason and delays."""

    script: str
    status: int
    requests: int
    reason: str | None = None
    waits: list[float] = field(default_factory=list[float])
    method: str = "GET"
    policy: dict[str, Any] = field(default_factory=dict[str, Any])

    def __str__(self) -> str:
        return f"{self.method} {self.script} {' '.join(self.policy)}".rstrip()


RETRIED = (408, 425, 429, 502, 503, 504, 520, 521, 522, 523, 524, 529)
FAILURES = (500, 501, 505, 507, 511, 599)
ANSWERS = (201, 204, 304, 400, 401, 403, 404, 405, 409, 410, 412, 413, 418, 422, 428, 431, 451, 499)

TABLE = [
    Row("200", 200, 1),
    Row("503*2,200", 200, 3, waits=[1, 2]),
    Row("503", 503, 4, "attempts", [1, 2, 4]),
    Row("503", 503, 1, "attempts", policy=options(attempts=1)),
    Row("503", 503, 3, "backoff_ended", [1, 2], policy=options(backoff=[1, 2])),
    Row("503", 503, 2, "timeout", [1], policy=options(give_up_after=2)),
    Row("503,404,200", 404, 2, waits=[1]),
    Row("503,500,200", 500, 2, "stopped", [1]),
    Row("503,302~loc=/elsewhere,200", 302, 2, waits=[1]),
    Row("503~size=200000,200", 200, 2, waits=[1]),
    Row("503~gzip,200~gzip", 200, 2, waits=[1]),
    Row("503~close,200", 200, 2, waits=[1]),
    Row("503~early,200", 200, 2, waits=[1]),
    *(Row(f"{status},200", 200, 2, waits=[1]) for status in RETRIED),
    *(Row(f"{status},200", status, 1, "stopped") for status in FAILURES),
    *(Row(f"{status},200", status, 1) for status in ANSWERS),
    *(Row("503,200", 200, 2, waits=[1], method=m) for m in ("HEAD", "OPTIONS", "PUT", "DELETE", "QUERY")),
    *(Row("503,200", 503, 1, "stopped", method=method) for method in ("POST", "PATCH", "PURGE")),
    Row("503,200", 200, 2, waits=[1], method="get"),
    Row("404,500,200", 200, 3, waits=[1, 2], policy=options(on=rule(statuses={404, 500}))),
    Row("503,200", 503, 1, "stopped", policy=options(on=rule(statuses={404}))),
    Row("503,200", 200, 2, waits=[1], method="POST", policy=options(on=POST)),
    Row("503,200", 503, 1, "stopped", policy=options(on=POST)),
    Row("503,200", 200, 2, waits=[1], policy=options(on=Exception)),
    Row("500,200", 200, 2, waits=[1], policy=options(on=Exception)),
    Row("404,200", 404, 1, policy=options(on=Exception)),
    Row("503,200", 503, 1, "stopped", method="POST", policy=options(on=Exception)),
    Row("503,200", 503, 1, "budget", policy=options(budget=Ledger(retries=0))),
]


@pytest.mark.parametrize("row", TABLE, ids=str)
def test_all_clients_retry_the_same_statuses(name: str, server: Server, row: Row) -> None:
    """With the same responses, attempts, delays and reasons."""
    clock = Virtual()
    url = server.url(row.script)
    with client(name, Retry(**{**GIVEN, **row.policy}, clock=clock)) as http:
        seen = http.request(row.method, url)
    assert seen.error is None
    assert (seen.status, len(server.ledger(url)), clock.waits) == (row.status, row.requests, row.waits)
    report = seen.report()
    assert (report.reason, report.attempts, len(report.history)) == (row.reason, row.requests, row.requests)
    assert {request.method for request in server.ledger(url)} == {row.method.upper()}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("row", TABLE[:11], ids=str)
def test_the_response_is_the_client_s_own(name: str, server: Server, row: Row, stream: bool) -> None:
    """It equals the last response of the plain client, and ``raise_for_status`` raises the same."""
    skipped = row.requests - 1
    ours, plain = server.url(row.script), server.url(row.script)
    with client(name, Retry(**{**GIVEN, **row.policy}, clock=Virtual())) as http:
        got = http.get(ours, stream=stream)
    with client(name, bare=True) as http:
        for _ in range(skipped):
            http.get(plain)
        expected = http.get(plain, stream=stream)
    assert _shown(got) == _shown(expected)
    assert got.content == expected.content
    assert _raised(got) == _raised(expected, ours, plain)
    assert isinstance(got.response, type(expected.response))


def _shown(seen: HttpResult) -> dict[str, Any]:
    said = {key: text for key, text in seen.headers.items() if key != "date"}
    reason = getattr(seen.response, "reason", None) or getattr(seen.response, "reason_phrase", None)
    return {"status": seen.status, "reason": reason, "headers": said, "url": len(str(seen.response.url))}


def _raised(seen: HttpResult, url: str = "", instead_of: str = "") -> tuple[type[Exception], str] | None:
    """Return the error that ``raise_for_status`` raises."""
    try:
        seen.raise_for_status()
    except Exception as error:
        return type(error), str(error).replace(instead_of or url, url)
    return None


@pytest.mark.filterwarnings(
    "ignore:Async generator 'http:ResourceWarning"
)  # Trio's, with the plain client too
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("large", ["503~size=300000", "503~size=300000~chunked~piece=50000"])
def test_a_large_failed_response_is_returned_whole(
    name: str, server: Server, large: str, stream: bool
) -> None:
    """Responses of earlier attempts are closed."""
    with client(name, Retry(attempts=3, backoff=[0, 0]), pool=1) as http:
        seen = http.get(server.url(large), stream=stream, piece=10_000)
        assert (seen.status, len(seen.content or b"")) == (503, 300_000)
        assert seen.report().reason == "attempts"
        seen = http.get(server.url(f"{large},200"), stream=stream)  # needs the only connection
        assert (seen.status, seen.content) == (200, b'{"ok": true, "step": 2}')
        gc.collect()


def test_the_report_of_a_response_has_no_secrets(name: str, server: Server) -> None:
    """The error text has the status without the URL."""
    with client(name, Retry(attempts=2, backoff=[0])) as http:
        seen = http.get(server.url("503~body=hidden,429~body=hidden") + "?token=hidden")
    report = seen.report()
    said = [record.error_text for record in report.history]
    assert said == ["503 Service Unavailable", "429 Too Many Requests"]
    assert [record.kind for record in report.history] == ["server", "throttled"]
    assert "hidden" not in repr(report)
    assert "127.0.0.1" not in repr(report)


def test_rules_receive_the_client_s_own_error(name: str, server: Server) -> None:
    """For every status from 400 on they receive the error that ``raise_for_status`` raises."""
    shown: list[Exception] = []
    policy = Retry(on=shown.append, attempts=2)
    with client(name, policy) as http:
        seen = http.get(server.url("503"))
        plain = http.get(server.url("418"))
    raised = _raised(plain)
    assert raised is not None
    assert [isinstance(error, raised[0]) for error in shown] == [True, True]
    assert (seen.status, seen.report().reason) == (503, "stopped")


@pytest.mark.parametrize(("policy", "named"), [(Retry(attempts=1), ""), (Retry(name="shop"), "shop")])
@pytest.mark.parametrize("script", ["200", "404", "500", "503,200"])
def test_the_report_has_the_name_of_the_policy_or_the_library(
    name: str, server: Server, policy: Retry, named: str, script: str
) -> None:
    """For successes and failures."""
    with client(name, policy) as http:
        assert http.get(server.url(script)).report().name == (named or name.partition("-")[0])


# ------------------------------------------------------------------------- other layers


def test_a_breaker_counts_server_errors_only(name: str, server: Server) -> None:
    """503 and 500 are failures; 404 is not."""
    breaker = CircuitBreaker(failures=2)
    with client(name, breaker) as http:
        codes = [http.get(server.url(script)).status for script in ("404", "404", "503", "200", "500", "503")]
        url = server.url("200")
        refused = http.get(url)
    assert codes == [404, 404, 503, 200, 500, 503]
    assert isinstance(refused.error, errors.CircuitOpen)
    assert server.ledger(url) == []


def test_a_breaker_inside_ends_the_retries(name: str, server: Server) -> None:
    """Once it is open nothing is sent, and its retry_after is a hint that exceeds ``give_up_after``."""
    clock = Virtual()
    policy = Retry(attempts=3, backoff=[1, 2], clock=clock, give_up_after=5) | CircuitBreaker(failures=1)
    url = server.url("503")
    with client(name, policy) as http:
        seen = http.get(url)
    assert isinstance(seen.error, errors.CircuitOpen)
    assert (len(server.ledger(url)), seen.report().reason) == (1, "timeout")


def test_a_bulkhead_gets_its_slot_back_after_each_call(name: str, server: Server) -> None:
    """After failed responses, other responses and errors."""
    bulkhead = Bulkhead(1, wait=0)
    with client(name, bulkhead | Retry(attempts=2, backoff=[0])) as http:
        outcomes = [http.get(server.url(script)).outcome for script in ("503", "404", "rst~late,200", "200")]
    assert outcomes == [503, 404, 200, 200]


# --------------------------------------------------------- budgets of the default policy


def test_clients_without_a_policy_share_a_budget_per_host(name: str) -> None:
    """The budget of one host may be exhausted while that of another is not."""
    patient = {"attempts": 200, "backoff": [0] * 200}
    with Server() as down, client("httpx2") as one, client(name) as another:
        spent = one.get(down.url("503"), options=patient)
        assert (spent.status, spent.report().reason, spent.report().attempts) == (503, "budget", 101)
        refused = another.get(down.url("503,200"))
        assert (refused.status, refused.report().reason) == (503, "budget")
        served = another.get(down.url("503,200").replace("127.0.0.1", "localhost"))
        assert (served.status, served.report().attempts) == (200, 2)


def test_another_policy_has_its_own_budget_per_host(name: str) -> None:
    """Clients with the same policy share it."""
    policy, other = (presets.http(attempts=200, backoff=[0] * 200) for _ in range(2))
    with (
        Server() as down,
        client(name, policy) as one,
        client(name, policy) as two,
        client(name, other) as three,
    ):
        assert one.get(down.url("503")).report().attempts == 101
        assert two.get(down.url("503,200")).status == 503
        assert two.get(down.url("503,200").replace("127.0.0.1", "localhost")).status == 200
        assert three.get(down.url("503,200")).status == 200
