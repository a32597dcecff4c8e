"""Calls that have ended and for which gRPC has no object: responses of other layers, errors of redouble.

An attempt that fails raises gRPC's own error, unchanged. An error of redouble gets a class that is a
`grpc.RpcError` too, for code that catches `grpc.RpcError` and reads its status code.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import grpc

from redouble import errors
from redouble._clients.library_error import library_error_class
from redouble._redaction.rendering import shown, text_of
from redouble._runtime.backend import Cancellation

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

    _response: object = None

    add_callback = cancel = cancelled = running = is_active = _returns(False)
    done = _returns(True)
    time_remaining = _returns(None)

    def add_done_callback(self, fn: Callable[[Any], object]) -> None:
        """Call the function at once."""
        fn(self)

    def result(self, timeout: float | None = None) -> Any:  # noqa: ARG002
        """Return the response, or raise the error."""
        error = self.exception()
        if error is None:
            return self._response
        try:
            raise error
        finally:
            del self, error

    def traceback(self, timeout: float | None = None) -> TracebackType | None:  # noqa: ARG002
        """Return the traceback of the error, or None."""
        error = self.exception()
        return None if error is None else error.__traceback__


CANCELLED = "Locally cancelled by application!"  # gRPC's own text


class StatusMixin:
    """The status of a call that ended with an error of redouble: that of the last attempt, or a default."""

    _no_metadata: Callable[[], Any] = tuple[Any, ...]  # creates empty metadata
    _no_code = grpc.StatusCode.UNKNOWN

    def _cause(self) -> object:
        """Return the error whose status this is, if it is a `grpc.RpcError`."""
        return getattr(self, "last", None)

    def _read(self, name: str, default: Any) -> Any:
        """Read a status method of the cause, if it has this method."""
        cause = self._cause()
        method = getattr(cause, name, None) if isinstance(cause, grpc.RpcError) else None
        return default if method is None else method()

    def code(self) -> Any:
        """Return the status code: DEADLINE_EXCEEDED for a timeout."""
        timed_out = isinstance(self, TimeoutError)
        return grpc.StatusCode.DEADLINE_EXCEEDED if timed_out else self._read("code", self._no_code)

    def details(self) -> Any:
        """Return the error message."""
        return str(self)

    def debug_error_string(self) -> Any:
        """Return the error message."""
        return self.details()

    def initial_metadata(self) -> Any:
        """Return the initial metadata."""
        return self._read("initial_metadata", self._no_metadata())

    def trailing_metadata(self) -> Any:
        """Return the trailing metadata."""
        return self._read("trailing_metadata", self._no_metadata())


class FailedCall(StatusMixin, grpc.RpcError, FinishedCall):
    """An error that is a failed call too: gRPC passes it to other interceptors as a call."""

    def exception(self, timeout: float | None = None) -> Self:  # noqa: ARG002
        """Return this error."""
        return self


class CancelledCall(FailedCall):
    """The error of a call that the caller cancelled while no attempt was running."""

    code = _returns(grpc.StatusCode.CANCELLED)
    cancelled = _returns(True)


class CallCancelled(Cancellation):
    """The signal that unwinds the layers of a policy after the caller has cancelled a blocking call.

    A `BaseException`, like the cancellation of a task, so that no layer judges, counts or replaces it. The
    caller gets gRPC's own error, or `CancelledCall`.
    """


class AioFailedCall(StatusMixin, grpc.aio.AioRpcError):
    """An error that is a failed call of `grpc.aio` too."""

    _no_metadata = grpc.aio.Metadata


def as_rpc_error(error: Exception, base: type[grpc.RpcError]) -> None:
    """Make an error of redouble a `grpc.RpcError` too; those of gates and of a configuration stay."""
    if type(error).__module__ == errors.__name__ and not isinstance(
        error, errors.Rejected | errors.ConfigError
    ):
        error.__class__ = library_error_class((type(error), base), "redouble.grpc")


class ResolvedCall(StatusMixin, FinishedCall):
    """A call that ended with a response (a fallback's, for instance) or with an error."""

    def __init__(self, response: object = None, error: Exception | None = None) -> None:
        self._response, self._error = response, error
        if error is None:
            self._no_code = grpc.StatusCode.OK

    def _cause(self) -> object:
        return self._error

    def details(self) -> Any:
        """Return the status message; empty after a success."""
        return self._read("details", "" if self._error is None else shown(text_of(self._error)))

    def debug_error_string(self) -> Any:
        """Return gRPC's debug text, or the status message."""
        return self._read("debug_error_string", self.details())

    def cancelled(self) -> Any:
        """Return True if the caller cancelled the call."""
        return self._read("cancelled", False)

    def exception(self, timeout: float | None = None) -> Exception | None:  # noqa: ARG002
        """Return the error, or None."""
        return self._error
