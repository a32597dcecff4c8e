"""The types of keyed layers and of some presets: by two type checkers, and when run."""
# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import assert_type

import pytest

from redouble import Bulkhead, CircuitBreaker, Keyed, Layer, Pipeline, Retry, TokenBucket, presets
from redouble.types import Budget

pytestmark = pytest.mark.one_python


def key_of(url: str, *, chunk: int = 1) -> str:
    return url


KEYED = Keyed(key_of, lambda: Bulkhead(10))


def test_keys() -> None:
    def breaker_of(host: str) -> CircuitBreaker:
        return CircuitBreaker(name="host")

    def either(host: str) -> Retry | CircuitBreaker:
        return Retry() if host else CircuitBreaker()

    assert_type(KEYED, Keyed[Bulkhead])
    assert_type(KEYED.of("a"), Bulkhead)
    assert_type(KEYED.of(("a", 1)).limit, int)
    assert_type(Keyed(key_of, CircuitBreaker).of("a"), CircuitBreaker)
    assert_type(Keyed(key_of, breaker_of, 5, timedelta(minutes=1), name="hosts").of("a"), CircuitBreaker)
    assert_type(Keyed(key_of, lambda: Retry() | CircuitBreaker(), most=5, idle=None).of("a"), Pipeline)
    assert_type(Keyed(key_of, lambda key: Bulkhead(len(key))).of("a"), Bulkhead)
    assert_type(Keyed(key_of, either).of("a"), Retry | CircuitBreaker)
    assert_type(Keyed(key_of, presets.grpc).of("a"), Retry)
    assert_type(KEYED.snapshot(), Mapping[str, float])


def test_wrong_keys() -> None:
    with pytest.raises(TypeError):
        Keyed(key_of)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError):
        Keyed("host", CircuitBreaker)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        Keyed(key_of, 3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        Keyed(key_of, CircuitBreaker, most="5")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        Keyed(key_of, CircuitBreaker, idle="10m")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        Keyed(key_of, lambda: 3).of("a")  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        KEYED.of([])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_presets() -> None:
    assert_type(presets.grpc(), Retry)
    assert_type(presets.grpc(attempts=2, name="db"), Retry)
    assert_type(presets.aws_adaptive(), Pipeline)
    assert_type(presets.aws_adaptive(attempts=2), Pipeline)
    budget: Budget = TokenBucket.grpc(10, 0.1)
    makes: list[Callable[[], Layer]] = [presets.grpc, presets.aws_adaptive]
    assert all(isinstance(make(), Layer) for make in makes)

    @presets.aws_adaptive(budget=budget)
    def fetch(url: str) -> bytes:
        return url.encode()

    assert_type(fetch("a"), bytes)
    with pytest.raises(TypeError):
        presets.grpc(attempts="3")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        presets.aws_adaptive(tries=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError):
        TokenBucket.grpc("10")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
