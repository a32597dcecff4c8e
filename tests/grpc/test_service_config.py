"""Exports of a policy as a service config: the document, the lost options, and the errors."""

from __future__ import annotations

import json
import random
import re
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from redouble import (
    Bulkhead,
    CircuitBreaker,
    Hedge,
    Hints,
    Layer,
    Retry,
    RetryBudget,
    Timeout,
    TokenBucket,
    Worker,
    presets,
)
from redouble.grpc._service_config_export import ServiceConfig, service_config
from tests.support.fakes import Virtual
from tests.support.grpc.policies import NATIVE_BACKOFF, native

TRANSIENT = ["DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "ABORTED", "UNAVAILABLE"]
ONE_KIND = "gRPC has one kind of budget, TokenBucket.grpc(tokens=10, ratio=0.1)"
SOFT = "give_up_after=3: gRPC starts attempts until the call times out"
ROUNDED = "gRPC takes whole tokens and a ratio in thousandths"


def test_the_default_is_the_preset_and_loses_nothing() -> None:
    config = service_config()
    assert config.lost == ()
    assert config == service_config(presets.grpc())
    assert config.mapping == {
        "methodConfig": [
            {
                "name": [{}],
                "retryPolicy": {
                    "maxAttempts": 4,
                    "initialBackoff": "0.1s",
                    "maxBackoff": "1s",
                    "backoffMultiplier": 2,
                    "retryableStatusCodes": TRANSIENT,
                },
            }
        ],
        "retryThrottling": {"maxTokens": 10, "tokenRatio": 0.1},
    }


def test_a_service_config_is_frozen_and_has_the_options_of_a_channel() -> None:
    config = service_config(native())
    assert config.options == [("grpc.service_config", config.json), ("grpc.enable_retries", 1)]
    assert json.loads(config.json) == config.mapping
    assert config.mapping is not config.mapping
    with pytest.raises(FrozenInstanceError):
        config.lost = ()  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    assert ServiceConfig("{}").options[0] == ("grpc.service_config", "{}")


def test_the_options_of_a_channel_have_no_timeout() -> None:
    """With it grpcio would end calls too early: https://github.com/grpc/grpc/issues/34547."""
    limited, unlimited = service_config(native(timeout=0.5)), service_config(native())
    assert limited.options == unlimited.options


@pytest.mark.parametrize(
    ("policy", "attempts", "lost"),
    [
        (native(attempts=2), 2, []),
        (native(attempts=5), 5, []),
        (native(attempts=6), 5, ["attempts=6: gRPC makes at most 5"]),
        (native(attempts=None, give_up_after=3), 5, ["attempts=None: gRPC makes at most 5", SOFT]),
        (native(attempts=9, backoff=NATIVE_BACKOFF.take(2)), 3, []),
        (native(attempts=9, backoff=NATIVE_BACKOFF.take(4)), 5, []),
        (native(attempts=9, backoff=NATIVE_BACKOFF.take(5)), 5, ["attempts=9: gRPC makes at most 5"]),
    ],
)
def test_attempts_are_exported_up_to_five(policy: Retry, attempts: int, lost: list[str]) -> None:
    config = service_config(policy)
    assert config.mapping["methodConfig"][0]["retryPolicy"]["maxAttempts"] == attempts
    assert list(config.lost) == lost


@pytest.mark.parametrize(
    "policy",
    [
        native(attempts=1, budget=RetryBudget(), random=random.Random(1)),
        native(backoff=[]),
        native(backoff=NATIVE_BACKOFF.take(0)),
    ],
)
def test_a_single_attempt_has_no_retry_policy(policy: Retry) -> None:
    config = service_config(policy)
    assert config.mapping == {"methodConfig": [{"name": [{}]}]}
    assert config.lost == ()


@pytest.mark.parametrize(
    ("policy", "timeout"),
    [
        (native(timeout=30), "30s"),
        (native(timeout=0.25), "0.25s"),
        (native(timeout=1 / 3), "0.333333333s"),
        (native(timeout=0), "0.001s"),
        (native(timeout=1e300), "315576000000s"),
        (Timeout(5) | native(), "5s"),
        (Timeout(5, worker=Worker()) | native(timeout=7), "5s"),
        (Timeout(5) | Timeout(9) | native(timeout=2), "2s"),
        (native(attempts=1, attempt_timeout=2), "2s"),
        (native(attempts=1, work_timeout=2, timeout=3), "2s"),
        (native(attempts=1) | Timeout(1), "1s"),
    ],
)
def test_the_timeout_of_the_call_is_exported(policy: Layer, timeout: str) -> None:
    config = service_config(policy)
    assert config.mapping["methodConfig"][0]["timeout"] == timeout
    (lost,) = config.lost
    assert re.fullmatch(r"timeout=(\S+): grpcio ends calls .*; pass timeout=\1 with each call", lost)


def test_without_a_limit_there_is_no_timeout() -> None:
    assert "timeout" not in service_config(native()).mapping["methodConfig"][0]


@pytest.mark.parametrize(
    ("budget", "written", "lost"),
    [
        (None, None, []),
        (TokenBucket.grpc(tokens=1, ratio=0.001), {"maxTokens": 1, "tokenRatio": 0.001}, []),
        (TokenBucket.grpc(tokens=1000, ratio=1000), {"maxTokens": 1000, "tokenRatio": 1000.0}, []),
        (
            TokenBucket.grpc(tokens=4.4, ratio=0.5),
            {"maxTokens": 4, "tokenRatio": 0.5},
            [f"budget=TokenBucket.grpc(tokens=4.4, ratio=0.5): {ROUNDED}"],
        ),
        (
            TokenBucket.grpc(tokens=4, ratio=0.1234),
            {"maxTokens": 4, "tokenRatio": 0.123},
            [f"budget=TokenBucket.grpc(tokens=4, ratio=0.1234): {ROUNDED}"],
        ),
        (
            RetryBudget(),
            None,
            [f"budget={RetryBudget()!r}: {ONE_KIND}"],
        ),
    ],
)
def test_the_grpc_token_bucket_is_exported(
    budget: Any, written: dict[str, float] | None, lost: list[str]
) -> None:
    config = service_config(native(budget=budget))
    assert config.mapping.get("retryThrottling") == written
    assert list(config.lost) == lost


def test_a_whole_ratio_keeps_its_decimal_point() -> None:
    assert '"tokenRatio": 2.0' in service_config(native(budget=TokenBucket.grpc(ratio=2))).json


def shown(event: object) -> None: ...


@pytest.mark.parametrize(
    ("options", "lost"),
    [
        ({"give_up_after": 30}, "give_up_after=30: gRPC starts attempts until the call times out"),
        ({"attempt_timeout": 2}, "attempt_timeout=2: gRPC limits the whole call, not each attempt"),
        ({"work_timeout": 2}, "work_timeout=2: gRPC's limit includes the delays; write timeout="),
        (
            {"hints": Hints(spread=0)},
            "hints: mode='at_least'; gRPC waits as long as the server asks, instead of its own delay",
        ),
        (
            {"hints": Hints("ignore", longest=5, over=1)},
            "hints: mode='ignore'; gRPC waits as long as the server asks, instead of its own delay",
        ),
        (
            {"hints": Hints("instead", longest=5, spread=0)},
            "hints: longest=5; gRPC waits as long as the server asks",
        ),
        (
            {"hints": Hints("instead", over=1.5, spread=0)},
            "hints: over=1.5; gRPC obeys every requested delay",
        ),
        ({"hints": Hints("instead")}, "hints: spread=0.1; gRPC adds nothing to a requested delay"),
        ({"random": random.Random(1)}, "random: gRPC has its own random source"),
        ({"clock": Virtual()}, "clock: gRPC uses the system clock"),
        ({"until": bool}, "until: gRPC does not inspect results"),
        ({"wrap": True}, "wrap=True: gRPC raises the RpcError itself"),
        ({"name": "orders"}, "name, labels: gRPC's retries appear in no event, metric or report of redouble"),
        (
            {"labels": {"a": "b"}},
            "name, labels: gRPC's retries appear in no event, metric or report of redouble",
        ),
        *(
            ({hook: shown}, f"{hook}: gRPC calls no observers")
            for hook in ("before_attempt", "on_success", "on_failure", "on_retry", "on_give_up")
        ),
    ],
)
def test_options_that_grpc_lacks_are_lost(options: dict[str, Any], lost: str) -> None:
    assert service_config(native(**options)).lost == (lost,)


@pytest.mark.parametrize("options", [{"worker": Worker()}, {"nested": "stop"}, {"nested": "allow"}])
def test_options_without_effect_are_not_lost(options: dict[str, Any]) -> None:
    assert service_config(native(**options)).lost == ()


def test_other_layers_are_lost() -> None:
    inner = Retry(attempts=2, backoff=[1], give_up_after=None)
    pipeline = Bulkhead(3) | native() | CircuitBreaker() | Timeout(2) | inner | Hedge(0.1)
    assert service_config(pipeline).lost == (
        "Bulkhead (3 at once, others wait up to 1 s): a service config has no such layer",
        "CircuitBreaker (opens after 5 failures in a row, for 30 s): a service config has no such layer",
        "Timeout (at most 2 s) for each attempt: gRPC limits the whole call, not each attempt",
        "Retry (up to 2 attempts, delays of 1 s in all) inside a Retry: the outer one is exported",
        f"Hedge ({Hedge(0.1).describe()}): a service config has no such layer",
    )


class Silent(Layer):
    """A layer without a description."""


def test_a_user_defined_layer_is_lost() -> None:
    assert service_config(Silent() | native()).lost == ("Silent: a service config has no such layer",)
