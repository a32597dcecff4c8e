"""``until`` of the gates of a client's policy: which returned responses count as failures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from redouble import (
    AdaptiveConcurrency,
    AdaptiveRate,
    CircuitBreaker,
    Fallback,
    Gate,
    Keyed,
    Layer,
    Retry,
    Throttle,
    errors,
)
from redouble._failures.verdict import FailureFilter, On, Until
from redouble.http import host, rule
from tests.support.http.body_readers import reader
from tests.support.http.clients import CLIENTS, client, is_async
from tests.support.servers import Server

EVERY_CLIENT = pytest.mark.parametrize("name", CLIENTS)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


class Counting(Gate):
    """A gate of the user's that counts failures, with the options of ours."""

    def __init__(self, until: Until | None = None, on: On = Exception) -> None:
        self.until, self._failures = until, FailureFilter(on, "Counting", until)
        self.open, self.ends = 0, list[bool | None]()

    def admit(self, now: float, /) -> None:
        self.open += 1

    def ended(self, ticket: object, error: BaseException | None, now: float, /) -> None:
        self.open -= 1
        self.ends.append(self._failures.is_failure(error))

    def refusal(self, result: object, /) -> Exception | None:
        return self._failures.refusal(result)


def status_of(response: Any) -> int:
    """Return the status of a response of any library."""
    status: int = getattr(response, "status_code", None) or response.status
    return status


def not_found(response: Any) -> bool:
    """Accept all but a 404."""
    return status_of(response) != 404


def is_fine(response: Any) -> bool:
    """Accept a body without the word error; aiohttp's is read and awaited."""
    body = response._body if hasattr(response, "_body") else response.content
    return b"error" not in body


@EVERY_CLIENT
@pytest.mark.parametrize("place", ["alone", "inside", "outside"])
@pytest.mark.parametrize(
    ("until", "on", "expected"),
    [
        (None, Exception, [False, False, True, True]),
        (not_found, Exception, [False, True, True, True]),
        (rule(), LookupError, [False, False, True, True]),  # aiohttp's and httpx's errors are none
        (rule(statuses={404}), LookupError, [False, True, True, True]),
    ],
)
def test_returned_responses_count(
    server: Server, name: str, place: str, until: Until | None, on: On, expected: list[bool]
) -> None:
    """A failure of the server counts in every client, without ``raise_for_status``."""
    gate, once = Counting(until, on), Retry(attempts=1)
    policy: Layer = {"inside": once | gate, "outside": gate | once}.get(place, gate)
    with client(name, policy) as http:
        statuses = [http.get(server.url(script)).status for script in ("200", "404", "503", "500")]
    assert statuses == [200, 404, 503, 500]
    assert gate.ends == expected
    assert gate.open == 0


@EVERY_CLIENT
@pytest.mark.parametrize("whole", [True, False])
def test_a_rule_may_read_the_body(server: Server, name: str, whole: bool) -> None:
    """So it is read before, also that of a streamed response."""
    gate = Counting(is_fine)
    read = reader(name, whole=whole)
    with client(name, gate) as http:
        for body in ("fine", "error"):
            seen = read.read_with(http, server.url(f"200~body={body}"))
            assert (seen.status, seen.error) == (200, None)
            assert b"".join(seen.pieces or [seen.content or b""]) == body.encode()
    assert gate.ends == [False, True]


@EVERY_CLIENT
def test_the_rule_for_http_reads_no_body(server: Server, name: str) -> None:
    """So a response may be streamed, and its slot is held until its end."""
    gate, url = Counting(rule(statuses={404})), server.url("404~size=300000")
    with client(name, gate) as http:
        assert reader(name, whole=False).read_with(http, url).status == 404
    assert (gate.ends, gate.open) == ([True], 0)


@EVERY_CLIENT
def test_a_refused_response_whose_body_breaks_is_one_failure(server: Server, name: str) -> None:
    gate = Counting(rule(statuses={404}))
    with client(name, gate) as http:
        assert reader(name, whole=False).read_with(http, server.url("404~size=5000~cut=4000")).error
    assert (gate.ends, gate.open) == ([True], 0)


@EVERY_CLIENT
@pytest.mark.parametrize("script", ["200~size=300000", "503"])
def test_a_rule_that_raises(server: Server, name: str, script: str) -> None:
    """Its error comes out; of a response that is a failure anyway it is ignored."""

    def broken(response: object) -> bool:
        raise LookupError("a bug of the rule")

    gate, url = Counting(broken), server.url(script)
    with client(name, gate) as http:
        seen = http.get(url)
    if script == "503":
        assert (seen.status, gate.ends) == (503, [True])
    else:
        assert (type(seen.error), gate.ends) == (LookupError, [True])
    assert (len(server.ledger(url)), gate.open) == (1, 0)


@EVERY_CLIENT
def test_each_attempt_is_judged(server: Server, name: str) -> None:
    """Inside a `Retry` every attempt counts, outside the call does, by its final response."""
    inner, outer = Counting(rule()), Counting(rule())
    with client(name, outer | Retry(attempts=3, backoff=[0, 0]) | inner) as http:
        assert http.get(server.url("503,429,200")).status == 200
        assert http.get(server.url("503")).status == 503
    assert inner.ends == [True, True, False, True, True, True]
    assert outer.ends == [False, True]


