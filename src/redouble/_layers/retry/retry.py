"""Retry: a policy as a decorator, `call`, `acall`, `run`, ``for`` and ``async for``, `stream` and `enter`.

A `Retry` is a frozen value. The engine decides and the drivers wait; this module only selects the driver. The
drivers of streams and context managers are imported on first use.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Callable, Coroutine, Generator, Iterable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar, cast, overload

from redouble._drivers.blocks import AsyncAttempts, attempts
from redouble._drivers.calls import acall, acall_blocking, aoutcome, call, outcome
from redouble._drivers.retrying_wrapper import STREAM, compile_retrying
from redouble._engine.options import Options, refuse_limits, refuse_unlimited, refuse_until
from redouble._engine.report import Outcome
from redouble._internal.callables import (
    callable_kind,
    display_name,
    lazy_kind,
    reject_uncallable,
)
from redouble._internal.codegen import compile_wrapper
from redouble._internal.public import public
from redouble._layers.layer import AsyncGeneratorFunction, Layer, Layers

if TYPE_CHECKING:
    from redouble._drivers.context_managers import Entrance
    from redouble._drivers.streams import Stream
    from redouble._layers.analysis import Traits, WorstCase

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")

Openable: TypeAlias = Iterable[T] | AsyncIterable[T] | Awaitable[AsyncIterable[T]]
Enterable: TypeAlias = (
    AbstractContextManager[T, Any]
    | AbstractAsyncContextManager[T, Any]
    | Awaitable[AbstractAsyncContextManager[T, Any]]
)


@public("redouble")
class Retry(Options, Layer):
    """A retry policy: an immutable value that many calls, threads and event loops can share.

    >>> policy = Retry(on=ConnectionError, attempts=5, give_up_after=10)

    Use it as a decorator, by ``policy.call(fn, ...)``, by ``policy.run(fn, ...)`` for an `Outcome`
    instead of an exception, by ``policy.stream(open)`` and ``policy.enter(make)`` for streams and context
    managers, or around a block::

        for attempt in policy:
            with attempt:
                ...

    on: an exception type, a tuple of them, a rule ``exc -> Answer``, an object with
        ``judge(ended)``, or a list of these; the first that does not answer None decides.
    until: a rule for results: truthy accepts, falsy means "not yet, try again", a `Verdict` decides.
    attempts: how many in total, including the first; None for no limit but time.
    backoff: seconds to wait, as a `Backoff` or any iterable; or a mapping of `Kind` to these.
    give_up_after: start no attempt after this many seconds, and no delay that would end later.
    timeout: the limit of the whole call. An async attempt, and one on a worker, is cancelled at the limit;
        plain blocking code cannot be, so there the limit only prevents attempts that would start too late.
    attempt_timeout: the limit of each attempt: of async functions, and of blocking ones on a ``worker``.
        A slow attempt fails with `AttemptTimeout`, and is retried unless a rule decides otherwise.
    work_timeout: like ``timeout``, for the time spent inside attempts, without delays and observers.
    hints: how to treat a delay requested by the server.
    budget: an allowance for retries, shared by passing the same object to many policies.
    worker: where blocking functions run, so that they can be limited: `Worker()`, a thread, or a process.
    before_attempt, on_success, on_failure, on_retry, on_give_up: functions of one event.
    nested: what to do about an error on which an inner policy already gave up.
    wrap: raise a `RetryError` from your error instead of your error.
    name, labels: for events and reports; the name is the function's unless given.
    clock, random: the clock and the random source, for tests.
    """

    _kept_by_wrapper = True

    def around(self, fn: Callable[P, T], /) -> Callable[P, T]:
        """Return ``fn`` retried."""
        refuse_unlimited(self, fn)
        return compile_retrying(self, fn, aio=False)

    def around_async(self, fn: Callable[P, Awaitable[T]], /) -> Callable[P, Coroutine[Any, Any, T]]:
        """Return ``fn`` retried, for a coroutine function."""
        return compile_retrying(self, fn, aio=True)

    def around_stream(self, fn: Callable[P, Generator[T, S, Any]], /) -> Callable[P, Generator[T, S, Any]]:
        """Return ``fn`` retried until its first item, for a generator function."""
        from redouble._drivers.streams import open_stream  # noqa: PLC0415

        refuse_until(self, f"{display_name(fn)} has none")
        refuse_limits(self, display_name(fn))
        name = self.name or display_name(fn)
        return compile_wrapper(fn, STREAM, is_async=False, Streaming=open_stream, policy=self, name=name)

    def around_async_stream(self, fn: AsyncGeneratorFunction[P, T, S], /) -> AsyncGeneratorFunction[P, T, S]:
        """Return ``fn`` retried until its first item, for an async generator function."""
        from redouble._drivers.stream_function import wrap_stream  # noqa: PLC0415
        from redouble._drivers.streams import Opener  # noqa: PLC0415

        refuse_until(self, f"{display_name(fn)} has none")
        return wrap_stream(fn, partial(Opener[T], self, self.name or display_name(fn), aio=True))

    def call(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call ``fn`` with retries and return what it returns: await it if ``fn`` is async."""
        reject_uncallable(fn, "call")
        name, kind = self.name or display_name(fn), callable_kind(fn)
        if kind == "plain":
            refuse_unlimited(self, fn)
            return call(self, name, fn, args, kwargs)
        if kind == "coroutine":
            return cast("T", acall(self, name, cast("Any", fn), args, kwargs))
        return cast("T", self._around(fn)(*args, **kwargs))

    async def acall(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a blocking ``fn`` with retries from async code: on the policy's worker, or on a thread.

        The event loop keeps running. All limits hold: `timeout`, `attempt_timeout`, `work_timeout` and the
        deadline end the wait, as a cancellation does, and signal the operation (`redouble.cancelled`).
        """
        reject_uncallable(fn, "call")
        if (kind := lazy_kind(fn)) is not None:
            fix = "await policy.call(...)" if callable_kind(fn) == "coroutine" else "policy.call(...)"
            raise TypeError(f"acall is for blocking functions, and {display_name(fn)} is {kind}: write {fix}")
        return await acall_blocking(self, self.name or display_name(fn), fn, args, kwargs)

    @overload
    def run(  # type: ignore[overload-overlap]  # a coroutine function is a function too: order decides
        self, fn: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, Outcome[T]]: ...
    @overload
    def run(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Outcome[T]: ...
    def run(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call ``fn`` with retries and return an `Outcome` instead of raising an error of ``fn``."""
        reject_uncallable(fn, "run")
        name, kind = self.name or display_name(fn), callable_kind(fn)
        if kind == "plain":
            refuse_unlimited(self, fn)
            return outcome(self, name, fn, args, kwargs)
        if kind == "coroutine":
            return aoutcome(self, name, fn, args, kwargs)
        raise TypeError(
            f"a stream has no outcome before its end: iterate over policy.call({display_name(fn)}, ...)"
        )

    def stream(
        self,
        open: Callable[[], Openable[T]],  # noqa: A002
        /,
        *,
        resume: Callable[[T], Openable[T]] | None = None,
    ) -> Stream[T]:
        """Return a stream over what ``open()`` opens, retried until its first item: ``for`` or ``async for``.

        With ``resume``, a stream that breaks after that is opened again by ``resume(last_item)``, which
        must begin after that item; attempts, backoff and limits start again whenever there was progress.
        """
        from redouble._drivers.streams import Opener, Stream  # noqa: PLC0415

        reject_uncallable(open, "stream")
        refuse_until(self, f"{display_name(open)} has none")
        if resume is not None and not callable(resume):
            raise TypeError(
                f"resume={resume!r}: write a function of the last item that opens the rest of the stream"
            )
        return Stream[T](partial(Opener, self, self.name or display_name(open), open, resume))

    def enter(self, make: Callable[P, Enterable[T]], /, *args: P.args, **kwargs: P.kwargs) -> Entrance[T]:
        """Make a context manager and enter it with retries: ``with policy.enter(connect, host) as it:``.

        Only entering is retried, each time with a new context manager; the body of the ``with`` never is.
        """
        from redouble._drivers.context_managers import Entrance  # noqa: PLC0415

        reject_uncallable(make, "enter")
        refuse_until(self, f"{display_name(make)} has none")
        return Entrance[T](self, self.name or display_name(make), partial(make, *args, **kwargs))

    def describe(self) -> str:
        from redouble._layers.retry import analysis  # noqa: PLC0415

        return analysis.describe(self)

    def worst_case(self, inner: WorstCase, /) -> WorstCase:
        from redouble._layers.retry import analysis  # noqa: PLC0415

        return analysis.worst_case(self, inner)

    def traits(self) -> Traits:
        from redouble._layers.analysis import Traits  # noqa: PLC0415
        from redouble._layers.retry import analysis  # noqa: PLC0415

        pool = None if self.worker is None or self.worker.limit is None else self.worker
        return Traits(
            retries=self.attempts != 1,
            time_limit=self._total,
            each_call_limit=self._attempt_limit,
            handles=self.on if self.attempts != 1 and self.until is None else None,
            shared=tuple(shared for shared in (self.budget, pool) if shared is not None),
            resends=analysis.resent_methods(self),
        )

    def lint(self, outer: Layers, inner: Layers, worst: WorstCase, /) -> Iterable[str]:
        from redouble._layers.retry import analysis  # noqa: PLC0415

        return analysis.lint(self, outer, inner, worst)

    def __aiter__(self) -> AsyncAttempts:
        return AsyncAttempts(self)

    __iter__ = attempts

    def __setattr__(self, name: str, value: object) -> None:
        from dataclasses import FrozenInstanceError  # noqa: PLC0415  takes long to import

        raise FrozenInstanceError(f"a policy never changes: write dataclasses.replace(policy, {name}=...)")
