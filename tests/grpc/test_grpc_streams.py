"""Response streams over gRPC: retried before the caller has received anything, and never after it."""

from __future__ import annotations

import asyncio

import grpc
import pytest

import redouble
from redouble import Bulkhead, CircuitBreaker, Fallback, Layer, Timeout
from tests.support.grpc.calls import (
    STREAMS,
    achannel_of,
    channel_of,
    make_call,
    report_of,
    request_of,
    retry,
    stub_of,
    summary_of,
    until,
)
from tests.support.grpc.server import Server


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("a b c OK", (b"a b c", "OK", 1, None)),
        ("OK", (b"", "OK", 1, None)),
        ("UNAVAILABLE, OK", (b"", "OK", 2, None)),
        ("UNAVAILABLE, a b OK", (b"a b", "OK", 2, None)),
        ("a UNAVAILABLE, b OK", (b"a", "UNAVAILABLE", 1, "committed")),
        ("UNAVAILABLE, a b UNAVAILABLE, c OK", (b"a b", "UNAVAILABLE", 2, "committed")),
        ("a @5 UNAVAILABLE, b OK", (b"a", "UNAVAILABLE", 1, "committed")),
    ],
)
@pytest.mark.parametrize(("colour", "shape"), STREAMS)
def test_a_stream_is_retried_until_its_first_message(
    remote: Server, colour: str, shape: str, script: str, expected: tuple[bytes, str, int, str | None]
) -> None:
    seen = make_call(remote, colour, shape, script, retry(on=Exception))
    assert summary_of(seen) == expected


@pytest.mark.parametrize(("colour", "shape"), STREAMS)
def test_the_error_that_breaks_a_stream_has_a_report(remote: Server, colour: str, shape: str) -> None:
    seen = make_call(remote, colour, shape, "UNAVAILABLE, a INTERNAL", retry(labels={"team": "a"}))
    assert (seen.report.attempts, seen.report.labels) == (2, {"team": "a"})
    assert seen.report.name == f"test.Echo/{shape.title()}"
    (note,) = seen.error.__notes__
    assert "items had been handed out" in note


@pytest.mark.parametrize("shape", ["down", "both"])
def test_a_stream_whose_metadata_were_read_is_not_retried(remote: Server, shape: str) -> None:
    call, metadata = remote.script("head hang UNAVAILABLE, a OK")
    stream = stub_of(channel_of(remote, retry()), shape)(request_of(shape), metadata=metadata)
    assert stream.initial_metadata() == (("head", "1"),)
    call.attempts[0].ended.set()
    with pytest.raises(grpc.RpcError) as caught:
        next(stream)
    report = report_of(caught.value)
    assert (report.reason, report.attempts) == ("committed", 1)
    with pytest.raises(grpc.RpcError) as again:
        next(stream)
    assert again.value is caught.value


@pytest.mark.parametrize("shape", ["down", "both"])
def test_an_async_stream_whose_metadata_were_read_is_not_retried(remote: Server, shape: str) -> None:
    async def main() -> None:
        call, metadata = remote.script("head hang UNAVAILABLE, a OK")
        async with achannel_of(remote, retry()) as channel:
            stream = stub_of(channel, shape)(request_of(shape), metadata=metadata)
            assert dict(await stream.initial_metadata()) == {"head": "1"}
            call.attempts[0].ended.set()
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stream.read()
            report = report_of(caught.value)
            assert (report.reason, report.attempts) == ("committed", 1)
            assert await stream.code() is grpc.StatusCode.UNAVAILABLE

    asyncio.run(main())


def test_reading_empty_metadata_does_not_commit_a_stream(remote: Server) -> None:
    call, metadata = remote.script("UNAVAILABLE, head a OK")
    stream = stub_of(channel_of(remote, retry()), "down")(b"one", metadata=metadata)
    until(lambda: call.attempts and call.attempts[0].ended.is_set())
    assert stream.is_active()
    assert stream.initial_metadata() in (
        (),
        (("head", "1"),),
    )  # those of the first attempt may be known already
    assert list(stream) == [b"a"]
    assert stream.initial_metadata() == (("head", "1"),)


