"""A wait between two attempts that raises: the error comes out, with the end of the call."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import httpx
import pytest

from redouble import Clock, Retry, report, stats
from redouble._runtime.backend import Cancellation
from redouble.httpx import AsyncTransport, Transport
from redouble.types import Event
from tests.support.fakes import ASYNC, COLOURS, SYNC, Boom, Ledger, Panic, Virtual, in_colour, options


class TimeLimit(Exception):
    """What a signal handler raises, such as Celery's soft time limit."""


class Broken(Clock):
    """A clock whose n-th sleep raises."""

    def __init__(self, error: BaseException, sleeps: int = 0) -> None:
        self.error, self.sleeps, self.time = error, sleeps, 0.0

    def now(self) -> float:
        return self.time

    anow = now

    def sleep(self, seconds: float) -> None:
        self.time += seconds
        if not self.sleeps:
            raise self.error
        self.sleeps -= 1

    async def asleep(self, seconds: float) -> None:
        self.sleep(seconds)


class Call:
    """A call whose operation fails with a new error each time, and what was seen of its end."""

    def __init__(self, error: BaseException, sleeps: int = 0, **given: Any) -> None:
        self.ledger, self.events, self.errors = Ledger(), list[Event](), list[Boom]()
        defaults = options(
            on=(Boom, httpx.HTTPError),
            backoff=[1, 2, 3],
            clock=Broken(error, sleeps),
            on_give_up=self.events.append,
        )
        self.policy = Retry(**defaults | given)

    def fails(self) -> Any:
        self.errors.append(Boom(str(len(self.errors))))
        raise self.errors[-1]

    async def afails(self) -> Any:
        return self.fails()


Blocking = Callable[[Call], object]
Waiting = Callable[[Call], Awaitable[object]]


def decorated(call: Call) -> object:
    return call.policy(call.fails)()


def called(call: Call) -> object:
    return call.policy.call(call.fails)


def block(call: Call) -> None:
    for attempt in call.policy:
        with attempt:
            call.fails()


def stream(call: Call) -> None:
    def items() -> Iterator[int]:
        yield call.fails()

    list(call.policy.stream(items))


def generator(call: Call) -> None:
    @call.policy
    def items() -> Iterator[int]:
        yield call.fails()

    list(items())


def client(call: Call) -> None:
    network = httpx.MockTransport(lambda _: call.fails())
    Transport(call.policy, wrapped=network).handle_request(httpx.Request("GET", "http://there.test"))


async def adecorated(call: Call) -> object:
    return await call.policy(call.afails)()


async def acalled(call: Call) -> object:
    return await call.policy.call(call.afails)


async def on_a_thread(call: Call) -> object:
    return await call.policy.acall(call.fails)


async def ablock(call: Call) -> None:
    async for attempt in call.policy:
        with attempt:
            await call.afails()


async def astream(call: Call) -> None:
    async def items() -> AsyncIterator[int]:
        yield await call.afails()

    async for _ in call.policy.stream(items):
        pass


async def aclient(call: Call) -> None:
    transport = AsyncTransport(call.policy, wrapped=httpx.MockTransport(lambda _: call.fails()))
    await transport.handle_async_request(httpx.Request("GET", "http://there.test"))


BLOCKING: list[Blocking] = [decorated, called, block, stream, generator, client]
WAITING: list[Waiting] = [adecorated, acalled, on_a_thread, ablock, astream, aclient]
EVERY = [(colour, how) for colour in COLOURS for how in (BLOCKING if colour in SYNC else WAITING)]


def run(colour: str, how: Any, call: Call) -> BaseException:
    with pytest.raises(BaseException) as caught:  # noqa: PT011  of any type
        in_colour(colour, lambda: how(call), lambda: how(call))
    return caught.value


def check(call: Call, error: BaseException, raised: BaseException, attempts: int) -> None:
    """Assert that the error is the one of the wait, and that the call has ended once."""
    assert raised is error
    assert raised.__context__ is call.errors[-1]
    assert len(call.errors) == attempts
    reported = report(raised)
    assert reported is not None
    assert (reported.reason, reported.attempts, len(reported.history)) == ("stopped", attempts, attempts)
    assert raised.__notes__[0].startswith(f"redouble: gave up after {attempts} attempt")
    assert raised.__notes__[0].endswith("(the wait for the next attempt was interrupted)")
    (event,) = call.events
    assert (event.what, event.reason, event.attempt) == ("give_up", "stopped", attempts)
    assert event.error is (raised if isinstance(raised, Exception) else call.errors[-1])


# Ctrl-C ends an event loop, which cancels its tasks.
KINDS = [
    (*case, kind)
    for case in EVERY
    for kind in ((TimeLimit,) if case[0] in ASYNC else (TimeLimit, KeyboardInterrupt, Panic))
]


