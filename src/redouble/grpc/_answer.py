"""Answer: how a call came out that gRPC has no object for."""

from __future__ import annotations

from types import TracebackType
from typing import Any

import grpc

from redouble.grpc._errors import CANCELLED, Cancelled
from redouble.grpc._over import Over

__all__ = ["Answer"]


class Answer(Over):
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
        return isinstance(self._error, Cancelled | grpc.FutureCancelledError)

    def debug_error_string(self) -> str:
        """Say what gRPC says about it."""
        said: str = self._told("debug_error_string", self.details())
        return said

    def _told(self, name: str, otherwise: Any) -> Any:
        tell = getattr(self._error, name, None) if isinstance(self._error, grpc.RpcError) else None
        return otherwise if tell is None else tell()
