"""What ``stub.Method.future(...)`` returns: a call in a thread of its own, with the face of gRPC's."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, get_ident
from typing import Any

import grpc
import pytest

import redouble
from redouble import CircuitBreaker, Fallback, Layer
from tests.support.grpc.calls import channel_of, report_of, request_of, retry, stub_of, until
from tests.support.grpc.server import Call, Server

UP = pytest.mark.parametrize("shape", ["unary", "up"])
FOREVER = 3600.0


def begun(
    remote: Server, shape: str, script: str, policy: Layer | None = None, **said: Any
) -> tuple[Any, Call]:
    known, metadata = remote.script(script)
    stub = stub_of(channel_of(remote, retry() if policy is None else policy), shape)
    return stub.future(request_of(shape), metadata=metadata, **said), known


@UP
def test_a_future_that_succeeds(remote: Server, shape: str) -> None:
    future, known = begun(remote, shape, "UNAVAILABLE, head a @7 OK", timeout=FOREVER)
    assert future.result(FOREVER) == b"a"
    assert (future.exception(), future.traceback()) == (None, None)
    assert (future.code(), future.details()) == (grpc.StatusCode.OK, "")
    assert future.initial_metadata() == (("head", "1"),)
    assert future.trailing_metadata() == (("grpc-retry-pushback-ms", "7"),)
    assert (future.done(), future.running(), future.cancelled(), future.is_active()) == (True, *[False] * 3)
    assert not future.cancel()
    assert 0 < future.time_remaining() <= FOREVER
    assert len(known.attempts) == 2


@UP
def test_a_future_that_fails(remote: Server, shape: str) -> None:
    future, known = begun(remote, shape, "UNAVAILABLE", retry(attempts=3))
    error = future.exception()
    assert error.code() is future.code() is grpc.StatusCode.UNAVAILABLE
    assert future.details() == "as the script says"
    assert future.traceback() is error.__traceback__ is not None
    with pytest.raises(grpc.RpcError) as caught:
        future.result()
    assert caught.value is error
    assert (report_of(error).reason, report_of(error).attempts, len(known.attempts)) == ("attempts", 3, 3)
    assert future.time_remaining() is None
    assert (future.done(), future.cancelled()) == (True, False)


@UP
def test_a_future_that_is_not_over(remote: Server, shape: str) -> None:
    future, known = begun(remote, shape, "hang OK")
    with pytest.raises(grpc.FutureTimeoutError):
        future.result(0)
    with pytest.raises(grpc.FutureTimeoutError):
        future.exception(0)
    assert (future.done(), future.running(), future.cancelled(), future.is_active()) == (
        False,
        True,
        False,
        True,
    )
    until(lambda: known.attempts)
    known.attempts[0].cut.set()
    assert future.result() == b"ok"


@UP
def test_a_done_callback_is_called_once(remote: Server, shape: str) -> None:
    """A callback runs at the end in the thread of the call, or at once after it; its error is logged."""
    future, known = begun(remote, shape, "hang OK")
    told: list[tuple[str, int]] = []
    over = Event()

    def tells(name: str) -> Callable[..., None]:
        return lambda *_: told.append((name, get_ident()))

    future.add_done_callback(tells("done"))
    assert future.add_callback(lambda: 1 / 0)
    assert future.add_callback(tells("callback"))
    assert future.add_callback(over.set)
    until(lambda: known.attempts)
    known.attempts[0].cut.set()
    assert over.wait(FOREVER)
    assert [name for name, _ in told] == ["done", "callback"]
    assert get_ident() not in [ident for _, ident in told]
    seen: list[object] = []
    future.add_done_callback(seen.append)
    assert seen == [future]
    assert not future.add_callback(tells("late"))
    assert [name for name, _ in told] == ["done", "callback"]


@UP
def test_a_fallback(remote: Server, shape: str) -> None:
    policy = Fallback(value=b"x", on=grpc.RpcError) | retry(attempts=2)
    future, known = begun(remote, shape, "UNAVAILABLE", policy)
    assert (future.result(), future.code(), future.details(), len(known.attempts)) == (
        b"x",
        grpc.StatusCode.OK,
        "",
        2,
    )
    assert (future.initial_metadata(), future.trailing_metadata()) == ((), ())


@UP
def test_a_gate_that_is_shut(remote: Server, shape: str) -> None:
    breaker = CircuitBreaker(failures=1)
    with pytest.raises(ValueError, match="no"), breaker:
        raise ValueError("no")
    future, known = begun(remote, shape, "a OK", breaker | retry())
    with pytest.raises(redouble.errors.CircuitOpen):
        future.result()
    assert (future.code(), known.attempts) == (grpc.StatusCode.UNKNOWN, [])


@UP
def test_deadlines_and_other_context_go_along(remote: Server, shape: str) -> None:
    with redouble.deadline(60):
        future, known = begun(remote, shape, "a OK")
    assert future.result() == b"a"
    assert known.attempts[0].left < 61


class Ended(BaseException):
    """Something that is no Exception."""


class Ends(Layer):
    """A layer in which that comes up."""

    def around(self, fn: Callable[..., Any], /) -> Callable[..., Any]:
        def ended(*_: object) -> None:
            raise Ended

        return ended


def test_a_thread_that_is_ended_wakes_all_waiters(remote: Server) -> None:
    future, _ = begun(remote, "unary", "a OK", Ends())
    with pytest.raises(redouble.errors.Stopped, match="was ended"):
        future.result()
