"""Other interceptors on the same channel: before redouble's they see one call, behind it each attempt."""

from __future__ import annotations

import asyncio
from threading import Event, Thread, Timer
from threading import enumerate as enumerate_threads
from types import SimpleNamespace
from typing import Any, NamedTuple

import grpc
import pytest

import redouble.grpc
from redouble import Bulkhead, errors
from redouble.grpc._attempt import AttemptDetails, AttemptTimer, details_of
from tests.support.grpc.calls import (
    ONE,
    SHAPES,
    achannel_of,
    report_of,
    request_of,
    retry,
    shared_channel,
    stub_of,
    until,
)
from tests.support.grpc.interceptors import DelegatingInterceptor, delegating_interceptors
from tests.support.grpc.server import Server


class Details(NamedTuple):
    """Call details with fewer fields than gRPC's own, as many interceptors create them."""

    method: str
    timeout: float | None
    metadata: Any


class Adding:
    """An interceptor that adds metadata, and stores the details it received."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.calls: list[Any] = []

    def details(self, call_details: Any) -> Details:
        return Details(
            call_details.method, call_details.timeout, [*(call_details.metadata or ()), ("by", self.name)]
        )

    def does(self, continuation: Any, call_details: Any, request: Any) -> Any:
        self.calls.append(continuation(self.details(call_details), request))
        return self.calls[-1]

    async def adoes(self, continuation: Any, call_details: Any, request: Any) -> Any:
        details = call_details._replace(metadata=self.details(call_details).metadata)
        self.calls.append(await continuation(details, request))
        return self.calls[-1]


def stub_between(remote: Server, shape: str, before: Adding, behind: Adding) -> Any:
    ours = redouble.grpc.interceptors(retry(attempts=3))
    channel = shared_channel(remote.target)
    return stub_of(
        grpc.intercept_channel(
            channel, DelegatingInterceptor(before.does), *ours, DelegatingInterceptor(behind.does)
        ),
        shape,
    )


def stub_before(remote: Server, shape: str, behind: Any, **options: Any) -> Any:
    ours = redouble.grpc.interceptors(retry(**options))
    return stub_of(
        grpc.intercept_channel(shared_channel(remote.target), *ours, DelegatingInterceptor(behind)), shape
    )


def read(call: Any, shape: str) -> Any:
    return call if shape in ONE else next(call)


@pytest.mark.parametrize("shape", SHAPES)
def test_an_interceptor_before_sees_one_call_and_one_behind_all_attempts(remote: Server, shape: str) -> None:
    before, behind = Adding("before"), Adding("behind")
    known, metadata = remote.script("UNAVAILABLE, UNAVAILABLE, a OK")
    stub = stub_between(remote, shape, before, behind)
    assert read(stub(request_of(shape), metadata=metadata), shape) == b"a"
    assert (len(before.calls), len(behind.calls), len(known.attempts)) == (1, 3, 3)
    assert [attempt.earlier for attempt in known.attempts] == [None, "1", "2"]
    assert before.calls[0].code() is grpc.StatusCode.OK


@pytest.mark.parametrize("shape", ONE)
def test_interceptors_before_and_behind_a_future(remote: Server, shape: str) -> None:
    before, behind = Adding("before"), Adding("behind")
    known, metadata = remote.script("UNAVAILABLE, a OK")
    stub = stub_between(remote, shape, before, behind)
    assert stub.future(request_of(shape), metadata=metadata).result() == b"a"
    assert (len(before.calls), len(behind.calls), len(known.attempts)) == (1, 2, 2)


@pytest.mark.parametrize("shape", ONE)
def test_a_future_whose_attempt_an_interceptor_cancels_is_cancelled(remote: Server, shape: str) -> None:
    def cancels(continuation: Any, call_details: Any, request: Any) -> Any:
        call = continuation(call_details, request)
        call.cancel()
        return call

    known, metadata = remote.script("hang OK")
    future = stub_before(remote, shape, cancels).future(request_of(shape), metadata=metadata)
    with pytest.raises(grpc.FutureCancelledError):
        future.result()
    assert (future.cancelled(), future.code(), len(known.attempts) <= 1) == (
        True,
        grpc.StatusCode.CANCELLED,
        True,
    )


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("timeout", [None, 0])
def test_an_interceptor_before_receives_a_failed_call(
    remote: Server, shape: str, timeout: float | None
) -> None:
    before = Adding("before")
    _, metadata = remote.script("UNAVAILABLE")
    stub = stub_between(remote, shape, before, Adding("behind"))
    with pytest.raises(grpc.RpcError) as caught:
        read(stub(request_of(shape), metadata=metadata, timeout=timeout), shape)
    code = grpc.StatusCode.UNAVAILABLE if timeout is None else grpc.StatusCode.DEADLINE_EXCEEDED
    assert before.calls[0].code() is caught.value.code() is code
    assert isinstance(caught.value, errors.DeadlineExceeded) is (timeout == 0)
    assert report_of(caught.value).attempts == (0 if timeout == 0 else 3)


@pytest.mark.parametrize("script", ["UNAVAILABLE, UNAVAILABLE, a OK", "UNAVAILABLE"])
@pytest.mark.parametrize("shape", SHAPES)
def test_interceptors_before_and_behind_in_async_code(remote: Server, shape: str, script: str) -> None:
    async def main() -> None:
        before, behind = Adding("before"), Adding("behind")
        known, metadata = remote.script(script)
        others = {
            "before": delegating_interceptors(before.adoes),
            "after": delegating_interceptors(behind.adoes),
        }
        async with achannel_of(remote, retry(attempts=3), **others) as channel:
            call = stub_of(channel, shape)(request_of(shape), metadata=metadata)
            if script == "UNAVAILABLE":
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await (call if shape in ONE else call.read())
                assert report_of(caught.value).attempts == 3
            else:
                assert await (call if shape in ONE else call.read()) == b"a"
        assert (len(behind.calls), len(known.attempts)) == (3, 3)
        assert [attempt.earlier for attempt in known.attempts] == [None, "1", "2"]
        # Without streams, its `await continuation()` raises the error.
        assert len(before.calls) == (0 if shape == "unary" and script == "UNAVAILABLE" else 1)

    asyncio.run(main())


@pytest.mark.parametrize("shape", SHAPES)
def test_attempts_of_two_redouble_interceptors_multiply(remote: Server, shape: str) -> None:
    known, metadata = remote.script("UNAVAILABLE")
    twice, thrice = (redouble.grpc.interceptors(retry(attempts=count)) for count in (2, 3))
    stub = stub_of(grpc.intercept_channel(shared_channel(remote.target), *thrice, *twice), shape)
    with pytest.raises(grpc.RpcError):
        read(stub(request_of(shape), metadata=metadata), shape)
    # The inner one receives the requests as an iterator, which cannot be resent.
    assert len(known.attempts) == (3 if shape in ("up", "both") else 6)


def test_an_interceptor_behind_may_return_a_plain_iterator(remote: Server) -> None:
    def cached(*_: object) -> Any:
        return iter([b"cached"])

    stream = stub_before(remote, "down", cached)(b"one")
    assert list(stream) == [b"cached"]


def test_an_rpc_that_an_interceptor_starts_too_late_is_cancelled(remote: Server) -> None:
    """The attempt has timed out before the interceptor starts the RPC."""

    def does(continuation: Any, call_details: Any, request: Any) -> Any:
        until(lambda: not any(isinstance(thread, Timer) for thread in enumerate_threads()))
        calls.append(continuation(call_details, request))
        return calls[0]

    calls: list[Any] = []
    _, metadata = remote.script("hang OK")
    policy = Bulkhead(1) | retry(
        attempt_timeout=0.01, attempts=1
    )  # a gate, so that no attempt starts before the stream is read
    channel = grpc.intercept_channel(
        shared_channel(remote.target), *redouble.grpc.interceptors(policy), DelegatingInterceptor(does)
    )
    with pytest.raises(errors.AttemptTimeout):
        next(stub_of(channel, "down")(b"one", metadata=metadata))
    assert calls[0].code() is grpc.StatusCode.CANCELLED


def test_a_timer_that_fires_after_the_attempt_cancels_nothing(remote: Server) -> None:
    call = Cancelled()
    guard: Any = SimpleNamespace(current=call)
    with AttemptTimer(guard, 3600.0) as cut:
        pass
    cut._cut()
    assert (cut.cancelled_caught, call.cancelled) == (False, False)


class Cancelled:
    """A call that records whether it was cancelled."""

    cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


@pytest.mark.parametrize("first", ["late", "next"])
def test_initial_metadata_of_a_failed_attempt_come_from_the_next_one(remote: Server, first: str) -> None:
    """The metadata arrive after their attempt has failed and the next one has started.

    Another thread may have received the metadata of the next one before.
    """

    class Headed:
        """An RPC that fails while its initial metadata are read."""

        def __iter__(self) -> Any:
            return self

        def __next__(self) -> bytes:
            asked.wait()
            raise ConnectionError

        def initial_metadata(self) -> Any:
            asked.set()
            over.wait()
            return (("head", "old"),)

    def does(continuation: Any, call_details: Any, request: Any) -> Any:
        if not asked.is_set():
            return Headed()
        call = continuation(call_details, request)
        started.set()
        return call

    asked, started, over = Event(), Event(), Event()
    _, metadata = remote.script("head a OK")
    stream = stub_before(remote, "down", does)(b"one", metadata=metadata)
    got: list[bytes] = []
    heads: list[Any] = []
    threads = [
        Thread(target=lambda: heads.append(stream.initial_metadata())),
        Thread(target=lambda: got.extend(stream)),
    ]
    threads[0].start()
    asked.wait()
    threads[1].start()
    started.wait()
    if first == "next":
        heads.append(stream.initial_metadata())
    over.set()
    for thread in threads:
        thread.join()
    assert set(heads) == {(("head", "1"),)}
    assert got == [b"a"]


class Untimed(NamedTuple):
    """Call details without a timeout."""

    method: str
    metadata: Any


@pytest.mark.parametrize(
    "own",
    [Details("/a/b", None, None), Untimed("/a/b", None), SimpleNamespace(method="/a/b", metadata=None)],
)
def test_details_with_fewer_fields_are_accepted(own: Any) -> None:
    """They are copied, whether they are a tuple like gRPC's own or another object."""
    details: Any = details_of(own, 5.0, 1)
    assert (details.method, details.timeout) == ("/a/b", 5.0)
    assert details.metadata == (("grpc-previous-rpc-attempts", "1"),)
    assert not hasattr(details, "credentials")
    assert own.metadata is None


@pytest.mark.parametrize("kind", [grpc.aio.ClientCallDetails, AttemptDetails])
@pytest.mark.parametrize("metadata", [None, (), grpc.aio.Metadata(), grpc.aio.Metadata(("a", "b"))])
def test_metadata_of_async_calls_keep_their_type(kind: Any, metadata: Any) -> None:
    own: Any = grpc.aio.ClientCallDetails("/a/b", None, metadata, None, None)
    if kind is AttemptDetails:
        own = AttemptDetails(own, {})
    details = details_of(own, 5.0, 2)
    plain = kind is AttemptDetails and not isinstance(metadata, grpc.aio.Metadata)
    assert isinstance(details, kind)
    sent: Any = details.metadata
    assert tuple(sent) == (*(metadata or ()), ("grpc-previous-rpc-attempts", "2"))
    assert type(sent) is (tuple if plain else grpc.aio.Metadata)
