"""The kind of a callable: what a call of it does not run yet."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator
from functools import partial
from unittest.mock import AsyncMock, Mock

import pytest

from redouble._internal.callables import callable_kind


class Methods:
    def plain(self) -> None: ...

    async def coroutine(self) -> None: ...

    def generator(self) -> Generator[int]:
        yield 1

    async def async_generator(self) -> AsyncGenerator[int]:
        yield 1


class Called(Methods):
    async def __call__(self) -> None: ...


KINDS = ["plain", "coroutine", "generator", "async generator"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("attribute", [False, True])
def test_functions_methods_and_partials_are_recognised(kind: str, attribute: bool) -> None:
    """With attributes too, one of which may mark a coroutine function."""
    function: Callable[..., object] = vars(Methods)[kind.replace(" ", "_")]
    method: Callable[..., object] = getattr(Methods(), function.__name__)
    if attribute:
        function.__dict__["marked"] = True
    assert [callable_kind(fn) for fn in (function, method, partial(partial(function), 3))] == [kind] * 3
    function.__dict__.clear()


def test_objects_are_recognised_by_their_call() -> None:
    assert callable_kind(Called()) == "coroutine"
    assert callable_kind(AsyncMock()) == "coroutine"
    assert [callable_kind(fn) for fn in (Mock(), int, print, Methods, object())] == ["plain"] * 5
