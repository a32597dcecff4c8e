"""CircuitBreaker: leave a service alone while it is down.

What opens and closes it is decided in `_circuit`; this file has the lock and the clock. Calls pass through
`_guarded`, changes are told by `_news`.

The lines that every call behind a circuit breaker goes through.

While it is closed and all goes well, that is a look at two attributes: nobody is asked, nothing is locked,
and no clock is read.
"""

from __future__ import annotations

import random as chance
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any, ParamSpec, Self, TypeVar

from redouble._failures.verdict import FailureFilter, On
from redouble._internal.codegen import Template, compile_wrapper
from redouble._internal.locks import ForkSafe, weak_method
from redouble._internal.public import public
from redouble._internal.reentrancy import SerialExecutor
from redouble._internal.validation import Duration, in_seconds
from redouble._layers.analysis import Traits, WorstCase
from redouble._layers.breaker.circuit import Circuit, State, StateChange, StateEpoch, Ticket
from redouble._layers.breaker.notifications import ChangeDispatcher, dispatch
from redouble._layers.breaker.settings import CircuitBreakerSettings, validated
from redouble._layers.gate import Gate, task_error
from redouble._layers.layer import Layer
from redouble._runtime.clock import SYSTEM, Chance, Clock
from redouble._telemetry.emit import emit_rejected
from redouble._telemetry.events import Observer
from redouble.errors import CircuitOpen

__all__ = ["CircuitBreaker", "guarded"]


GUARDED = Template(
    "circuit breaker",
    """\
{async_}def guarded({parameters}):
    redouble_ticket = redouble_breaker._passing or redouble_breaker.admit(redouble_now())
    redouble_good = False
    try:
        redouble_result = {await_}redouble_fn({arguments})
        redouble_good = True
    finally:
        if redouble_ticket.noting or not redouble_good:
            redouble_breaker.ended(
                redouble_ticket, None if redouble_good else redouble_exception(), redouble_now()
            )
{check}    return redouble_result
""",
)


def guarded(breaker: CircuitBreaker, fn: Callable[..., Any], *, is_async: bool) -> Callable[..., Any]:
    """Return ``fn`` behind the breaker, with its own signature."""
    seen = task_error if is_async else sys.exception
    return compile_wrapper(
        fn, GUARDED, is_async=is_async, breaker=breaker, now=breaker.clock.now, exception=seen
    )


P = ParamSpec("P")
T = TypeVar("T")


