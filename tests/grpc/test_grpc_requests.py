"""Request streams over gRPC: iterables are resent, and no item of an iterator is lost silently."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Iterator
from threading import Event
from typing import Any

import grpc
import pytest

import redouble.grpc
from tests.support.grpc.calls import ALL, achannel_of, make_call, retry, shared_channel, stub_of, summary_of
from tests.support.grpc.interceptors import DelegatingInterceptor, delegating_interceptors
from tests.support.grpc.server import Server

UP = [(colour, shape) for colour, shape in ALL if shape in ("up", "both")]
AIO = [(colour, shape) for colour, shape in UP if colour == "aio"]
BLOCKING = [(colour, shape) for colour, shape in UP if colour != "aio"]
WHOLE = [b"one", b"two"]


class Reiterable:
    """Requests that can be iterated again."""

    def __iter__(self) -> Iterator[bytes]:
        yield from WHOLE


class AsyncReiterable:
    """Async requests that can be iterated again."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for request in WHOLE:
            yield request


def setter_of(event: Event | asyncio.Event) -> Callable[[object], None]:
    """Return an observer that sets an event."""
    return lambda _: event.set()


def once() -> Iterator[bytes]:
    yield from WHOLE


async def aonce() -> AsyncIterator[bytes]:
    for request in WHOLE:
        yield request


@pytest.mark.parametrize(
    "requests", [list(WHOLE), tuple(WHOLE), Reiterable()], ids=["list", "tuple", "object"]
)
@pytest.mark.parametrize(("colour", "shape"), UP)
def test_iterable_requests_are_resent(remote: Server, colour: str, shape: str, requests: Any) -> None:
    seen = make_call(remote, colour, shape, "UNAVAILABLE, UNAVAILABLE, a OK", retry(), requests=requests)
    assert summary_of(seen) == (b"a", "OK", 3, None)
    assert [attempt.requests for attempt in seen.attempts] == [WHOLE] * 3


@pytest.mark.parametrize(("colour", "shape"), AIO)
def test_async_iterable_requests_are_resent(remote: Server, colour: str, shape: str) -> None:
    requests: Any = AsyncReiterable()
    seen = make_call(remote, colour, shape, "UNAVAILABLE, a OK", retry(), requests=requests)
    assert summary_of(seen) == (b"a", "OK", 2, None)
    assert [attempt.requests for attempt in seen.attempts] == [WHOLE] * 2


@pytest.mark.parametrize("on", [None, Exception])
@pytest.mark.parametrize("make", [once, lambda: iter(WHOLE)], ids=["generator", "iterator"])
@pytest.mark.parametrize(("colour", "shape"), UP)
def test_an_iterator_that_was_read_is_not_resent(
    remote: Server, colour: str, shape: str, make: Callable[[], Any], on: Any
) -> None:
    policy = retry() if on is None else retry(on=on)
    seen = make_call(remote, colour, shape, "UNAVAILABLE, a OK", policy, requests=make())
    assert summary_of(seen) == (b"", "UNAVAILABLE", 1, "not_replayable")
    seen = make_call(remote, colour, shape, "a OK", policy, requests=make())
    assert summary_of(seen) == (b"a", "OK", 1, None)
    assert seen.attempts[0].requests == WHOLE


@pytest.mark.parametrize(("colour", "shape"), AIO)
def test_an_async_generator_that_was_read_is_not_resent(remote: Server, colour: str, shape: str) -> None:
    requests: Any = aonce()
    seen = make_call(remote, colour, shape, "UNAVAILABLE, a OK", retry(), requests=requests)
    assert summary_of(seen) == (b"", "UNAVAILABLE", 1, "not_replayable")
    requests = aonce()
    seen = make_call(remote, colour, shape, "a OK", retry(), requests=requests)
    assert (seen.messages, seen.attempts[0].requests) == ([b"a"], WHOLE)


@pytest.mark.parametrize(("colour", "shape"), UP)
def test_an_empty_iterator_can_be_resent(remote: Server, colour: str, shape: str) -> None:
    requests: Iterator[bytes] = iter(())
    seen = make_call(remote, colour, shape, "UNAVAILABLE, a OK", retry(), requests=requests)
    assert summary_of(seen) == (b"a", "OK", 2, None)


# ------------------------------------------------- items read after their attempt failed


@pytest.mark.parametrize(("colour", "shape"), BLOCKING)
def test_an_item_read_after_the_failure_goes_to_the_next_attempt(
    remote: Server, colour: str, shape: str
) -> None:
    """The first attempt fails while gRPC waits for the first request."""
    failed = Event()

    def slow() -> Iterator[bytes]:
        failed.wait()
        yield from WHOLE

    policy = retry(on_retry=setter_of(failed))
    seen = make_call(remote, colour, shape, "deaf UNAVAILABLE, a OK", policy, requests=slow())
    assert summary_of(seen) == (b"a", "OK", 2, None)
    assert seen.attempts[1].requests == WHOLE


