"""What a reload keeps: objects whose settings did not change, and the state of budgets and gates."""

from __future__ import annotations

from typing import Any

import pytest

from redouble import SYSTEM, Backoff, Bulkhead, Kind, Pipeline, Retry
from redouble.config._reload import load, policies, reload
from redouble.errors import CircuitOpen
from tests.support.fakes import Boom


def reloaded(document: dict[str, Any]) -> Any:
    """Reload a document, and return the configuration."""
    result = reload(document)
    assert result.ok, result.error
    return load(document)


def gates(**db: Any) -> dict[str, Any]:
    return {"gates": {"db": db}}


# --------------------------------------------------------------------------------- numbers


def test_a_budget_keeps_its_count_of_grants() -> None:
    def with_budget(per_second: float) -> dict[str, Any]:
        return {
            "budgets": {"shared": {"ratio": 0, "per_second": per_second}},
            "policies": {"payments": {"on": "Exception", "attempts": 2, "backoff": [0], "budget": "shared"}},
        }

    config = load(with_budget(1))
    payments = policies("payments")
    calls: list[int] = []

    @payments
    def fail() -> None:
        calls.append(1)
        raise Boom

    for _ in range(12):
        with pytest.raises(Boom):
            fail()
    assert len(calls) == 22, "ten were granted"
    policy = payments.current
    assert reload(with_budget(2)).changed == ("budgets.shared",)
    assert payments.current is policy
    for _ in range(12):
        with pytest.raises(Boom):
            fail()
    assert len(calls) == 44, "and ten more"
    assert config.budgets["shared"].snapshot()["available"] == 0


def test_a_bucket_keeps_its_tokens() -> None:
    config = load({"budgets": {"shared": {"type": "token_bucket", "capacity": 100}}})
    bucket = config.budgets["shared"]
    for _ in range(10):
        bucket.spend(Kind.unknown, 0.0)
    again = reloaded(
        {"budgets": {"shared": {"type": "token_bucket", "capacity": 60, "costs": {"others": 1}}}}
    )
    assert again.budgets["shared"] is bucket
    assert bucket.snapshot() == {"tokens": 50, "owed": 0, "capacity": 60}


def test_a_breaker_stays_open() -> None:
    config = load(gates(type="circuit_breaker", failures=1, cooldown="1h"))
    breaker: Any = config.gates["db"]
    with pytest.raises(Boom):
        breaker.call(fail)
    again = reloaded(gates(type="circuit_breaker", failures=3, cooldown="2h"))
    assert again.gates["db"] is breaker
    with pytest.raises(CircuitOpen) as raised:
        breaker.call(fail)
    assert 3600 < (raised.value.retry_after or 0) <= 7200


def test_a_reload_changes_the_forms_and_the_state_of_a_breaker() -> None:
    config = load(gates(type="circuit_breaker", cooldown=[5, "20s"], calls=10, ratio=0.5))
    breaker: Any = config.gates["db"]
    for state in ("metrics_only", "disabled", "isolated", "closed"):
        again = reloaded(
            gates(type="circuit_breaker", cooldown={"type": "constant", "delay": 7}, state=state)
        )
        assert again.gates["db"] is breaker
        assert breaker.state == state
        assert breaker.settings.cooldown == Backoff.constant(7)
    breaker.disable()
    reloaded(gates(type="circuit_breaker", cooldown="8s"))
    assert (breaker.state, breaker.settings.cooldown) == ("disabled", 8)  # what an operator did stays


def fail() -> None:
    raise Boom


def test_calls_in_flight_keep_their_slots() -> None:
    config = load(gates(type="bulkhead", limit=2, wait=0))
    gate: Any = config.gates["db"]
    tickets = [gate.admit(0.0), gate.admit(0.0)]
    again = reloaded(gates(type="bulkhead", limit=3, wait=0))
    assert again.gates["db"] is gate
    tickets.append(gate.admit(0.0))
    assert gate.snapshot() == {"limit": 3, "in_use": 3, "queued": 0}
    for ticket in tickets:
        gate.ended(ticket, None, 0.0)
    assert gate.snapshot()["in_use"] == 0


