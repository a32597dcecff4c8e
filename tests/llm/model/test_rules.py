"""Which failures of a language model are retried: the rows of llm-fiber's decision record."""

from __future__ import annotations

import json
import socket
import ssl
from typing import Any

import httpx
import httpx2
import pytest

from redouble import Kind, transient
from redouble.errors import AttemptTimeout
from redouble.llm import CutShort, ErrorEvent, table
from tests.support.llm.scripted_model import Service, ask, every_shape, model_of, status, text_of

REQUEST = httpx2.Request("POST", "http://model.test/")
QUOTA = json.dumps({"error": {"code": "insufficient_quota", "message": "You exceeded your quota"}}).encode()


class APIError(Exception):
    """Looks like the error of the OpenAI SDK, which is recognised by its name."""

    def __init__(self, status_code: int, code: str | None = None, headers: Any = None) -> None:
        super().__init__(f"status {status_code}")
        self.status_code, self.code, self.type = status_code, code, code
        self.response = httpx2.Response(status_code, headers=headers, request=REQUEST)


APIError.__module__, APIError.__qualname__ = "openai", "APIError"


def lost(name: str, cause: Exception | None = None) -> Exception:
    """Return an error of httpx2, with its cause."""
    error: Exception = getattr(httpx2, name)("lost", request=REQUEST)
    error.__cause__ = cause
    return error


RETRIED: list[tuple[str, Exception, Kind, str]] = [
    ("429", status(429), Kind.throttled, "rate_limit"),
    *((f"{code}", status(code), Kind.server, "http_5xx") for code in (500, 501, 502, 503, 504, 520, 599)),
    ("529", status(529), Kind.throttled, "overloaded"),
    ("408", status(408), Kind.timeout, "timeout"),
    ("409", status(409), Kind.server, "conflict"),
    ("429 of the SDK", APIError(429), Kind.throttled, "rate_limit"),
    ("500 of the SDK", APIError(500), Kind.server, "http_5xx"),
    ("501 of the SDK", APIError(501), Kind.server, "http_5xx"),
    ("DNS", socket.gaierror(socket.EAI_AGAIN, "again"), Kind.network, "network"),
    ("no such name", socket.gaierror(socket.EAI_NONAME, "no name"), Kind.network, "network"),
    ("no such name, by h_errno", socket.herror(1, "no such host"), Kind.network, "network"),
    (
        "no such name, of httpx2",
        lost("ConnectError", socket.gaierror(socket.EAI_NONAME, "no name")),
        Kind.network,
        "network",
    ),
    ("refused", ConnectionRefusedError(), Kind.network, "network"),
    ("reset", ConnectionResetError(), Kind.network, "network"),
    ("refused, of httpx2", lost("ConnectError", ConnectionRefusedError(111, "no")), Kind.network, "network"),
    ("reset, of httpx2", lost("ReadError"), Kind.network, "network"),
    ("TLS broken off", ssl.SSLEOFError(), Kind.network, "network"),
    ("connect timeout", lost("ConnectTimeout"), Kind.timeout, "timeout_connect"),
    ("read timeout", lost("ReadTimeout"), Kind.timeout, "timeout_read"),
    ("our own limit", AttemptTimeout("late"), Kind.timeout, "timeout_read"),
    ("no end", CutShort("short"), Kind.network, "network"),
    ("overloaded", ErrorEvent("busy", type="overloaded_error"), Kind.throttled, "overloaded"),
    ("server error", ErrorEvent("oh", type="server_error"), Kind.server, "http_5xx"),
]
STOPPED: list[tuple[str, Exception]] = [
    *((f"{code}", status(code)) for code in (400, 401, 402, 403, 404, 413, 422)),
    *((f"{code} of the SDK", APIError(code)) for code in (400, 401, 403, 404, 422)),
    ("quota of the SDK", APIError(429, "insufficient_quota")),
    ("quota in a body", status(429, body=QUOTA)),
    ("quota in a stream", ErrorEvent("spent", type="insufficient_quota")),
    ("an unknown word", ErrorEvent("no", type="invalid_request_error")),
    ("no word", ErrorEvent("no")),
    ("certificate", ssl.SSLCertVerificationError("bad")),
    ("mistake", ValueError()),
]


def fresh(error: Exception) -> Exception:
    """Return a copy of an error without the stamp of an earlier call."""
    made = type(error).__new__(type(error), *error.args)
    made.__dict__ |= {name: value for name, value in vars(error).items() if not name.startswith("__")}
    return made


