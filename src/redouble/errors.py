"""The exceptions of Redouble.

Your own exceptions are raised unchanged. These are raised only if there is none of yours to raise, or if you
asked for them with ``wrap=True``::

    RedoubleError
    ├── RetryError                 .reason .report .last
    │   ├── AttemptsExhausted      no attempts, or no delays, left
    │   ├── NotAccepted            `until` did not accept the last result; .last is that result
    │   ├── BudgetExhausted        the shared budget allowed no retry
    │   ├── Stopped                the verdict was "stop"
    │   └── DeadlineExceeded       no time left (also a TimeoutError)
    ├── AttemptTimeout             one attempt took too long (also a TimeoutError)
    ├── WorkerStillRunning         a worker ignored its cancellation (also a TimeoutError)
    ├── WorkerFailed               a worker could not start, died, or could not send its result
    ├── Rejected                   your function was not called; .retry_after
    │   ├── CircuitOpen
    │   ├── BulkheadFull
    │   ├── WorkersBusy            all workers of a `Worker` with a limit are in use
    │   └── RateLimited
    └── ConfigError                a setting is wrong (also a ValueError); .path

All of them can be pickled.
"""

# This module imports no other module of the library, but one inside a function.

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from redouble._engine.report import Report

__all__ = [
    "AttemptTimeout",
    "AttemptsExhausted",
    "BudgetExhausted",
    "BulkheadFull",
    "CircuitOpen",
    "ConfigError",
    "DeadlineExceeded",
    "NotAccepted",
    "RateLimited",
    "Reason",
    "RedoubleError",
    "Rejected",
    "RetryError",
    "Stopped",
    "WorkerFailed",
    "WorkerStillRunning",
    "WorkersBusy",
]


# All time limits; public in `redouble.types`.
Limit: TypeAlias = Literal["attempt", "work", "total", "give_up_after", "deadline"]


class Reason(StrEnum):
    """Why a call was given up."""

    attempts = "attempts"
    stopped = "stopped"
    timeout = "timeout"
    work_timeout = "work_timeout"
    budget = "budget"
    hint_too_long = "hint_too_long"
    nested = "nested"
    backoff_ended = "backoff_ended"
    worker_still_running = "worker_still_running"
    committed = "committed"
    not_replayable = "not_replayable"


class RedoubleError(Exception):
    """The base class of every exception of Redouble."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.args, self.__dict__.copy()))


class RetryError(RedoubleError):
    """A call was given up. ``last`` is the error of its last attempt, or the last unaccepted result."""

    def __init__(
        self,
        message: str = "",
        *,
        reason: Reason | None = None,
        report: Report | None = None,
        last: object = None,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.report = report
        self.last = last

    def __reduce__(self) -> tuple[Any, ...]:
        # `last` is the caller's object: it may contain a socket or a lambda. To replace it by its repr is
        # better than to lose the whole error on its way out of a worker process.
        state = {**self.__dict__, "last": _picklable(self.last)}
        return (_rebuild, (type(self), self.args, state))


class AttemptsExhausted(RetryError):
    """No attempts (`attempts`), or no delays (`backoff_ended`), are left."""


class NotAccepted(RetryError):
    """``until`` did not accept the last result, which is in ``last``."""


class BudgetExhausted(RetryError):
    """The shared budget allowed no retry."""


class Stopped(RetryError):
    """The verdict was "stop", or a retry was not possible: ``reason`` is why, such as ``committed``."""


class DeadlineExceeded(RetryError, TimeoutError):
    """No time is left for the call."""


class AttemptTimeout(RedoubleError, TimeoutError):
    """One attempt took longer than its limit of ``seconds``; ``limit`` names the limit.

    That is ``attempt``; or ``work``, ``total`` or ``deadline`` if that limit left less time.
    """

    def __init__(
        self, message: str = "", *, limit: Limit | None = None, seconds: float | None = None
    ) -> None:
        super().__init__(message)
        self.limit: Limit | None = limit
        self.seconds = seconds


class WorkerStillRunning(RedoubleError, TimeoutError):
    """A worker was cancelled and did not stop; no second one is started beside it."""


class WorkerFailed(RedoubleError):
    """A worker could not be started, died, or its arguments or result could not be sent."""


class Rejected(RedoubleError):
    """A gate rejected the call: your function was not called. ``retry_after`` is the suggested wait."""

    def __init__(self, message: str = "", *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class CircuitOpen(Rejected):
    """The circuit breaker is open."""


class BulkheadFull(Rejected):
    """All ``limit`` slots of the bulkhead are in use, and none was released within ``wait`` seconds."""

    def __init__(
        self,
        message: str = "",
        *,
        limit: int | None = None,
        wait: float | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message, retry_after=retry_after)
        self.limit = limit
        self.wait = wait


class WorkersBusy(Rejected):
    """All ``limit`` workers are in use, and none came free within ``wait`` seconds or the time left."""

    def __init__(
        self,
        message: str = "",
        *,
        limit: int | None = None,
        wait: float | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message, retry_after=retry_after)
        self.limit = limit
        self.wait = wait


class RateLimited(Rejected):
    """The rate limit is used up."""


class ConfigError(RedoubleError, ValueError):
    """A setting is invalid; ``path`` is its path in the configuration."""

    def __init__(self, message: str = "", *, path: str = "") -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.path = path


def _rebuild(kind: type[RedoubleError], args: tuple[object, ...], state: dict[str, object]) -> RedoubleError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(state)
    return error


def _picklable(value: object) -> object:
    import pickle  # noqa: PLC0415  only needed to pickle an error

    try:
        pickle.loads(pickle.dumps(value))  # noqa: S301  our own bytes: some errors fail only when unpickled
    except Exception:
        from redouble._redaction.rendering import shown_repr  # noqa: PLC0415  only needed for these few

        return shown_repr(value)
    return value
