"""Functions with parameters of every kind, with valid and invalid calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["CALLS", "WRONG", "only_keyword", "positional"]


def nothing() -> Any:
    return ()


def positional(a: int, b: int = 2) -> Any:
    return a, b


def only_positional(a: int, /, b: int, c: int = 3) -> Any:
    return a, b, c


def all_positional(a: int, b: int = 2, /) -> Any:
    return a, b


def only_keyword(*, a: int, b: int = 2) -> Any:
    return a, b


def mixed(a: int, *, b: int = 2) -> Any:
    return a, b


def rest(a: int, *more: int, b: int = 2, **others: int) -> Any:
    return a, more, b, others


def everything(a: int, /, b: int, c: int = 3, *args: int, d: int, e: int = 5, **kwargs: int) -> Any:
    total = a + b  # a local variable, not a parameter
    return a, b, c, args, d, e, kwargs, total


def annotated(x: list[int] | None = None) -> Any:
    return x


CALLS: list[tuple[Callable[..., Any], tuple[int, ...], dict[str, Any]]] = [
    (nothing, (), {}),
    (positional, (1,), {}),
    (positional, (1, 5), {}),
    (positional, (), {"b": 4, "a": 3}),
    (only_positional, (1, 2), {}),
    (only_positional, (1,), {"b": 5, "c": 6}),
    (all_positional, (1,), {}),
    (only_keyword, (), {"a": 1}),
    (only_keyword, (), {"b": 3, "a": 1}),
    (mixed, (1,), {"b": 7}),
    (rest, (1,), {}),
    (rest, (1, 2, 3), {"b": 4, "z": 5}),
    (everything, (1, 2), {"d": 4}),
    (everything, (1, 2, 3, 4, 5), {"d": 4, "e": 6, "f": 7}),
    (annotated, (), {"x": [1]}),
]
WRONG: list[tuple[Callable[..., Any], tuple[int, ...], dict[str, Any]]] = [
    (nothing, (1,), {}),
    (positional, (), {}),
    (positional, (1,), {"z": 1}),
    (positional, (1,), {"a": 1}),
    (only_positional, (), {"a": 1, "b": 2}),
    (only_keyword, (1,), {}),
    (only_keyword, (), {}),
    (everything, (1,), {}),
]
