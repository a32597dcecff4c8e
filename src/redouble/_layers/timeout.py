"""Timeout: a limit as a layer, around a whole pipeline or around each attempt inside a `Retry`.

Async functions are cut; blocking ones run on a worker. It makes no attempts and keeps no record.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Iterator
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, ParamSpec, TypeVar, cast

from redouble._drivers.attempt import run_on_worker
from redouble._drivers.stream_function import PassiveStreamOwner, StreamFunction
from redouble._engine.worker import Worker, check_worker
from redouble._internal.callables import display_name, reject_awaitable
from redouble._internal.public import public
from redouble._internal.validation import Duration, in_seconds
from redouble._internal.validation import seconds as checked
from redouble._layers.analysis import Traits, WorstCase
from redouble._layers.layer import Layer
from redouble._runtime.ambient import ambient
from redouble._runtime.backend import cut_after
from redouble._runtime.clock import SYSTEM, Clock, context_clock
from redouble._runtime.deadline import time_left
from redouble._telemetry.emit import emit_timeout
from redouble.errors import AttemptTimeout, Limit, WorkerStillRunning

__all__ = ["Timeout"]


P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")


@public("redouble")
@dataclass(frozen=True)
class Timeout(Layer):
    """Raise `AttemptTimeout` if a call takes longer than ``seconds``, or than the deadline allows.

    An async function is cancelled, an async generator has to give its first item in time. A blocking
    function needs a ``worker`` to run on: one that is still running there after the worker's grace is a
    `WorkerStillRunning`.
    """

    seconds: Duration
    worker: Worker | None = None

    def __post_init__(self) -> None:
        if callable(self.seconds):
            raise TypeError("write @Timeout(2), with the seconds: it is no decorator without them")
        limit = checked(self.seconds, "Timeout seconds")
        if not limit:
            raise ValueError("Timeout(0): no call could succeed; write more seconds, or leave it out")
        object.__setattr__(self, "seconds", limit)
        if self.worker is not None:
            check_worker(self.worker, "Timeout worker")

    @property
    def _kept_by_wrapper(self) -> bool:
        return True

    def around(self, fn: Callable[P, T], /) -> Callable[P, T]:
        """Return ``fn`` limited, on a worker."""
        worker, name = self.worker, display_name(fn)
        if worker is None:
            raise TypeError(
                f"Timeout cannot stop {name}, which blocks: write Timeout({self.seconds:g}, worker=Worker()) "
                "to run it on a thread"
            )

        def limited(*args: P.args, **kwargs: P.kwargs) -> T:
            return reject_awaitable(fn, TimeoutCall(self._limit, name).on(worker, fn, args, kwargs))

        return limited

    def around_async(self, fn: Callable[P, Awaitable[T]], /) -> Callable[P, Coroutine[Any, Any, T]]:
        """Return ``fn`` limited, for a coroutine function."""
        name = display_name(fn)

        async def limited(*args: P.args, **kwargs: P.kwargs) -> T:
            return await TimeoutCall(self._limit, name).cut(fn, args, kwargs)

        return limited

    def around_stream(self, fn: Callable[P, Generator[T, S, Any]], /) -> Callable[P, Generator[T, S, Any]]:
        raise TypeError(
            f"Timeout cannot limit {display_name(fn)}, a generator that blocks: write an async generator, or a "
            "function that returns a list, with worker=Worker()"
        )

    def around_async_stream(
        self, fn: Callable[P, AsyncGenerator[T, S]], /
    ) -> Callable[P, AsyncGenerator[T, S]]:
        """Return ``fn`` limited until its first item, for an async generator function."""
        from redouble._drivers.async_items import AsyncItems  # noqa: PLC0415  for those who stream

        name = display_name(fn)

        def limited(*args: P.args, **kwargs: P.kwargs) -> AsyncGenerator[T, S]:
            fn(*args, **kwargs)  # runs nothing yet; but wrong arguments are an error here and now
            return AsyncItems(
                TimeoutStreamOwner(TimeoutCall(self._limit, name), partial(fn, *args, **kwargs))
            )

        return StreamFunction(fn, limited)

    def describe(self) -> str:
        return f"at most {in_seconds(self._limit)}"

    def worst_case(self, inner: WorstCase, /) -> WorstCase:
        grace = 0.0 if self.worker is None else self.worker.grace
        return inner.within(self._limit + cast("float", grace))

    def traits(self) -> Traits:
        return Traits(time_limit=self._limit, each_call_limit=self._limit)

    def lint(self, outer: tuple[Layer, ...], inner: tuple[Layer, ...], worst: WorstCase, /) -> Iterator[str]:
        del inner, worst
        limit = min((layer.traits().time_limit for layer in outer), default=inf)
        if limit <= self._limit:
            yield (
                f"Timeout({self._limit:g}) inside a limit of {in_seconds(limit)}: that one is always reached "
                "first, so this one ends nothing, and nothing is retried after it"
            )

    @property
    def _limit(self) -> float:
        return cast("float", self.seconds)  # a timedelta became seconds when it was checked


class TimeoutCall:
    """One call under a limit: the face that `worked` knows a run by."""

    clock: Clock = SYSTEM

    def __init__(self, seconds: float, name: str) -> None:
        self._seconds, self._name = seconds, name
        self.reading = context_clock()
        if ambient.active:
            self.reading()  # a clock of a test learns here of the one it goes by
        self.stuck = False

    def refresh_now(self) -> float:
        """Tell the time."""
        return self.reading()

    def time_left(self, *, own: bool = True) -> float:
        """Say how long it may take, and note whose limit that is."""
        rest = time_left() if ambient.active else inf
        limit = self._seconds if own else inf
        self._bound: Limit = "attempt" if limit <= rest else "deadline"
        self._took = limit if limit <= rest else max(0.0, rest)
        return self._took

    def expired(self) -> AttemptTimeout:
        """Return what to raise when it took longer."""
        said = f"took longer than {self._took:g} s"
        if self._bound == "deadline":
            cut = f"was cut after {self._took:g} s: the deadline"
            said = cut if self._took else "was not called: the deadline has passed"
        error = AttemptTimeout(f"{self._name} {said}", limit=self._bound, seconds=self._took)
        return emit_timeout(error, self._name)

    def leave_worker(self, *, alone: bool) -> None:
        """Take in that the worker goes on."""
        self.stuck = alone

    def on(self, worker: Worker, fn: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> T:
        """Call ``fn`` on a worker."""
        if not self.time_left():
            raise self.expired()
        try:
            result: T = run_on_worker(self, worker, fn, *args, **kwargs)
        except AttemptTimeout as error:
            if self.stuck:
                raise WorkerStillRunning(f"{error}, and its worker is still running") from error
            raise
        return result

    async def cut(self, fn: Callable[..., Awaitable[T]], args: tuple[Any, ...], kwargs: dict[str, Any]) -> T:
        """Call ``fn``, and cut it."""
        seconds = self.time_left()
        if seconds:
            with cut_after(seconds):
                return await fn(*args, **kwargs)
        raise self.expired()


class TimeoutStreamOwner(PassiveStreamOwner):
    """An async generator whose first item has to come in time: the owner of its items."""

    def __init__(self, once: TimeoutCall, make: Callable[[], AsyncGenerator[Any, Any]]) -> None:
        self._once, self._make = once, make

    async def aopen(self) -> tuple[Any, Any]:
        """Open it and take its first item."""
        from redouble._drivers.stream_source import aopen_first  # noqa: PLC0415  for those who stream

        return await self._once.cut(aopen_first, (self._make,), {})