def test_permits_taken_before_a_reload_stay_taken() -> None:
    config = load(gates(type="rate_limit", rate=5, per="1h", burst=5))
    gate: Any = config.gates["db"]
    for _ in range(3):
        gate.admit(SYSTEM.now())
    again = reloaded(gates(type="rate_limit", rate=10, per="1h", burst=10))
    assert again.gates["db"] is gate
    assert gate.snapshot()["available"] == 7


# -------------------------------------------------------------------------------- identity


@pytest.mark.parametrize(
    ("section", "before", "after", "stays"),
    [
        *(
            ("gates", table, {**table, "name": "db"}, True)
            for table in (
                {"type": "throttle", "k": 3},
                {"type": "adaptive_rate", "least": 2},
                {"type": "adaptive_concurrency", "initial": 7},
                {"type": "bulkhead", "limit": 3},
            )
        ),
        ("gates", {"type": "throttle"}, {"type": "throttle", "k": 2}, True),  # the default
        ("gates", {"type": "throttle"}, {"type": "throttle", "k": 3}, True),
        ("gates", {"type": "bulkhead", "limit": 3}, {"type": "bulkhead", "limit": 3, "name": "x"}, False),
        ("gates", {"type": "adaptive_rate"}, {"type": "adaptive_rate", "least": 3}, True),
        ("gates", {"type": "throttle"}, {"type": "bulkhead", "limit": 3}, False),
        ("gates", {"type": "rate_limit", "rate": 1}, {"type": "rate_limit", "rate": 2}, True),
        # A decorated function reads ``following`` once, so another value makes another gate.
        (
            "gates",
            {"type": "rate_limit", "rate": 1},
            {"type": "rate_limit", "rate": 1, "following": True},
            False,
        ),
        ("budgets", {}, {"type": "retry_budget", "ratio": 0.5}, True),
        ("budgets", {}, {"credit": "success"}, True),
        ("budgets", {}, {"credit": "request"}, False),
        ("budgets", {}, {"type": "token_bucket"}, False),
        ("budgets", {"max_in_flight": 0.1}, {"max_in_flight": 0.2, "ratio": "unlimited"}, True),
        ("budgets", {}, {"max_in_flight": 0.2}, False),
    ],
)
def test_budgets_and_gates_are_kept_if_reconfigurable(
    section: str, before: dict[str, Any], after: dict[str, Any], stays: bool
) -> None:
    old = load({section: {"db": before}})
    new = reloaded({section: {"db": after}})
    assert (getattr(new, section)["db"] is getattr(old, section)["db"]) is stays


def test_a_view_of_a_budget_stays_as_long_as_its_budget() -> None:
    def with_view(**shared: Any) -> dict[str, Any]:
        return {"budgets": {"b": shared}, "policies": {"a": {"budget": {"without_credit": "b"}}}}

    def view(config: Any) -> object:
        return config.budgets["b"].without_credit()

    old = load(with_view(ratio=0.1))
    assert old.policies["a"].budget == view(old)
    kept = reloaded(with_view(ratio=0.2))
    assert kept.policies["a"] is old.policies["a"]
    assert kept.budgets["b"].snapshot() == old.budgets["b"].snapshot()
    other = reloaded(with_view(credit="request"))
    assert other.policies["a"].budget == view(other) != old.policies["a"].budget


def test_a_gate_with_another_name_is_a_new_one() -> None:
    old = load({"gates": {"a": {"type": "bulkhead", "limit": 1}}})
    new = reloaded({"gates": {"b": {"type": "bulkhead", "limit": 1}}})
    assert set(new.gates) == {"b"}
    assert new.gates["b"] is not old.gates["a"]
    again = reloaded({"gates": {"a": {"type": "bulkhead", "limit": 1}}})
    assert again.gates["a"] is not old.gates["a"], "the configuration in between did not have it"