@public("redouble")
class CircuitBreaker(ForkSafe, Gate):
    """Open after too many failures: reject calls for a while, then let a few through to see.

    on: what counts as a failure: an exception type, a tuple, a rule, or a list of these. An error that a
        rule answers False to counts as a success (a 404 is a healthy answer); one that nobody has an
        opinion about, a cancellation and a `Rejected` count as nothing.
    failures: open after so many in a row. Not looked at if there is a ``ratio``.
    ratio: open when at least this share of the calls in the last ``window`` seconds failed, and there were
        at least ``minimum`` of them. Without a ratio neither is looked at.
    slow: a call that takes this many seconds counts as failed, from then on, whether it has ended or not.
    cooldown: how many seconds to stay open; `CircuitOpen` carries what is left of them as ``retry_after``.
    probes: how many calls are let through after that. If all succeed it closes, if one fails it opens again.
    reopening: after the probes, first let these shares of the calls through, such as ``(0.1, 0.5)``, each
        for as long as the cooldown.
    name, on_change: what it is called in events and logs, and who is told of changes.
    """

    def __init__(
        self,
        on: On = Exception,
        failures: int = 5,
        ratio: float | None = None,
        window: Duration = 30,
        minimum: int = 20,
        slow: Duration | None = None,
        cooldown: Duration = 30,
        probes: int = 1,
        reopening: Sequence[float] | None = None,
        *,
        name: str | None = None,
        on_change: Observer | None = None,
        clock: Clock = SYSTEM,
        random: Chance = chance,
    ) -> None:
        super().__init__()
        self._failures = FailureFilter(on, "CircuitBreaker")
        self.settings: CircuitBreakerSettings = validated(
            on,
            failures,
            ratio,
            window,
            minimum,
            slow,
            cooldown,
            probes,
            reopening,
            name,
            on_change,
            clock,
            random,
        )
        self.name, self.clock = name, clock
        self.register("breakers")
        # A subclass that has its own is asked about every call.
        self._as_is = type(self).admit is CircuitBreaker.admit and type(self).ended is CircuitBreaker.ended
        self._circuit = Circuit(self.settings, random.random, clock.now())
        self._news, self._desk = self._offices()
        self._passing: StateEpoch | None = None  # what calls go by as long as nobody has to be asked
        self._settle()

    @property
    def _kept_by_wrapper(self) -> bool:
        return True

    @property
    def state(self) -> State:
        """``closed``, ``open``, ``half_open`` or ``isolated``: as the next call would find it."""
        return self._circuit.state(self.clock.now())

    def isolate(self) -> None:
        """Reject all calls until `close` is called."""
        self._become("isolated")

    def close(self) -> None:
        """Let all calls pass again, and forget what was counted."""
        self._become("closed")

    def snapshot(self) -> Mapping[str, float | str | None]:
        """Tell its ``state``, ``retry_after``, and how many calls were ``rejected`` since it opened.

        Counted since the state changed: how many ``failures``, of how many ``calls``; lately if there is a
        ratio, else in a row.
        """
        with self._lock:
            circuit, now = self._circuit, self.clock.now()
            calls, failures = circuit.counted(now)
            return {
                "state": circuit.state(now),
                "retry_after": circuit.retry_after(now) or None,
                "rejected": circuit.rejected,
                "failures": failures,
                "calls": calls,
            }

    def admit(self, now: float, /) -> Ticket:
        """Let a call in, or raise `CircuitOpen`."""
        passing = self._passing
        if passing is not None:
            return passing
        with self._lock:
            circuit = self._circuit
            ticket: Ticket | None = circuit.period if circuit.period.state == "closed" else None
            if not self._desk.busy:  # else a signal, or the collector, has come in the middle of a change
                ticket = self._desk.run(circuit.admit, now)
            state, retry_after = circuit.period.state, circuit.retry_after(now)
        self._news.publish()
        if ticket is None:
            says = self._says(state, retry_after)
            raise emit_rejected(CircuitOpen(says, retry_after=retry_after), "circuit_breaker", self.name)
        return ticket

    def ended(self, ticket: Ticket, error: BaseException | None, now: float, /) -> None:
        """Learn how a call ended."""
        bad: bool | None = None
        try:
            bad = self._failures.counts(error)
        finally:  # a rule may fail, and still the call is over
            with self._lock:
                self._desk.run(self._circuit.ended, ticket, bad, now, type(error).__name__)
            self._news.publish()

    def around(self, fn: Callable[P, T], /) -> Callable[P, T]:
        """Return ``fn`` behind the breaker."""
        return guarded(self, fn, is_async=False) if self._as_is else super().around(fn)

    def around_async(self, fn: Callable[P, Awaitable[T]], /) -> Callable[P, Coroutine[Any, Any, T]]:
        """Return ``fn`` behind the breaker, for a coroutine function."""
        return guarded(self, fn, is_async=True) if self._as_is else super().around_async(fn)

    def _become(self, state: State) -> None:
        with self._lock:
            if self._circuit.period.state != "isolated" or state != "isolated":
                self._desk.run(self._circuit.become, state, self.clock.now())
        self._news.publish()

    def can_reconfigure(self, other: Self, /) -> bool:  # noqa: ARG002
        """Return True: all settings can change."""
        return True

    def reconfigure(self, other: Self, /) -> None:
        """Take over the terms of another breaker; the state and the counts stay."""
        with self._lock:
            self._desk.run(self._take_over, other)
        self._news.publish()

    def _take_over(self, other: Self) -> None:
        mine = self.settings
        self._failures = other._failures
        self.settings = replace(
            other.settings, name=mine.name, on_change=mine.on_change, clock=mine.clock, random=mine.random
        )
        self._circuit.reconfigure(self.settings, self.clock.now())
        self._passing = None  # `_settle` looks again

    def describe(self) -> str:
        return self.settings.summary()

    def lint(self, outer: tuple[Layer, ...], inner: tuple[Layer, ...], worst: WorstCase, /) -> Iterator[str]:
        around_retry = any(layer.traits().retries for layer in inner)
        if around_retry:
            yield (
                "CircuitBreaker outside Retry: it sees one failure where there were several attempts, and "
                "attempts go on at a service that is known to be down; put it inside"
            )
        attempt = outer[max((i for i, layer in enumerate(outer) if layer.traits().retries), default=0) :]
        cut = any(layer.traits().each_call_limit < inf for layer in attempt)
        if cut and not around_retry and worst.seconds == inf and self.settings.slow is None:
            yield (
                "CircuitBreaker inside the limit of an attempt: a call that is cut looks cancelled to it, so "
                "that a service that hangs never opens it; put a Timeout inside, or say slow="
            )

    def traits(self) -> Traits:
        return Traits(handles=self.settings.on, shared=(self,))

    # ---------------------------------------------------------------- news

    def _settle(self) -> None:
        """Take over what has become of the circuit."""
        circuit = self._circuit
        if circuit.period is self._passing and not circuit.changes:
            return
        quick = self._as_is and circuit.period.state == "closed" and self.settings.slow is None
        self._passing = circuit.period if quick else None
        while circuit.changes:
            self._news.add(circuit.changes.popleft())

    def _offices(self) -> tuple[ChangeDispatcher, SerialExecutor]:
        # Held weakly: a breaker that nobody has any more is gone at once, and not when the collector comes.
        return ChangeDispatcher(weak_method(self._tell)), SerialExecutor(weak_method(self._settle))

    def _tell(self, change: StateChange) -> None:
        dispatch(change, self._whose(), self._says(change.state, change.retry_after), self.settings.on_change)

    def _whose(self) -> str:
        return self.name or "the circuit breaker"

    def _says(self, state: State, retry_after: float | None) -> str:
        if state == "isolated":
            return f"{self._whose()} is isolated, until somebody closes it"
        if state == "half_open":
            return f"{self._whose()} is half open, and others are trying whether the service is back"
        last, rest = self._circuit.last, in_seconds(retry_after or 0)
        return f"{self._whose()} is open after {last}, for another {rest}"

    def _after_fork(self) -> None:
        super()._after_fork()
        self._news, self._desk = self._offices()

    def __repr__(self) -> str:
        settings = self.settings
        when = f"failures={settings.failures}" if settings.ratio is None else f"ratio={settings.ratio:g}"
        named = "" if self.name is None else f", name={self.name!r}"
        return f"CircuitBreaker({when}, cooldown={settings.cooldown:g}{named})"
