"""Fallback: a substitute value or stream instead of an error. A cancellation is never replaced."""

from __future__ import annotations

from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Hashable,
    Iterator,
    Mapping,
)
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeVar, cast

from redouble._drivers.opened_stream import StreamOwner, aopen_first
from redouble._drivers.stream_function import wrap_stream
from redouble._engine.per_call import check_arguments
from redouble._failures.verdict import FailureFilter, On, Refusal, Until
from redouble._internal.callables import display_name, lazy_kind, reject_awaitable
from redouble._internal.codegen import compile_wrapper
from redouble._internal.public import public
from redouble._internal.validation import (
    UNSET,
    Duration,
    format_seconds,
    integer,
    positive_seconds,
    signature_mismatch,
)
from redouble._layers.analysis import Traits
from redouble._layers.layer import AsyncGeneratorFunction, Layer, Layers
from redouble._layers.results.call_key import check_key, function_of, key_of_arguments, unhashable
from redouble._layers.results.result_memory import REMEMBERED, GoodResult, ResultMemory
from redouble._layers.results.substitutes import OfCall, OfError, PrimedGenerator, Substitutes
from redouble._runtime.backend import task_cancelled
from redouble._runtime.clock import SYSTEM
from redouble._telemetry.emit import emit_layer, layer_kind
from redouble._telemetry.observers import watch

if TYPE_CHECKING:
    from redouble._layers.analysis import WorstCase

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
class Fallback(Layer):
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
    settings: Any

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
        self._substitutes = Substitutes(repr(self), fns, value)
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

    @property
    def on(self) -> On:
        """The errors that are replaced."""
        return self._failures.on

    @property
    def until(self) -> Until | None:
        """The rule for results; None: no result is replaced."""
        return self._failures.until

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

    @property
    def _failure_kinds(self) -> str:
        """What is replaced, in words."""
        return "an error" if self.until is None else "an error or a refused result"

    def lint(self, outer: Layers, inner: Layers, worst: WorstCase, /) -> Iterator[str]:  # noqa: ARG002
        for layer in outer:
            traits, name = layer.traits(), type(layer).__name__
            if traits.concurrent:
                yield (
                    f"Fallback inside {name}: the substitute for a failed attempt ends the race as a success "
                    "would, while another attempt could still succeed; put it outside"
                )
            if traits.handles is not None and self._failures.covers(traits.handles):
                yield (
                    f"Fallback inside {name}, for the same errors: it replaces each error before the "
                    f"{name} sees it, so the {name} does nothing; put it outside"
                )

    def can_reconfigure(self, other: Any, /) -> bool:
        """Return True if the functions, and whether results are judged, are the same."""
        same = self.settings.fns == other.settings.fns
        return same and (self.until is None) is (other.until is None)

    def reconfigure(self, other: Any, /) -> None:
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

    def _emit(self, error: Exception, substitute: Any = None, age: float | None = None) -> Any:
        """Emit the failure that was replaced, and return the substitute; ``age``: that of a stale result."""
        if watch.by_event["fallback"]:
            failed = None if isinstance(error, Refusal) else error
            value = error.last if isinstance(error, Refusal) else None
            emit_layer("fallback", layer_kind(self), self.name, error=failed, value=value, level=age)
        return substitute

    def _refuse_until(self, fn: object) -> None:
        if self.until is not None:
            raise TypeError(
                f"until= judges a result, and {display_name(fn)} has none: leave it out of this Fallback"
            )

    def __repr__(self) -> str:
        value = () if self.settings.value is UNSET else ("value=...",)
        return self._repr(*map(display_name, self.settings.fns), *value)


@dataclass(frozen=True, slots=True)
class StaleFallbackSettings:
    """The validated options of `Fallback.stale`."""

    max_age: float
    key: Callable[..., Hashable] | None
    most: int
    mark: Callable[[Any, float], Any] | None
    on: On
    until: Until | None
    name: str | None