@pytest.mark.parametrize("policy", [retry(), Timeout(60) | retry(), retry(timeout=60) | Timeout(50)])
def test_a_blocking_stream_starts_before_it_is_read(remote: Server, policy: Layer) -> None:
    call, metadata = remote.script("a OK")
    stream = stub_of(channel_of(remote, policy), "down")(b"one", metadata=metadata)
    until(lambda: call.attempts)
    assert stream.is_active()
    assert list(stream) == [b"a"]
    assert not stream.is_active()


def test_a_stream_behind_a_gate_starts_when_it_is_read(remote: Server) -> None:
    call, metadata = remote.script("a OK")
    breaker = CircuitBreaker(failures=1)
    with pytest.raises(ValueError, match="no"), breaker:
        raise ValueError("no")
    stream = stub_of(channel_of(remote, breaker | retry()), "down")(b"one", metadata=metadata)
    with pytest.raises(redouble.errors.CircuitOpen):
        next(stream)
    assert call.attempts == []
    assert stream.code() is grpc.StatusCode.UNKNOWN
    assert "open" in stream.details()


def test_a_stream_behind_a_bulkhead_is_retried(remote: Server) -> None:
    call, metadata = remote.script("UNAVAILABLE, head a OK")
    stream = stub_of(channel_of(remote, Bulkhead(1) | retry()), "down")(b"one", metadata=metadata)
    assert stream.initial_metadata() == (("head", "1"),)
    assert (list(stream), len(call.attempts)) == ([b"a"], 2)


@pytest.mark.parametrize(("colour", "shape"), STREAMS)
def test_a_fallback_replaces_a_stream(remote: Server, colour: str, shape: str) -> None:
    policy = Fallback(value=[b"x", b"y"], on=grpc.RpcError) | retry(attempts=2)
    assert summary_of(make_call(remote, colour, shape, "UNAVAILABLE", policy)) == (b"x y", "OK", 2, None)


@pytest.mark.parametrize(("colour", "shape"), STREAMS)
def test_until_with_a_stream_raises(remote: Server, colour: str, shape: str) -> None:
    seen = make_call(remote, colour, shape, "a OK", retry(until=bool))
    assert isinstance(seen.error, TypeError)
    assert "until= judges one response" in str(seen.error)


def test_a_stream_has_the_methods_of_a_call(remote: Server) -> None:
    _, metadata = remote.script("UNAVAILABLE, a @7 OK")
    ended: list[str] = []
    stub = stub_of(channel_of(remote, retry()), "down")
    stream = stub(b"one", metadata=metadata, timeout=60)
    assert stream.add_callback(lambda: ended.append("first"))
    assert iter(stream) is stream
    assert 0 < stream.time_remaining() <= 60
    assert stream.next() == b"a"
    assert (stream.code(), stream.details()) == (grpc.StatusCode.OK, "")
    assert stream.trailing_metadata() == (("grpc-retry-pushback-ms", "7"),)
    assert list(stream) == []
    assert not stream.cancel()
    assert not stream.add_callback(lambda: ended.append("late"))
    _, metadata = remote.script("a OK")
    assert stub(b"one", metadata=metadata).time_remaining() is None


def test_the_status_of_a_failed_stream(remote: Server) -> None:
    _, metadata = remote.script("NOT_FOUND")
    ended: list[str] = []
    stream = stub_of(channel_of(remote, retry()), "down")(b"one", metadata=metadata)
    stream.add_callback(lambda: ended.append("first"))
    assert stream.code() is grpc.StatusCode.NOT_FOUND
    assert stream.details() == "as the script says"
    assert (stream.trailing_metadata(), stream.initial_metadata()) == ((), ())
    assert (ended, stream.cancel(), stream.is_active()) == (["first"], False, False)
