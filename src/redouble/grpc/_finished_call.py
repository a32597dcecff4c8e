"""Calls that have ended and for which gRPC has no object: responses of other layers, errors of redouble.

An attempt that fails raises gRPC's own error, unchanged. An error of redouble gets a class that is a
`grpc.RpcError` too, for code that catches `grpc.RpcError` and reads its status code.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType, new_class
from typing import TYPE_CHECKING, Any, Self, TypeAlias, cast

import grpc

from redouble import errors

__all__ = [
    "AIO",
    "CANCELLED",
    "SYNC",
    "CallCancelled",
    "CancelledCall",
    "ErrorClasses",
    "FutureOfAny",
    "ResolvedCall",
    "as_rpc_error",
]


if TYPE_CHECKING:
    FutureOfAny: TypeAlias = grpc.Future[Any]
else:
    FutureOfAny = grpc.Future


def _returns(value: object) -> Any:
    """Return a method that returns always the same value."""

    def method(*_: object) -> object:
        return value

    return method


class FinishedCall(grpc.Call, FutureOfAny):
    """A call that has ended: nothing to wait for, and nothing to cancel."""

    add_callback = cancel = cancelled = running = is_active = _returns(False)
    done = _returns(True)
    time_remaining = _returns(None)

    def add_done_callback(self, fn: Callable[[Any], object]) -> None:
        """Call the function at once."""
        fn(self)


CANCELLED = "Locally cancelled by application!"  # gRPC's own text
KINDS: tuple[type[Exception], ...] = (
    errors.RetryError,
    errors.AttemptsExhausted,
    errors.NotAccepted,
    errors.BudgetExhausted,
    errors.Stopped,
    errors.DeadlineExceeded,
    errors.AttemptTimeout,
    errors.WorkerStillRunning,
    errors.WorkerFailed,
)
ErrorClasses: TypeAlias = dict[type[Exception], type[Exception]]


class StatusMixin:
    """The status methods of a call that ended with an error of redouble, in either colour of gRPC."""

    _no_metadata: Callable[[], Any]  # creates empty metadata

    def _of_last(self, name: str, default: Any) -> Any:
        """Read a status method of the last attempt's `grpc.RpcError`, if the error carries one."""
        last = getattr(self, "last", None)
        return getattr(last, name)() if isinstance(last, grpc.RpcError) and hasattr(last, "code") else default

    def code(self) -> grpc.StatusCode:
        """Return the status code: DEADLINE_EXCEEDED for a timeout, else that of the last attempt."""
        if isinstance(self, TimeoutError):
            return grpc.StatusCode.DEADLINE_EXCEEDED
        return cast("grpc.StatusCode", self._of_last("code", grpc.StatusCode.UNKNOWN))

    def details(self) -> str:
        """Return the error message."""
        return str(self)

    def initial_metadata(self) -> Any:
        """Return the initial metadata of the last attempt, or empty ones."""
        return self._of_last("initial_metadata", self._no_metadata())

    def trailing_metadata(self) -> Any:
        """Return the trailing metadata of the last attempt, or empty ones."""
        return self._of_last("trailing_metadata", self._no_metadata())

    def debug_error_string(self) -> str:
        """Return the error message."""
        return self.details()


class FailedCall(StatusMixin, grpc.RpcError, FinishedCall):
    """An error that is a failed call too: gRPC passes it to other interceptors as a call."""

    _no_metadata = tuple[Any, ...]

    def result(self, timeout: float | None = None) -> Any:  # noqa: ARG002
        """Raise this error."""
        raise self

    def exception(self, timeout: float | None = None) -> Self:  # noqa: ARG002
        """Return this error."""
        return self

    def traceback(self, timeout: float | None = None) -> TracebackType | None:  # noqa: ARG002
        """Return the traceback of the error."""
        return self.__traceback__


class CancelledCall(FailedCall):
    """The error of a call that the caller cancelled while no attempt was running."""

    code = _returns(grpc.StatusCode.CANCELLED)
    cancelled = _returns(True)


class CallCancelled(BaseException):
    """The signal that unwinds the layers of a policy after the caller has cancelled a blocking call.

    A `BaseException`, like the cancellation of a task, so that no layer judges, counts or replaces it. The
    caller gets gRPC's own error, or `CancelledCall`.
    """


class AioFailedCall(StatusMixin, grpc.aio.AioRpcError):
    """An error that is a failed call of `grpc.aio` too."""

    _no_metadata = grpc.aio.Metadata


def _error_classes(base: type[grpc.RpcError]) -> ErrorClasses:
    def make(kind: type[Exception]) -> type[Exception]:
        def reduce(error: Exception) -> tuple[Any, ...]:
            plain = kind(*error.args)  # unpickled, it is an error of redouble only
            plain.__dict__.update(vars(error))
            return cast("tuple[Any, ...]", plain.__reduce__())

        own = {
            "__module__": "redouble.grpc",
            "__reduce__": reduce,
            "__repr__": kind.__repr__,
            "__str__": kind.__str__,
        }
        return new_class(kind.__name__, (kind, base), exec_body=lambda namespace: namespace.update(own))

    return {kind: make(kind) for kind in KINDS}


SYNC = _error_classes(FailedCall)
AIO = _error_classes(AioFailedCall)


def as_rpc_error(error: Exception, classes: ErrorClasses) -> None:
    """Make an error of redouble a `grpc.RpcError` too; other errors and those of gates stay unchanged."""
    if (kind := classes.get(type(error))) is not None:
        error.__class__ = kind


class ResolvedCall(FinishedCall):
    """A call that ended with a response (a fallback's, for instance) or with an error."""

    def __init__(self, response: object = None, error: Exception | None = None) -> None:
        self._response, self._error = response, error

    def _of_error(self, name: str, default: Any) -> Any:
        """Read a status method of the error, if it is one of gRPC."""
        method = getattr(self._error, name, None) if isinstance(self._error, grpc.RpcError) else None
        return default if method is None else method()

    def code(self) -> Any:
        """Return the status code; UNKNOWN for an error that is not gRPC's."""
        return self._of_error("code", grpc.StatusCode.OK if self._error is None else grpc.StatusCode.UNKNOWN)

    def details(self) -> Any:
        """Return the status message; empty after a success."""
        return self._of_error("details", "" if self._error is None else str(self._error))

    def debug_error_string(self) -> Any:
        """Return gRPC's debug text, or the status message."""
        return self._of_error("debug_error_string", self.details())

    def initial_metadata(self) -> Any:
        """Return the initial metadata."""
        return self._of_error("initial_metadata", ())

    def trailing_metadata(self) -> Any:
        """Return the trailing metadata."""
        return self._of_error("trailing_metadata", ())

    def cancelled(self) -> Any:
        """Return True if the caller cancelled the call."""
        return self._of_error("cancelled", False)

    def result(self, timeout: float | None = None) -> Any:  # noqa: ARG002
        """Return the response, or raise the error."""
        if self._error is not None:
            try:
                raise self._error
            finally:
                del self
        return self._response

    def exception(self, timeout: float | None = None) -> Exception | None:  # noqa: ARG002
        """Return the error, or None."""
        return self._error

    def traceback(self, timeout: float | None = None) -> TracebackType | None:  # noqa: ARG002
        """Return the traceback of the error, or None."""
        return None if self._error is None else self._error.__traceback__