@pytest.mark.parametrize(("colour", "how", "kind"), KINDS)
@pytest.mark.parametrize("sleeps", [0, 1])
@pytest.mark.parametrize("budget", [None, Ledger])
def test_a_wait_that_raises(
    colour: str, how: Any, kind: type[BaseException], sleeps: int, budget: type[Ledger] | None
) -> None:
    error, ledger = kind("now"), None if budget is None else budget()
    call = Call(error, sleeps, budget=ledger)
    check(call, error, run(colour, how, call), attempts=sleeps + 1)
    if ledger is not None:
        assert ledger.lines[-1] == f"refund {sleeps + 1}"
        assert ledger.lines.count(f"refund {sleeps + 1}") == 1


@pytest.mark.parametrize(("colour", "how"), [case for case in EVERY if case[0] != "trio"])
def test_a_cancellation_is_no_end_of_a_call(colour: str, how: Any) -> None:
    """As during an attempt: neither an event nor a report. Trio has a cancellation of its own."""
    error: BaseException = asyncio.CancelledError() if colour in ASYNC else Cancellation()
    call = Call(error)
    raised = run(colour, how, call)
    assert isinstance(raised, type(error))
    assert (report(raised), call.events) == (None, [])


@pytest.mark.parametrize("name", ["interrupted waits", None])
def test_a_metric(name: str | None) -> None:
    call = Call(TimeLimit("now"), name=name)
    run("sync", called, call)
    if name is not None:
        assert stats()["policies"][name]["given_up"] == 1


def test_an_outcome(colour: str) -> None:
    call = Call(TimeLimit("now"))
    outcome = in_colour(colour, lambda: call.policy.run(call.fails), lambda: call.policy.run(call.afails))
    assert isinstance(outcome.error, TimeLimit)
    assert (outcome.report.reason, outcome.report.attempts, outcome.report.next_delay) == ("stopped", 1, 1)


def test_a_clock_that_fails_altogether() -> None:
    class Dead(Broken):
        def now(self) -> float:
            if self.sleeps:
                raise self.error
            return 0.0

        def sleep(self, seconds: float) -> None:
            self.sleeps = 1

    error = TimeLimit("no time")
    call = Call(error, clock=Dead(error))
    check(call, error, run("sync", called, call), attempts=1)


def test_a_refused_result_has_no_error_for_the_context() -> None:
    error = TimeLimit("now")
    policy = Retry(until=bool, backoff=[1], clock=Broken(error))
    with pytest.raises(TimeLimit) as caught:
        policy.call(int)
    assert caught.value.__context__ is None
    assert report(caught.value) is not None


def test_the_context_is_added_to_that_of_the_wait() -> None:
    class Chained(Broken):
        def sleep(self, seconds: float) -> None:
            try:
                raise KeyError
            except KeyError:
                raise self.error  # noqa: B904

    error = TimeLimit("now")
    call = Call(error, clock=Chained(error))
    raised = run("sync", called, call)
    assert isinstance(raised.__context__, KeyError)
    assert raised.__context__.__context__ is call.errors[-1]


def test_a_wait_that_raises_the_error_of_the_attempt() -> None:
    """The context of an error is never the error itself."""
    boom = Boom("the one")

    def fails() -> None:
        raise boom

    policy = Retry(on=Boom, backoff=[1], clock=Broken(boom))
    with pytest.raises(Boom) as caught:
        policy.call(fails)
    assert caught.value is boom
    assert boom.__context__ is None


@pytest.mark.skipif(sys.platform == "win32", reason="there is no alarm")
@pytest.mark.parametrize("how", BLOCKING)
def test_a_signal_handler_that_raises(how: Blocking) -> None:
    """The wait is a real one, of many seconds."""

    def expired(*_: object) -> None:
        raise error

    error = TimeLimit("soft")
    call = Call(error, clock=SignalledClock(), backoff=[20])
    before = signal.signal(signal.SIGALRM, expired)
    try:
        raised = run("sync", how, call)
    finally:
        signal.signal(signal.SIGALRM, before)
    check(call, error, raised, attempts=1)


class SignalledClock(Virtual):
    """A clock that sends an alarm to the process as soon as it sleeps."""

    def sleep(self, seconds: float) -> None:
        signal.raise_signal(signal.SIGALRM)
        super().sleep(seconds)


@pytest.mark.parametrize("sleeps", [0, 1])
def test_a_policy_without_observers_that_only_retries(colour: str, sleeps: int) -> None:
    """The wrapper waits by itself."""
    error, errors = TimeLimit("now"), list[Boom]()
    policy = Retry(on=Boom, backoff=[1, 2, 3], clock=Broken(error, sleeps))

    @policy
    def fails() -> None:
        errors.append(Boom())
        raise errors[-1]

    @policy
    async def afails() -> None:
        errors.append(Boom())
        raise errors[-1]

    with pytest.raises(TimeLimit) as caught:
        in_colour(colour, fails, afails)
    assert caught.value is error
    assert error.__context__ is errors[-1]
    reported = report(error)
    assert reported is not None
    assert (reported.reason, reported.attempts, reported.next_delay) == ("stopped", sleeps + 1, sleeps + 1)
