"""For any calls at any times, the circuit agrees with a simple model of it, and never gets stuck."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import inf
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from redouble import Backoff, CircuitBreaker
from redouble._internal.sliding_counter import SLICES
from redouble._layers.breaker.circuit import Circuit
from redouble._layers.breaker.settings import CircuitBreakerSettings
from redouble._layers.breaker.state_epoch import Rejection, Ticket

pytestmark = pytest.mark.one_python

# Times are whole seconds, and a slice of the window is one second: so the model can be exact.
WINDOW = SLICES
OTHERS = ("rejected", "exceeded")  # changes that are no change of state
MANUAL = ("isolated", "disabled", "metrics_only")


def growing(reopened: int) -> int:
    return min(3 * reopened, 12)


# How long a circuit stays open, by how often it has opened again.
COOLDOWNS: dict[Any, list[int]] = {
    (1, 4, 9): [1, 4, 9],
    Backoff.exponential(2).maximum(16): [2, 4, 8, 16],
    growing: [0, 3, 6, 9, 12],
}


def made(
    slow: float, is_slow: bool, slow_ratio: float | None, calls: int | None, **options: Any
) -> CircuitBreakerSettings:
    if options["ratio"] is not None or slow_ratio is not None:
        options["calls"] = calls
    if is_slow or slow_ratio is not None:
        options |= {"slow": slow, "slow_ratio": slow_ratio}
    if options["ratio"] is slow_ratio is None:
        options["calls"] = None
    return CircuitBreaker(**options).settings


SETTINGS = st.builds(
    made,
    is_slow=st.booleans(),
    failures=st.integers(1, 4),
    ratio=st.none() | st.sampled_from([0.07, 0.25, 0.5, 1.0]),
    window=st.just(float(WINDOW)),
    calls=st.sampled_from([None, None, 1, 3, 8]),
    minimum=st.integers(1, 6),
    slow=st.sampled_from([3.0, 15.0]),
    slow_ratio=st.none() | st.sampled_from([0.25, 0.5, 1.0]),
    cooldown=st.sampled_from([0.0, 5.0, 10.0, *COOLDOWNS]),
    probes=st.integers(1, 4),
    probe_ratio=st.none() | st.sampled_from([0.25, 0.5, 0.67, 1.0]),
    reopening=st.sampled_from([None, None, (0.5,), (0.1, 0.5)]),
)


@dataclass
class ModelCall:
    """A call in flight, as the model sees it."""

    ticket: Ticket
    epoch: int
    started: int
    counted: bool = False  # as slow
    lost: bool = False
    closed: bool = False  # its result counts no more: it was counted as a failure


@dataclass
class Model:
    """A circuit that keeps everything, and counts it again each time."""

    terms: CircuitBreakerSettings
    state: str = "closed"
    epoch: int = 0
    stage: int = 0
    until: float = inf
    ends: list[tuple[int, bool]] = field(default_factory=list[tuple[int, bool]])  # of this epoch
    times: list[tuple[int, bool]] = field(default_factory=list[tuple[int, bool]])  # and which were slow
    reopened: int = 0
    exceeded: int = 0
    exceeded_until: float = -inf
    in_flight: list[ModelCall] = field(default_factory=list[ModelCall])
    rejected: int = 0
    opened: int = 0
    path: list[str] = field(default_factory=lambda: ["closed"])

    @property
    def slow(self) -> float:
        return inf if self.terms.slow is None else self.terms.slow

    @property
    def reopening(self) -> tuple[float, ...]:
        return self.terms.reopening or ()

    def cooldown_after(self, reopened: int) -> float:
        delays = COOLDOWNS.get(self.terms.cooldown)
        return self.terms.cooldown if delays is None else delays[min(reopened, len(delays) - 1)]  # type: ignore[return-value]  # pyright: ignore[reportReturnType]

    @property
    def lease(self) -> float:
        """The lease of a probe, of half open circuits only."""
        return max(self.cooldown_after(self.reopened), 1)

    @property
    def admits_all(self) -> bool:
        return self.state in ("closed", "disabled", "metrics_only")

    @property
    def inside(self) -> list[ModelCall]:
        """The calls in flight that occupy a slot of a probe."""
        return [
            call for call in self.in_flight if call.epoch == self.epoch and not (call.closed or call.lost)
        ]

    @property
    def may_be_slow(self) -> list[ModelCall]:
        return [call for call in self.inside if not call.counted]

    def change_to(self, state: str, until: float = inf, stage: int = 0) -> None:
        if state == "open":
            self.reopened = self.reopened + 1 if self.state == "half_open" else 0
        elif state != "half_open":
            self.reopened = 0
        if state != self.state:
            self.path.append(state)
            self.opened += state == "open"
        self.state, self.until, self.stage = state, until, stage
        self.epoch += 1
        self.ends, self.times = [], []
        self.exceeded, self.exceeded_until = 0, -inf
        if self.admits_all:
            self.rejected = 0

    def recent(self, ends: list[tuple[int, bool]]) -> list[bool]:
        """Return the calls in the window up to the last one: nothing expires while there are no calls."""
        if self.terms.calls is not None:
            return [bad for _, bad in ends[-self.terms.calls :]]
        return [bad for when, bad in ends if when > ends[-1][0] - WINDOW]

    def reached(self, ends: list[tuple[int, bool]], ratio: float | None, minimum: int) -> bool:
        if ratio is None or not ends:
            return False
        recent = self.recent(ends)
        share = Fraction(sum(recent), len(recent))
        return len(recent) >= min(minimum, self.terms.calls or minimum) and share >= Fraction(str(ratio))

    def threshold_reached(self, minimum: int) -> bool:
        if self.reached(self.times, self.terms.slow_ratio, minimum):
            return True
        if self.terms.ratio is None:
            row = [bad for _, bad in self.ends]
            return len(row) >= self.terms.failures and all(row[-self.terms.failures :])
        return self.reached(self.ends, self.terms.ratio, minimum)

    def record(self, bad: bool | None, slow: bool | None, now: int) -> None:
        if bad is not None:
            self.ends.append((now, bad))
        if slow is not None and self.terms.slow_ratio is not None:
            self.times.append((now, slow))
        if self.state == "half_open" and not self.stage:
            self.judge_probes(now)
        elif self.threshold_reached(self.terms.minimum):
            if self.state != "metrics_only":
                self.open(now)
            elif now >= self.exceeded_until:
                self.exceeded += 1
                self.exceeded_until = now + self.cooldown_after(0)

    def judge_probes(self, now: int) -> None:
        """Try every way in which the missing probes could end; change if all ways have one result."""
        probes = self.terms.probes
        left = probes - len(self.ends)
        failed, slow = (sum(bad for _, bad in ends) for ends in (self.ends, self.times))
        results = {self.opens(failed + more, slow + slower) for more in (0, left) for slower in (0, left)}
        if results == {True}:
            self.open(now)
        elif results == {False}:
            self.reopen(1, now)

    def opens(self, failed: int, slow: int) -> bool:
        probes, terms = self.terms.probes, self.terms
        if terms.slow_ratio is not None and Fraction(slow, probes) >= Fraction(str(terms.slow_ratio)):
            return True
        if terms.probe_ratio is None:
            return failed > 0
        return Fraction(failed, probes) >= Fraction(str(terms.probe_ratio))

    def open(self, now: int) -> None:
        self.change_to("open")
        self.until = now + self.cooldown_after(self.reopened)

    def reopen(self, stage: int, now: int) -> None:
        if stage > len(self.reopening):
            self.change_to("closed")
        else:
            self.change_to("half_open", now + self.lease, stage)

    def count_slow_calls(self, now: int) -> None:
        """Count the calls that have become slow."""
        epoch = self.epoch
        for call in self.may_be_slow if self.state != "disabled" else []:
            if now - call.started >= self.slow:
                call.counted = True
                call.closed = self.terms.slow_ratio is None
                if epoch == self.epoch:
                    self.record(True if call.closed else None, True, now)

    def admits(self, now: int, chance: float) -> bool:
        self.count_slow_calls(now)
        if self.state == "open" and now >= self.until:
            self.change_to("half_open")
        elif self.stage and now >= self.until and self.ends:
            failing = self.terms.ratio is None and self.ends[-1][1]
            if failing or self.threshold_reached(1):
                self.open(now)
            else:
                self.reopen(self.stage + 1, now)
        admitted = self.admits_all
        if self.state == "half_open":
            if self.inside and now - self.inside[0].started >= self.lease:
                self.inside[0].lost = True
            if self.stage:
                overdue = now >= self.until and not self.inside
                admitted = chance < self.reopening[self.stage - 1] or overdue
            else:
                admitted = len(self.ends) + len(self.inside) < self.terms.probes
        self.rejected += not admitted
        return admitted

    def ended(self, call: ModelCall, bad: bool | None, now: int) -> None:
        self.count_slow_calls(now)
        self.in_flight.remove(call)
        if call.epoch != self.epoch or call.closed or call.lost or bad is None or self.state == "disabled":
            return
        self.record(bad, None if call.counted else False, now)


class Circuits(RuleBasedStateMachine):
    """A circuit and its model, side by side."""

    @initialize(terms=SETTINGS)
    def begin(self, terms: CircuitBreakerSettings) -> None:
        self.now = 0
        self.chance = 0.0
        self.model = Model(terms)
        self.circuit = Circuit(replace(terms, random=self), 0)

    def random(self) -> float:
        """Return the chance of the last call."""
        return self.chance

    @rule(seconds=st.integers(0, 12) | st.integers(0, 2 * WINDOW))
    def wait(self, seconds: int) -> None:
        self.now += seconds

    @rule(chance=st.sampled_from([0.0, 0.3, 0.9]))
    def admit(self, chance: float) -> None:
        self.chance = chance
        expected = self.model.admits(self.now, chance)
        found = self.circuit.state(self.now)
        ticket = self.circuit.admit(self.now)
        assert isinstance(ticket, Rejection) != expected
        if self.model.slow == inf and self.model.state != "open":
            assert found == self.model.state  # as the next call would find it
        if not isinstance(ticket, Rejection):
            self.model.in_flight.append(ModelCall(ticket, self.model.epoch, self.now))

    @precondition(lambda self: self.model.in_flight)
    @rule(data=st.data(), bad=st.sampled_from([True, True, False, False, None]))
    def end(self, data: st.DataObject, bad: bool | None) -> None:
        call = data.draw(st.sampled_from(self.model.in_flight))
        stale = call.epoch != self.model.epoch or call.closed or call.lost
        before = self.circuit.epoch
        unseen = self.model.slow < inf and self.model.may_be_slow
        self.model.ended(call, bad, self.now)
        self.circuit.ended(call.ticket, bad, self.now)
        assert not stale or unseen or self.circuit.epoch is before  # a stale ticket moves nothing

    @rule(bad=st.booleans(), count=st.integers(2, 9))
    def storm(self, bad: bool, count: int) -> None:
        """Many calls end at once: at most one of them opens the circuit."""
        opened = self.model.opened
        for call in self.model.in_flight[:count]:
            self.model.ended(call, bad, self.now)
            self.circuit.ended(call.ticket, bad, self.now)
        assert self.model.opened <= opened + 1

    @rule(state=st.sampled_from(["isolated", "closed", "closed", "disabled", "metrics_only"]))
    def by_hand(self, state: Any) -> None:
        if state != self.model.state:
            self.model.change_to(state)
        self.circuit.change_to(self.now, state)

    @invariant()
    def they_agree(self) -> None:
        assert self.circuit.epoch.state == self.model.state
        assert self.circuit.epoch.stage == self.model.stage
        assert self.circuit.rejected == self.model.rejected
        assert self.circuit.reopened == self.model.reopened
        epoch = self.circuit.epoch
        assert epoch.exceeded == self.model.exceeded
        assert len(epoch.probes) <= len(self.model.inside)
        assert len(epoch.calls) <= len(self.model.may_be_slow)
        if self.model.state == "half_open" and not self.model.stage:
            assert len(epoch.probes) + epoch.probed <= self.model.terms.probes
            assert epoch.probed == len(self.model.ends)
        elif self.model.ends and self.model.admits_all and self.model.terms.ratio is not None:
            recent = self.model.recent(self.model.ends)
            assert (epoch.judged.calls, epoch.judged.bad) == (len(recent), sum(recent))
        if epoch.timed is not None and self.model.times and self.model.admits_all:
            recent = self.model.recent(self.model.times)
            assert (epoch.timed.calls, epoch.timed.bad) == (len(recent), sum(recent))

    @invariant()
    def changes_match_the_path(self) -> None:
        emitted_states = [change.what for change in self.circuit.changes if change.what not in OTHERS]
        assert ["closed", *emitted_states] == self.model.path
        assert all(change.lasted >= 0 for change in self.circuit.changes)

    def teardown(self) -> None:
        """Check that the circuit closes if other calls succeed, even if the calls in flight never end."""
        if not hasattr(self, "circuit") or self.circuit.epoch.state in MANUAL:
            return
        self.chance = 0.9
        terms = self.model.terms
        for _ in range(len(self.model.in_flight) + 2 * terms.probes + 3 * len(self.model.reopening) + 9):
            ticket = self.circuit.admit(self.now)
            if not isinstance(ticket, Rejection):
                self.circuit.ended(ticket, False, self.now)
            self.now += 16
        assert self.circuit.epoch.state == "closed"


TestCircuits = Circuits.TestCase
TestCircuits.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
