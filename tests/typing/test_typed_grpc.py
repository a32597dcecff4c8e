"""The types of `redouble.grpc`: by two type checkers, and when run."""
# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

import asyncio
from typing import Any, assert_type

import grpc
import pytest

from redouble import Retry, Timeout, presets
from redouble.grpc import ServiceConfig, aio_interceptors, interceptors, service_config

pytestmark = pytest.mark.one_python

PIPELINE = Timeout(30) | Retry()
TARGET = "127.0.0.1:1"  # no server listens there


def test_interceptors() -> None:
    for policy in (None, Retry(), PIPELINE, presets.grpc()):
        (interceptor,) = interceptors(policy)
        unary: grpc.UnaryUnaryClientInterceptor = interceptor
        down: grpc.UnaryStreamClientInterceptor = interceptor
        up: grpc.StreamUnaryClientInterceptor = interceptor
        both: grpc.StreamStreamClientInterceptor = interceptor
        assert len({id(each) for each in (unary, down, up, both)}) == 1
    with grpc.insecure_channel(TARGET) as channel:
        assert_type(grpc.intercept_channel(channel, *interceptors()), grpc.Channel)
        assert_type(grpc.intercept_channel(channel, *interceptors(policy=PIPELINE)), grpc.Channel)


def test_aio_interceptors() -> None:
    assert_type(aio_interceptors(), list[grpc.aio.ClientInterceptor])
    assert_type(aio_interceptors(PIPELINE), list[grpc.aio.ClientInterceptor])

    async def main() -> None:
        async with grpc.aio.insecure_channel(TARGET, interceptors=aio_interceptors(Retry())) as channel:
            assert_type(channel, grpc.aio.Channel)

    asyncio.run(main())


def test_service_configs() -> None:
    config = service_config(presets.grpc(), methods=["shop.Orders"], codes=["UNAVAILABLE"])
    assert_type(config, ServiceConfig)
    assert_type(service_config(), ServiceConfig)
    assert_type(config.json, str)
    assert_type(config.lost, tuple[str, ...])
    with grpc.insecure_channel(TARGET, options=config.options) as channel:
        assert_type(channel, grpc.Channel)


@pytest.mark.parametrize("make", [interceptors, aio_interceptors])
def test_a_wrong_policy_raises(make: Any) -> None:
    with pytest.raises(TypeError):
        make(Retry)


def test_wrong_policies_are_reported() -> None:
    with pytest.raises(TypeError):
        interceptors(5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        aio_interceptors(Retry)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        service_config(5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
