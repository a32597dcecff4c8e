"""StaleFallback: the last good result of a call instead of an error."""

from __future__ import annotations

from collections.abc import (
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Hashable,
    Mapping,
)
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NoReturn, ParamSpec, Self, TypeVar, cast

from redouble._engine.per_call import check_arguments
from redouble._failures.verdict import FailureFilter, On, Until
from redouble._internal.callables import display_name, lazy_kind
from redouble._internal.codegen import compile_wrapper
from redouble._internal.validation import (
    Duration,
    format_seconds,
    integer,
    positive_seconds,
    signature_mismatch,
)
from redouble._layers.analysis import Traits
from redouble._layers.layer import AsyncGeneratorFunction
from redouble._layers.results.call_key import check_key, function_of, key_of_arguments, unhashable
from redouble._layers.results.error_replacement import ErrorReplacement
from redouble._layers.results.result_memory import REMEMBERED, GoodResult, ResultMemory
from redouble._runtime.backend import task_cancelled
from redouble._runtime.clock import SYSTEM

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")


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


class StaleFallback(ErrorReplacement):
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

    def can_reconfigure(self, other: Self, /) -> bool:
        """Return True if the key is the same."""
        return self.settings.key == other.settings.key

    def reconfigure(self, other: Self, /) -> None:
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
