"""The wrapper with the exact signature: arguments arrive as they were sent, and wrong ones are Python's."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from types import FunctionType
from typing import Any

import pytest

from redouble import Retry, observe
from redouble._shape import shaped
from support import Boom, Virtual, in_colour

policy = Retry(on=Exception, backoff=[1] * 9, clock=Virtual())


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
    total = a + b  # a local variable is no parameter
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


def failing_once(fn: Callable[..., Any]) -> tuple[Callable[..., Any], list[Exception]]:
    """Return the same signature, failing first if asked to."""
    errors: list[Exception] = []

    def copy(*args: Any, **kwargs: Any) -> Any:
        if errors:
            raise errors.pop()
        return fn(*args, **kwargs)

    names = {"fn": copy, "errors": errors}
    body = "{colour}def {name}{signature}:\n    return fn({arguments})\n"
    parameters = inspect.signature(fn).parameters.values()
    spelled: dict[Any, str] = {
        inspect.Parameter.VAR_POSITIONAL: "*{0}",
        inspect.Parameter.VAR_KEYWORD: "**{0}",
        inspect.Parameter.KEYWORD_ONLY: "{0}={0}",
    }
    arguments = ", ".join(spelled.get(p.kind, "{0}").format(p.name) for p in parameters)
    plain = inspect.signature(fn).replace(
        parameters=[p.replace(annotation=inspect.Parameter.empty) for p in parameters],
        return_annotation=inspect.Signature.empty,
    )
    exec(body.format(colour="", name="copied", signature=plain, arguments=arguments), names)  # noqa: S102
    return names["copied"], errors  # type: ignore[return-value]  # pyright: ignore[reportReturnType]


@pytest.mark.parametrize(("fn", "args", "kwargs"), CALLS)
@pytest.mark.parametrize("listening", [False, True])
def test_arguments_arrive(
    listening: bool, fn: Callable[..., Any], args: tuple[int, ...], kwargs: dict[str, Any]
) -> None:
    """On the first attempt, on the second, and on the path of those that listen."""
    copied, errors = failing_once(fn)
    decorated = policy(copied)
    expected = fn(*args, **kwargs)
    if listening:
        with observe(lambda _: None):
            assert decorated(*args, **kwargs) == expected
    assert decorated(*args, **kwargs) == expected
    errors.append(Boom())
    assert decorated(*args, **kwargs) == expected
    assert not errors
    assert inspect.signature(decorated, follow_wrapped=False) == inspect.signature(copied)


@pytest.mark.parametrize(("fn", "args", "kwargs"), CALLS)
def test_arguments_arrive_async(
    fn: Callable[..., Any], args: tuple[int, ...], kwargs: dict[str, Any]
) -> None:
    async def main() -> object:
        return await wrapper(*args, **kwargs)

    copied, _ = failing_once(fn)
    seen: list[object] = []

    async def afn(*args: Any, **kwargs: Any) -> object:
        seen.append(args)
        return fn(*args, **kwargs)

    wrapper = policy(afn)
    assert in_colour("asyncio", lambda: None, main) == copied(*args, **kwargs)
    assert len(seen) == 1


@pytest.mark.parametrize(("fn", "args", "kwargs"), WRONG)
def test_wrong_arguments(fn: Callable[..., Any], args: tuple[int, ...], kwargs: dict[str, Any]) -> None:
    """They are the caller's mistake, not an attempt that failed: Python's own words, and nothing judged."""
    with pytest.raises(TypeError) as by_hand:
        fn(*args, **kwargs)
    with pytest.raises(TypeError) as caught:
        Retry(on=lambda error: pytest.fail(f"{error!r} was judged"))(fn)(*args, **kwargs)
    assert str(caught.value) == str(by_hand.value)
    assert fn.__name__ in str(caught.value)


def test_defaults_keep_their_identity() -> None:
    default: list[int] = []

    @policy
    def fetch(parts: list[int] = default, *, more: list[int] = default) -> bool:
        return parts is default and more is default

    assert fetch()


def test_the_traceback_shows_the_wrappers_lines() -> None:
    @Retry(on=Boom)
    def fetch(url: str) -> None:
        raise KeyError(url)

    with pytest.raises(KeyError) as caught:
        fetch("/")
    shown = "".join(traceback.format_exception(caught.value))
    assert "redouble_result = redouble_fn(" in shown
    assert caught.value.__traceback__ is not None


def test_a_parameter_that_cannot_be_spelled() -> None:
    """A comprehension's is called ``.0``; whatever made such a function, it is called as it is."""
    code = positional.__code__.replace(co_varnames=(".0", "b"))
    strange = FunctionType(code, {}, "strange", (1, 2))
    assert policy(strange)(5) == (5, 2)
    keyword = FunctionType(only_keyword.__code__.replace(co_varnames=("class", "b")), {}, "strange")
    keyword.__kwdefaults__ = {"b": 2}
    assert policy(keyword)(**{"class": 5}) == (5, 2)


def test_a_parameter_with_a_name_of_ours() -> None:
    @policy
    def fetch(redouble_fn: int, *, redouble_ambient: int = 2) -> tuple[int, int]:
        redouble_run = redouble_fn
        return redouble_run, redouble_ambient

    assert fetch(1) == (1, 2)


def test_one_signature_is_compiled_once() -> None:
    def other(a: object, b: object) -> None: ...

    first: Any
    second: Any
    first = shaped(positional, is_async=False, straight=True)
    second = shaped(other, is_async=False, straight=True)
    assert first.__code__ is second.__code__
