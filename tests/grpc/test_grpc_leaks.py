"""A server that stops, or does not listen at all."""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
import pytest

from tests.support.grpc.calls import (
    ALL,
    channel_of,
    make_call,
    report_of,
    request_of,
    retry,
    shared_channel,
    stub_of,
)
from tests.support.grpc.server import Server


@contextmanager
def another() -> Generator[tuple[Server, Any]]:
    """Run another server, which a test may stop."""
    remote, pool = Server(), ThreadPoolExecutor(8)
    running = grpc.server(pool)
    running.add_generic_rpc_handlers((remote,))
    remote.target = f"127.0.0.1:{running.add_insecure_port('127.0.0.1:0')}"
    running.start()
    try:
        yield remote, running
    finally:
        running.stop(None).wait()
        shared_channel.cache_clear()
        pool.shutdown()


@pytest.mark.parametrize("shape", ["down", "both"])
def test_a_server_that_stops_during_a_stream_ends_it(shape: str) -> None:
    with another() as (remote, running):
        _, metadata = remote.script("a hang OK")
        stream = stub_of(channel_of(remote, retry(on=Exception)), shape)(request_of(shape), metadata=metadata)
        assert next(stream) == b"a"
        running.stop(None).wait()
        with pytest.raises(grpc.RpcError) as caught:
            next(stream)
        assert report_of(caught.value).reason == "committed"


@pytest.mark.parametrize(("colour", "shape"), ALL)
def test_a_refused_connection_is_retried(colour: str, shape: str) -> None:
    seen = make_call(Server("127.0.0.1:1"), colour, shape, "a OK", retry(attempts=2))
    assert (seen.code, seen.reason, seen.report.attempts) == ("UNAVAILABLE", "attempts", 2)


@pytest.mark.quiet
@pytest.mark.parametrize(("colour", "shape"), ALL)
def test_waiting_for_a_server_ends_at_the_deadline(colour: str, shape: str) -> None:
    """With ``wait_for_ready`` there is one attempt, which lasts until then."""
    seen = make_call(
        Server("127.0.0.1:1"), colour, shape, "a OK", retry(attempts=9), wait_for_ready=True, timeout=0.1
    )
    assert (seen.code, seen.report.attempts, seen.messages) == ("DEADLINE_EXCEEDED", 1, [])
