"""Over: what every call says that has come to its end, be it an answer or an error.

Errors of ours that are gRPC's too: whoever catches `grpc.RpcError` and asks for its code gets an answer.

A call that fails by itself raises gRPC's own error, as it is. Here is what comes out where there is none.

Answer: how a call came out that gRPC has no object for.
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
    "FinishedCall",
    "FutureOfAny",
    "Known",
    "ResolvedCall",
    "known",
]


if TYPE_CHECKING:
    FutureOfAny: TypeAlias = grpc.Future[Any]
else:
    FutureOfAny = grpc.Future


class FinishedCall(grpc.Call, FutureOfAny):
    """A call that is over: there is nothing left to wait for, and nothing to cancel."""

    def add_done_callback(self, fn: Callable[[Any], object]) -> None:
        """Call it at once."""
        fn(self)

    def add_callback(self, callback: Callable[[], object]) -> bool:  # noqa: ARG002
        """Say that it will not be called."""
        return False

    def cancel(self) -> bool:
        """Say that it is too late for that."""
        return False

    def done(self) -> bool:
        """Say that it is over."""
        return True

    def running(self) -> bool:
        """Say that it is over."""
        return False

    def is_active(self) -> bool:
        """Say that it is over."""
        return False

    def time_remaining(self) -> Any:
        """Say that there is no limit any more."""
        return None


CANCELLED = "Locally cancelled by application!"  # gRPC's own words
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
Known: TypeAlias = dict[type[Exception], type[Exception]]


def last_of(error: Any) -> Any:
    """Return the error of gRPC's that an error of ours stands for, if there is one."""
    last = getattr(error, "last", None)
    return last if isinstance(last, grpc.RpcError) and hasattr(last, "code") else None


class StatusMixin:
    """What is said about a call that ended with an error of ours, in either colour of gRPC's."""

    _nothing: Callable[[], Any]  # makes metadata with nothing in them

    def code(self) -> grpc.StatusCode:
        """Return the code of the last attempt, or that time was up."""
        if isinstance(self, TimeoutError):
            return grpc.StatusCode.DEADLINE_EXCEEDED
        last = last_of(self)
        return grpc.StatusCode.UNKNOWN if last is None else cast("grpc.StatusCode", last.code())

    def details(self) -> str:
        """Say what went wrong."""
        return str(self)

    def initial_metadata(self) -> Any:
        """Return those of the last attempt, if any."""
        last = last_of(self)
        return self._nothing() if last is None else last.initial_metadata()

    def trailing_metadata(self) -> Any:
        """Return those of the last attempt, if any."""
        last = last_of(self)
        return self._nothing() if last is None else last.trailing_metadata()

    def debug_error_string(self) -> str:
        """Say what went wrong."""
        return self.details()


class FailedCall(StatusMixin, grpc.RpcError, FinishedCall):
    """An error that is a call too, one that has failed: other interceptors are handed it as that."""

    _nothing = tuple[Any, ...]

    def result(self, timeout: float | None = None) -> Any:  # noqa: ARG002
        """Raise it."""
        raise self

    def exception(self, timeout: float | None = None) -> Self:  # noqa: ARG002
        """Return it."""
        return self

    def traceback(self, timeout: float | None = None) -> TracebackType | None:  # noqa: ARG002
        """Say where it was raised."""
        return self.__traceback__

    def cancelled(self) -> bool:
        """Say whether the caller has cancelled it."""
        return False


class CancelledCall(FailedCall):
    """The caller has cancelled the call while no attempt was under way."""

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.CANCELLED

    def cancelled(self) -> bool:
        return True


class CallCancelled(BaseException):
    """What passes the layers of a policy when the caller has cancelled the call: as a task would be.

    It is nobody's to judge, to count or to replace. What comes out is gRPC's own error, or `Cancelled`.
    """


class AioFailedCall(StatusMixin, grpc.aio.AioRpcError):
    """The same as gRPC's async code has it."""

    _nothing = grpc.aio.Metadata


def _both(face: type[grpc.RpcError]) -> Known:
    def made(kind: type[Exception]) -> type[Exception]:
        def reduced(error: Exception) -> tuple[Any, ...]:
            plain = kind(*error.args)  # in another process it is ours alone
            plain.__dict__.update(vars(error))
            return cast("tuple[Any, ...]", plain.__reduce__())

        own = {
            "__module__": "redouble.grpc",
            "__reduce__": reduced,
            "__repr__": kind.__repr__,
            "__str__": kind.__str__,
        }
        return new_class(kind.__name__, (kind, face), exec_body=lambda namespace: namespace.update(own))

    return {kind: made(kind) for kind in KINDS}


SYNC = _both(FailedCall)
AIO = _both(AioFailedCall)


def known(error: Exception, both: Known) -> None:
    """Make an error of ours gRPC's too; all others are left as they are, and so are those of gates."""
    kind = both.get(type(error))
    if kind is not None:
        error.__class__ = kind


class ResolvedCall(FinishedCall):
    """A call that is over: with a response (a fallback's, for instance), or with an error."""

    def __init__(self, response: object = None, error: Exception | None = None) -> None:
        self._response, self._error = response, error

    def code(self) -> grpc.StatusCode:
        """Return the code; an error that is not gRPC's is an unknown one."""
        if self._error is None:
            return grpc.StatusCode.OK
        if self.cancelled():
            return grpc.StatusCode.CANCELLED
        code: grpc.StatusCode = self._told("code", grpc.StatusCode.UNKNOWN)
        return code

    def details(self) -> str:
        """Say what went wrong, if anything did."""
        said: str = self._told("details", "" if self._error is None else str(self._error))
        return CANCELLED if self.cancelled() else said

    def initial_metadata(self) -> Any:
        """Return what the server sent first."""
        return self._told("initial_metadata", ())

    def trailing_metadata(self) -> Any:
        """Return what the server sent last."""
        return self._told("trailing_metadata", ())

    def result(self, timeout: float | None = None) -> Any:  # noqa: ARG002
        """Return the response, or raise the error."""
        if self._error is not None:
            try:
                raise self._error
            finally:
                del self
        return self._response

    def exception(self, timeout: float | None = None) -> Exception | None:  # noqa: ARG002
        """Return the error."""
        return self._error

    def traceback(self, timeout: float | None = None) -> TracebackType | None:  # noqa: ARG002
        """Say where the error was raised."""
        return None if self._error is None else self._error.__traceback__

    def cancelled(self) -> bool:
        """Say whether the caller has cancelled it."""
        return isinstance(self._error, CancelledCall | grpc.FutureCancelledError)

    def debug_error_string(self) -> str:
        """Say what gRPC says about it."""
        said: str = self._told("debug_error_string", self.details())
        return said

    def _told(self, name: str, otherwise: Any) -> Any:
        tell = getattr(self._error, name, None) if isinstance(self._error, grpc.RpcError) else None
        return otherwise if tell is None else tell()