@EVERY_CLIENT
def test_a_fallback_replaces_a_failed_response(server: Server, name: str) -> None:
    kept: list[Any] = []
    with client(name, Fallback(lambda error: kept[0])) as http:
        kept.append(http.get(server.url("200")).response)
        assert http.get(server.url("503")).response is kept[0]
        assert http.get(server.url("404")).status == 404


@EVERY_CLIENT
@pytest.mark.parametrize(
    ("fallback", "replaced"),
    [
        ({"until": rule()}, [503, 500]),
        ({"until": rule(), "on": LookupError}, [503, 500]),
        ({"until": not_found}, [404, 503, 500]),
        ({"until": not_found, "on": LookupError}, [404]),
        ({"until": rule(statuses={404}), "on": LookupError}, [404, 503, 500]),
        ({"on": LookupError}, []),
    ],
)
def test_a_fallback_replaces_refused_responses(
    server: Server, name: str, fallback: dict[str, Any], replaced: list[int]
) -> None:
    """A response that is a failure by its status is judged by ``until`` too."""
    kept: list[Any] = []
    seen: list[int] = []
    with client(name, Fallback(lambda error: kept[0], **fallback)) as http:
        kept.append(http.get(server.url("200")).response)
        for status in (404, 503, 500):
            result = http.get(server.url(str(status)))
            if result.response is kept[0]:
                seen.append(status)
            else:
                assert (result.status, result.error) == (status, None)
    assert seen == replaced


@EVERY_CLIENT
def test_a_rule_of_a_fallback_that_raises_hides_no_failed_response(server: Server, name: str) -> None:
    def broken(response: object) -> bool:
        raise LookupError("a bug of the rule")

    with client(name, Fallback(value=None, on=LookupError, until=broken)) as http:
        assert http.get(server.url("503")).status == 503
        assert isinstance(http.get(server.url("200")).error, LookupError)


# ------------------------------------------------------- around the calls of a plain client


@EVERY_CLIENT
@pytest.mark.parametrize("bare", [True, False], ids=["plain", "ours"])
def test_ten_returned_503s_open_a_breaker_around_the_calls_of_a_client(
    server: Server, name: str, bare: bool
) -> None:
    """The function returns each response, and nobody calls ``raise_for_status``."""
    breaker = CircuitBreaker(until=rule(), failures=10)
    policy = None if bare else Retry(attempts=1)

    def blocking(url: str) -> int:
        return status_of(breaker.call(http.raw.get, url))

    async def waiting(url: str) -> int:
        async def fetch() -> Any:
            response = await http.raw.get(url)
            if name == "aiohttp":
                await response.read()
            return response

        return status_of(await breaker(fetch)())

    call = waiting if is_async(name) else blocking
    with client(name, policy, bare=bare) as http:
        for status, state in ((404, "closed"), (503, "open")):
            assert [http.run(call, server.url(str(status))) for _ in range(10)] == [status] * 10
            assert breaker.state == state
        with pytest.raises(errors.CircuitOpen):
            http.run(call, server.url("200"))


@EVERY_CLIENT
@pytest.mark.parametrize("until", [None, rule(), not_found], ids=["default", "rule", "own"])
@pytest.mark.parametrize("place", ["alone", "inside", "outside", "keyed"])
def test_ten_returned_503s_open_a_breaker_of_a_client_s_policy(
    server: Server, name: str, until: Until | None, place: str
) -> None:
    made, once = CircuitBreaker(until=until, failures=10), Retry(attempts=1)
    breaker: Layer = made if place != "keyed" else Keyed(host, lambda: made)
    policy = {"inside": once | breaker, "outside": breaker | once}.get(place, breaker)
    with client(name, policy) as http:
        assert [http.get(server.url("503")).status for _ in range(10)] == [503] * 10
        assert made.state == "open"
        assert isinstance(http.get(server.url("200")).error, errors.CircuitOpen)


@EVERY_CLIENT
def test_throttling_that_is_returned_lowers_an_adaptive_rate(server: Server, name: str) -> None:
    for gate, script, throttled in (
        (AdaptiveRate(), "429", True),
        (AdaptiveRate(), "404", False),
        (AdaptiveRate(until=not_found), "404", True),
    ):
        with client(name, gate) as http:
            http.get(server.url(script))
        assert (gate.snapshot()["rate"] is not None) == throttled


@EVERY_CLIENT
@pytest.mark.parametrize(("until", "accepts"), [(None, 2), (rule(), 2), (not_found, 1)])
def test_a_throttle_counts_returned_failures(
    server: Server, name: str, until: Until | None, accepts: int
) -> None:
    throttle = Throttle(minimum=99, until=until)
    with client(name, throttle) as http:
        for script in ("200", "404", "503", "500"):
            http.get(server.url(script))
    seen = throttle.snapshot()
    assert (seen["requests"], seen["accepts"]) == (4, accepts)


@EVERY_CLIENT
@pytest.mark.parametrize(("until", "script"), [(None, "429"), (rule(), "503"), (not_found, "404")])
def test_overload_that_is_returned_lowers_an_adaptive_limit(
    server: Server, name: str, until: Until | None, script: str
) -> None:
    gate = AdaptiveConcurrency(10, by="aimd", window=1e-6, until=until)
    with client(name, gate) as http:
        for _ in range(3):
            http.get(server.url(script))
    assert gate.snapshot()["limit"] < 10
