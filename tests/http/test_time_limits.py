"""A time limit that ends a request raises one error: of ours and of the client, with the limit's name."""

from __future__ import annotations

import pickle
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import anyio
import httpx2
import pytest

import redouble.httpx2
from redouble import Bulkhead, CircuitBreaker, Layer, Reason, Retry, Timeout, errors
from redouble._clients.socket_deadline import socket_timeout
from redouble.testing import virtual_time
from redouble.types import Limit
from tests.support.fakes import in_colour

URL = "http://there/"
LONG = 1000.0  # seconds

COLOURS = pytest.mark.parametrize("colour", ["sync", "thread", "asyncio"])


class SilentBody(httpx2.SyncByteStream, httpx2.AsyncByteStream):
    """A body that never arrives."""

    def __init__(self, clock: Any) -> None:
        self.clock = clock

    def __iter__(self) -> Iterator[bytes]:
        self.clock.advance(socket_timeout(LONG))
        raise httpx2.ReadTimeout("")
        yield b""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        await anyio.sleep(LONG)
        yield b""


@dataclass
class Silent(httpx2.BaseTransport, httpx2.AsyncBaseTransport):
    """A transport that waits in one phase of a request until its timeout, or until it is cancelled."""

    clock: Any
    phase: str
    sent: int = 0

    PHASES: ClassVar[dict[str, type[Exception]]] = {
        "pool": httpx2.PoolTimeout,
        "connect": httpx2.ConnectTimeout,
        "write": httpx2.WriteTimeout,
        "read": httpx2.ReadTimeout,
    }

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        self.sent += 1
        if self.phase == "body":
            return httpx2.Response(200, stream=SilentBody(self.clock))
        if self.phase == "503":
            return httpx2.Response(503)
        if self.phase == "late":
            self.clock.advance(0.995)
            raise httpx2.ConnectError("no route")
        self.clock.advance(float(request.extensions["timeout"][self.phase]))
        raise self.PHASES[self.phase]("")

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if self.phase != "read":
            return self.handle_request(request)
        self.sent += 1
        await anyio.sleep(LONG)
        raise AssertionError


@dataclass
class Seen:
    """How a call ended."""

    error: Exception
    transport: Silent
    seconds: float

    @property
    def report(self) -> redouble.Report:
        found = redouble.report(self.error)
        assert found is not None
        return found


def call(
    colour: str,
    policy: Layer | None,
    *,
    phase: str = "read",
    within: float = LONG,
    method: str = "GET",
    timeout: float = LONG,
    reading: Callable[..., Any] = redouble.deadline,
) -> Seen:
    """Make a call of httpx2 in virtual time, and return how it ended."""

    def blocking() -> Seen:
        with virtual_time() as clock:
            silent = Silent(clock, phase)
            transport = redouble.httpx2.Transport(policy, wrapped=silent)
            with httpx2.Client(transport=transport, timeout=timeout) as client:
                with pytest.raises(Exception) as caught, reading(within):  # noqa: PT011
                    client.request(method, URL)
                return Seen(caught.value, silent, clock.now())

    async def waiting() -> Seen:
        with virtual_time() as clock:
            silent = Silent(clock, phase)
            transport = redouble.httpx2.AsyncTransport(policy, wrapped=silent)
            async with httpx2.AsyncClient(transport=transport, timeout=timeout) as client:
                with pytest.raises(Exception) as caught, reading(within):  # noqa: PT011
                    await client.request(method, URL)
                return Seen(caught.value, silent, clock.now())

    seen: Seen = in_colour(colour, blocking, waiting)
    return seen


@dataclass
class Case:
    """A policy with a limit of one second, and how it ends a call of a silent server."""

    policy: Layer | None
    kind: type[Exception]
    limit: Limit
    text: str
    reason: Reason = Reason.timeout
    attempts: int = 1
    within: float = LONG


