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
    "FinishedCall",
    "FutureOfAny",
    "ResolvedCall",
    "as_rpc_error",
]


if TYPE_CHECKING:
    FutureOfAny: TypeAlias = grpc.Future[Any]
else:
    FutureOfAny = grpc.Future


class FinishedCall(grpc.Call, FutureOfAny):
    """A call that has ended: nothing to wait for, and nothing to cancel."""

    def add_done_callback(self, fn: Callable[[Any], object]) -> None:
        """Call the function at once."""
        fn(self)

    def add_callback(self, callback: Callable[[], object]) -> bool:  # noqa: ARG002
        """Return False: the callback will not be called."""
        return False

    def cancel(self) -> bool:
        """Return False: the call has ended."""
        return False

    def done(self) -> bool:
        """Return True: the call has ended."""
        return True

    def running(self) -> bool:
        """Return False: the call has ended."""
        return False

    def is_active(self) -> bool:
        """Return False: the call has ended."""
        return False

    def time_remaining(self) -> Any:
        """Return None: no deadline applies any more."""
        return None


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


def last_of(error: Any) -> Any:
    """Return the `grpc.RpcError` of the last attempt that an error of redouble carries, if any."""
    last = getattr(error, "last", None)
    return last if isinstance(last, grpc.RpcError) and hasattr(last, "code") else None


class StatusMixin:
    """The status methods of a call that ended with an error of redouble, in either colour of gRPC."""

    _no_metadata: Callable[[], Any]  # creates empty metadata

    def code(self) -> grpc.StatusCode:
        """Return the status code: DEADLINE_EXCEEDED for a timeout, else that of the last attempt."""
        if isinstance(self, TimeoutError):
            return grpc.StatusCode.DEADLINE_EXCEEDED
        last = last_of(self)
        return grpc.StatusCode.UNKNOWN if last is None else cast("grpc.StatusCode", last.code())

    def details(self) -> str:
        """Return the error message."""
        return str(self)

    def initial_metadata(self) -> Any:
        """Return the initial metadata of the last attempt, or empty ones."""
        last = last_of(self)
        return self._no_metadata() if last is None else last.initial_metadata()

    def trailing_metadata(self) -> Any:
        """Return the trailing metadata of the last attempt, or empty ones."""
        last = last_of(self)
        return self._no_metadata() if last is None else last.trailing_metadata()

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

    def cancelled(self) -> bool:
        """Return True if the caller cancelled the call."""
        return False


class CancelledCall(FailedCall):
    """The error of a call that the caller cancelled while no attempt was running."""

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.CANCELLED

    def cancelled(self) -> bool:
        return True


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
    kind = classes.get(type(error))
    if kind is not None:
        error.__class__ = kind


class ResolvedCall(FinishedCall):
    """A call that ended with a response (a fallback's, for instance) or with an error."""

    def __init__(self, response: object = None, error: Exception | None = None) -> None:
        self._response, self._error = response, error

    def code(self) -> grpc.StatusCode:
        """Return the status code; UNKNOWN for an error that is not gRPC's."""
        if self._error is None:
            return grpc.StatusCode.OK
        if self.cancelled():
            return grpc.StatusCode.CANCELLED
        code: grpc.StatusCode = self._of_error("code", grpc.StatusCode.UNKNOWN)
        return code

    def details(self) -> str:
        """Return the status message; empty after a success."""
        text: str = self._of_error("details", "" if self._error is None else str(self._error))
        return CANCELLED if self.cancelled() else text

    def initial_metadata(self) -> Any:
        """Return the initial metadata."""
        return self._of_error("initial_metadata", ())

    def trailing_metadata(self) -> Any:
        """Return the trailing metadata."""
        return self._of_error("trailing_metadata", ())

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

    def cancelled(self) -> bool:
        """Return True if the caller cancelled the call."""
        return isinstance(self._error, CancelledCall | grpc.FutureCancelledError)

    def debug_error_string(self) -> str:
        """Return gRPC's debug text, or the status message."""
        text: str = self._of_error("debug_error_string", self.details())
        return text

    def _of_error(self, name: str, default: Any) -> Any:
        method = getattr(self._error, name, None) if isinstance(self._error, grpc.RpcError) else None
        return default if method is None else method()
