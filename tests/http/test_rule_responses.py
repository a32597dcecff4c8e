"""`http.rule` as ``until=``: which responses that a function returns are refused."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from http.client import HTTPMessage
from types import SimpleNamespace
from typing import Any
from urllib.response import addinfourl

import httpx
import httpx2
import pytest
import requests
import urllib3

from redouble import Hints, Kind, Retry, Verdict, errors
from redouble._failures.codes import STATUSES
from redouble._failures.verdict import FailureFilter
from redouble.http import rule
from tests.support.fakes import Virtual
from tests.support.http.errors import ADDRESS, by_httpx, request_info

MakeResponse = Callable[[str, int, Mapping[str, str]], Any]
ACCEPTED = Verdict.accept()


def of_httpx(method: str, status: int, headers: Mapping[str, str]) -> Any:
    return httpx.Response(status, headers=headers, request=httpx.Request(method, ADDRESS))


def of_httpx2(method: str, status: int, headers: Mapping[str, str]) -> Any:
    return httpx2.Response(status, headers=headers, request=httpx2.Request(method, ADDRESS))


def of_requests(method: str, status: int, headers: Mapping[str, str]) -> Any:
    answer = requests.Response()
    answer.status_code = status
    answer.headers.update(headers)
    answer.request = requests.Request(method, ADDRESS).prepare()
    return answer


def of_aiohttp(method: str, status: int, headers: Mapping[str, str]) -> Any:
    """Return an object with the attributes of its response, which needs an event loop."""
    return SimpleNamespace(status=status, headers=headers, request_info=request_info(method))


every_client = pytest.mark.parametrize("respond", [of_httpx, of_httpx2, of_requests, of_aiohttp])


@every_client
def test_failures_of_the_server_are_refused(respond: MakeResponse) -> None:
    """Those worth another request are retried, the others stop; all else is accepted."""
    failures = {408, 425, 429, *range(500, 600)}
    for status in range(200, 600):
        found = rule()(respond("GET", status, {}))
        assert found is not None
        expected = "retry" if status in STATUSES else "stop" if status in failures else "accept"
        assert found.action == expected, status
        assert (found.kind is None) is (expected == "accept")


@every_client
def test_the_statuses_of_the_rule_are_refused_too(respond: MakeResponse) -> None:
    own = rule(statuses={404})
    assert own(respond("GET", 404, {})) == Verdict.retry(kind=Kind.client, sent=True, reason="http_404")
    assert own(respond("GET", 503, {})) == Verdict.stop(kind=Kind.server, sent=True, reason="http_5xx")
    assert own(respond("GET", 501, {})) == Verdict.stop(kind=Kind.server, sent=True, reason="http_5xx")
    assert own(respond("GET", 429, {})) == Verdict.stop(kind=Kind.throttled, sent=True, reason="rate_limit")
    assert own(respond("GET", 403, {})) == ACCEPTED


@every_client
def test_headers_of_a_response_decide(respond: MakeResponse) -> None:
    hinted = rule()(respond("GET", 503, {"Retry-After": "7"}))
    assert hinted is not None
    assert (hinted.action, hinted.after) == ("retry", 7)
    wanted = rule()(respond("GET", 404, {"x-should-retry": "true"}))
    assert wanted is not None
    assert wanted.action == "retry"
    final = rule()(respond("GET", 503, {"x-should-retry": "false"}))
    assert final is not None
    assert final.action == "stop"
    assert rule(statuses={404})(respond("GET", 404, {"x-should-retry": "false"})) == ACCEPTED


@every_client
def test_a_request_that_must_not_be_resent_stops(respond: MakeResponse) -> None:
    assert rule()(respond("POST", 503, {})) == Verdict.stop(reason="not_idempotent")
    named = rule(methods={"POST"})(respond("POST", 503, {}))
    assert named is not None
    assert named.action == "retry"
    assert rule()(respond("POST", 200, {})) == ACCEPTED


def test_responses_of_the_standard_library_and_of_urllib3_are_judged() -> None:
    for status, action in ((503, "retry"), (200, "accept")):
        of_urllib = addinfourl(io.BytesIO(), HTTPMessage(), ADDRESS, status)
        for response in (of_urllib, urllib3.HTTPResponse(status=status)):
            found = rule()(response)
            assert found is not None
            assert found.action == action


class Shy:
    """A result whose attributes raise."""

    @property
    def status_code(self) -> int:
        raise LookupError("no")


@pytest.mark.parametrize("value", [None, 0, "503", {"status": 503}, [], object(), Shy(), {503}])
def test_a_result_that_is_no_response_is_accepted(value: object) -> None:
    assert rule()(value) == ACCEPTED


def test_a_policy_around_a_function_that_returns_responses() -> None:
    clock = Virtual()
    script = iter([503, 502, 200])

    def fetch() -> Any:
        return of_requests("GET", next(script), {"retry-after": "2"})

    policy = Retry(until=rule(), attempts=3, backoff=[1] * 9, hints=Hints(spread=0), clock=clock)
    assert policy.call(fetch).status_code == 200
    assert clock.waits == [2, 2]


@pytest.mark.parametrize(("method", "status"), [("POST", 503), ("GET", 500)])
def test_a_failure_that_must_not_be_retried_is_not_accepted(method: str, status: int) -> None:
    failed = of_httpx(method, status, {})
    with pytest.raises(errors.NotAccepted) as caught:
        Retry(until=rule(), clock=Virtual()).call(lambda: failed)
    assert caught.value.last is failed
    assert caught.value.reason == "stopped"


def test_the_rule_and_not_its_maker_is_what_to_write() -> None:
    maker: Any = rule
    with pytest.raises(TypeError, match=r"write until=redouble\.http\.rule\(\)"):
        Retry(until=maker).call(lambda: of_requests("GET", 503, {}))


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_layer_counts_a_failure_whatever_the_method(method: str) -> None:
    """Not to send a request again is no reason to take its failure for a success."""
    counted = FailureFilter(rule(), "Layer", rule())
    assert counted.is_failure(by_httpx(method, 503, {})) is True
    assert counted.is_failure(by_httpx(method, 404, {})) is None
    assert counted.refusal(of_httpx(method, 503, {})) is not None
    assert counted.refusal(of_httpx(method, 500, {})) is not None
    assert counted.refusal(of_httpx(method, 404, {})) is None
