"""Errors of redouble that a call over gRPC raises: they are errors of gRPC too, with its methods."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import grpc
import pytest

import redouble.grpc
from redouble import Layer, errors
from redouble._engine.report import stamp_of
from redouble.grpc._finished_call import FailedCall, as_rpc_error
from tests.support.grpc.calls import ALL, ONE, make_call, report_of, retry, shared_channel, stub_of
from tests.support.grpc.interceptors import DelegatingInterceptor
from tests.support.grpc.server import Server

CODE = grpc.StatusCode
UNARY = [(colour, shape) for colour, shape in ALL if shape in ONE]


@pytest.mark.parametrize(("colour", "shape"), ALL)
def test_an_error_that_wraps_the_last_one_has_its_code(remote: Server, colour: str, shape: str) -> None:
    seen = make_call(remote, colour, shape, "head @7 UNAVAILABLE", retry(attempts=2, wrap=True))
    error = seen.error
    faces = errors.AttemptsExhausted, grpc.RpcError, grpc.aio.AioRpcError
    assert [isinstance(error, face) for face in faces] == [True, True, colour == "aio"]
    assert (type(error).__name__, type(error).__module__) == ("AttemptsExhausted", "redouble.grpc")
    assert (error.code(), error.details(), error.debug_error_string()) == (
        CODE.UNAVAILABLE,
        str(error),
        str(error),
    )
    assert dict(error.trailing_metadata()) == {"grpc-retry-pushback-ms": "7"}
    assert dict(error.initial_metadata()) in ([{"head": "1"}, {}] if colour == "aio" else [{"head": "1"}])
    assert (seen.reason, seen.report.attempts) == ("attempts", 2)
    assert str(error) == str(errors.AttemptsExhausted(*error.args))


@pytest.mark.parametrize(("colour", "shape"), ALL)
def test_a_pickled_error_is_an_error_of_redouble_alone(remote: Server, colour: str, shape: str) -> None:
    seen = make_call(remote, colour, shape, "UNAVAILABLE", retry(attempts=2, wrap=True))
    copy = pickle.loads(pickle.dumps(seen.error))
    assert type(copy) is errors.AttemptsExhausted
    assert str(copy) == str(seen.error)
    assert report_of(copy).attempts == 2


@pytest.mark.parametrize(("colour", "shape"), ALL)
def test_a_call_without_time_has_the_code_deadline_exceeded(remote: Server, colour: str, shape: str) -> None:
    """No attempt was made, so its metadata are empty."""
    error = make_call(remote, colour, shape, "a OK", retry(), timeout=0).error
    assert issubclass(type(error), errors.DeadlineExceeded)
    assert (error.code(), dict(error.initial_metadata()), dict(error.trailing_metadata())) == (
        CODE.DEADLINE_EXCEEDED,
        {},
        {},
    )


@pytest.mark.parametrize(("colour", "shape"), UNARY)
def test_until_may_reject_a_response(remote: Server, colour: str, shape: str) -> None:
    seen = make_call(remote, colour, shape, "a OK, b OK, c OK", retry(until=b"b".__eq__))
    assert (seen.messages, len(seen.attempts)) == ([b"b"], 2)
    seen = make_call(remote, colour, shape, "a OK", retry(attempts=3, until=b"b".__eq__))
    assert isinstance(seen.error, errors.NotAccepted)
    assert (seen.code, seen.reason, len(seen.attempts)) == ("UNKNOWN", "attempts", 3)


@pytest.mark.parametrize(("colour", "shape"), ALL)
def test_an_error_of_a_rule_is_raised_unchanged(remote: Server, colour: str, shape: str) -> None:
    """It is no error of gRPC."""

    def rule(_: Exception) -> bool:
        raise ZeroDivisionError

    seen = make_call(remote, colour, shape, "UNAVAILABLE", retry(on=rule))
    assert type(seen.error) is ZeroDivisionError
    assert isinstance(seen.error.__context__, grpc.RpcError)


class Twice(Layer):
    """A layer that always calls twice, and consults no veto."""

    first: Exception | None = None

    def around(self, fn: Callable[..., Any], /) -> Callable[..., Any]:
        def called(guard: object) -> Any:
            try:
                fn(guard)
            except grpc.RpcError as error:
                self.first = error
            return fn(guard)

        return called

    def around_async(self, fn: Callable[..., Any], /) -> Callable[..., Any]:
        async def called(guard: object) -> Any:
            try:
                await fn(guard)
            except grpc.RpcError as error:
                self.first = error
            return await fn(guard)

        return called


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("UNAVAILABLE, a OK", (b"a", 2, None)),
        ("@-1 UNAVAILABLE, a OK", (b"", 1, "stopped")),
    ],
)
@pytest.mark.parametrize(("colour", "shape"), ALL)
def test_a_layer_that_ignores_the_veto_gets_an_error(
    remote: Server, colour: str, shape: str, script: str, expected: tuple[bytes, int, str | None]
) -> None:
    layer = Twice()
    seen = make_call(remote, colour, shape, script, layer)
    assert (b"".join(seen.messages), len(seen.attempts), seen.reason) == expected
    assert report_of(layer.first).reason == "stopped"
    assert pickle.loads(pickle.dumps(stamp_of(layer.first))).reason == "stopped"
    if seen.error is not None:
        assert isinstance(seen.error, errors.Stopped)
        assert seen.code == "UNKNOWN"


class Bare(grpc.RpcError):
    """An error without attributes and without a status."""

    def code(self) -> Any:
        raise ValueError("none")

    def trailing_metadata(self) -> Any:
        raise ValueError("none")

    def __getattribute__(self, name: str) -> Any:
        if name == "__dict__":
            raise TypeError("no marks")
        return super().__getattribute__(name)


def test_an_error_that_cannot_be_stamped_is_guarded(remote: Server) -> None:
    """It comes from another interceptor; the veto applies when the next attempt begins."""
    calls: list[object] = []

    def fails(*arguments: object) -> object:
        calls.append(arguments)
        raise Bare

    ours = redouble.grpc.interceptors(retry(on=Exception, attempts=3))
    channel = grpc.intercept_channel(shared_channel(remote.target), *ours, DelegatingInterceptor(fails))
    with pytest.raises(Bare):
        stub_of(channel, "unary")(b"one")
    assert len(calls) == 3


@pytest.mark.parametrize(
    "kind",
    [
        errors.RetryError,
        *errors.RetryError.__subclasses__(),
        errors.AttemptTimeout,
        errors.WorkerStillRunning,
        errors.WorkerFailed,
    ],
)
def test_an_error_has_the_methods_of_a_failed_call(kind: type[Exception]) -> None:
    """Other interceptors receive it as the call object."""
    error: Any = kind.__new__(kind, "words")
    as_rpc_error(error, FailedCall)
    called_back: list[object] = []
    error.add_done_callback(called_back.append)
    assert called_back == [error]
    assert error.exception() is error
    assert error.traceback() is None
    assert (error.add_callback(print), error.cancel(), error.cancelled()) == (False, False, False)
    assert (error.done(), error.running(), error.is_active(), error.time_remaining()) == (
        True,
        False,
        False,
        None,
    )
    with pytest.raises(kind) as caught:
        error.result()
    assert caught.value is error