NO_DELAY = [0.0] * 9
CASES = {
    "timeout": Case(
        Retry(timeout=1, backoff=NO_DELAY),
        errors.DeadlineExceeded,
        "total",
        "cut after 1 s: the call's timeout",
    ),
    "timeout longer than give_up_after": Case(
        Retry(timeout=1, give_up_after=0.5),
        errors.DeadlineExceeded,
        "total",
        "cut after 1 s: the call's timeout",
    ),
    "attempt_timeout": Case(
        Retry(attempt_timeout=1, attempts=2, backoff=NO_DELAY),
        errors.AttemptTimeout,
        "attempt",
        "attempt 2 took longer than 1 s",
        Reason.attempts,
        attempts=2,
    ),
    "work_timeout": Case(
        Retry(work_timeout=1, backoff=NO_DELAY),
        errors.DeadlineExceeded,
        "work",
        "no work time was left",
        Reason.work_timeout,
    ),
    "deadline": Case(Retry(), errors.DeadlineExceeded, "deadline", ": the deadline", within=1),
    "deadline, two policies": Case(
        Retry() | Retry(), errors.DeadlineExceeded, "deadline", ": the deadline", within=1
    ),
    "timeout of the outer of two policies": Case(
        Retry(timeout=1) | Retry(), errors.DeadlineExceeded, "total", "cut after 1 s: the call's timeout"
    ),
    "Timeout outside": Case(
        Timeout(1) | Retry(), errors.AttemptTimeout, "deadline", "request of httpx2 took longer than 1 s"
    ),
    "Timeout inside": Case(
        Retry(attempts=2, backoff=NO_DELAY) | Timeout(1),
        errors.AttemptTimeout,
        "attempt",
        "request of httpx2 took longer than 1 s",
        Reason.attempts,
        attempts=2,
    ),
    "two inside, the outer one shorter": Case(
        Retry(attempts=2, backoff=NO_DELAY) | Timeout(1) | Timeout(5),
        errors.AttemptTimeout,
        "attempt",
        "request of httpx2 took longer than 1 s",
        Reason.attempts,
        attempts=2,
    ),
    "the default policy": Case(None, errors.DeadlineExceeded, "deadline", ": the deadline", within=1),
}


@COLOURS
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("phase", [*Silent.PHASES, "body"])
def test_one_error(colour: str, case: Case, phase: str) -> None:
    """Whatever the client waits for when the time is up."""
    seen = call(colour, case.policy, phase=phase, within=case.within)
    assert isinstance(seen.error, case.kind)
    assert isinstance(seen.error, TimeoutError)
    assert isinstance(seen.error, httpx2.TimeoutException)
    assert case.text in str(seen.error)
    report = seen.report
    assert (report.limit, report.reason, report.attempts) == (case.limit, case.reason, case.attempts)
    assert seen.transport.sent == case.attempts
    assert seen.seconds == pytest.approx(case.attempts, abs=0.05)
    assert [record.kind for record in report.history] == ["timeout"] * len(report.history)


WITHOUT_RETRY = {
    "Timeout": (Timeout(1), LONG, "attempt", "took longer than 1 s"),
    "Timeout, longer than the deadline": (Timeout(5), 1.0, "deadline", "cut after 0.99 s: the deadline"),
    "deadline": (Bulkhead(5), 1.0, "deadline", ": the deadline"),
}


@COLOURS
@pytest.mark.parametrize(("policy", "within", "limit", "text"), WITHOUT_RETRY.values(), ids=WITHOUT_RETRY)
@pytest.mark.parametrize("phase", [*Silent.PHASES, "body"])
def test_a_policy_without_retry(
    colour: str, policy: Layer, within: float, limit: str, text: str, phase: str
) -> None:
    seen = call(colour, policy, phase=phase, within=within)
    error: Any = seen.error
    assert isinstance(error, errors.AttemptTimeout)
    assert isinstance(error, httpx2.TimeoutException)
    assert error.limit == limit
    assert text.partition("0.99")[2] in str(error)
    assert (seen.report.reason, seen.report.attempts) == (Reason.timeout, 1)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@COLOURS
def test_nothing_is_sent_after_the_deadline(colour: str) -> None:
    """A policy without a `Retry` begins no request either."""
    seen = call(colour, Bulkhead(5), within=0)
    assert isinstance(seen.error, errors.AttemptTimeout)
    assert isinstance(seen.error, httpx2.TimeoutException)
    assert str(seen.error) == "the request of httpx2 was not sent: the deadline has passed"
    assert (seen.transport.sent, seen.report.attempts, seen.report.reason) == (0, 0, Reason.timeout)


@COLOURS
def test_a_timeout_of_the_client_stays_its_own(colour: str) -> None:
    """It ends before any limit of the policy."""
    seen = call(
        colour, Retry(attempts=2, backoff=NO_DELAY, timeout=9, attempt_timeout=5), phase="pool", timeout=2
    )
    assert type(seen.error) is httpx2.PoolTimeout
    assert (seen.report.limit, seen.report.reason, seen.report.attempts) == (None, Reason.attempts, 2)


@COLOURS
def test_another_error_in_the_last_moments_stays_its_own(colour: str) -> None:
    """What is left of the time is too short for a retry."""
    seen = call(colour, Retry(timeout=1, backoff=NO_DELAY), phase="late")
    assert type(seen.error) is httpx2.ConnectError
    assert (seen.report.limit, seen.report.reason, seen.report.attempts) == ("total", Reason.timeout, 1)


