"""Other features of the HTTP clients are unchanged: redirects, cookies, authentication, hooks."""

from __future__ import annotations

import importlib
from collections.abc import Generator
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
import requests.auth

import redouble
from redouble import Retry
from redouble.aiohttp import middleware
from tests.support.http.clients import CLIENTS, HTTPX, HttpResult, client
from tests.support.servers import Server, value

POLICY = Retry(backoff=[0] * 3)


@pytest.fixture(scope="module")
def server() -> Generator[Server]:
    with Server() as found:
        yield found


@pytest.fixture(params=CLIENTS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def library(name: str) -> Any:
    """Import the library of a client."""
    return importlib.import_module(name.partition("-")[0])


# ------------------------------------------------------------------------------ redirects


def to(url: str) -> str:
    """Return the Location header of another script of the same server, as an option of a step."""
    return f"loc={value(urlsplit(url).path)}"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_each_step_of_a_redirect_is_retried(name: str, server: Server, status: int, method: str) -> None:
    """The body is sent in every attempt of every request that has one."""
    body = b"data" if method == "PUT" else None
    seen, ledgers = dict[bool, HttpResult](), dict[bool, list[list[tuple[str, bytes]]]]()
    for bare in (False, True):
        target = server.url("200" if bare else "503,200")
        start = server.url(f"{'' if bare else '503,'}{status}~{to(target)}")
        with client(name, None if bare else POLICY, bare=bare) as http:
            seen[bare] = http.request(method, start, body=body, follow=True)
        ledgers[bare] = [[(r.method, r.body) for r in server.ledger(url)] for url in (start, target)]
    assert (seen[False].status, seen[False].content) == (200, b'{"ok": true, "step": 2}')
    assert len(seen[False].response.history) == len(seen[True].response.history) == 1
    assert ledgers[False] == [[*step, *step] for step in ledgers[True]]
    last = seen[False].response
    reports = [redouble.report(response) for response in (*last.history, last)]
    assert [found and (found.reason, found.attempts) for found in reports] == [(None, 2), (None, 3)]


def test_a_redirect_that_is_not_followed_is_returned(name: str, server: Server) -> None:
    """It is not retried."""
    with client(name, POLICY) as http:
        seen = http.get(server.url(f"503,302~{to(server.url('200'))}"))
    assert (seen.status, seen.report().attempts, len(seen.response.history)) == (302, 2, 0)


def test_endless_redirects_raise_the_client_s_error(name: str, server: Server) -> None:
    """It is not retried, because no request failed."""
    url = server.url("302~loc=./", key=f"round-{name}")
    with client(name, POLICY) as http:
        seen = http.get(url, follow=True)
    assert type(seen.error).__name__ == "TooManyRedirects"
    report = redouble.report(seen.error)
    assert report is None or report.reason is None  # the report of the last response, if the error has one


# -------------------------------------------------------------------------------- cookies


def test_cookies_of_the_returned_response_are_kept_and_sent(name: str, server: Server) -> None:
    """Cookies of a retried response are not kept: the client never received it."""
    with client(name, POLICY) as http:
        http.get(server.url("503~h.set-cookie=early=1; Path=/,200~h.set-cookie=late=2; Path=/"))
        assert http.cookies() == {"late": "2"}
        url = server.url("503,200")
        http.get(url)
    assert [request.headers["cookie"] for request in server.ledger(url)] == ["late=2"] * 2


def test_cookies_of_the_last_failed_response_are_kept(name: str, server: Server) -> None:
    """The client receives it like any other response."""
    with client(name, Retry(attempts=2, backoff=[0])) as http:
        http.get(server.url("503~h.set-cookie=a=1"))
        assert http.cookies() == {"a": "1"}


def test_cookies_of_a_redirect_are_kept(name: str, server: Server) -> None:
    """They are sent in all attempts of the redirected request."""
    target = server.url("503,200")
    with client(name, POLICY) as http:
        http.get(server.url(f"503,302~{to(target)}~h.set-cookie=a=1; Path=/"), follow=True)
    assert [request.headers.get("cookie") for request in server.ledger(target)] == ["a=1"] * 2


# ------------------------------------------------------------------------- authentication

BASIC = "Basic dXNlcjpwYXNz"
CHALLENGE = "401~h.www-authenticate=" + value('Digest realm="r", nonce="n", qop="auth", algorithm=MD5')


def test_basic_authentication_is_in_every_attempt(name: str, server: Server) -> None:
    """The client adds the header once."""
    url = server.url("503*2,200")
    how: dict[str, Any] = {"auth": ("user", "pass")}
    if name == "aiohttp":
        how = {"headers": {"Authorization": aiohttp.encode_basic_auth("user", "pass")}}
    with client(name, POLICY) as http:
        assert http.get(url, **how).status == 200
    assert [request.headers["authorization"] for request in server.ledger(url)] == [BASIC] * 3


@pytest.mark.parametrize("outside", [True, False])
def test_digest_authentication_is_retried_too(name: str, server: Server, outside: bool) -> None:
    """The challenge is not retried; the request that responds to it fails twice, and is resent."""
    url = server.url(f"503,{CHALLENGE},503*2,200")
    options: dict[str, Any] = {}
    if name == "aiohttp":
        layers: list[Any] = [middleware(POLICY), aiohttp.DigestAuthMiddleware("user", "pass")]
        options["middlewares"] = layers if outside else layers[::-1]
    elif name == "requests":
        options["auth"] = requests.auth.HTTPDigestAuth("user", "pass")
    else:
        options["auth"] = library(name).DigestAuth("user", "pass")
    with client(name, POLICY) as http:
        seen = http.get(url, **options)
    assert seen.status == 200
    signed = ["authorization" in request.headers for request in server.ledger(url)]
    assert signed == [False, False, True, True, True]
    assert redouble.report(seen.response) is not None


@pytest.mark.parametrize("name", HTTPX)
def test_an_auth_flow_receives_the_response_after_the_retries(name: str, server: Server) -> None:
    """Including its body."""
    theirs, answers = library(name), list[tuple[int, bytes]]()

    class Flow(theirs.Auth):  # type: ignore[misc, name-defined]
        requires_response_body = True

        def auth_flow(self, request: Any) -> Generator[Any, Any, None]:
            response = yield request
            answers.append((response.status_code, response.content))
            request.headers["Authorization"] = "token"
            yield request

    url = server.url("503,401~body=prove it,503,200")
    with client(name, POLICY) as http:
        assert http.get(url, auth=Flow()).status == 200
    assert answers == [(401, b"prove it")]
    sent = [request.headers.get("authorization") for request in server.ledger(url)]
    assert sent == [None, None, "token", "token"]


# ---------------------------------------------------------------------------------- hooks


@pytest.mark.parametrize("name", HTTPX)
def test_event_hooks_are_called_once_for_request_and_response(name: str, server: Server) -> None:
    """The response has its record by then."""
    called: list[object] = []

    def record(request_or_response: Any) -> None:
        found = redouble.report(request_or_response)
        called.append(found and (request_or_response.status_code, found.attempts))

    async def arecord(request_or_response: Any) -> None:
        record(request_or_response)

    hook = arecord if "-" in name else record
    with client(name, POLICY, event_hooks={"request": [hook], "response": [hook]}) as http:
        http.get(server.url("503*2,200"))
    assert called == [None, (200, 3)]


def test_hooks_of_requests_are_called_once(server: Server) -> None:
    """With the response that is returned."""
    called: list[int] = []

    def record(response: requests.Response, **_: object) -> None:
        called.append(response.status_code)

    with client("requests", POLICY) as http:
        http.get(server.url("503*2,200"), hooks={"response": record})
    assert called == [200]


@pytest.mark.parametrize("name", HTTPX)
@pytest.mark.parametrize("script", ["503", "503,404"])
def test_a_hook_that_raises_for_a_status_raises_the_client_s_error(
    name: str, server: Server, script: str
) -> None:
    """It is called after all retries, and its error is raised unchanged."""

    def check(response: Any) -> None:
        response.raise_for_status()

    async def acheck(response: Any) -> None:
        response.raise_for_status()

    url = server.url(script)
    hooks = {"response": [acheck if "-" in name else check]}
    with client(name, Retry(attempts=2, backoff=[0]), event_hooks=hooks) as http:
        seen = http.get(url)
    assert isinstance(seen.error, library(name).HTTPStatusError)
    assert len(server.ledger(url)) == 2


def test_aiohttp_with_raise_for_status_raises_after_the_retries(server: Server) -> None:
    """The session raises, not the middleware."""
    url = server.url("503")
    with client("aiohttp", Retry(attempts=2, backoff=[0]), raise_for_status=True) as http:
        seen = http.get(url)
    assert isinstance(seen.error, aiohttp.ClientResponseError)
    assert (seen.error.status, len(server.ledger(url))) == (503, 2)


# --------------------------------------------------------- the request of a response


def test_a_response_has_the_request_of_the_caller(name: str, server: Server) -> None:
    """As the client prepared it."""
    url = server.url("503,200")
    with client(name, POLICY) as http:
        response = http.request("PUT", url, body=b"data", headers={"X-Mine": "1"}).response
    request = getattr(response, "request", None) or response.request_info
    assert (str(response.url), request.method, request.headers["x-mine"]) == (url, "PUT", "1")
    if name != "aiohttp":
        assert response.elapsed.total_seconds() > 0
