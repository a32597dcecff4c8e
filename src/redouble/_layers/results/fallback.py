"""Fallback: a substitute value or stream instead of an error. A cancellation is never replaced."""

from __future__ import annotations

from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Hashable,
)
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ParamSpec, Self, TypeVar, cast

from redouble._drivers.opened_stream import StreamOwner, aopen_first
from redouble._drivers.stream_function import wrap_stream
from redouble._failures.verdict import FailureFilter, On, Until
from redouble._internal.callables import display_name, reject_awaitable
from redouble._internal.public import public
from redouble._internal.validation import (
    UNSET,
    Duration,
)
from redouble._layers.layer import AsyncGeneratorFunction
from redouble._layers.results.error_replacement import ErrorReplacement
from redouble._layers.results.stale_fallback import StaleFallback
from redouble._layers.results.substitute import OfCall, OfError, PrimedGenerator, SubstituteChain
from redouble._runtime.backend import task_cancelled

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FallbackSettings:
    """The validated options of a `Fallback`."""

    fns: tuple[OfError | OfCall, ...]
    value: object
    on: On
    until: Until | None
    name: str | None


@public("redouble")
class Fallback(ErrorReplacement):
    """Return something else when a call fails: ``Fallback(fn)``, or ``Fallback(value=...)``.

    fns: functions that return the substitute, tried in order: if one fails, the next is called, and at last
        ``value`` is returned if there is one. If all fail, the error of the last is raised; its context are
        the errors of the others and of the call. A function of one argument receives the exception. One that
        needs more, or takes ``*args`` behind the first, receives the exception and then all arguments of the
        call. In async code they may be coroutine functions.
    value: the same object for all calls.
    on: the errors to replace: an exception type, a tuple, a rule, or a list of these.
    until: a rule for results, as in `Retry`: a result that it refuses is replaced too. The functions receive
        a `NotAccepted` with the result in ``last``.
    name: its name in events and metrics.

    A generator is replaced as a whole, by an iterable, and only if it fails before its first item. Each
    replaced call emits the event ``fallback``.
    """

    _kept_by_wrapper = True

    def __init__(
        self,
        *fns: OfError | OfCall,
        value: Any = UNSET,
        on: On = Exception,
        until: Until | None = None,
        name: str | None = None,
    ) -> None:
        if None in fns or not (fns or value is not UNSET):
            raise TypeError("write Fallback(fn), with a function of the exception, or Fallback(value=...)")
        self.settings = FallbackSettings(fns, value, on, until, name)
        self.name = name
        self._substitutes = SubstituteChain(repr(self), fns, value)
        self._failures = FailureFilter(on, "Fallback", until)
        self.register("layers")

    @staticmethod
    def stale(
        max_age: Duration,
        *,
        key: Callable[..., Hashable] | None = None,
        most: int = 1000,
        mark: Callable[[Any, float], Any] | None = None,
        on: On = Exception,
        until: Until | None = None,
        name: str | None = None,
    ) -> StaleFallback:
        """Return a fallback to the last good result of the same call, for functions that only read.

        max_age: how many seconds old a result may be.
        key: a function of the arguments: calls with equal keys are the same call. None: the arguments are the
            key, so they must be hashable.
        most: how many results to keep; beyond that, the oldest is forgotten.
        mark: a function of the result and its age in seconds that returns what the caller gets, such as one
            that marks it as stale. None: the caller gets the object that the earlier call returned.

        If there is no result that is young enough, the error is raised, or the refused result returned.
        """
        return StaleFallback(max_age, key=key, most=most, mark=mark, on=on, until=until, name=name)

    def around(self, fn: Callable[P, T], /) -> Callable[P, T]:
        """Return ``fn`` with the fallback in place of its errors."""
        self._substitutes.check(fn, blocking=True)

        def replaced(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return reject_awaitable(fn, fn(*args, **kwargs))
            except Exception as error:
                if not self._failures.matches(error):
                    raise
                return cast("T", self._emit(error, self._substitutes.first(fn, error, args, kwargs)))

        def judged(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                result = reject_awaitable(fn, fn(*args, **kwargs))
            except Exception as error:
                if not self._failures.matches(error):
                    raise
                return cast("T", self._emit(error, self._substitutes.first(fn, error, args, kwargs)))
            refusal = self._failures.refusal(result)
            if refusal is None:
                return result
            return cast("T", self._emit(refusal, self._substitutes.first(fn, refusal, args, kwargs)))

        return replaced if self.until is None else judged

    def around_async(self, fn: Callable[P, Awaitable[T]], /) -> Callable[P, Coroutine[Any, Any, T]]:
        """Return ``fn`` with the fallback in place of its errors, for a coroutine function."""
        self._substitutes.check(fn)

        async def replaced(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return await fn(*args, **kwargs)
            except Exception as error:
                # A task that is being cancelled has to end, even if its function raised another error.
                if not self._failures.matches(error) or task_cancelled(error):
                    raise
                return cast("T", self._emit(error, await self._substitutes.afirst(error, args, kwargs)))

        async def judged(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                result = await fn(*args, **kwargs)
            except Exception as error:
                if not self._failures.matches(error) or task_cancelled(error):
                    raise
                return cast("T", self._emit(error, await self._substitutes.afirst(error, args, kwargs)))
            refusal = self._failures.refusal(result)
            if refusal is None or task_cancelled():
                return result
            return cast("T", self._emit(refusal, await self._substitutes.afirst(refusal, args, kwargs)))

        return replaced if self.until is None else judged

    def around_stream(self, fn: Callable[P, Generator[T, S, Any]], /) -> Callable[P, Generator[T, S, Any]]:
        """Return ``fn``, replaced if it fails before its first item, for a generator function."""
        self._refuse_until(fn)
        self._substitutes.check(fn, blocking=True)

        def replaced(*args: P.args, **kwargs: P.kwargs) -> Generator[T, S, Any]:
            items = fn(*args, **kwargs)
            stream: Generator[T, S, Any]
            try:
                first = next(items)
            except StopIteration as end:
                return end.value
            except Exception as error:
                if not self._failures.matches(error):
                    raise
                stream = self._emit(error, self._substitutes.first_stream(fn, error, args, kwargs))
            else:
                stream = PrimedGenerator(items, first)
            return (yield from stream)

        return replaced

    def around_async_stream(self, fn: AsyncGeneratorFunction[P, T, S], /) -> AsyncGeneratorFunction[P, T, S]:
        """Return ``fn``, replaced if it fails before its first item, for an async generator function."""
        self._refuse_until(fn)
        self._substitutes.check(fn)
        return wrap_stream(fn, lambda make: StreamOwner(partial(self._open_stream, make)))

    async def _open_stream(self, make: Callable[[], AsyncGenerator[Any, Any]]) -> tuple[Any, Any]:
        """Open a stream, or its substitute, and return it with its first item."""
        try:
            return await aopen_first(make)
        except Exception as error:
            if not self._failures.matches(error) or task_cancelled(error):
                raise
            call = cast("partial[Any]", make)
            opened = await self._substitutes.open_first(error, call.args, call.keywords)
            self._emit(error)
        return opened

    def describe(self) -> str:
        names = " and ".join(map(display_name, self.settings.fns))
        count = len(self._substitutes)
        others = "another result" if count == 1 else f"the first of {count} other results"
        time = names and f"; the time of {names} is not counted"
        return f"{others} instead of {self._failure_kinds}{time}"

    def can_reconfigure(self, other: Self, /) -> bool:
        """Return True if the functions, and whether results are judged, are the same."""
        same = self.settings.fns == other.settings.fns
        return same and (self.until is None) is (other.until is None)

    def reconfigure(self, other: Self, /) -> None:
        """Adopt the value and the rules of another fallback."""
        self._substitutes, self._failures = other._substitutes, other._failures
        self.settings = replace(other.settings, name=self.name)

    def of_request(self) -> Fallback:
        """Return the same for the policy of a client: functions that take the arguments get the request."""
        if not self._substitutes.takes_arguments:
            return self
        made = copy(self)
        made._substitutes = self._substitutes.of_request()
        return made

    def _refuse_until(self, fn: object) -> None:
        if self.until is not None:
            raise TypeError(
                f"until= judges a result, and {display_name(fn)} has none: leave it out of this Fallback"
            )

    def __repr__(self) -> str:
        value = () if self.settings.value is UNSET else ("value=...",)
        return self._repr(*map(display_name, self.settings.fns), *value)
