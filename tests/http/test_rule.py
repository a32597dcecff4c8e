"""`http.rule`: which responses and failures of any client are retried."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import aiohttp
import httpx
import httpx2
import pytest
import requests
from aiohttp.http_exceptions import BadStatusLine

from redouble import Hints, Kind, Retry, Verdict, http, report, transient
from redouble._failures.codes import STATUSES
from redouble.http import HttpRule, rule, sent
from tests.support.fakes import Boom, Virtual, always
from tests.support.http.errors import (
    MakeError,
    by_aiohttp,
    by_httpx,
    by_requests,
    error_without_response,
    every_client,
    request_info,
)

# ------------------------------------------------------------------------------ responses


@every_client
def test_the_default_statuses_are_those_of_transient(make_error: MakeError) -> None:
    for status in range(400, 600):
        error = make_error("GET", status, {})
        found, only = rule()(error), rule(statuses={status})(error)
        assert (found is not None and found.action == "retry") is (status in STATUSES), status
        assert only is not None
        assert (only.action, only.sent) == ("retry", True)
        assert rule(statuses=set())(error) is None


@every_client
@pytest.mark.parametrize(
    ("status", "kind", "reason"),
    [
        (400, Kind.client, "http_400"),
        (408, Kind.timeout, "timeout"),
        (409, Kind.server, "conflict"),
        (429, Kind.throttled, "rate_limit"),
        (500, Kind.server, "http_5xx"),
        (501, Kind.server, "http_5xx"),
        (503, Kind.server, "http_5xx"),
        (529, Kind.throttled, "overloaded"),
        (599, Kind.server, "http_5xx"),
    ],
)
def test_kind_and_reason_of_each_status(make_error: MakeError, status: int, kind: Kind, reason: str) -> None:
    found = rule(statuses=range(400, 600))(make_error("GET", status, {}))
    assert found == Verdict.retry(kind=kind, sent=True, reason=reason)


@every_client
@pytest.mark.parametrize(
    ("status", "headers", "after"),
    [
        (503, {"Retry-After": "7"}, 7),
        (503, {"retry-after": "soon"}, None),
        (429, {"retry-after-ms": "1500", "retry-after": "7"}, 1.5),
        (503, {"x-should-retry": "true"}, None),
        (404, {"x-should-retry": "true", "retry-after": "7"}, 7),
    ],
)
def test_the_hint_of_a_response(
    make_error: MakeError, status: int, headers: dict[str, str], after: float | None
) -> None:
    found = rule()(make_error("GET", status, headers))
    assert found is not None
    assert (found.action, found.after) == ("retry", after)


@every_client
def test_x_should_retry_overrides_the_statuses(make_error: MakeError) -> None:
    assert rule()(make_error("GET", 503, {"x-should-retry": "false"})) is None
    assert rule(statuses={404})(make_error("GET", 404, {"x-should-retry": "FALSE "})) is None
    assert rule(statuses=())(make_error("GET", 400, {"X-Should-Retry": "True"})) is not None


# ------------------------------------------------------------------------------ methods


@every_client
@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "PUT", "DELETE", "QUERY"])
def test_idempotent_methods_are_retried(make_error: MakeError, method: str) -> None:
    found = rule()(make_error(method, 503, {}))
    assert found is not None
    assert found.action == "retry"
    assert method in http.IDEMPOTENT


@every_client
@pytest.mark.parametrize("method", ["POST", "PATCH", "TRACE", "CONNECT"])
def test_other_methods_are_retried_only_if_listed(make_error: MakeError, method: str) -> None:
    error = make_error(method, 503, {"x-should-retry": "true"})
    assert rule()(error) == Verdict.stop(reason="not_idempotent")
    named = rule(methods={method.lower()})(error)
    assert named is not None
    assert named.action == "retry"
    assert rule(methods={"GET"})(make_error(method, 404, {})) is None


@pytest.mark.parametrize("kind", [httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout])
@pytest.mark.parametrize("method", ["GET", "POST", "PATCH"])
def test_an_unsent_request_is_retried_whatever_its_method(kind: type[Exception], method: str) -> None:
    found = rule(methods=())(error_without_response(kind, method))
    assert found is not None
    assert (found.action, found.sent) == ("retry", False)


@pytest.mark.parametrize("kind", [httpx.ReadError, httpx.ReadTimeout, requests.ReadTimeout])
def test_a_request_that_may_have_been_received_is_retried_if_idempotent(kind: type[Exception]) -> None:
    found = rule()(error_without_response(kind, "GET"))
    assert found is not None
    assert found.action == "retry"
    assert rule()(error_without_response(kind, "POST")) == Verdict.stop(reason="not_idempotent")


def test_without_a_request_the_method_is_not_checked() -> None:
    """Some errors of httpx and aiohttp have no request."""
    for error in (httpx.ReadError("x"), aiohttp.ServerDisconnectedError(), ConnectionResetError()):
        assert rule(methods=())(error) == transient(error)
        assert transient(error) is not None


def test_a_request_without_a_method_is_not_checked() -> None:
    error: Any = Odd(503)
    error.request = requests.Request()  # without a method
    assert rule(methods=())(error) == STATUSES[503]
    error.request_info = request_info("POST")
    assert rule()(error) == Verdict.stop(reason="not_idempotent")


# ------------------------------------------------------------------------------- errors


@pytest.mark.parametrize("error", [ValueError("x"), httpx.UnsupportedProtocol("x"), Boom()])
def test_other_failures_are_judged_by_transient_or_errors(error: Exception) -> None:
    assert rule()(error) is None
    for errors in (type(error), (OSError, type(error)), always(True)):
        assert rule(errors=errors)(error) == Verdict.retry()
    assert rule(errors=always(3.5))(error) == Verdict.retry(after=3.5)
    assert rule(errors=always(False))(error) == Verdict.stop()
    assert rule(errors=OSError)(TimeoutError()) == Verdict.retry()
    assert rule(errors=KeyError)(TimeoutError()) is None


@every_client
def test_types_in_errors_do_not_apply_to_responses(make_error: MakeError) -> None:
    assert rule(errors=Exception)(make_error("GET", 404, {})) is None


class Shy(Exception):
    """An error whose attributes raise."""

    @property
    def response(self) -> object:
        raise LookupError("no")

    @property
    def request(self) -> object:
        raise LookupError("no")


class Odd(Exception):
    def __init__(self, status: object) -> None:
        super().__init__()
        self.status_code = status


@pytest.mark.parametrize("error", [Shy(), *map(Odd, (None, "503", 7, True, 503.0, b"503", [503]))])
def test_an_error_without_a_valid_status_is_judged_as_a_failure(error: Exception) -> None:
    assert rule()(error) is None
    assert sent(error) is None
    assert rule(methods=(), errors=always(True))(error) == Verdict.retry()


# ---------------------------------------------------------------- around a user's function


@every_client
@pytest.mark.parametrize(("method", "calls"), [("GET", 3), ("POST", 1)])
def test_a_policy_around_a_function_that_raises_for_status(
    make_error: MakeError, method: str, calls: int
) -> None:
    """The rule reads the method from the error, so the policy does not retry a POST."""
    made: list[Exception] = []
    clock = Virtual()

    def fetch() -> None:
        made.append(make_error(method, 503, {"retry-after": "2"}))
        raise made[-1]

    policy = Retry(on=rule(), attempts=3, backoff=[1] * 9, hints=Hints(spread=0), clock=clock)
    with pytest.raises(type(make_error("GET", 503, {}))) as caught:
        policy.call(fetch)
    assert caught.value is made[-1]
    assert len(made) == calls
    assert clock.waits == [2] * (calls - 1)
    call_report = report(caught.value)
    assert call_report is not None
    assert (call_report.reason, call_report.attempts) == ("attempts" if calls > 1 else "stopped", calls)


def test_http_rule_can_be_combined_with_other_rules() -> None:
    policy = Retry(on=[rule(statuses={500}), Boom], attempts=2, backoff=[0])
    errors: list[Exception] = [Boom(), by_httpx("GET", 404, {})]
    assert [policy.run(raising(error)).report.attempts for error in errors] == [2, 1]


def raising(error: Exception) -> Callable[[], None]:
    def fn() -> None:
        raise error

    return fn


# --------------------------------------------------------------------------------- sent


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (by_httpx("POST", 404, {}), True),
        (by_requests("POST", 503, {}), True),
        (by_aiohttp("GET", 500, {}), True),
        (httpx.ConnectError("x"), False),
        (httpx2.PoolTimeout("x"), False),
        (requests.ConnectTimeout(), False),
        (ConnectionRefusedError(), False),
        (httpx.ReadTimeout("x"), None),
        (ConnectionResetError(), None),
        (ValueError(), None),
        (KeyboardInterrupt(), None),
    ],
)
def test_sent_is_true_false_or_unknown(error: BaseException, expected: bool | None) -> None:
    assert sent(error) is expected


def test_after_a_proxy_error_the_request_was_not_sent() -> None:
    error = aiohttp.ClientHttpProxyError(request_info("POST"), (), status=502)
    assert sent(error) is False
    found = rule()(error)
    assert found is not None
    assert (found.action, found.sent) == ("retry", False)


def test_an_unreadable_response_is_a_network_failure() -> None:
    """Aiohttp reports it with status 400."""
    error = aiohttp.ClientResponseError(request_info("GET"), (), status=400)
    error.__cause__ = BadStatusLine("nonsense")
    found = rule()(error)
    assert found is not None
    assert (found.action, found.kind) == ("retry", Kind.network)
    assert sent(error) is None


# ---------------------------------------------------------------------------- equality


def test_rules_are_compared_by_value_and_can_be_pickled() -> None:
    one, same, other = rule({500}, ["get"]), rule([500], {"GET"}), rule({500})
    assert isinstance(one, HttpRule)
    assert one == same
    assert hash(one) == hash(same)
    assert one != other
    assert (one.statuses, one.methods) == (frozenset({500}), frozenset({"GET"}))
    assert one.errors is transient
    for copied in (copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
        assert copied == one
    assert Retry(on=one) == Retry(on=same)