def ids(rows: list[Any]) -> list[str]:
    return [row[0] for row in rows]


@pytest.mark.parametrize(("_", "error", "kind", "reason"), RETRIED, ids=ids(RETRIED))
def test_the_table_retries_these_errors(_: str, error: Exception, kind: Kind, reason: str) -> None:
    verdict = table(error)
    assert verdict is not None
    assert (verdict.action, verdict.kind, verdict.reason) == ("retry", kind, reason)


@pytest.mark.parametrize(("_", "error"), STOPPED, ids=ids(STOPPED))
def test_the_table_does_not_retry_these_errors(_: str, error: Exception) -> None:
    verdict = table(error)
    assert verdict is None or verdict.action == "stop"


@every_shape
@pytest.mark.parametrize("name", ["429", "501", "reset", "read timeout", "connect timeout"])
def test_a_call_is_retried(colour: str, shape: str, name: str) -> None:
    service = Service(fresh(next(row[1] for row in RETRIED if row[0] == name)), text_of(shape, "hi"))
    seen = ask(colour, shape, model_of(), service)
    assert (seen.value, service.calls) == (text_of(shape, "hi"), 2)


@every_shape
@pytest.mark.parametrize("name", ["401", "quota in a body", "quota of the SDK", "mistake"])
def test_a_call_is_not_retried(colour: str, shape: str, name: str) -> None:
    error = fresh(next(row[1] for row in STOPPED if row[0] == name))
    service = Service(error)
    seen = ask(colour, shape, model_of(), service)
    assert seen.error is error
    assert (seen.report.reason, seen.report.attempts, service.calls) == ("stopped", 1, 1)


@pytest.mark.parametrize("code", [429, 503, 501, 409])
@pytest.mark.parametrize("made", [status, APIError])
def test_retry_after_becomes_the_hint_of_the_verdict(made: Any, code: int) -> None:
    verdict = table(made(code, headers={"Retry-After": "7"}))
    assert verdict is not None
    assert verdict.after == 7


@every_shape
def test_the_delay_follows_the_hint(colour: str, shape: str) -> None:
    service = Service(status(503, {"retry-after-ms": "2500"}), text_of(shape, "hi"))
    seen = ask(colour, shape, model_of(), service)
    assert [2.5 <= delay <= 2.75 for delay in seen.delays] == [True]


@every_shape
def test_a_hint_beyond_the_total_ends_the_call(colour: str, shape: str) -> None:
    seen = ask(colour, shape, model_of(), Service(status(429, {"Retry-After": "31"})))
    assert (seen.report.reason, seen.report.limit, seen.report.attempts) == ("timeout", "total", 1)
    assert seen.delays == []


@pytest.mark.parametrize("made", [status, APIError])
def test_the_header_x_should_retry_decides(made: Any) -> None:
    no, yes = {"x-should-retry": "false"}, {"x-should-retry": "true"}
    assert [table(made(code, headers=no)) for code in (409, 429, 500, 501, 503)] == [None] * 5
    verdict = table(made(400, headers=yes))
    assert verdict is not None
    assert verdict.action == "retry"


@pytest.mark.parametrize("library", [httpx, httpx2])
@pytest.mark.parametrize("word", ["insufficient_quota", "billing_hard_limit_reached", "billing_error"])
def test_an_exhausted_quota_is_found_in_a_body_that_was_read(library: Any, word: str) -> None:
    def error(body: Any) -> Exception:
        request = library.Request("POST", "http://model.test/")
        answer = library.Response(429, content=body, request=request)
        made: Exception = library.HTTPStatusError("429", request=request, response=answer)
        return made

    verdict, unread = table(error(f'{{"type": "{word}"}}'.encode())), table(error(iter([word.encode()])))
    assert verdict is not None
    assert verdict.action == "stop"
    assert unread is not None  # a body that has not been read is not read for this
    assert unread.action == "retry"


def test_errors_with_odd_attributes_are_not_misread() -> None:
    class Odd(Exception):
        status_code = "503"

    class Odder(ConnectionError):
        @property
        def response(self) -> object:
            raise RuntimeError("not here")

    class Texts(Exception):
        status_code = 429
        headers: Any = None

    assert table(Odd()) is None
    assert table(Odder()) == transient(ConnectionError())
    verdict = table(Texts())
    assert verdict is not None
    assert verdict.reason == "rate_limit"