@COLOURS
def test_a_response_within_the_last_moments_is_returned(colour: str) -> None:
    """The delay after it does not fit."""

    def blocking() -> httpx2.Response:
        with (
            virtual_time() as clock,
            httpx2.Client(
                transport=redouble.httpx2.Transport(policy, wrapped=Silent(clock, "503"))
            ) as client,
        ):
            return client.get(URL)

    async def waiting() -> httpx2.Response:
        with virtual_time() as clock:
            transport = redouble.httpx2.AsyncTransport(policy, wrapped=Silent(clock, "503"))
            async with httpx2.AsyncClient(transport=transport) as client:
                return await client.get(URL)

    policy = Retry(timeout=1, backoff=[5])
    response = in_colour(colour, blocking, waiting)
    report = redouble.report(response)
    assert report is not None
    assert (response.status_code, report.reason, report.limit) == (503, Reason.timeout, "total")


@COLOURS
@pytest.mark.parametrize(("phase", "attempts"), [("pool", 2), ("connect", 2), ("write", 1), ("read", 1)])
def test_a_cut_post_is_sent_again_only_if_nothing_was_sent(colour: str, phase: str, attempts: int) -> None:
    seen = call(colour, Retry(attempts=2, attempt_timeout=1, backoff=NO_DELAY), phase=phase, method="POST")
    reason = Reason.attempts if attempts == 2 else Reason.stopped
    assert isinstance(seen.error, errors.AttemptTimeout)
    assert (seen.transport.sent, seen.report.reason, seen.report.limit) == (attempts, reason, "attempt")


@COLOURS
@pytest.mark.parametrize("on", [TimeoutError, httpx2.TimeoutException, redouble.transient])
def test_a_breaker_counts_attempts_that_are_cut(colour: str, on: Any) -> None:
    """It is inside the `Retry`, and gets an error that is of both classes."""
    breaker = CircuitBreaker(on=on, failures=2, cooldown=1e9)
    call(colour, Retry(attempts=2, attempt_timeout=1, backoff=NO_DELAY) | breaker)
    assert breaker.state == "open"


@COLOURS
def test_a_rule_sees_both_classes(colour: str) -> None:
    judged: list[Exception] = []

    def rule(error: Exception) -> bool:
        judged.append(error)
        return True

    call(colour, Retry(on=rule, attempts=2, attempt_timeout=1, backoff=NO_DELAY))
    assert [isinstance(error, TimeoutError) for error in judged] == [True, True]
    assert [isinstance(error, httpx2.TimeoutException) for error in judged] == [True, True]


@COLOURS
@pytest.mark.parametrize(
    "policy",
    [Timeout(1) | Retry(), Retry(attempts=1) | Timeout(1), Timeout(1)],
    ids=["outside", "inside", "alone"],
)
@pytest.mark.parametrize("phase", ["read", "body"])
def test_a_timeout_is_an_event(colour: str, policy: Layer, phase: str) -> None:
    """Once, as in a pipeline around a function."""
    seen: list[Any] = []
    with redouble.observe(seen.append):
        call(colour, policy, phase=phase)
    found = [event for event in seen if event.what == "timeout"]
    assert [(event.name, event.limit) for event in found] == [("httpx2", "attempt")]


@COLOURS
def test_the_error_before_the_cut_is_the_cause(colour: str) -> None:
    """As outside of clients: it is the one that tells more."""
    phases = iter(["connect", "read", "read"])

    class Changing(Silent):
        def handle_request(self, request: httpx2.Request) -> httpx2.Response:
            if (phase := next(phases)) == "connect":
                raise httpx2.ConnectError("no route")
            self.phase = phase
            return super().handle_request(request)

        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            if (phase := next(phases)) == "connect":
                raise httpx2.ConnectError("no route")
            self.phase = phase
            return await super().handle_async_request(request)

    def blocking() -> Exception:
        with virtual_time() as clock, pytest.raises(TimeoutError) as caught:
            transport = redouble.httpx2.Transport(policy, wrapped=Changing(clock, ""))
            httpx2.Client(transport=transport, timeout=LONG).get(URL)
        return caught.value

    async def waiting() -> Exception:
        with virtual_time() as clock, pytest.raises(TimeoutError) as caught:
            transport = redouble.httpx2.AsyncTransport(policy, wrapped=Changing(clock, ""))
            await httpx2.AsyncClient(transport=transport, timeout=LONG).get(URL)
        return caught.value

    policy = Retry(timeout=2, backoff=[1, 0])
    error = in_colour(colour, blocking, waiting)
    assert isinstance(error.__cause__, httpx2.ConnectError)
    assert "(no time left): ConnectError: no route; attempt 2 was cut after 1 s" in str(error)
