"""Delays and codes of a service config: the policy's where gRPC can express them, else named in `lost`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from redouble import Backoff, Kind, Verdict
from redouble.errors import Rejected
from redouble.grpc._service_config_export import ServiceConfig, service_config
from redouble.types import Answer, Ended
from tests.support.grpc.policies import NATIVE_BACKOFF, native

TWO = Backoff.constant(2).jitter(0.2)


def written(config: ServiceConfig) -> tuple[str, str, float]:
    policy = config.mapping["methodConfig"][0]["retryPolicy"]
    return policy["initialBackoff"], policy["maxBackoff"], policy["backoffMultiplier"]


# ------------------------------------------------------------------------------ delays


@pytest.mark.parametrize(
    ("backoff", "delays"),
    [
        (Backoff.exponential(0.1).maximum(1).jitter(0.2), ("0.1s", "1s", 2)),
        (Backoff.exponential(0.1, 1.5).maximum(1).jitter(0.2), ("0.1s", "1s", 1.5)),
        (Backoff.exponential(0.1, 3).jitter(0.2), ("0.1s", "0.9s", 3)),
        (Backoff.exponential(0.6).maximum(1).maximum(2).jitter(0.2), ("0.6s", "1s", 2)),
        (Backoff.exponential(3).maximum(1).jitter(0.2), ("1s", "1s", 2)),
        (Backoff.exponential(0.1).maximum(1).jitter(0.2).maximum(1.2), ("0.1s", "1s", 2)),
        (Backoff.exponential(1e-9).minimum(0.1).jitter(0.2), ("0.1s", "0.1s", 2)),
        (Backoff.exponential(0.01, 1e9).maximum(2).jitter(0.2), ("0.01s", "2s", 1_000_000_000)),
        (Backoff.constant(0.25).jitter(0.2), ("0.25s", "0.25s", 1)),
        (Backoff.linear(0.1, 0.1).jitter(0.2), ("0.1s", "0.3s", 2)),
        (Backoff.linear(0.2, 0).maximum(9).jitter(0.2), ("0.2s", "9s", 1)),
        (Backoff.of([0.1, 0.2, 0.4]).jitter(0.2), ("0.1s", "0.4s", 2)),
        (Backoff.of([0.4, 0.2, 0.1]).jitter(0.2), ("0.4s", "0.4s", 0.5)),
        (Backoff.of([0.1, 0.3, 0.3]).jitter(0.2), ("0.1s", "0.3s", 3)),
        (Backoff.of([0.1]).jitter(0.2), ("0.1s", "0.1s", 1)),
        (Backoff.fibonacci(1).jitter(0.2).take(2), ("1s", "1s", 1)),
        ({None: NATIVE_BACKOFF, Kind.throttled: NATIVE_BACKOFF}, ("0.1s", "1s", 2)),
    ],
)
def test_backoffs_that_grpc_can_express_are_exact(backoff: Any, delays: tuple[str, str, float]) -> None:
    config = service_config(native(backoff=backoff))
    assert written(config) == delays
    assert config.lost == ()


@pytest.mark.parametrize(
    ("backoff", "delays", "here", "there"),
    [
        (
            Backoff.exponential(0.1).maximum(1).full_jitter(),
            ("0.1s", "1s", 2),
            "0 to 0.1 s, 0 to 0.2 s, 0 to 0.4 s",
            "0.08 to 0.12 s, 0.16 to 0.24 s, 0.32 to 0.48 s",
        ),
        (
            Backoff.exponential(0.1).equal_jitter().take(2),
            ("0.1s", "0.2s", 2),
            "0.05 to 0.1 s, 0.1 to 0.2 s",
            "0.08 to 0.12 s, 0.16 to 0.24 s",
        ),
        (
            Backoff.exponential(0.1).jitter(0.5).take(1),
            ("0.1s", "0.1s", 2),
            "0.05 to 0.15 s",
            "0.08 to 0.12 s",
        ),
        (Backoff.constant(1).take(1), ("1s", "1s", 1), "1 s", "0.8 to 1.2 s"),
        (
            Backoff.exponential(0.5).jitter(0.2).maximum(1).take(2),
            ("0.5s", "1s", 2),
            "0.4 to 0.6 s, 0.8 to 1 s",
            "0.4 to 0.6 s, 0.8 to 1.2 s",
        ),
        (
            Backoff.fibonacci(0.1).jitter(0.2),
            ("0.1s", "0.2s", 1.414214),
            "0.08 to 0.12 s, 0.08 to 0.12 s, 0.16 to 0.24 s",
            "0.08 to 0.12 s, 0.113 to 0.17 s, 0.16 to 0.24 s",
        ),
        ([0, 0], ("0.002s", "0.002s", 1), "0 s, 0 s", "0.002 s, 0.002 s"),
        (
            [10.0, 0.05, 2],
            ("10s", "10s", 1),
            "10 s, 0.05 s, 2 s",
            "8 to 12 s, 8 to 12 s, 8 to 12 s",
        ),
        (Backoff.random(0, 1).take(1), ("0.5s", "0.5s", 1), "0 to 1 s", "0.4 to 0.6 s"),
        (
            Backoff.decorrelated(0.1, 5).take(2),
            ("0.2s", "0.35s", 1.75),
            "0.1 to 0.3 s, 0.1 to 0.9 s",
            "0.16 to 0.24 s, 0.28 to 0.42 s",
        ),
    ],
)
def test_other_backoffs_are_approximated_and_lost(
    backoff: Any, delays: tuple[str, str, float], here: str, there: str
) -> None:
    config = service_config(native(backoff=backoff))
    assert written(config) == delays
    assert config.lost == (f"backoff: the delays are {here} here, and {there} in gRPC",)


@pytest.mark.parametrize(
    ("backoff", "initial", "whose"),
    [
        ({Kind.throttled: Backoff.constant(9), None: NATIVE_BACKOFF}, "0.1s", "all others"),
        (
            {Kind.timeout: TWO, **{kind: NATIVE_BACKOFF for kind in Kind if kind != "timeout"}},
            "2s",
            "timeout",
        ),
    ],
)
def test_of_backoffs_by_kind_one_is_exported(backoff: Any, initial: str, whose: str) -> None:
    config = service_config(native(backoff=backoff))
    assert written(config)[0] == initial
    assert config.lost == (
        f"backoff: each kind of failure has its own; gRPC has one for all, that of {whose}",
    )


class Growing:
    """A user-defined iterable whose delays differ each time."""

    def __init__(self) -> None:
        self.times = 0

    def __iter__(self) -> Iterator[float]:
        self.times += 1
        yield from (0.1 * self.times * step for step in range(1, 3))


@pytest.mark.parametrize("by_kind", [False, True])
def test_a_user_defined_iterable_is_read_once(*, by_kind: bool) -> None:
    own = Growing()
    config = service_config(
        native(backoff={None: Backoff.of(own).jitter(0.2)} if by_kind else Backoff.of(own).jitter(0.2))
    )
    assert written(config) == ("0.1s", "0.2s", 2)
    assert own.times == 1
    assert config.lost == ("backoff: it is an iterable of your own; gRPC has the delays of one iteration",)


# ------------------------------------------------------------------------------- codes


def codes(config: ServiceConfig) -> list[str] | None:
    policy = config.mapping["methodConfig"][0].get("retryPolicy")
    return None if policy is None else policy["retryableStatusCodes"]


def careful(error: Exception) -> Answer:
    return isinstance(error, grpc.aio.AioRpcError) and error.code() is grpc.StatusCode.INTERNAL


def brittle(error: Exception) -> Answer:
    if "INTERNAL" in str(error):
        raise LookupError("{no} {}")
    return True if "UNAVAILABLE" in str(error) else None


def pausing(error: Exception) -> Answer:
    return 2.5 if "ABORTED" in str(error) else "UNKNOWN" in str(error)


def waiting(error: Exception) -> Answer:
    return Verdict.accept() if "NOT_FOUND" in str(error) else "UNAVAILABLE" in str(error)


class Early:
    """A rule that retries DATA_LOSS before the third attempt, and UNKNOWN after the first one."""

    def judge(self, ended: Ended) -> Answer:
        assert dict(ended.labels) == {"team": "a"}
        if "DATA_LOSS" in str(ended.error):
            return ended.attempt < 3
        return "UNKNOWN" in str(ended.error) and ended.attempt > 1


@pytest.mark.parametrize(
    ("on", "retried", "lost"),
    [
        (grpc.aio.AioRpcError, [code.name for code in grpc.StatusCode if code.name != "OK"], []),
        (careful, ["INTERNAL"], []),
        ([careful, grpc.RpcError], ["INTERNAL"], []),
        (
            brittle,
            ["UNAVAILABLE"],
            ["on, about INTERNAL: the rule raised LookupError, so gRPC does not retry it"],
        ),
        (
            pausing,
            ["UNKNOWN", "ABORTED"],
            ["on, about ABORTED: the rule returns a delay; gRPC obeys only delays of the server"],
        ),
        (
            waiting,
            ["UNAVAILABLE"],
            ["on, about NOT_FOUND: the rule accepts it as a success; gRPC fails the call"],
        ),
        (
            Early(),
            ["DATA_LOSS"],
            ["on, about DATA_LOSS: the rule's answer depends on the attempt; gRPC retries it each time"],
        ),
        (
            Rejected,
            None,
            ["on: it retries none of gRPC's status codes; write those to retry: codes=[...]"],
        ),
    ],
)
def test_the_rule_is_called_for_each_code(on: Any, retried: list[str] | None, lost: list[str]) -> None:
    config = service_config(native(on=on, labels={"team": "a"}))
    assert codes(config) == retried
    assert [sentence for sentence in config.lost if sentence.startswith("on")] == lost
