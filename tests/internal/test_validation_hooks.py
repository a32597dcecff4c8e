"""Observers must be plain functions of one event; functions that would never run are refused."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any

import pytest

from redouble import Retry, observe
from redouble._internal.validation import hook
from tests.support.fakes import options, stable_repr

HOOKS = ("before_attempt", "on_success", "on_failure", "on_retry", "on_give_up")


class Called:
    def __call__(self, event: object) -> None: ...

    def method(self, event: object, *, loud: bool = False) -> None: ...

    async def amethod(self, event: object) -> None: ...


class Awaited:
    async def __call__(self, event: object) -> None: ...


def two(event: Any, more: Any) -> None: ...


def none() -> None: ...


def keyword(*, event: object) -> None: ...


def several(*events: object) -> None: ...


async def awaited(event: object) -> None: ...


def generated(event: object) -> Iterator[None]:
    yield


async def agenerated(event: object) -> AsyncIterator[None]:
    yield


class Generated:
    def __call__(self, event: object) -> Iterator[None]:
        yield

    async def method(self, event: object) -> AsyncIterator[None]:
        yield


@pytest.mark.parametrize(
    "good",
    [
        print,
        several,
        list[object]().append,
        partial(two, 1),
        Called(),
        Called().method,
        dict[str, int],  # it has no signature
    ],
    ids=stable_repr,
)
def test_a_hook_is_a_function_of_one_event(good: object) -> None:
    hook(good, "on_retry")


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (3, "on_retry=3: write a function of one event"),
        ("log", "on_retry='log': write a function of one event"),
        (awaited, "on_retry=awaited is a coroutine function"),
        (partial(awaited), "is a coroutine function and would never run"),
        (Awaited(), "is a coroutine function and would never run: observers are plain functions"),
        (Called().amethod, "on_retry=Called.amethod is a coroutine function"),
        (generated, "on_retry=generated is a generator function and would never run"),
        (agenerated, "on_retry=agenerated is an async generator function and would never run"),
        (partial(generated), "is a generator function and would never run"),
        (Generated(), "on_retry=Generated is a generator function and would never run"),
        (Generated().method, "on_retry=Generated.method is an async generator function"),
        (
            two,
            "on_retry=two takes (event: 'Any', more: 'Any') -> 'None': write a function of one event",
        ),
        (none, "on_retry=none takes () -> 'None': write a function of one event"),
        (keyword, "on_retry=keyword takes (*, event: 'object') -> 'None': write a function of one event"),
    ],
)
def test_invalid_hooks_are_refused(bad: object, message: str) -> None:
    with pytest.raises(TypeError) as caught:
        hook(bad, "on_retry")
    assert message in str(caught.value)
    assert "on_retry" in str(caught.value)
    with pytest.raises(TypeError):
        observe(bad)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    for option in HOOKS:
        with pytest.raises(TypeError) as caught:
            Retry(**options(**{option: bad}))
        assert message.replace("on_retry", option) in str(caught.value)


@pytest.mark.parametrize(
    "bad", [partial(Awaited()), partial(generated), partial(partial(Generated()))], ids=stable_repr
)
def test_a_partial_of_an_invalid_hook_is_refused(bad: Any) -> None:
    with pytest.raises(TypeError, match=r"on_retry=\w+ is an? \w+ function and would never run"):
        Retry(on_retry=bad)


@pytest.mark.parametrize("option", ["on", "until"])
@pytest.mark.parametrize("bad", [generated, agenerated, Generated(), partial(Awaited())], ids=stable_repr)
def test_rules_that_would_never_run_are_refused(option: str, bad: Any) -> None:
    with pytest.raises(TypeError, match=f"{option}=.* function: rules are plain functions"):
        Retry(**options(**{option: bad}))
