"""HTTP: statuses, methods and bodies as in httpware, smithy-kotlin and others, with every client."""

from __future__ import annotations

import pickle
from collections.abc import AsyncIterator, Generator
from typing import Any

import pytest

from redouble import Layer, Reason, RetryBudget, report
from redouble.http import redact_url, replayable, rule
from tests.conformance.http_calls import httpware, once, raised
from tests.conformance.observables import asserts
from tests.support.http.clients import CLIENTS, Client, HttpResult, client, is_async
from tests.support.scripted import Bucket
from tests.support.servers import Received, Server, refused_port


@pytest.fixture(scope="module")
def server() -> Generator[Server]:
    with Server() as found:
        yield found


@pytest.fixture(params=CLIENTS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def call(
    name: str, server: Server, script: str, method: str = "GET", policy: Layer | None = None, **options: Any
) -> tuple[HttpResult, list[Received]]:
    """Make one call, and return its result and the received requests."""
    url = server.url(script)
    with client(name, policy or httpware()) as http:
        seen = http.request(method, url, **options)
    return seen, server.ledger(url)


# ------------------------------------------------------------------- statuses and methods


def test_hw_rt_04_statuses(name: str, server: Server) -> None:
    """HW-RT-04: the same statuses are retried, and 425, Cloudflare's statuses and 529."""
    with client(name, httpware()) as http:
        for status in (408, 429, 502, 503, 504):
            assert (status, http.get(server.url(f"{status},200")).status) == (status, 200)
        for status in (400, 401, 403, 404, 409, 422, 500, 501, 505):
            url = server.url(f"{status},200")
            assert (status, http.get(url).status, len(server.ledger(url))) == (status, status, 1)
        for status in (425, *range(520, 525), 529):
            assert (status, http.get(server.url(f"{status},200")).status) == (status, 200)


def test_hw_rt_04_methods(name: str, server: Server) -> None:
    """HW-RT-04: the same methods are retried."""
    with client(name, httpware()) as http:
        for method in ("GET", "HEAD", "OPTIONS", "PUT", "DELETE"):
            assert (method, http.request(method, server.url("503,200")).status) == (method, 200)
        for method in ("POST", "PATCH", "TRACE"):
            assert (method, http.request(method, server.url("503,200")).status) == (method, 503)


@asserts("HW-RT-05", "attempts", "error", "notes", "sleeps")
def test_hw_rt_05(name: str, server: Server) -> None:
    """HW-RT-05: a POST that was answered is not resent, without a note."""
    seen, received = call(name, server, "503", "POST")
    assert (seen.status, len(received), seen.notes) == (503, 1, [])
    assert (seen.report().attempts, seen.report().reason) == (1, Reason.stopped)


@asserts("HW-RT-06", "attempts", "status")
def test_hw_rt_06(name: str, server: Server) -> None:
    """HW-RT-06: unless the policy lists the method, case-insensitively."""
    seen, received = call(name, server, "503,200", "POST", httpware(on=rule(methods=["post"])))
    assert (seen.status, len(received)) == (200, 2)


@asserts("HW-RT-11", "attempts", "error")
def test_hw_rt_11(name: str) -> None:
    """HW-RT-11: a POST whose connection was refused was never sent; it is resent (httpware: not)."""
    with client(name, httpware()) as http:
        seen = http.request("POST", f"http://127.0.0.1:{refused_port()}/", body=b"pay")
    assert seen.error is not None
    assert (seen.report().attempts, seen.report().reason) == (3, Reason.attempts)
    assert seen.notes


def test_hw_rt_18_http(name: str, server: Server) -> None:
    """HW-RT-18: with the budget exhausted, the response is returned and its report has the reason."""
    seen, received = call(
        name, server, "503", policy=httpware(budget=RetryBudget(ratio=0, per_second=0, credit="request"))
    )
    assert (seen.status, len(received)) == (503, 1)
    assert (seen.report().reason, seen.report().attempts) == (Reason.budget, 1)


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param({"methods": "GET"}, id="HW-RT-24.methods"),
        pytest.param({"statuses": 503}, id="HW-RT-24.statuses"),
    ],
)
def test_invalid_options_of_a_rule_are_rejected(wrong: dict[str, Any]) -> None:
    """A string instead of a set of methods, or a number instead of statuses, is rejected (httpware: not)."""
    with pytest.raises(TypeError, match=next(iter(wrong))):
        rule(**wrong)


# --------------------------------------------------------------------------------- bodies


@asserts("HW-RT-21", "attempts", "budget_withdrawn", "error", "notes", "sleeps")
def test_hw_rt_21(name: str, server: Server) -> None:
    """HW-RT-21: a one-shot body is not resent, although the method allows it, and no grant is spent."""
    budget = Bucket()
    seen, received = call(name, server, "503", "PUT", httpware(budget=budget), body=once(name))
    assert (seen.status, [one.body for one in received]) == (503, [b"hello world"])
    assert (seen.report().reason, seen.report().attempts) == (Reason.not_replayable, 1)
    assert budget.spent == 0
    seen, received = call(name, server, "rst~late", "PUT", body=once(name))
    assert (len(received), seen.report().reason) == (1, Reason.not_replayable)
    assert [note for note in seen.notes if "its body cannot be sent again" in note]