WHOLE: dict[str, Any] = {
    "defaults": {"give_up_after": "20s"},
    "budgets": {"shared": {"ratio": 0.5}},
    "gates": {"db": {"type": "throttle"}, "door": {"type": "bulkhead", "limit": 3}},
    "policies": {
        "payments": {"budget": "shared", "backoff": {"type": "constant", "delay": 1}, "on": ["OSError"]},
        "orders": {"budget": {"ratio": 0.1}, "hints": {"longest": "3s"}, "worker": {}},
    },
    "pipelines": {
        "checkout": {"layers": ["gates.db", "policies.payments", {"type": "timeout", "seconds": 2}]},
        "other": {"layers": ["gates.door", {"type": "adaptive_concurrency"}, "policies.orders"]},
    },
}


def changed(*path: str, to: object) -> dict[str, Any]:
    """Return `WHOLE` with another value at a path."""
    whole: dict[str, Any] = {key: dict(table) for key, table in WHOLE.items()}
    table: dict[str, Any] = whole
    for key in path[:-1]:
        table[key] = table = dict(table[key])
    table[path[-1]] = to
    return whole


@pytest.mark.parametrize(
    ("document", "others"),
    [
        (WHOLE, ""),
        (changed("budgets", "shared", "ratio", to=0.7), ""),
        (changed("gates", "door", "limit", to=7), ""),
        (changed("budgets", "more", to={}), ""),
        (changed("defaults", "give_up_after", to=20), ""),
        (changed("defaults", "wrap", to=False), ""),
        (changed("policies", "payments", "attempts", to=7), "payments checkout"),
        (changed("policies", "payments", "backoff", "delay", to=2), "payments checkout"),
        (changed("policies", "payments", "on", to="OSError"), "payments checkout"),
        (changed("policies", "orders", "budget", "ratio", to=0.2), "orders other"),
        (changed("policies", "orders", "hints", "longest", to="4s"), "orders other"),
        (changed("budgets", "shared", "credit", to="request"), "payments checkout"),
        (changed("budgets", "shared", to={"type": "token_bucket"}), "payments checkout"),
        (changed("gates", "db", "k", to=3), ""),
        (changed("pipelines", "other", "layers", to=["gates.door", "policies.orders"]), "other"),
        (changed("pipelines", "checkout", "layers", to=[]), "checkout"),
        (changed("defaults", "give_up_after", to="9s"), "payments orders checkout other"),
    ],
)
def test_only_changed_policies_and_pipelines_are_replaced(document: dict[str, Any], others: str) -> None:
    """The unchanged ones stay, with their shared and inline budgets and gates."""
    old = load(WHOLE)
    standing = [policies(name) for name in (*old.policies, *old.pipelines)]
    before = [named.current for named in standing]
    new = reloaded(document)
    moved = {named._name for named, was in zip(standing, before, strict=True) if named.current is not was}
    assert moved == set(others.split())
    assert all(named.current is new.named(named._name) for named in standing)
    own = {id(policy) for policy in new.policies.values()}
    inside = {id(layer) for one in new.pipelines.values() for layer in one.layers if isinstance(layer, Retry)}
    assert inside <= own, "a pipeline has the very policy that it refers to"


def test_added_and_removed_names_are_reported_as_changed() -> None:
    load(WHOLE)
    document: dict[str, Any] = {"pipelines": {"late": {"layers": []}}}
    assert set(reload(document).changed) == {
        *("budgets.shared", "gates.db", "gates.door", "pipelines.checkout", "pipelines.late"),
        *("pipelines.other", "policies.orders", "policies.payments"),
    }
    assert policies("late").current == Pipeline()


def test_a_gate_taken_from_the_configuration_gets_the_new_values() -> None:
    """It is the same object, so a function that it decorates gets them too."""
    gate: Any = load(gates(type="bulkhead", limit=1, wait=0)).gates["db"]
    assert isinstance(gate, Bulkhead)

    @gate
    def deep(levels: int) -> int:
        return levels if levels == 1 else deep(levels - 1)

    reload(gates(type="bulkhead", limit=3, wait=0))
    assert deep(3) == 1
