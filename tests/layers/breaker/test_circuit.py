"""The state machine of a circuit breaker: tickets, what is recorded, and the changes to publish."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from redouble import CircuitBreaker
from redouble._layers.breaker.circuit import Circuit
from redouble._layers.breaker.state_epoch import Rejection, StateChange, StateEpoch, TrackedCall
from tests.support.fakes import Draws

DEFAULTS: dict[str, Any] = {
    "failures": 2,
    "ratio": None,
    "window": 100,
    "minimum": 2,
    "slow": None,
    "cooldown": 10,
    "probes": 1,
    "reopening": None,
}


def circuit(*draws: float, now: float = 0, **options: Any) -> Circuit:
    chance = Draws(*(draws or (0.0,)))
    return Circuit(CircuitBreaker(**DEFAULTS | options, random=chance).settings, now)


def ticket(circuit: Circuit, now: float) -> StateEpoch | TrackedCall:
    found = circuit.admit(now)
    assert not isinstance(found, Rejection)
    return found


def opened(**options: Any) -> Circuit:
    """Return a circuit that opened at 0."""
    made = circuit(**options)
    for _ in range(2):
        made.ended(ticket(made, 0), True, 0)
    made.changes.clear()
    return made


def test_all_calls_of_a_closed_circuit_have_the_same_ticket() -> None:
    """No object is created for a call whose duration does not matter."""
    found = circuit()
    assert found.admit(1) is found.admit(2) is found.epoch
    assert not found.epoch.calls


@pytest.mark.parametrize("options", [{"slow": 5}, {"slow": 5, "ratio": 0.5}])
def test_each_call_has_its_own_ticket_if_slow_calls_count(options: dict[str, Any]) -> None:
    found = circuit(**options)
    first, second = ticket(found, 1), ticket(found, 2)
    assert list(found.epoch.calls) == [first, second]
    found.ended(first, None, 3)
    assert list(found.epoch.calls) == [second]
    found.ended(second, False, 3)
    assert not found.epoch.calls


@pytest.mark.parametrize(
    ("options", "before", "after_one", "after_good"),
    [({}, 0, 1, 0), ({"ratio": 0.5, "minimum": 9}, 1, 1, 1)],
)
def test_the_failure_streak_is_zero_if_a_success_need_not_be_recorded(
    options: dict[str, Any], before: int, after_one: int, after_good: int
) -> None:
    """It must be recorded after a failure, and always if there is a ratio of all calls."""
    found = circuit(**options)
    epoch = ticket(found, 0)
    seen = [epoch.failure_streak]
    for bad in (True, False):
        found.ended(epoch, bad, 0)
        seen.append(epoch.failure_streak)
    assert seen == [before, after_one, after_good]


def test_the_success_of_a_tracked_call_is_always_recorded() -> None:
    assert ticket(circuit(slow=1), 0).failure_streak
    assert ticket(opened(), 10).failure_streak


def test_the_changes_to_publish() -> None:
    found = circuit(now=3)
    for _ in range(2):
        found.ended(ticket(found, 4), True, 5)
    rejections = [found.admit(now) for now in (6, 7)]
    assert rejections == [(None, "open", 9, ""), (None, "open", 8, "")]
    probe = ticket(found, 15)
    assert found.admit(16) == (None, "half_open", None, "")
    found.ended(probe, False, 17)
    assert list(found.changes) == [
        StateChange("open", "open", 2, 0, 10),
        StateChange("rejected", "open", 1, 1, 9),
        StateChange("half_open", "half_open", 10, 2),
        StateChange("closed", "closed", 2, 3),
    ]
    assert found.rejected == 0


def test_reading_the_state_changes_nothing() -> None:
    found = opened()
    assert [found.state(now) for now in (0, 9, 10, 1000)] == ["open", "open", "half_open", "half_open"]
    assert found.epoch.state == "open"
    assert not found.changes
    assert [found.retry_after(now) for now in (0, 9, 10, 1000)] == [10, 1, 0, 0]
    ticket(found, 1000)
    assert found.epoch.state == found.state(1000) == "half_open"
    assert found.retry_after(1000) is None


@pytest.mark.parametrize("state", ["closed", "half_open", "isolated"])
def test_only_an_open_circuit_has_a_retry_after(state: Any) -> None:
    found = circuit()
    found.change_state(5, state)
    assert found.retry_after(6) is None


@pytest.mark.parametrize("bad", [True, False, None])
def test_a_ticket_counts_once(bad: bool | None) -> None:
    """The end of a call that was counted as slow, or lost, is ignored."""
    found = circuit(slow=5, failures=9)
    slow = ticket(found, 0)
    other = ticket(found, 5)
    assert found.counts(5) == (1, 1)
    found.ended(slow, bad, 6)
    assert found.counts(6) == (1, 1)
    found.ended(other, False, 6)
    assert found.counts(6) == (0, 0)

    half = opened()
    lost = ticket(half, 10)
    probe = ticket(half, 20)
    half.ended(lost, bad, 21)
    assert half.epoch.state == "half_open"
    assert list(half.epoch.probes) == [probe]


def test_a_circuit_in_use_keeps_only_the_current_epoch() -> None:
    """However many epochs there were, only the current one is kept."""
    found = circuit(failures=1, cooldown=0, slow=1)
    for now in range(0, 3000, 3):
        found.ended(ticket(found, now), True, now)  # opens
        found.ended(ticket(found, now), False, now)  # closes
        assert not found.epoch.calls
        found.changes.clear()
    assert found.epoch.since == 2997
    assert found.epoch.until == inf


def test_counts_of_a_ratio() -> None:
    found = circuit(ratio=0.9, minimum=50)
    for now, bad in [(0, True), (1, False), (2, True), (2, None), (50, False)]:
        found.ended(ticket(found, now), bad, now)
    assert found.counts(50) == (4, 2)
    assert found.counts(120) == (1, 0)
    assert found.counts(10_000) == (0, 0)
