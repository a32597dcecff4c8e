"""One row, one circuit breaker: a script of calls and waits, run in every colour from the same table.

A script is a list of words. ``S`` and ``F`` are calls that succeed and fail, a number is a call that ends
with that status: 500 and more fail, 400 and more are errors of the caller and count as success. ``foreign``
is an error without a verdict, ``takes:10`` a call of 10 s. ``rejected:20`` is a call that is rejected with a
``retry_after`` of 20 s. ``start`` admits a call that ``finish:F`` ends, the oldest first. ``later:10``
advances the clock. ``disable`` and ``measure`` choose a state. ``failed:3/5`` and ``slow:2`` check the
counts, and the name of a state checks the state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

from redouble import CircuitBreaker, errors
from tests.conformance.flows import EVERY, in_colour
from tests.support.scripted import Draws, Virtual

STATES = ("closed", "open", "half_open", "isolated", "disabled", "metrics_only")


class Status(Exception):
    """The error of an HTTP status."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def server_errors(error: Exception) -> bool | None:
    """Return True for 500 and more, False for other statuses."""
    return error.code >= 500 if isinstance(error, Status) else None


def outcome(word: str) -> BaseException | None:
    """Parse the result of a call."""
    match word:
        case "S":
            return None
        case "F":
            return Status(500)
        case "foreign":
            return ValueError("foreign")
        case "cancelled":
            return asyncio.CancelledError()
        case _:
            return None if int(word) < 400 else Status(int(word))


@dataclass
class Service:
    """The called service, with the number of calls that reached it and the breaker's events."""

    clock: Virtual = field(default_factory=Virtual)
    reached: int = 0
    events: list[Any] = field(default_factory=list[Any])

    def breaker(self, **terms: Any) -> CircuitBreaker:
        if "random" in terms:
            terms["random"] = Draws(*terms["random"])
        given: dict[str, Any] = {"on": server_errors, "clock": self.clock, "on_change": self.events.append}
        return CircuitBreaker(**(given | terms))

    def answer(self, word: str) -> None:
        self.reached += 1
        kind, _, rest = word.partition(":")
        if kind == "takes":
            seconds, _, kind = rest.partition(":")
            self.clock.time += float(seconds)
        error = outcome(kind or "S")
        if error is not None:
            raise error

    async def later(self, word: str) -> None:
        self.answer(word)


Playback = Generator[str, BaseException | None, None]


def play(service: Service, breaker: CircuitBreaker, script: str) -> Playback:
    """Play a script: yield the calls to make, receive their results, and check the other words."""
    tickets: list[Any] = []
    for number, word in enumerate(script.split(), 1):
        where = f"{word}, word {number}"
        kind, _, rest = word.partition(":")
        match kind:
            case "later":
                service.clock.time += float(rest)
            case "start":
                tickets.append(breaker.admit(service.clock.now()))
            case "finish":
                breaker.ended(tickets.pop(0), outcome(rest), service.clock.now())
            case "isolate":
                breaker.isolate()
            case "close":
                breaker.close()
            case "disable":
                breaker.disable()
            case "measure":
                breaker.metrics_only()
            case "slow":
                assert breaker.snapshot()["slow"] == int(rest), where
            case "failed":
                seen = breaker.snapshot()
                assert f"{seen['failures']}/{seen['calls']}" == rest, where
            case "rejected":
                error = yield "S"
                assert isinstance(error, errors.CircuitOpen), where
                assert error.retry_after == (pytest.approx(float(rest)) if rest else None), where
            case state if state in STATES:
                assert breaker.state == state, where
            case _:
                error = yield word
                assert not isinstance(error, errors.CircuitOpen), where


def run(colour: str, script: str, service: Service | None = None, **terms: Any) -> Service:
    """Run a script through a new breaker in one colour."""
    service = service or Service()
    breaker = service.breaker(**terms)
    asked = play(service, breaker, script)

    def blocking() -> None:
        answer: Callable[[str], None] = breaker(service.answer)
        error: BaseException | None = None
        with suppress(StopIteration):
            while True:
                word = asked.send(error)
                error = None
                try:
                    answer(word)
                except (Exception, asyncio.CancelledError) as raised:
                    error = raised

    async def waiting() -> None:
        answer = breaker(service.later)
        error: BaseException | None = None
        with suppress(StopIteration):
            while True:
                word = asked.send(error)
                error = None
                try:
                    await answer(word)
                except (Exception, asyncio.CancelledError) as raised:
                    error = raised

    in_colour(colour, blocking, waiting)
    return service


def row(
    fact: str, script: str, *, reached: int | None = None, events: str | None = None, **terms: Any
) -> Any:
    """Return a row of a table: a script, the expected results, and the options of the breaker."""
    return pytest.param(script, reached, events, terms, id=fact)


in_every_colour = pytest.mark.parametrize("colour", EVERY)


def check(colour: str, script: str, reached: int | None, events: str | None, terms: dict[str, Any]) -> None:
    """Run a row, and compare the expected results."""
    service = run(colour, script, **terms)
    assert reached is None or service.reached == reached
    told = " ".join(event.what.removeprefix("circuit_") for event in service.events)
    assert events is None or told == events
