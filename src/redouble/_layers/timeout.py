"""Timeout: a time limit as a layer, around a whole pipeline or around each attempt inside a `Retry`.

Async functions are cancelled; blocking ones run on a worker.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from math import inf
from types import FrameType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from redouble._drivers.attempt_timeout import run_on_worker
from redouble._drivers.opened_stream import StreamOwner, aopen_first
from redouble._drivers.stream_function import wrap_stream
from redouble._engine.worker import Worker, check_worker, describe_worker
from redouble._internal.callables import display_name
from redouble._internal.public import public
from redouble._internal.validation import Duration, format_seconds, seconds
from redouble._layers.analysis import (
    BlockingWorstCase,
    NoBlockingCode,
    Traits,
    WorstCase,
    combined_traits,
    interrupts_blocking_code,
)
from redouble._layers.layer import AsyncGeneratorFunction, Layer, Layers
from redouble._runtime.ambient import ambient
from redouble._runtime.backend import backend, cancel_after
from redouble._runtime.clock import SYSTEM, Clock, context_clock
from redouble._runtime.deadline import deadline_left
from redouble._runtime.enclosing import EnclosingCall, holds_call, limits
from redouble._telemetry.emit import emit_timeout
from redouble.errors import AttemptTimeout, Limit, WorkerStillRunning

if TYPE_CHECKING:
    from redouble._runtime.backend import CancelScope

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")


@public("redouble")
@dataclass(frozen=True)
class Timeout(Layer):
    """Raise `AttemptTimeout` if a call takes longer than ``seconds``, or than the deadline allows.

    An async function is cancelled, an async generator has to yield its first item in time. A blocking
    function needs a ``worker`` to run on; if it is still running there after the worker's grace period,
    `WorkerStillRunning` is raised.
    """

    _kept_by_wrapper = True

    seconds: Duration
    worker: Worker | None = None

    def __post_init__(self) -> None:
        if callable(self.seconds):
            raise TypeError("write @Timeout(2), with the seconds: it is no decorator without them")
        limit = seconds(self.seconds, "Timeout seconds")
        if not limit:
            raise ValueError("Timeout(0): no call could succeed; write more seconds, or leave it out")
        object.__setattr__(self, "seconds", limit)
        if self.worker is not None:
            check_worker(self.worker, "Timeout worker")
        limits.exist = True

    def around(self, fn: Callable[P, T], /) -> Callable[P, T]:
        """Return ``fn`` limited, on a worker."""
        worker, name = self.worker, display_name(fn)
        if worker is None:
            raise TypeError(
                f"Timeout cannot stop {name}, which blocks: write Timeout({self.seconds:g}, worker=Worker()) "
                "to run it on a thread"
            )

        def limited(*args: P.args, **kwargs: P.kwargs) -> T:
            call = TimeoutCall(self._limit, name)
            if not call.time_left():
                raise call.expired()
            try:
                result: T = run_on_worker(call, worker, fn, *args, **kwargs)
                return result
            except AttemptTimeout as error:
                if call.stuck:
                    raise WorkerStillRunning(f"{error}, and its worker is still running") from error
                raise

        return limited

    def around_async(self, fn: Callable[P, Awaitable[T]], /) -> Callable[P, Coroutine[Any, Any, T]]:
        """Return ``fn`` limited, for a coroutine function."""
        return self._limited(fn, display_name(fn))

    def around_stream(self, fn: Callable[P, Generator[T, S, Any]], /) -> Callable[P, Generator[T, S, Any]]:
        raise TypeError(
            f"Timeout cannot limit {display_name(fn)}, a generator that blocks: write an async generator, or "
            "a function that returns a list, with worker=Worker()"
        )

    def around_async_stream(self, fn: AsyncGeneratorFunction[P, T, S], /) -> AsyncGeneratorFunction[P, T, S]:
        """Return ``fn`` limited until its first item, for an async generator function."""
        opened = self._limited(aopen_first, display_name(fn))
        return wrap_stream(fn, lambda make: StreamOwner(partial(opened, make)))

    def _limited(self, fn: Callable[P, Awaitable[T]], name: str) -> Callable[P, Coroutine[Any, Any, T]]:
        async def limited(*args: P.args, **kwargs: P.kwargs) -> T:
            call = TimeoutCall(self._limit, name)
            if allowed := call.time_left():
                with cancel_after(allowed) as limit:  # noqa: F841  for `_read_call`
                    return await fn(*args, **kwargs)
            raise call.expired()

        return limited

    def describe(self) -> str:
        workers = "" if self.worker is None else describe_worker(self.worker)
        return f"at most {format_seconds(self._limit)}{workers}"

    def worst_case(self, inner: WorstCase, /) -> WorstCase:
        if self.worker is not None:
            wait = self.worker._longest_wait if self.worker.kind == "process" else 0.0
            return inner.within(self._limit + self.worker._grace).after(wait)
        limited = inner.within(self._limit)
        return NoBlockingCode(*limited) if isinstance(inner, BlockingWorstCase) else limited

    def traits(self) -> Traits:
        shared = () if self.worker is None or self.worker.limit is None else (self.worker,)
        return Traits(time_limit=self._limit, each_call_limit=self._limit, shared=shared)

    def lint(self, outer: Layers, inner: Layers, worst: WorstCase, /) -> Iterator[str]:  # noqa: ARG002
        if self.worker is not None:  # for blocking code
            outer = tuple(filter(interrupts_blocking_code, outer))
        limit = combined_traits(outer).time_limit
        if limit <= self._limit:
            yield (
                f"Timeout({self._limit:g}) inside a limit of {format_seconds(limit)}: the limit is always "
                "reached first, so this Timeout never ends a call, and no retry follows it"
            )

    @property
    def _limit(self) -> float:
        return cast("float", self.seconds)  # `__post_init__` has converted a timedelta


class LimitedCall:
    """A call under a limit that cancels it, as what encloses the code inside: no call of a policy."""

    attempt = 0
    attempts = None
    name = ""
    labels: Mapping[str, str] = {}

    def __init__(self, limit: CancelScope) -> None:
        self._limit = limit

    def left(self, *, soft: bool = False) -> float:
        """Return the seconds until the limit, which interrupts."""
        return inf if soft else backend().seconds_left(self._limit)


def _read_call(frame: FrameType) -> EnclosingCall | None:
    """Return the call of a frame of an async function under a `Timeout`; a worker has a deadline."""
    limit = frame.f_locals.get("limit")
    return None if limit is None else LimitedCall(limit)


holds_call("limited", Timeout.around.__code__.co_filename, _read_call)


class TimeoutCall:
    """The state of one call under a limit; `run_on_worker` uses it in place of a `Run`."""

    clock: Clock = SYSTEM

    def __init__(self, seconds: float, name: str) -> None:
        self._seconds, self._name = seconds, name
        self.refresh_now = context_clock()
        if ambient.active:
            self.refresh_now()  # the first reading binds a virtual clock to this context
        self.stuck = False

    def time_left(self, *, own: bool = True) -> float:
        """Return the seconds that the call may take, and record which limit that is."""
        left = deadline_left() if ambient.active else inf
        limit = self._seconds if own else inf
        self._limiting_limit: Limit = "attempt" if limit <= left else "deadline"
        self._allowed = limit if limit <= left else max(0.0, left)
        return self._allowed

    def expired(self) -> AttemptTimeout:
        """Return the error to raise when the limit is reached, and emit it."""
        text = f"took longer than {self._allowed:g} s"
        if self._limiting_limit == "deadline":
            cut = f"was cut after {self._allowed:g} s: the deadline"
            text = cut if self._allowed else "was not called: the deadline has passed"
        error = AttemptTimeout(f"{self._name} {text}", limit=self._limiting_limit, seconds=self._allowed)
        return emit_timeout(error, self._name)

    def leave_worker(self, *, alone: bool) -> None:
        """Record that the worker did not stop; ``alone``: no other may run beside it."""
        self.stuck = alone
