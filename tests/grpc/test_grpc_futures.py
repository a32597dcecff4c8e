"""``stub.Method.future(...)`` returns a call in its own thread, with the methods of gRPC's future."""

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
    remote: Server, shape: str, script: str, policy: Layer | None = None, **options: Any
) -> tuple[Any, Call]:
    known, metadata = remote.script(script)
    stub = stub_of(channel_of(remote, retry() if policy is None else policy), shape)
    return stub.future(request_of(shape), metadata=metadata, **options), known


@UP
def test_the_methods_of_a_successful_future(remote: Server, shape: str) -> None:
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
def test_the_methods_of_a_failed_future(remote: Server, shape: str) -> None:
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
def test_the_methods_of_a_running_future(remote: Server, shape: str) -> None:
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
    known.attempts[0].ended.set()
    assert future.result() == b"ok"


@UP
def test_each_callback_is_called_once(remote: Server, shape: str) -> None:
    """At the end of the call, in its thread; if the call has ended, at once. The error of one is logged."""
    future, known = begun(remote, shape, "hang OK")
    called: list[tuple[str, int]] = []
    over = Event()

    def recorder(name: str) -> Callable[..., None]:
        return lambda *_: called.append((name, get_ident()))

    future.add_done_callback(recorder("done"))
    assert future.add_callback(lambda: 1 / 0)
    assert future.add_callback(recorder("callback"))
    assert future.add_callback(over.set)
    until(lambda: known.attempts)
    known.attempts[0].ended.set()
    assert over.wait(FOREVER)
    assert [name for name, _ in called] == ["done", "callback"]
    assert get_ident() not in [ident for _, ident in called]
    seen: list[object] = []
    future.add_done_callback(seen.append)
    assert seen == [future]
    assert not future.add_callback(recorder("late"))
    assert [name for name, _ in called] == ["done", "callback"]


@UP
def test_the_value_of_a_fallback_is_the_result(remote: Server, shape: str) -> None:
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
def test_a_rejection_by_a_breaker_is_raised(remote: Server, shape: str) -> None:
    breaker = CircuitBreaker(failures=1)
    with pytest.raises(ValueError, match="no"), breaker:
        raise ValueError("no")
    future, known = begun(remote, shape, "a OK", breaker | retry())
    with pytest.raises(redouble.errors.CircuitOpen):
        future.result()
    assert (future.code(), known.attempts) == (grpc.StatusCode.UNKNOWN, [])


@UP
def test_a_future_keeps_the_deadline_of_its_context(remote: Server, shape: str) -> None:
    with redouble.deadline(60):
        future, known = begun(remote, shape, "a OK")
    assert future.result() == b"a"
    assert known.attempts[0].time_remaining < 61


class Ended(BaseException):
    """An error that is no Exception."""


class Ends(Layer):
    """A layer that raises it."""

    def around(self, fn: Callable[..., Any], /) -> Callable[..., Any]:
        def ended(*_: object) -> None:
            raise Ended

        return ended


def test_a_base_exception_in_the_thread_fails_the_future(remote: Server) -> None:
    future, _ = begun(remote, "unary", "a OK", Ends())
    with pytest.raises(redouble.errors.Stopped, match="ended without a result"):
        future.result()
