"""Which requests may be resent: by method, by idempotency key, or as declared by the caller."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from redouble import Retry, Verdict
from redouble.http import IDEMPOTENT, Idempotency, rule
from tests.support.fakes import always
from tests.support.http.clients import CLIENTS, HTTPX, client
from tests.support.servers import Server, refused_port, value

POLICY = Retry(attempts=3, backoff=[0, 0])
OTHERS = ("POST", "PATCH", "TRACE", "PURGE")
KEY = "Idempotency-Key"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


def keys(server: Server, *urls: str, header: str = KEY) -> list[str | None]:
    return [entry.headers.get(header.lower()) for url in urls for entry in server.ledger(url)]


def sent(server: Server, name: str, method: str, script: str, policy: Retry = POLICY, **how: Any) -> int:
    """Make a call that always fails; return the number of requests that the server received."""
    url = server.url(script)
    making = {word: how.pop(word) for word in ("idempotency",) if word in how}
    with client(name, policy, **making) as http:
        seen = http.request(method, url, **how)
        times = len(server.ledger(url))
        assert seen.report().attempts == times
        assert seen.report().reason == ("attempts" if times == 3 else "stopped")
        assert (seen.status == 503) is (script == "503")
        assert seen.notes == [] or times == 3
    return times


@pytest.mark.parametrize("script", ["503", "rst~late", "close~late"])
@pytest.mark.parametrize("method", sorted(IDEMPOTENT))
@pytest.mark.parametrize("name", CLIENTS)
def test_idempotent_methods_are_resent(server: Server, name: str, method: str, script: str) -> None:
    assert sent(server, name, method, script) == 3


@pytest.mark.parametrize("script", ["503", "rst~late", "close~late"])
@pytest.mark.parametrize("method", OTHERS)
@pytest.mark.parametrize("name", CLIENTS)
def test_other_methods_are_not_resent(server: Server, name: str, method: str, script: str) -> None:
    assert sent(server, name, method, script) == 1


@pytest.mark.parametrize("method", [*sorted(IDEMPOTENT), *OTHERS])
@pytest.mark.parametrize("name", CLIENTS)
def test_an_unsent_request_is_resent_whatever_its_method(name: str, method: str) -> None:
    with client(name, POLICY) as http:
        seen = http.request(method, f"http://127.0.0.1:{refused_port()}/")
        assert (seen.report().attempts, seen.report().reason) == (3, "attempts")


@pytest.mark.parametrize("name", CLIENTS)
def test_methods_are_case_insensitive(server: Server, name: str) -> None:
    assert sent(server, name, "get", "503") == 3
    assert sent(server, name, "post", "503") == 1


@pytest.mark.parametrize("script", ["503", "rst~late"])
@pytest.mark.parametrize("name", CLIENTS)
def test_the_methods_of_a_rule_replace_the_defaults(server: Server, name: str, script: str) -> None:
    """They are case-insensitive; a method that is not in the list is not resent."""
    policy = Retry(on=rule(methods=["post", "Patch"]), attempts=3, backoff=[0, 0])
    assert [sent(server, name, method, script, policy) for method in ("POST", "PATCH", "GET")] == [3, 3, 1]


@pytest.mark.parametrize("name", CLIENTS)
def test_a_rule_that_retries_everything_does_not_resend_a_post(server: Server, name: str) -> None:
    """The rule decides what is worth a retry; the resend guard decides what may be resent."""
    for on in (Exception, always(True), always(Verdict.retry())):
        assert sent(server, name, "POST", "503", Retry(on=on, attempts=3, backoff=[0, 0])) == 1


@pytest.mark.parametrize("name", CLIENTS)
def test_a_verdict_that_nothing_was_sent_permits_resending(server: Server, name: str) -> None:
    policy = Retry(on=always(Verdict.retry(sent=False)), attempts=3, backoff=[0, 0])
    assert sent(server, name, "POST", "503", policy) == 3


# ------------------------------------------------------------------------------------ keys


@pytest.mark.parametrize("script", ["503", "rst~late"])
@pytest.mark.parametrize("header", [KEY, KEY.lower(), KEY.upper()])
@pytest.mark.parametrize("name", CLIENTS)
def test_a_request_with_an_idempotency_key_is_resent(
    server: Server, name: str, header: str, script: str
) -> None:
    assert sent(server, name, "POST", script, headers={header: "mine"}) == 3


@pytest.mark.parametrize("name", CLIENTS)
def test_the_header_of_the_key_can_be_changed(server: Server, name: str) -> None:
    """The default header does not permit resending then."""
    other = Idempotency(header="X-Request-Id", auto=False)
    asked = [
        sent(server, name, "POST", "503", idempotency=other, headers={header: "mine"})
        for header in ("x-request-id", KEY)
    ]
    assert asked == [3, 1]


@pytest.mark.parametrize("name", CLIENTS)
def test_auto_makes_one_key_for_each_call(server: Server, name: str) -> None:
    """The same key in all attempts of a call, and another one for the next call."""
    urls = [server.url("503,rst~late,200") for _ in range(3)]
    with client(name, POLICY, idempotency="auto") as http:
        assert [http.request("POST", url, body=b"x").outcome for url in urls] == [200] * 3
    found = keys(server, *urls)
    assert len(found) == 9
    assert found[::3] == found[1::3] == found[2::3]
    assert len({*found}) == 3
    assert all(found)


@pytest.mark.parametrize("name", CLIENTS)
def test_auto_adds_no_key_where_one_exists_or_none_is_needed(server: Server, name: str) -> None:
    mine, get = server.url("503,200"), server.url("503,200")
    with client(name, POLICY, idempotency="auto") as http:
        assert http.request("POST", mine, headers={KEY: "mine"}).outcome == 200
        assert http.request("GET", get).outcome == 200
    assert keys(server, mine, get) == ["mine", "mine", None, None]
    assert all([word.lower() for word, _ in sent.raw].count(KEY.lower()) == 1 for sent in server.ledger(mine))


@pytest.mark.parametrize("name", CLIENTS)
def test_auto_with_another_header_and_function(server: Server, name: str) -> None:
    url, made = server.url("503*2,200"), iter(["first", "second"])
    with client(name, POLICY, idempotency=Idempotency("X-Key", make=lambda: next(made))) as http:
        assert http.request("PATCH", url).outcome == 200
    assert keys(server, url, header="X-Key") == ["first"] * 3
    assert keys(server, url) == [None] * 3


@pytest.mark.parametrize("name", CLIENTS)
def test_the_key_is_the_same_after_a_redirect(server: Server, name: str) -> None:
    """The redirected request belongs to the same call."""
    there = server.url("503,200")
    here = server.url(f"503,307~loc={value(there)}")
    with client(name, POLICY, idempotency="auto") as http:
        assert http.request("POST", here, body=b"x", follow=True).outcome == 200
        found = keys(server, here, there)
        assert len(found) == 4
        assert len({*found}) == 1
        assert http.request("POST", there, body=b"x").outcome == 200
    assert keys(server, there)[-1] != found[0]


def fails() -> str:
    raise LookupError("no keys today")


@pytest.mark.parametrize("name", CLIENTS)
def test_an_error_while_making_a_key_is_raised(server: Server, name: str) -> None:
    """Nothing is sent; a request that needs no key is sent."""
    url = server.url("200")
    with client(name, POLICY, idempotency=Idempotency(make=fails)) as http:
        assert http.request("POST", url).outcome == "LookupError"
        assert server.ledger(url) == []
        assert http.request("GET", url).outcome == 200


@pytest.mark.parametrize("junk", ["", None, 5, b"key"], ids=repr)
@pytest.mark.parametrize("name", CLIENTS)
def test_an_invalid_key_raises(server: Server, name: str, junk: Any) -> None:
    """With a key that several calls share, the server would return the response of one to another."""
    url = server.url("503,200")
    with client(name, POLICY, idempotency=Idempotency(make=lambda: junk)) as http:
        seen = http.request("POST", url)
        assert isinstance(seen.error, TypeError)
        assert "make" in str(seen.error)
    assert server.ledger(url) == []


@pytest.mark.parametrize("name", CLIENTS)
def test_a_key_cannot_inject_a_header(server: Server, name: str) -> None:
    url = server.url("200")
    with client(name, POLICY, idempotency=Idempotency(make=lambda: "a\r\nX-Evil: 1")) as http:
        assert http.request("POST", url).error is not None
    assert server.ledger(url) == []


# -------------------------------------------------------------------- declared by the caller


@pytest.mark.parametrize("script", ["503", "rst~late"])
@pytest.mark.parametrize(
    ("method", "how", "times"),
    [
        ("POST", {"options": {"idempotent": True}}, 3),
        ("POST", {"options": {"idempotent": False}}, 1),
        ("POST", {"options": {"idempotent": None}}, 1),
        ("GET", {"options": {"idempotent": False}}, 1),
        ("GET", {"options": {"idempotent": None}}, 3),
        ("POST", {"options": {"idempotent": False}, "headers": {KEY: "mine"}}, 1),
        ("POST", {"options": {"idempotency_key": "mine"}}, 3),
        ("POST", {"options": {"idempotency_key": "mine", "idempotent": False}}, 1),
    ],
)
@pytest.mark.parametrize("name", HTTPX)
def test_the_option_idempotent_of_a_request_decides(
    server: Server, name: str, method: str, how: dict[str, Any], times: int, script: str
) -> None:
    assert sent(server, name, method, script, **how) == times


@pytest.mark.parametrize("idempotency", [None, "auto", Idempotency("X-Key")], ids=["none", "auto", "other"])
@pytest.mark.parametrize("name", HTTPX)
def test_the_key_of_a_request_replaces_the_header(server: Server, name: str, idempotency: Any) -> None:
    """For every method, in the header that the client is configured with."""
    header = "X-Key" if isinstance(idempotency, Idempotency) else KEY
    post, get = server.url("503*2,200"), server.url("503*2,200")
    with client(name, POLICY, idempotency=idempotency) as http:
        for method, url in (("POST", post), ("GET", get)):
            seen = http.request(method, url, headers={header: "old"}, options={"idempotency_key": "mine"})
            assert seen.outcome == 200
    assert keys(server, post, get, header=header) == ["mine"] * 6