@asserts("HW-RT-22", "attempts", "error", "notes")
def test_hw_rt_22(name: str, server: Server) -> None:
    """HW-RT-22: if the method forbids resending, the reason is not the body."""
    seen, received = call(name, server, "503", "POST", body=once(name))
    assert (seen.status, len(received), seen.report().reason) == (503, 1, Reason.stopped)
    seen, received = call(name, server, "rst~late", "POST", body=once(name))
    assert (len(received), seen.report().reason, seen.notes) == (1, Reason.stopped, [])


def test_kt_http_01(name: str, server: Server) -> None:
    """KT-HTTP-01: a one-shot body is sent once; here the rule is still called, for the report."""
    asked: list[Exception] = []

    def rule_of_caller(error: Exception) -> bool:
        asked.append(error)
        return True

    seen, received = call(name, server, "503", "PUT", httpware(on=rule_of_caller), body=once(name))
    assert (seen.status, len(received), len(asked)) == (503, 1, 1)


@pytest.mark.parametrize("size", [0, 8, 9, 65_536, 65_537, 200_000])
def test_stream_replay_body_whole(name: str, server: Server, size: int) -> None:
    """stream.replay_body: the same bytes are resent, whatever their size."""
    body = bytes(range(256)) * (size // 256 + 1)
    body = body[:size]

    async def pieces() -> AsyncIterator[bytes]:
        yield body

    made: list[Any] = [body]
    if size:
        made.append(replayable(pieces) if is_async(name) else replayable(lambda: iter([body])))
    for one in made:
        seen, received = call(name, server, "503*2,200", "PUT", body=one)
        assert seen.status == 200
        assert [got.body for got in received] == [body] * 3


def test_stream_replay_body_partial(name: str, server: Server) -> None:
    """stream.replay_body: a body that is read while it is sent is not buffered (Linkerd: up to 64 KiB)."""
    seen, received = call(name, server, "503,200", "PUT", body=once(name))
    assert (seen.status, [got.body for got in received]) == (503, [b"hello world"])
    assert seen.report().reason is Reason.not_replayable


# --------------------------------------------------------------------------------- errors


def test_hw_err_01_statuses(name: str, server: Server) -> None:
    """HW-ERR-01: a response with an error status is returned; `raise_for_status` is the client's."""
    with client(name, httpware()) as http, client(name, bare=True) as bare:
        for status in (200, 204, 301, 304, 400, 401, 403, 404, 409, 418, 422, 429, 500, 502, 503, 599):
            url = server.url(str(status))
            seen, plain = http.get(url), bare.get(url)
            assert (seen.error, seen.status) == (None, status)
            assert raised(seen) == raised(plain)


@pytest.mark.parametrize(
    "script",
    [
        pytest.param("refused", id="HW-ERR-01.connect"),
        pytest.param("rst~late", id="HW-ERR-01.read"),
        pytest.param("garbage", id="HW-ERR-01.protocol"),
        pytest.param("stall", id="HW-ERR-01.timeout", marks=pytest.mark.quiet),
        pytest.param("ftp", id="HW-ERR-01.url"),
    ],
)
def test_hw_err_01_errors(name: str, server: Server, script: str) -> None:
    """HW-ERR-01: the client's own error is raised; pickled, it keeps its report."""
    urls = {"refused": f"http://127.0.0.1:{refused_port()}/", "ftp": "ftp://127.0.0.1/"}
    url = urls.get(script) or server.url(script)
    limit = 0.05 if script == "stall" else None
    with client(name, httpware()) as http, client(name, bare=True) as bare:
        seen, plain = get(http, url, limit), get(bare, url, limit)
    assert seen.error is not None
    assert type(seen.error) is type(plain.error)
    assert report(seen.error) is None or seen.report().reason in (Reason.attempts, Reason.stopped)
    try:
        copied = pickle.loads(pickle.dumps(plain.error))
    except Exception:  # the client's own error cannot be pickled, with or without redouble
        return
    copied = pickle.loads(pickle.dumps(seen.error))
    assert getattr(copied, "__notes__", []) == seen.notes
    assert report(copied) == report(seen.error)


@pytest.mark.parametrize("name", [name for name in CLIENTS if "trio" not in name])
def test_hw_err_01_decoding(name: str, server: Server) -> None:
    """HW-ERR-01: also for a body that cannot be decoded. Not on Trio, where httpx does not close it."""
    url = server.url("200~h.content-encoding=gzip~body=no")
    with client(name, httpware()) as http, client(name, bare=True) as bare:
        seen, plain = http.get(url), bare.get(url)
    assert type(seen.error) is type(plain.error)
    assert seen.error is not None
    assert len(server.ledger(url)) == 2  # one request of each client: it is not retried


def get(http: Client, url: str, limit: float | None) -> HttpResult:
    return http.get(url) if limit is None else http.get(url, timeout=limit)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://example.test/path", "https://example.test/path"),
        ("https://user:pass@example.test:8443/p", "https://example.test:8443/p"),
        ("https://u:p@[2001:db8::1]:8443/p", "https://[2001:db8::1]:8443/p"),
        (
            "https://example.test/p?page=2&api_key=abc",
            "https://example.test/p?page=REDACTED&api_key=REDACTED",
        ),
        ("https://example.test/p#access_token=t", "https://example.test/p#access_token=REDACTED"),
        ("https://example.test/p#section-3", "https://example.test/p#section-3"),
        ("not-a-url", "not-a-url"),
    ],
)
def test_hw_red_01(url: str, shown: str) -> None:
    """HW-RED-01: the secrets in an address are redacted."""
    assert redact_url(url) == shown
