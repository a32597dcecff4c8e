"""CircuitBreaker: reject calls while a service is down.

`Circuit` decides when it opens and closes; the breaker adds the lock, the clock and the compiled wrapper.
While the circuit is closed and a call succeeds, the wrapper reads two attributes: it takes no lock and reads
no clock.
"""

from __future__ import annotations

import random as chance
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self, TypeVar, cast, get_args

from redouble._failures.verdict import FailureFilter, On, Refusal, Until
from redouble._internal.codegen import Template
from redouble._internal.locks import gil
from redouble._internal.logger import log
from redouble._internal.public import public
from redouble._internal.reentrancy import SerialQueue
from redouble._internal.shared_context_manager import try_from_start
from redouble._internal.validation import (
    Duration,
    choice,
    format_seconds,
    hook,
    integer,
    methods,
    positive_seconds,
)
from redouble._layers.analysis import Traits, WorstCase
from redouble._layers.breaker.analysis import describe_breaker, lint_breaker
from redouble._layers.breaker.circuit import ROUNDING, Circuit
from redouble._layers.breaker.cooldown import (
    CooldownOption,
    check_cooldown,
    cooldown_repr,
)
from redouble._layers.breaker.settings import (
    CircuitBreakerSettings,
    ManualState,
    share,
    share_of_slow_calls,
    shares,
    window_calls,
)
from redouble._layers.breaker.state_epoch import (
    DEFAULT_NAME,
    Rejection,
    State,
    StateChange,
    StateEpoch,
    Ticket,
    TrackedCall,
)
from redouble._layers.gate import JudgingGate, Wrapper
from redouble._layers.layer import Layers
from redouble._runtime.clock import SYSTEM, Chance, Clock
from redouble._telemetry.bound_fields import BOUND
from redouble._telemetry.emit import emit_rejected
from redouble._telemetry.events import Event, Observer, What
from redouble._telemetry.observers import publish, watch
from redouble.errors import CircuitOpen

T = TypeVar("T")

CHANGE_EVENTS: Mapping[str, What] = {
    "open": "circuit_opened",
    "half_open": "circuit_half_open",
    "closed": "circuit_closed",
    "isolated": "circuit_isolated",
    "disabled": "circuit_disabled",
    "metrics_only": "circuit_metrics_only",
    "exceeded": "circuit_exceeded",
    "rejected": "circuit_rejected",
}

STATE_NUMBERS: Mapping[State, int] = {  # those of resilience4j
    "closed": 0,
    "open": 1,
    "half_open": 2,
    "disabled": 3,
    "isolated": 4,
    "metrics_only": 5,
}
RECOVERED = {"closed": "closed again", "disabled": "disabled", "metrics_only": "only measuring now"}

# Creates a rejection from all fields in order: twice as fast as by a call of the class.
new_rejection: Callable[[type[Rejection], tuple[object, ...]], Rejection] = vars(tuple)["__new__"]

GUARDED = Template(
    "circuit breaker",
    """\
{async_}def guarded({parameters}):
    redouble_ticket = redouble_owner._fast_epoch or redouble_owner.admit(redouble_now())
    redouble_good = False
    try:
        redouble_result = {await_}redouble_fn({arguments})
        {check}
        redouble_good = True
    finally:
        if redouble_ticket.failure_streak or not redouble_good:
            redouble_owner.ended(
                redouble_ticket, None if redouble_good else redouble_exception(), redouble_now()
            )
    return redouble_result
""",
)

# For ``until``. A result that it accepts costs one more call; the slower paths are outside the `try`.
JUDGED = Template(
    "circuit breaker by result",
    """\
{async_}def guarded({parameters}):
    redouble_ticket = redouble_owner._fast_epoch or redouble_owner.admit(redouble_now())
    try:
        redouble_result = {await_}redouble_fn({arguments})
        {check}
        redouble_refusal = redouble_accepts(redouble_result)
        if redouble_refusal is not True:
            redouble_refusal = redouble_answered(redouble_refusal, redouble_result)
        elif not redouble_ticket.failure_streak:
            return redouble_result
        else:
            redouble_refusal = None
    except redouble_BaseException:
        redouble_owner.ended(redouble_ticket, redouble_exception(), redouble_now())
        raise
    redouble_owner.ended(redouble_ticket, redouble_refusal, redouble_now())
    return redouble_result
""",
)