class StaleFallback(Fallback):
    """What `Fallback.stale` returns: a fallback to the last good result of the same call."""

    _kept_by_wrapper = True

    def __init__(
        self,
        max_age: Duration,
        *,
        key: Callable[..., Hashable] | None = None,
        most: int = 1000,
        mark: Callable[[Any, float], Any] | None = None,
        on: On = Exception,
        until: Until | None = None,
        name: str | None = None,
    ) -> None:
        if callable(max_age):
            raise TypeError("write @Fallback.stale(60), with the seconds: it is no decorator without them")
        age = positive_seconds(max_age, "Fallback.stale max_age", "max_age=60")
        check_key(key, "Fallback.stale key")
        integer(most, "Fallback.stale most", 1, "how many results to keep, 1 or more")
        if mark is not None:
            is_plain = callable(cast("object", mark)) and lazy_kind(mark) is None
            if not is_plain or signature_mismatch(mark, 2) is not None:
                shown = display_name(mark) if callable(cast("object", mark)) else repr(mark)
                raise TypeError(
                    f"Fallback.stale mark={shown}: write a plain function of the result and its age"
                )
        self._failures = FailureFilter(on, "Fallback.stale", until)
        self._memory = ResultMemory(most, age)
        self.settings = StaleFallbackSettings(age, key, most, mark, on, until, name)
        self.name = name
        self.register("layers")

    def around(self, fn: Callable[P, T], /) -> Callable[P, T]:
        """Return ``fn`` with its last good result in place of its errors."""
        return self._compile(fn, is_async=False)

    def around_async(self, fn: Callable[P, Awaitable[T]], /) -> Callable[P, Coroutine[Any, Any, T]]:
        """Return ``fn`` with its last good result in place of its errors, for a coroutine function."""
        return self._compile(fn, is_async=True)

    def around_stream(self, fn: Callable[P, Generator[T, S, Any]], /) -> Callable[P, Generator[T, S, Any]]:
        self._refuse_stream(fn)

    def around_async_stream(self, fn: AsyncGeneratorFunction[P, T, S], /) -> AsyncGeneratorFunction[P, T, S]:
        self._refuse_stream(fn)

    def _refuse_stream(self, fn: object) -> NoReturn:
        raise TypeError(
            f"Fallback.stale cannot remember {display_name(fn)}, a generator, whose items are read once: "
            "write a function that returns a list"
        )

    def _compile(self, fn: Callable[..., Any], *, is_async: bool) -> Callable[..., Any]:
        key = self.settings.key
        if key is not None:
            check_arguments("Fallback.stale key", key, fn)

        def checked(function: Hashable, key_of_call: object) -> Hashable:
            whole = function, key_of_call
            try:
                hash(whole)
            except TypeError as error:
                raise unhashable("Fallback.stale", key, fn, error) from error
            return whole

        return compile_wrapper(
            fn,
            REMEMBERED[key is not None],
            is_async=is_async,
            key_of=key or key_of_arguments,
            function=function_of(fn),
            checked=checked,
            instead=partial(self._instead, is_async=is_async),
            answer=self._answer,
            judge=partial(self._judge, is_async=is_async),
        )

    def _instead(self, key: Hashable, error: Exception, *, is_async: bool) -> GoodResult | None:
        """Return the result that replaces an error, or None to raise it, as in a cancelled task."""
        if is_async and task_cancelled(error):
            return None
        return self._memory.find(key, SYSTEM.now()) if self._failures.matches(error) else None

    def _judge(self, key: Hashable, result: object, *, is_async: bool) -> object:
        """Remember a good result and return it; instead of a refused one answer with an earlier one.

        A cancelled task gets the refused one.
        """
        now, refusal = SYSTEM.now(), self._failures.refusal(result)
        if refusal is None:
            self._memory.store(key, result, now)
            return result
        found = None if is_async and task_cancelled() else self._memory.find(key, now)
        return result if found is None else self._answer(found, refusal)

    def _answer(self, found: GoodResult, error: Exception) -> object:
        """Return a stale result to the caller, and emit the failure that it replaces."""
        age, mark = SYSTEM.now() - found.at, self.settings.mark
        return self._emit(error, found.value if mark is None else mark(found.value, age), age)

    def snapshot(self) -> Mapping[str, float]:
        """Return how many results are ``cached``, and the ``limit`` of that."""
        return {"cached": len(self._memory), "limit": self.settings.most}

    def traits(self) -> Traits:
        """Return the traits: calls may get the result of an earlier one."""
        return Traits(shares_results=True)

    def can_reconfigure(self, other: Any, /) -> bool:
        """Return True if the key is the same."""
        return bool(self.settings.key == other.settings.key)

    def reconfigure(self, other: Any, /) -> None:
        """Adopt the limits and rules of another one, and keep the results."""
        self.settings, self._failures = replace(other.settings, name=self.name), other._failures
        self._memory.resize(self.settings.most, self.settings.max_age, SYSTEM.now())

    def describe(self) -> str:
        age = format_seconds(self.settings.max_age)
        most = self.settings.most
        return f"the last good result instead of {self._failure_kinds}, up to {age} old, {most} at most"

    def __repr__(self) -> str:
        key = None if self.settings.key is None else f"key={display_name(self.settings.key)}"
        options = [f"{self.settings.max_age:g}", *filter(None, (key,)), f"most={self.settings.most}"]
        return self._repr(*options).replace(type(self).__name__, "Fallback.stale", 1)