@pytest.mark.parametrize(("colour", "shape"), AIO)
def test_an_item_read_after_the_failure_goes_to_the_next_async_attempt(
    remote: Server, colour: str, shape: str
) -> None:
    failed = asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        await failed.wait()
        for request in WHOLE:
            yield request

    requests: Any = slow()
    policy = retry(on_retry=setter_of(failed))
    seen = make_call(remote, colour, shape, "deaf UNAVAILABLE, a OK", policy, requests=requests)
    assert summary_of(seen) == (b"a", "OK", 2, None)
    assert seen.attempts[1].requests == WHOLE


@pytest.mark.parametrize("shape", ["up", "both"])
def test_a_late_read_of_a_failed_attempt_gets_no_item(remote: Server, shape: str) -> None:
    """After an attempt has ended gRPC may read on; the requests are left for the next attempt."""
    iterators: list[Any] = []

    def does(continuation: Any, call_details: Any, requests: Any) -> Any:
        iterators.append(requests)
        return continuation(call_details, iter(()))  # leaves the requests unread

    ours = redouble.grpc.interceptors(retry())
    channel = grpc.intercept_channel(shared_channel(remote.target), *ours, DelegatingInterceptor(does))
    _, metadata = remote.script("deaf UNAVAILABLE, a OK")
    answer = stub_of(channel, shape)(once(), metadata=metadata)
    assert answer == b"a" if shape == "up" else list(answer) == [b"a"]
    first, second = iterators
    assert list(first) == []
    assert list(second) == WHOLE  # nothing was lost to the first attempt


@pytest.mark.parametrize("shape", ["up", "both"])
def test_a_late_async_read_of_a_failed_attempt_gets_no_item(remote: Server, shape: str) -> None:
    iterators: list[Any] = []

    async def does(continuation: Any, call_details: Any, requests: Any) -> Any:
        if iterators:
            assert [request async for request in iterators[0]] == []
        iterators.append(requests)
        return await continuation(call_details, iter(()) if len(iterators) == 1 else requests)

    async def main() -> None:
        known, metadata = remote.script("deaf UNAVAILABLE, a OK")
        async with achannel_of(remote, retry(), after=delegating_interceptors(does)) as channel:
            call = stub_of(channel, shape)(aonce(), metadata=metadata)
            assert await (call if shape == "up" else call.read()) == b"a"
        assert known.attempts[1].requests == WHOLE

    asyncio.run(main())


# ------------------------------------------------------------------- requests that raise


@pytest.mark.parametrize("good", [0, 1])
@pytest.mark.parametrize(("colour", "shape"), BLOCKING)
def test_an_error_while_iterating_the_requests_fails_the_call(
    remote: Server, colour: str, shape: str, good: int
) -> None:
    def failing() -> Iterator[bytes]:
        yield from WHOLE[:good]
        raise OSError("the disk")

    seen = make_call(remote, colour, shape, "a OK", retry(on=Exception), requests=failing())
    assert summary_of(seen)[0::3] == (b"", "not_replayable")
    assert (seen.code, seen.error.details()) == ("UNKNOWN", "Exception iterating requests!")


@pytest.mark.parametrize(("colour", "shape"), BLOCKING)
def test_an_error_after_the_failed_attempt_fails_the_next_one(
    remote: Server, colour: str, shape: str
) -> None:
    failed = Event()

    def failing() -> Iterator[bytes]:
        failed.wait()
        yield from ()
        raise OSError("the disk")

    policy = retry(on=Exception, on_retry=setter_of(failed))
    seen = make_call(remote, colour, shape, "deaf UNAVAILABLE, a OK", policy, requests=failing())
    assert (seen.messages, seen.code, seen.reason) == ([], "UNKNOWN", "not_replayable")


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("shape", ["up", "both"])
def test_an_error_while_iterating_async_requests_cancels_the_call(
    remote: Server, shape: str, late: bool
) -> None:
    """As with gRPC itself."""

    async def main() -> None:
        failed = asyncio.Event()
        reported: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))

        async def failing() -> AsyncIterator[bytes]:
            if late:
                await failed.wait()
            for request in WHOLE[:0]:
                yield request
            raise OSError("the disk")

        policy = retry(on=Exception, on_retry=setter_of(failed))
        _, metadata = remote.script("deaf UNAVAILABLE, a OK" if late else "a OK")
        async with achannel_of(remote, policy) as channel:
            call = stub_of(channel, shape)(failing(), metadata=metadata)
            with pytest.raises(asyncio.CancelledError):
                await (call if shape == "up" else call.read())
            assert await call.code() is grpc.StatusCode.CANCELLED
        gc.collect()
        assert [context for context in reported if "never retrieved" in context["message"]] == []

    asyncio.run(main())


@pytest.mark.parametrize("colour", ["sync", "aio"])
@pytest.mark.parametrize("shape", ["up", "both"])
def test_requests_that_are_not_iterable_are_refused_by_grpc(remote: Server, colour: str, shape: str) -> None:
    requests: Any = 5
    if colour == "aio":
        with pytest.raises(asyncio.CancelledError):
            make_call(remote, colour, shape, "a OK", retry(), requests=requests)
    else:
        seen = make_call(remote, colour, shape, "a OK", retry(), requests=requests)
        assert (seen.messages, seen.code, seen.error.details()) == (
            [],
            "UNKNOWN",
            "Exception iterating requests!",
        )
