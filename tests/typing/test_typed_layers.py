"""The types of hooks of user-defined and built-in layers: by two type checkers, and when run."""
# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, ParamSpec, Self, TypeVar, assert_type

import pytest

from redouble import Bulkhead, CircuitBreaker, Gate, Keyed, Layer, Pipeline, Retry, RetryBudget, stats
from redouble.types import On, Traits, WorstCase

P = ParamSpec("P")
T = TypeVar("T")


class Again(Layer):
    """A layer that overrides every hook."""

    def __init__(self, pause: float, *, name: str | None = None) -> None:
        self.pause = pause
        self.name = name
        self.register()

    def around(self, fn: Callable[P, T], /) -> Callable[P, T]:
        def again(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return fn(*args, **kwargs)
            except ConnectionError:
                return fn(*args, **kwargs)

        return again

    def around_async(self, fn: Callable[P, Awaitable[T]], /) -> Callable[P, Coroutine[Any, Any, T]]:
        async def again(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return await fn(*args, **kwargs)
            except ConnectionError:
                return await fn(*args, **kwargs)

        return again

    def describe(self) -> str:
        return "a second call"

    def traits(self) -> Traits:
        return Traits(retries=True, handles=ConnectionError)

    def worst_case(self, inner: WorstCase, /) -> WorstCase:
        return WorstCase(2 * inner.calls, 2 * inner.seconds, 2 * inner.waiting).after(self.pause)

    def lint(self, outer: tuple[Layer, ...], inner: tuple[Layer, ...], worst: WorstCase, /) -> Iterable[str]:
        if worst.seconds == inf and any(layer.traits().time_limit < inf for layer in outer):
            yield f"Again around {len(inner)} layers without a limit: the second call is never made"

    def can_reconfigure(self, other: Again, /) -> bool:
        return self.pause > 0 and other.pause > 0

    def reconfigure(self, other: Again, /) -> None:
        self.pause = other.pause

    def snapshot(self) -> Mapping[str, float]:
        return {"pause": self.pause}


class Turnstile(Gate):
    """A gate that overrides every hook."""

    def __init__(self, coins: int, name: str) -> None:
        self.coins, self.name = coins, name
        self.register("limits")

    def admit(self, now: float, /) -> int:
        return self.coins

    def ended(self, ticket: int, error: BaseException | None, now: float, /) -> None:
        self.coins -= 1

    def describe(self) -> str:
        return f"{self.coins} coins"

    def traits(self) -> Traits:
        return super().traits()._replace(time_limit=3.0)

    def worst_case(self, inner: WorstCase, /) -> WorstCase:
        return inner.within(3.0)

    def lint(self, outer: tuple[Layer, ...], inner: tuple[Layer, ...], worst: WorstCase, /) -> list[str]:
        return [f"Turnstile inside {type(layer).__name__}: it costs" for layer in outer]

    def can_reconfigure(self, other: Self, /) -> bool:
        return self.name == other.name

    def reconfigure(self, other: Self, /) -> None:
        self.coins = other.coins

    def snapshot(self) -> Mapping[str, int | str]:
        return {"coins": self.coins, "kind": "coin"}


@dataclass(frozen=True)
class Valued(Layer):
    """A layer that is a dataclass with a name."""

    limit: int
    name: str | None = None

    def around(self, fn: Callable[P, T], /) -> Callable[P, T]:
        return fn

    def describe(self) -> str:
        return f"{self.name} {self.limit}"


def fetch(url: str) -> bytes:
    return url.encode()


def test_hooks_of_user_defined_layers() -> None:
    again, turnstile = Again(0.5), Turnstile(3, "typed turnstile")
    pipeline = turnstile | again | Valued(3, "three")
    assert_type(pipeline, Pipeline)
    assert_type(pipeline(fetch)("/"), bytes)
    assert_type(again.name, str | None)
    assert_type(again.describe(), str)
    assert_type(again.traits(), Traits)
    assert_type(again.worst_case(WorstCase()), WorstCase)
    assert_type(again.lint((), (), WorstCase()), Iterable[str])
    assert_type(again.can_reconfigure(Again(1)), bool)
    assert_type(again.snapshot(), Mapping[str, float])
    assert turnstile.can_reconfigure(Turnstile(3, "typed turnstile"))
    again.reconfigure(Again(2))
    assert pipeline.worst_case(WorstCase()) == WorstCase(2, 3, 2)
    assert stats()["limits"]["typed turnstile"] == {"type": "Turnstile", "coins": 2, "kind": "coin"}


def test_the_values_that_hooks_exchange() -> None:
    traits = Traits(retries=True, shared=(RetryBudget(),))
    assert_type(traits.retries, bool)
    assert_type(traits.concurrent, bool)
    assert_type(traits.time_limit, float)
    assert_type(traits.each_call_limit, float)
    assert_type(traits.handles, On | None)
    assert_type(traits.shared, tuple[object, ...])
    assert_type(WorstCase().within(3).after(2), WorstCase)
    assert WorstCase().within(3).after(2) == (1, 5, 2)


def test_hooks_of_built_in_layers() -> None:
    for layer in (Bulkhead(1), CircuitBreaker(), Retry(), Pipeline(), Keyed(str, Retry)):
        assert_type(layer.describe(), str)
        assert_type(layer.traits(), Traits)
        assert_type(layer.worst_case(WorstCase()), WorstCase)
        assert list[str](layer.lint((), (), WorstCase())) == []
        assert_type(layer.name, str | None)
    assert_type(Bulkhead(1).can_reconfigure(Bulkhead(2)), bool)
    assert_type(Bulkhead(1).snapshot(), Mapping[str, float])


def test_wrong_uses_are_reported() -> None:
    with pytest.raises(TypeError):
        Traits(retry=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    with pytest.raises(ValueError, match="register"):
        Again(1, name="typed").register("policies")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(AttributeError):
        Bulkhead(1).reconfigure(RetryBudget())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
