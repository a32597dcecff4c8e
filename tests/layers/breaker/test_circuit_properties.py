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

from redouble import CircuitBreaker
from redouble._internal.sliding_counter import SLICES
from redouble._layers.breaker.circuit import Circuit, Rejection, Ticket
from redouble._layers.breaker.settings import CircuitBreakerSettings

pytestmark = pytest.mark.one_python

# Times are whole seconds, and a slice of the window is one second: so the model can be exact.
WINDOW = SLICES


def made(**options: Any) -> CircuitBreakerSettings:
    return CircuitBreaker(**options).settings


SETTINGS = st.builds(
    made,
    failures=st.integers(1, 4),
    ratio=st.none() | st.sampled_from([0.07, 0.25, 0.5, 1.0]),
    window=st.just(float(WINDOW)),
    minimum=st.integers(1, 6),
    slow=st.sampled_from([None, None, 3.0, 15.0]),
    cooldown=st.sampled_from([0.0, 5.0, 10.0]),
    probes=st.integers(1, 3),
    reopening=st.sampled_from([None, None, (0.5,), (0.1, 0.5)]),
)


@dataclass
class ModelCall:
    """A call in flight, as the model sees it."""

    ticket: Ticket
    epoch: int
    started: int
    counted: bool = False
    lost: bool = False


@dataclass
class Model:
    """A circuit that keeps everything, and counts it again each time."""

    terms: CircuitBreakerSettings
    state: str = "closed"
    epoch: int = 0
    stage: int = 0
    until: float = inf
    ends: list[tuple[int, bool]] = field(default_factory=list[tuple[int, bool]])  # of this epoch
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

    @property
    def lease(self) -> float:
        return max(self.terms.cooldown, 1)

    @property
    def inside(self) -> list[ModelCall]:
        return [
            call for call in self.in_flight if call.epoch == self.epoch and not (call.counted or call.lost)
        ]

    def change_to(self, state: str, until: float = inf, stage: int = 0) -> None:
        if state != self.state:
            self.path.append(state)
            self.opened += state == "open"
        self.state, self.until, self.stage = state, until, stage
        self.epoch += 1
        self.ends = []
        if state == "closed":
            self.rejected = 0

    def threshold_reached(self, minimum: int) -> bool:
        """Compare the counts up to the last call: nothing expires while there are no calls."""
        if self.terms.ratio is None:
            row = [bad for _, bad in self.ends]
            return len(row) >= self.terms.failures and all(row[-self.terms.failures :])
        last = self.ends[-1][0]
        recent = [bad for when, bad in self.ends if when > last - WINDOW]
        share = Fraction(sum(recent), len(recent))
        return len(recent) >= minimum and share >= Fraction(str(self.terms.ratio))

    def record(self, bad: bool, now: int) -> None:
        self.ends.append((now, bad))
        if self.state == "half_open" and not self.stage:
            if bad:
                self.open(now)
            elif len(self.ends) == self.terms.probes:
                self.reopen(1, now)
        elif self.threshold_reached(self.terms.minimum):
            self.open(now)

    def open(self, now: int) -> None:
        self.change_to("open", now + self.terms.cooldown)

    def reopen(self, stage: int, now: int) -> None:
        if stage > len(self.reopening):
            self.change_to("closed")
        else:
            self.change_to("half_open", now + self.lease, stage)

    def count_slow_calls(self, now: int) -> None:
        """Count the calls that have become slow."""
        for call in self.inside:
            if now - call.started >= self.slow:
                call.counted = True
                if call.epoch == self.epoch:
                    self.record(True, now)

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
        admitted = self.state == "closed"
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
        if call.epoch != self.epoch or call.counted or call.lost or bad is None:
            return
        self.record(bad, now)


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
        stale = call.epoch != self.model.epoch or call.counted or call.lost
        before = self.circuit.epoch
        unseen = self.model.slow < inf and self.model.inside
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

    @rule(state=st.sampled_from(["isolated", "closed"]))
    def by_hand(self, state: Any) -> None:
        if state != self.model.state:
            self.model.change_to(state)
            self.circuit.change_state(self.now, state)

    @invariant()
    def they_agree(self) -> None:
        assert self.circuit.epoch.state == self.model.state
        assert self.circuit.epoch.stage == self.model.stage
        assert self.circuit.rejected == self.model.rejected
        assert len(self.circuit.epoch.calls) <= len(self.model.inside)
        if self.model.state == "half_open" and not self.model.stage:
            assert (
                len(self.circuit.epoch.calls) + self.circuit.epoch.successful_probes
                <= self.model.terms.probes
            )

    @invariant()
    def changes_match_the_path(self) -> None:
        emitted_states = [change.what for change in self.circuit.changes if change.what != "rejected"]
        assert ["closed", *emitted_states] == self.model.path
        assert all(change.lasted >= 0 for change in self.circuit.changes)

    def teardown(self) -> None:
        """Check that the circuit closes if other calls succeed, even if the calls in flight never end."""
        if not hasattr(self, "circuit") or self.circuit.epoch.state == "isolated":
            return
        self.chance = 0.9
        terms = self.model.terms
        for _ in range(len(self.model.in_flight) + 2 * terms.probes + 3 * len(self.model.reopening) + 9):
            ticket = self.circuit.admit(self.now)
            if not isinstance(ticket, Rejection):
                self.circuit.ended(ticket, False, self.now)
            self.now += int(self.model.lease)
        assert self.circuit.epoch.state == "closed"


TestCircuits = Circuits.TestCase
TestCircuits.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