def failure_name(error: BaseException | None) -> str:
    """Return the name of a failure for messages."""
    return "a refused result" if type(error) is Refusal else type(error).__name__


@public("redouble")
class CircuitBreaker(JudgingGate):
    """Open after too many failures: reject calls for a while, then admit a few as probes.

    on: what counts as a failure: an exception type, a tuple, a rule, or a list of these. An error for
        which a rule returns False counts as a success (a 404 is a healthy answer); an error that no rule
        decides on, a cancellation and a `Rejected` are not counted.
    until: a rule for results, as of `Retry`: a result that it refuses counts as a failure, and is returned.
    failures: open after this many in a row. Ignored if there is a ``ratio``.
    ratio: open when at least this share of the calls in the last ``window`` seconds failed, and there were
        at least ``minimum`` of them. Without a ratio, or a ``slow_ratio``, both are ignored.
    calls: count the last so many calls, whenever they were, instead of those of the last ``window`` seconds.
    slow: a call that takes this many seconds counts as failed, from then on, whether it has ended or not.
    slow_ratio: slow calls do not count as failed; open when at least this share of the calls was slow.
    cooldown: how many seconds to stay open; `CircuitOpen` carries what is left of them as ``retry_after``. A
        `Backoff` or a list: the first delay, and the next one each time that it opens again without having
        closed. A function: is passed how often it has opened again, 0 at first, and returns seconds.
    probes: how many calls are admitted after that. If all succeed it closes, if one fails it opens again.
    probe_ratio: open again only if at least this share of the probes fails, and close if fewer do.
    reopening: after the probes, first admit these shares of the calls, such as ``(0.1, 0.5)``, each
        for as long as the cooldown.
    state: the first state: ``closed``, ``isolated``, ``disabled`` (admit all, record nothing) or
        ``metrics_only`` (admit all, record, and emit ``circuit_exceeded`` where it would open).
    name, on_change: its name in events and logs, and an observer of its state changes.
    """

    _problem_outside_retry = (
        "it counts one failure for several failed attempts, and the attempts go on although the service is "
        "down"
    )

    def __init__(
        self,
        on: On = Exception,
        failures: int = 5,
        ratio: float | None = None,
        window: Duration = 30,
        minimum: int = 20,
        slow: Duration | None = None,
        cooldown: CooldownOption = 30,
        probes: int = 1,
        reopening: Sequence[float] | None = None,
        *,
        until: Until | None = None,
        calls: int | None = None,
        slow_ratio: float | None = None,
        probe_ratio: float | None = None,
        state: ManualState = "closed",
        name: str | None = None,
        on_change: Observer | None = None,
        clock: Clock = SYSTEM,
        random: Chance = chance,
    ) -> None:
        super().__init__()
        self._failures = FailureFilter(on, "CircuitBreaker", until)
        if on_change is not None:
            hook(on_change, "on_change")
        methods(clock, "clock", ("now",))
        methods(random, "random", ("random",))
        choice(state, "CircuitBreaker state", *get_args(ManualState))
        self.settings = CircuitBreakerSettings(
            on=on,
            until=until,
            failures=integer(failures, "CircuitBreaker failures", 1, "a whole number, 1 or more, such as 5"),
            ratio=None if ratio is None else share(ratio, "ratio"),
            window=positive_seconds(window, "CircuitBreaker window", "30"),
            calls=None if calls is None else window_calls(calls, ratio, slow_ratio),
            minimum=integer(minimum, "CircuitBreaker minimum", 1, "a whole number, 1 or more, such as 20"),
            slow=None if slow is None else positive_seconds(slow, "CircuitBreaker slow", "30"),
            slow_ratio=None if slow_ratio is None else share_of_slow_calls(slow_ratio, slow),
            cooldown=check_cooldown(cooldown),
            probes=integer(probes, "CircuitBreaker probes", 1, "a whole number, 1 or more, such as 1"),
            probe_ratio=None if probe_ratio is None else share(probe_ratio, "probe_ratio"),
            reopening=None if reopening is None else shares(reopening),
            state=state,
            name=name,
            on_change=on_change,
            clock=clock,
            random=random,
        )
        self.name, self.clock = name, clock
        # If a subclass overrides `admit()` or `ended()`, every call has to call both.
        own = type(self)
        self._not_overridden = own.admit is CircuitBreaker.admit and own.ended is CircuitBreaker.ended
        self._circuit = Circuit(self.settings, clock.now())
        self._notifications = SerialQueue()
        self._fast_epoch: StateEpoch | None = None  # the ticket of the fast path; None: call `admit`
        self._follow_circuit()
        self.register("breakers")

    @property
    def state(self) -> State:
        """The state as the next call would find it.

        ``closed``, ``open``, ``half_open``, ``isolated``, ``disabled`` or ``metrics_only``.
        """
        return self._circuit.state(self.clock.now())

    def isolate(self) -> None:
        """Reject all calls until `close` is called."""
        self._change(self._circuit.change_to, self.clock.now(), "isolated")

    def disable(self) -> None:
        """Admit all calls and record nothing, until `close` or another of these methods is called."""
        self._change(self._circuit.change_to, self.clock.now(), "disabled")

    def metrics_only(self) -> None:
        """Admit all calls and record their results, until `close` or another of these methods is called.

        Where the breaker would open, it emits the event ``circuit_exceeded``, at most once in each cooldown.
        """
        self._change(self._circuit.change_to, self.clock.now(), "metrics_only")

    def close(self) -> None:
        """Admit all calls again, and reset the counts."""
        self._change(self._circuit.change_state, self.clock.now(), "closed")

    def snapshot(self) -> Mapping[str, float | str | None]:
        """Return its ``state``, also as a number, ``retry_after``, and how many calls were ``rejected``.

        ``rejected`` are those since it opened, ``reopened`` is how often it opened again since it was closed.
        Since the last change of state: how many ``failures``, of how many ``calls``; in the window if there
        is a ratio, else in a row; how many ``slow`` calls if there is a share of them; and in metrics_only
        how often the threshold was ``exceeded``.
        """
        return self._run_now(self._snapshot)

    def _snapshot(self) -> Mapping[str, float | str | None]:
        circuit, now = self._circuit, self.clock.now()
        calls, failures = circuit.counts(now)
        state = circuit.state(now)
        return {
            "state": state,
            "state_number": STATE_NUMBERS[state],
            "retry_after": circuit.retry_after(now) or None,
            "rejected": circuit.rejected,
            "reopened": circuit.reopened,
            "failures": failures,
            "calls": calls,
            "slow": circuit.slow_calls(now),
            "exceeded": circuit.epoch.exceeded,
        }

    def admit(self, now: float, /) -> Ticket:
        """Admit a call and return its ticket, or raise `CircuitOpen`."""
        epoch = self._fast_epoch
        if epoch is not None:
            return epoch
        circuit = self._circuit
        left = circuit.epoch.until - now
        # An open circuit rejects most calls here, without an operation of the circuit. There is no call
        # between looking at the circuit and counting the rejection; the first one is published.
        is_open = circuit.rejected and circuit.epoch.state == "open" and gil.enabled
        if is_open and ROUNDING < left <= circuit.cooldown:
            circuit.rejected += 1
            message = (self.name, "open", left, circuit.last_failure)
            raise self._rejected(new_rejection(Rejection, message))
        admitted: Ticket | Rejection
        if self._owned_by_this_thread():  # a signal handler or finaliser runs in the middle of a change
            epoch = circuit.epoch
            admitted = epoch if epoch.admits_all else circuit.rejection(now, self.name)
        else:
            ticket = TrackedCall(None, now)
            try:
                admitted = self._change(circuit.admit, now, self.name, ticket)
                if type(admitted) is not Rejection:
                    return cast("Ticket", admitted)
            except BaseException:
                if ticket.epoch is not None:  # pragma: no cover  a signal handler has interrupted it
                    self._change(circuit.ended, ticket, None, now)
                raise
        if isinstance(admitted, Rejection):
            raise self._rejected(admitted)
        return admitted  # pragma: no cover  a finaliser that runs while the circuit is being closed

    def _rejected(self, rejection: Rejection) -> CircuitOpen:
        message: Any = rejection
        error = CircuitOpen.__new__(CircuitOpen, message)  # without the calls of `__init__`
        error.retry_after = rejection.retry_after
        return emit_rejected(error, "circuit_breaker", self.name)

    @try_from_start
    def ended(self, ticket: Ticket, error: BaseException | None, now: float, /) -> None:
        try:
            disabled = self._circuit.epoch.state == "disabled"  # then `on` is not called
            bad = None if disabled else self._failures.is_failure(error)
            self._change(self._circuit.ended, ticket, bad, now, failure_name(error) if bad else "")
        except BaseException:  # the call is over even if a rule raises, or a signal handler
            if isinstance(ticket, TrackedCall) and ticket.epoch is not None:
                self._change(self._circuit.ended, ticket, None, now)
            raise

    def _wrapper(self, *, is_async: bool) -> Wrapper | None:  # noqa: ARG002
        if not self._not_overridden:
            return None
        now = self.clock.now
        if not self._judges:
            return GUARDED, {"now": now}
        return JUDGED, {"now": now, "BaseException": BaseException, **self._rule_names()}

    def can_reconfigure(self, other: Self, /) -> bool:  # noqa: ARG002
        """Return True: all settings can change."""
        return True

    def reconfigure(self, other: Self, /) -> None:
        """Adopt the settings of ``other``, and keep the state and the counts."""
        self._change(self._adopt_settings, other)

    def _adopt_settings(self, other: Self) -> None:
        mine = self.settings
        self.settings = replace(
            other.settings, name=mine.name, on_change=mine.on_change, clock=mine.clock, random=mine.random
        )
        self._adopt_rules(other._failures)
        self._circuit.reconfigure(self.settings, self.clock.now())
        self._fast_epoch = None  # `_follow_circuit` sets it again

    def describe(self) -> str:
        return describe_breaker(self.settings, self._failures.description)

    def lint(self, outer: Layers, inner: Layers, worst: WorstCase, /) -> Iterator[str]:
        yield from super().lint(outer, inner, worst)
        yield from lint_breaker(self.settings, outer, inner, worst)

    def traits(self) -> Traits:
        return Traits(handles=self.settings.on, shared=(self,))

    # ---------------------------------------------------------------- state changes

    def _change(self, operation: Callable[..., T], *args: Any) -> T:
        """Run an operation of the circuit and publish the changes of state; in a re-entrant call defer it.

        A deferred operation has no result.
        """
        try:
            return cast("T", self._run_exclusively(self._run_and_follow, operation, *args))
        finally:
            self._notifications.run()

    def _run_and_follow(self, operation: Callable[..., T], *args: Any) -> T:
        try:
            return operation(*args)
        finally:
            self._follow_circuit()

    def _follow_circuit(self) -> None:
        """Update the fast path and queue the changes of state, after each operation on the circuit."""
        circuit = self._circuit
        if circuit.epoch is self._fast_epoch and not circuit.changes:
            return
        epoch = circuit.epoch
        fast = epoch.admits_all and (self.settings.slow is None or epoch.state == "disabled")
        self._fast_epoch = epoch if fast and self._not_overridden else None
        broken, circuit.cooldowns.error = circuit.cooldowns.error, None
        if broken is not None:
            self._notifications.add(self._log_broken_cooldown, broken, circuit.cooldown)
        while circuit.changes:
            self._notifications.add(self._dispatch, circuit.changes.popleft())

    def _dispatch(self, change: StateChange) -> None:
        """Log the first rejection and the recovery; emit the event to ``on_change`` and global observers."""
        what, observer, rejected = CHANGE_EVENTS[change.what], self.settings.on_change, change.rejected
        name, hint = self.name or DEFAULT_NAME, change.retry_after
        if change.what == "rejected":
            rejection = Rejection(name, change.state, hint, self._circuit.last_failure)
            log("%s; further rejections are counted, and not logged", str(rejection))
        elif rejected and change.what in RECOVERED:
            log("%s is %s, after %d rejected calls", name, RECOVERED[change.what], rejected, info=True)
        if observer is not None or watch.by_event[what]:
            event = Event(what, name, 0, change.lasted, hint=hint, rejected=rejected, bound=BOUND.get())
            publish(event, observer)

    def _log_broken_cooldown(self, error: Exception, cooldown: float) -> None:
        """Log what the user's cooldown raised, without the lock."""
        from redouble._redaction.rendering import described  # noqa: PLC0415  not needed while it works

        name, stays = self.name or DEFAULT_NAME, format_seconds(cooldown)
        log(
            "the cooldown of %s failed, so it is %s: %s",
            name,
            stays,
            described(error),
            error=True,
            traced=False,
        )

    def _after_fork(self) -> None:
        super()._after_fork()
        self._notifications = SerialQueue()

    def __repr__(self) -> str:
        settings = self.settings
        threshold = f"failures={settings.failures}" if settings.ratio is None else f"ratio={settings.ratio:g}"
        return self._repr(threshold, f"cooldown={cooldown_repr(settings.cooldown)}")
