"""qubit-retry 0.9: its settings by name, inheritance, and errors with their keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from redouble import Backoff, Retry, Worker
from redouble.config import from_qubit
from redouble.errors import AttemptTimeout, ConfigError
from redouble.testing import virtual_time
from tests.conformance.observables import asserts

EXPONENTIAL = Backoff.exponential(1).maximum(60)


def policy_for_timeouts(policy: Retry) -> str:
    """Return the verdict on an attempt that exceeded its limit."""

    def late() -> None:
        raise AttemptTimeout("late")

    with virtual_time():
        said = replace(policy, attempt_timeout=None, work_timeout=None, timeout=None).run(late).report
    return "abort" if said.attempts == 1 else "retry"


def millis(seconds: Any) -> float | None:
    return None if seconds is None else round(seconds * 1000, 9)


def words(policy: Retry) -> dict[str, object]:
    """Return the options of a policy by the keys of the facts; the delays are drawn from the backoff."""
    return {
        "max_attempts": policy.attempts,
        "max_operation_elapsed": millis(policy.work_timeout),
        "max_total_elapsed": millis(policy.timeout),
        "delay": policy.backoff,
        "attempt_timeout": millis(policy.attempt_timeout),
        "timeout_policy": policy_for_timeouts(policy),
        "worker_cancel_grace": millis((policy.worker or Worker()).grace),
    }


ALL = {
    "max_attempts": 4,
    "max_operation_elapsed_millis": 250,
    "max_total_elapsed_millis": 500,
    "delay": "fixed",
    "fixed_delay_millis": 15,
    "jitter_factor": 0.25,
    "attempt_timeout_millis": 30,
    "attempt_timeout_policy": "abort",
    "worker_cancel_grace_millis": 25,
}
ELAPSED = {"max_operation_elapsed_millis": 42000, "max_total_elapsed_millis": 84000}
ABORTING = {"attempt_timeout_millis": 1000, "attempt_timeout_policy": "abort"}


@asserts("Q-V06", "default_timeout_policy", "policy_texts")
@pytest.mark.parametrize(
    ("values", "defaults", "expected"),
    [
        pytest.param(
            ALL,
            {},
            {
                "max_attempts": 4,
                "max_operation_elapsed": 250,
                "max_total_elapsed": 500,
                "delay": Backoff.constant(0.015).jitter(0.25),
                "attempt_timeout": 30,
                "timeout_policy": "abort",
                "worker_cancel_grace": 25,
            },
            id="Q-C01",
        ),
        pytest.param({"fixed_delay_millis": 6}, {}, {"delay": Backoff.constant(0.006)}, id="Q-C03.fixed"),
        pytest.param(
            {"random_max_delay_millis": 12000}, {}, {"delay": Backoff.random(1, 12)}, id="Q-C03.random"
        ),
        pytest.param(
            {"exponential_multiplier": 4.0},
            {},
            {"delay": Backoff.exponential(1, 4).maximum(60)},
            id="Q-C03.exponential",
        ),
        pytest.param(
            {"fixed_delay_millis": 6, "random_min_delay_millis": 1, "exponential_multiplier": 4.0},
            {},
            {"delay": Backoff.constant(0.006)},
            id="Q-C03.first",
        ),
        pytest.param(
            {"max_operation_elapsed_millis": 0}, {}, {"max_operation_elapsed": 0}, id="Q-C06.operation-zero"
        ),
        pytest.param(
            {"max_operation_elapsed_millis": 0, "max_operation_elapsed_unlimited": True},
            {},
            {"max_operation_elapsed": None},
            id="Q-C06.operation-unlimited",
        ),
        pytest.param({"max_total_elapsed_millis": 0}, {}, {"max_total_elapsed": 0}, id="Q-C06.total-zero"),
        pytest.param(
            {"max_total_elapsed_millis": 0, "max_total_elapsed_unlimited": True},
            {},
            {"max_total_elapsed": None},
            id="Q-C06.total-unlimited",
        ),
        pytest.param(
            {}, ELAPSED, {"max_operation_elapsed": 42000, "max_total_elapsed": 84000}, id="Q-C06.inherited"
        ),
        pytest.param(
            {"max_total_elapsed_millis": 0},
            ELAPSED,
            {"max_operation_elapsed": 42000, "max_total_elapsed": 0},
            id="Q-C06.one-inherited",
        ),
        pytest.param(
            {"max_operation_elapsed_unlimited": True},
            {"max_operation_elapsed_millis": 42000},
            {"max_operation_elapsed": None},
            id="Q-C06.unlimited-beats-inherited",
        ),
        pytest.param(
            {"attempt_timeout_millis": 50},
            ABORTING,
            {"attempt_timeout": 50, "timeout_policy": "abort"},
            id="Q-C07.policy-inherited",
        ),
        pytest.param(
            {"attempt_timeout_policy": "retry"},
            ABORTING,
            {"attempt_timeout": 1000, "timeout_policy": "retry"},
            id="Q-C07.limit-inherited",
        ),
        pytest.param(
            {"attempt_timeout_millis": 50},
            {},
            {"attempt_timeout": 50, "timeout_policy": "retry"},
            id="Q-C07.limit-alone",
        ),
        pytest.param({"worker_cancel_grace_millis": 25}, {}, {"worker_cancel_grace": 25}, id="Q-C07.grace"),
        pytest.param({}, {}, {"worker_cancel_grace": 100}, id="Q-C07.usual-grace"),
        pytest.param(
            {},
            {},
            {
                "max_attempts": 5,
                "max_operation_elapsed": None,
                "max_total_elapsed": None,
                "delay": EXPONENTIAL,
                "attempt_timeout": None,
                "worker_cancel_grace": 100,
            },
            id="Q-D04.settings",
        ),
        pytest.param(
            {"attempt_timeout_millis": 50, "attempt_timeout_policy": " retry "},
            {},
            {"timeout_policy": "retry"},
            id="Q-T04.spaces",
        ),
        pytest.param(
            {"attempt_timeout_millis": 50, "attempt_timeout_policy": "ABORT"},
            {},
            {"timeout_policy": "abort"},
            id="Q-T04.capitals",
        ),
    ],
)
def test_given_inherited_and_default_settings(
    values: Mapping[str, object], defaults: Mapping[str, object], expected: dict[str, object]
) -> None:
    """Of a policy."""
    made = from_qubit(values, defaults=from_qubit(defaults))
    found = words(made)
    assert {word: found[word] for word in expected} == expected
    assert made.give_up_after is None


REFUSED: list[Any] = [
    pytest.param({"delay": "linear"}, "delay", ["unsupported", "linear"], id="Q-C05.delay"),
    pytest.param(
        {"delay_strategy": "linear"}, "delay_strategy", ["unsupported", "linear"], id="Q-C05.strategy"
    ),
    pytest.param({"delay": "fixed(12ms)"}, "delay", ["unsupported", "fixed(12ms)"], id="Q-C05.text"),
    pytest.param({"attempt_timeout_policy": "abort"}, "attempt_timeout_policy", [], id="Q-C07.no-limit"),
    pytest.param(
        {"attempt_timeout_policy": "invalid-policy"}, "attempt_timeout_policy", [], id="Q-C07.unknown"
    ),
    pytest.param({"attempt_timeout_millis": 0}, "attempt_timeout_millis", [], id="Q-C07.zero"),
    pytest.param(
        {"attempt_timeout_millis": 50, "attempt_timeout_policy": "stop"},
        "attempt_timeout_policy",
        ["stop"],
        id="Q-T04.stop",
    ),
    *(
        pytest.param({**more, key: value}, key, [repr(value)], id=f"Q-C09.{key}")
        for key, value, more in [
            ("max_attempts", "not-a-number", {}),
            ("max_operation_elapsed_millis", "bad", {}),
            ("max_operation_elapsed_unlimited", "bad", {}),
            ("max_total_elapsed_millis", "bad", {}),
            ("max_total_elapsed_unlimited", "bad", {}),
            ("delay", 123, {}),
            ("delay_strategy", 123, {}),
            ("fixed_delay_millis", "bad", {"delay": "fixed"}),
            ("random_min_delay_millis", "bad", {"delay": "random"}),
            ("random_max_delay_millis", "bad", {"delay": "random"}),
            ("exponential_initial_delay_millis", "bad", {"delay": "exponential"}),
            ("exponential_max_delay_millis", "bad", {"delay": "exponential"}),
            ("exponential_multiplier", "bad", {"delay": "exponential"}),
            ("jitter_factor", "bad", {}),
            ("attempt_timeout_millis", "bad", {}),
            ("attempt_timeout_policy", 123, {}),
            ("worker_cancel_grace_millis", "bad", {}),
        ]
    ),
]


@pytest.mark.parametrize(("values", "path", "mentions"), REFUSED)
def test_invalid_settings_are_rejected(values: Mapping[str, object], path: str, mentions: list[str]) -> None:
    """The error has the key, with the given prefix."""
    with pytest.raises(ConfigError) as told:
        from_qubit(values)
    assert told.value.path == path
    assert [word for word in mentions if word not in str(told.value)] == []
    with pytest.raises(ConfigError) as told:
        from_qubit({f"retry.{key}": value for key, value in values.items()}, prefix="retry.")
    assert told.value.path == f"retry.{path}"
    assert str(told.value).startswith(f"retry.{path}: ")  # Q-V07
