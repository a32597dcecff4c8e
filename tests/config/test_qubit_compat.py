"""The keys of qubit-retry: delay strategies, inherited values, prefixes and unknown keys."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from typing import Any

import pytest

from redouble import Backoff, Kind, Retry, Worker
from redouble.config import from_mapping, from_qubit, to_mapping
from redouble.config._options.error_names import STOP_ON_TIMEOUT, STOP_ON_WORKER_FAILURE
from redouble.errors import AttemptTimeout, ConfigError, WorkerFailed

EXPONENTIAL = {
    "exponential_initial_delay_millis": 200,
    "exponential_max_delay_millis": 5000,
    "exponential_multiplier": 3,
}
RANDOM = {"random_min_delay_millis": 5, "random_max_delay_millis": 8}


@pytest.mark.parametrize(
    ("values", "backoff"),
    [
        ({"delay": "none"}, Backoff.constant(0)),
        ({"delay": "none", "fixed_delay_millis": 5}, Backoff.constant(0)),
        ({"delay": " Fixed ", "fixed_delay_millis": 5}, Backoff.constant(0.005)),
        ({"delay": "random", **RANDOM}, Backoff.random(0.005, 0.008)),
        ({"delay": "exponential", **EXPONENTIAL}, Backoff.exponential(0.2, 3).maximum(5)),
        ({"delay": "EXPONENTIAL_BACKOFF", **EXPONENTIAL}, Backoff.exponential(0.2, 3).maximum(5)),
        ({"delay_strategy": "random", **RANDOM, **EXPONENTIAL}, Backoff.random(0.005, 0.008)),
        ({"delay": "none", "delay_strategy": "random", **RANDOM}, Backoff.constant(0)),
        ({"random_min_delay_millis": 5}, Backoff.random(0.005, 10)),
        ({"delay": "random", **RANDOM, "random_min_delay_millis": 8}, Backoff.random(0.008, 0.008)),
        ({"fixed_delay_millis": 2**64 - 1}, Backoff.constant((2**64 - 1) / 1000)),
        ({"delay": "random", **RANDOM, "jitter_factor": 0.2}, Backoff.random(0.005, 0.008).jitter(0.2)),
        ({"delay": "random", **RANDOM, "jitter_factor": 0}, Backoff.random(0.005, 0.008)),
        ({"jitter_factor": 0.2}, Backoff.exponential(1).maximum(60).jitter(0.2)),
        ({}, Backoff.exponential(1).maximum(60)),
    ],
)
def test_delay_keys_become_a_backoff(values: dict[str, Any], backoff: Backoff) -> None:
    assert from_qubit(values).backoff == backoff


@pytest.mark.parametrize(
    ("inherited", "values", "backoff"),
    [
        (Backoff.constant(1).jitter(0.5), {"fixed_delay_millis": 5}, Backoff.constant(0.005).jitter(0.5)),
        (Backoff.constant(1).jitter(0.5), {"jitter_factor": 0.2}, Backoff.constant(1).jitter(0.2)),
        (Backoff.constant(1).jitter(0.5), {"jitter_factor": 0}, Backoff.constant(1)),
        (Backoff.constant(1), {"jitter_factor": 0.2}, Backoff.constant(1).jitter(0.2)),
        (
            Backoff.constant(1).full_jitter(),
            {"jitter_factor": 0.2},
            Backoff.constant(1).full_jitter().jitter(0.2),
        ),
        (Backoff.constant(1).full_jitter(), {"fixed_delay_millis": 5}, Backoff.constant(0.005)),
        ([1, 2], {"jitter_factor": 0.2}, Backoff.of([1, 2]).jitter(0.2)),
        ([1, 2], {"fixed_delay_millis": 5}, Backoff.constant(0.005)),
        ({None: [1]}, {"fixed_delay_millis": 5}, Backoff.constant(0.005)),
        (Backoff.constant(7), {"max_attempts": 2}, Backoff.constant(7)),
    ],
)
def test_delay_keys_change_the_default_backoff(
    inherited: Any, values: dict[str, Any], backoff: Backoff
) -> None:
    assert from_qubit(values, defaults=Retry(backoff=inherited)).backoff == backoff


def test_jitter_cannot_be_added_to_a_backoff_by_kind() -> None:
    by_kind = Retry(backoff={Kind.throttled: [1], None: [2]})
    with pytest.raises(ConfigError, match="differs by kind of failure: set a delay too") as raised:
        from_qubit({"jitter_factor": 0.5}, defaults=by_kind)
    assert raised.value.path == "jitter_factor"


@pytest.mark.parametrize(
    ("values", "path", "message"),
    [
        ({"delay": "fixed"}, "fixed_delay_millis", "missing: delay = 'fixed' needs it"),
        ({"delay_strategy": "random"}, "random_min_delay_millis", "missing: delay_strategy = 'random'"),
        (
            {
                "delay": "exponential",
                "exponential_initial_delay_millis": 5,
                "exponential_max_delay_millis": 5,
            },
            "exponential_multiplier",
            "missing",
        ),
        ({"delay": "random", "random_min_delay_millis": 5}, "random_max_delay_millis", "missing"),
        ({"random_min_delay_millis": 20000}, "random_max_delay_millis", "10000 is below random_min_delay"),
        (
            {**EXPONENTIAL, "exponential_max_delay_millis": 100},
            "exponential_max_delay_millis",
            "100 is below exponential_initial_delay_millis, which is 200",
        ),
        (
            {"random_min_delay_millis": 123456789, "random_max_delay_millis": 123456788},
            "random_max_delay_millis",
            "123456788 is below random_min_delay_millis, which is 123456789",
        ),
        (
            {"random_min_delay_millis": 2**53 + 3, "random_max_delay_millis": 2**53 + 2},
            "random_max_delay_millis",
            "9007199254740994 is below random_min_delay_millis, which is 9007199254740995",
        ),
        ({"fixed_delay_millis": 0}, "fixed_delay_millis", "0: write milliseconds"),
        ({"exponential_multiplier": 0.5}, "exponential_multiplier", "write a number, 1 or more"),
        ({"jitter_factor": 1.1}, "jitter_factor", "write a number, from 0 to 1"),
        ({"max_attempts": 0}, "max_attempts", "0: write a whole number, 1 or more"),
        ({"max_attempts": True}, "max_attempts", "True: write a whole number"),
        ({"max_total_elapsed_millis": 1.5}, "max_total_elapsed_millis", "1.5: write milliseconds"),
        ({"max_total_elapsed_millis": -1}, "max_total_elapsed_millis", "-1: write milliseconds"),
        ({"max_total_elapsed_millis": 2**64}, "max_total_elapsed_millis", "write milliseconds"),
        ({"max_attempt": 5}, "max_attempt", r"no such key \(its value: 5\); did you mean 'max_attempts'"),
        ({"attempts": 5}, "attempts", "did you mean 'max_attempts'"),
        ({"delay": "exponental"}, "delay", "did you mean 'exponential'"),
    ],
)
def test_a_mistake_raises_with_its_key(values: dict[str, Any], path: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as raised:
        from_qubit(values)
    assert raised.value.path == path


def test_only_keys_with_the_prefix_are_read() -> None:
    values = {"retry.max_attempts": 7, "other.max_attempts": "x", "max_attempts": 2, "http.retry.x": 5}
    assert from_qubit(values, prefix="retry.").attempts == 7
    assert from_qubit({"retry_max_attempts": 7}, prefix="retry_").attempts == 7
    with pytest.raises(ConfigError, match=r"^retry\.max_attempt: there is no such key"):
        from_qubit({"retry.max_attempt": 7}, prefix="retry.")


def test_limits_are_read_and_abort_needs_one() -> None:
    values: dict[str, Any] = {"max_total_elapsed_millis": 500, "max_operation_elapsed_unlimited": True}
    made = from_qubit(values, defaults=Retry(work_timeout=5))
    assert (made.timeout, made.work_timeout) == (0.5, None)
    with pytest.raises(ConfigError, match="'abort' needs a limit of the attempts: set"):
        from_qubit({"attempt_timeout_policy": "abort"})


def test_missing_keys_are_inherited() -> None:
    usual = Retry(on=OSError, attempts=9, worker=Worker("process"), name="a", labels={"b": "c"}, wrap=True)
    assert from_qubit({}, defaults=usual) == usual
    changed = from_qubit({"worker_cancel_grace_millis": 5, "max_attempts": 2}, defaults=usual)
    assert changed.worker == Worker("process", grace=0.005)
    assert (changed.attempts, changed.on, changed.name, changed.wrap) == (2, OSError, "a", True)


def test_abort_stops_at_timeouts() -> None:
    values: dict[str, Any] = {"attempt_timeout_millis": 5}
    assert from_qubit(values).on == (STOP_ON_WORKER_FAILURE, Exception)
    aborting = from_qubit({**values, "attempt_timeout_policy": "abort"})
    assert aborting.on == (STOP_ON_TIMEOUT, STOP_ON_WORKER_FAILURE, Exception)
    again = from_qubit({"attempt_timeout_policy": "abort"}, defaults=aborting)
    assert again == aborting
    retrying = from_qubit({"attempt_timeout_policy": "retry"}, defaults=aborting)
    assert retrying.on == from_qubit(values).on
    own = from_qubit({**values, "attempt_timeout_policy": "abort"}, defaults=Retry(on=OSError))
    assert own.on == (STOP_ON_TIMEOUT, OSError)


@pytest.mark.parametrize(
    ("values", "attempts"),
    [
        pytest.param({}, {OSError: 5, AttemptTimeout: 5, WorkerFailed: 1}, id="defaults"),
        pytest.param(
            {"attempt_timeout_millis": 5, "attempt_timeout_policy": "retry"},
            {OSError: 5, AttemptTimeout: 5, WorkerFailed: 1},
            id="retry",
        ),
        pytest.param(
            {"attempt_timeout_millis": 5, "attempt_timeout_policy": "abort"},
            {OSError: 5, AttemptTimeout: 1, WorkerFailed: 1},
            id="abort",
        ),
    ],
)
def test_errors_are_retried_unless_qubit_aborts(
    values: dict[str, Any], attempts: dict[type[Exception], int]
) -> None:
    """A worker that did not start or that died aborts, and so do timeouts if the policy says so."""
    policy = replace(from_qubit({"delay": "none", **values}), attempt_timeout=None)

    def fail(kind: type[Exception]) -> None:
        raise kind("x")

    for kind, expected in attempts.items():
        assert policy.run(fail, kind).report.attempts == expected


SETTINGS: list[dict[str, Any]] = [
    {},
    {"max_attempts": 1},
    {"max_operation_elapsed_millis": 0, "max_total_elapsed_millis": 2500},
    {"max_operation_elapsed_unlimited": True, "max_total_elapsed_unlimited": True},
    {"attempt_timeout_millis": 5},
    {"attempt_timeout_millis": 5, "attempt_timeout_policy": "retry"},
    {"attempt_timeout_millis": 5, "attempt_timeout_policy": "abort", "worker_cancel_grace_millis": 7},
    {"delay": "none", "jitter_factor": 0.5},
    {"delay": "random", **RANDOM, "jitter_factor": 0.5},
    {"delay": "exponential", **EXPONENTIAL, "jitter_factor": 0.25},
    {"fixed_delay_millis": 2**64 - 1},
]


@pytest.mark.parametrize("values", SETTINGS)
@pytest.mark.parametrize("defaults", [None, Retry(), Retry(on=[OSError, ValueError], attempt_timeout=1)])
def test_a_policy_is_written_to_a_document_and_read_back(
    values: dict[str, Any], defaults: Retry | None
) -> None:
    policy = from_qubit(values, defaults=defaults)
    document = json.loads(json.dumps({"policies": {"p": to_mapping(policy)}}))
    assert from_mapping(document).policies["p"] == replace(policy, name="p")


def test_the_rules_that_stop_have_names_in_documents() -> None:
    """They are printed by these names, and can be pickled."""
    policy = from_qubit({"attempt_timeout_millis": 5, "attempt_timeout_policy": "abort"})
    names = ["stop_on_timeout", "stop_on_worker_failure", "Exception"]
    assert to_mapping(policy)["on"] == names
    assert f"on=[{', '.join(names)}]" in repr(policy)
    assert pickle.loads(pickle.dumps(policy)) == policy
    assert to_mapping(pickle.loads(pickle.dumps(policy))) == to_mapping(policy)


@pytest.mark.parametrize("values", [5, None, [], {5: 5}])
def test_values_must_be_a_table(values: Any) -> None:
    with pytest.raises(ConfigError, match="is not a table"):
        from_qubit(values)


def test_defaults_must_be_a_policy_and_prefix_a_text() -> None:
    defaults: Any = {"attempts": 5}
    with pytest.raises(TypeError, match=r"prefix=.* write a text"):
        from_qubit({}, prefix=defaults)
    with pytest.raises(TypeError, match=r"defaults=.*write a Retry, or None"):
        from_qubit({}, defaults=defaults)


def test_the_largest_multiplier() -> None:
    policy = from_qubit({"exponential_multiplier": 1e306})
    assert policy.backoff == Backoff.exponential(1, 1e306).maximum(60)
