"""Compiled wrappers have the exact signature: arguments are passed on unchanged, and errors are Python's."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from types import FunctionType
from typing import Any

import pytest

from redouble import Bulkhead, CircuitBreaker, Pipeline, Retry, observe, report
from redouble._drivers.retrying_wrapper import ATTEMPTS
from redouble._internal.codegen import SOURCES, Template, compile_wrapper
from tests.support.fakes import Boom, Ledger, Virtual, always, in_colour
from tests.support.signatures import CALLS, WRONG, only_keyword, positional

policy = Retry(on=Exception, backoff=[1] * 9, clock=Virtual())


def failing_once(fn: Callable[..., Any]) -> tuple[Callable[..., Any], list[Exception]]:
    """Return a function of the same signature, and a list of errors that it raises first."""
    errors: list[Exception] = []

    def copy(*args: Any, **kwargs: Any) -> Any:
        if errors:
            raise errors.pop()
        return fn(*args, **kwargs)

    names = {"fn": copy, "errors": errors}
    body = "{colour}def {name}{signature}:\n    return fn({arguments})\n"
    parameters = inspect.signature(fn).parameters.values()
    formats: dict[Any, str] = {
        inspect.Parameter.VAR_POSITIONAL: "*{0}",
        inspect.Parameter.VAR_KEYWORD: "**{0}",
        inspect.Parameter.KEYWORD_ONLY: "{0}={0}",
    }
    arguments = ", ".join(formats.get(p.kind, "{0}").format(p.name) for p in parameters)
    plain = inspect.signature(fn).replace(
        parameters=[p.replace(annotation=inspect.Parameter.empty) for p in parameters],
        return_annotation=inspect.Signature.empty,
    )
    exec(body.format(colour="", name="copied", signature=plain, arguments=arguments), names)  # noqa: S102
    return names["copied"], errors  # type: ignore[return-value]  # pyright: ignore[reportReturnType]


def coloured(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a coroutine function with the same code."""
    code = fn.__code__.replace(co_flags=fn.__code__.co_flags | inspect.CO_COROUTINE)
    same = FunctionType(code, {}, fn.__name__, fn.__defaults__)
    same.__kwdefaults__ = fn.__kwdefaults__
    return same


@pytest.mark.parametrize(("fn", "args", "kwargs"), CALLS)
@pytest.mark.parametrize("observed", [False, True])
def test_arguments_are_passed_on(
    observed: bool, fn: Callable[..., Any], args: tuple[int, ...], kwargs: dict[str, Any]
) -> None:
    """In the first attempt, in the second, and with observers."""
    copied, errors = failing_once(fn)
    decorated = policy(copied)
    expected = fn(*args, **kwargs)
    if observed:
        with observe(lambda _: None):
            assert decorated(*args, **kwargs) == expected
    assert decorated(*args, **kwargs) == expected
    errors.append(Boom())
    assert decorated(*args, **kwargs) == expected
    assert not errors
    assert inspect.signature(decorated, follow_wrapped=False) == inspect.signature(copied)


@pytest.mark.parametrize(("fn", "args", "kwargs"), CALLS)
def test_arguments_are_passed_on_async(
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


BUSY: list[dict[str, Any]] = [
    {},
    {"timeout": 9},
    {"until": always(True)},
    {"budget": Ledger()},
    {"wrap": True},
    {"before_attempt": print},
    {"on_success": print},
]


@pytest.mark.parametrize(("fn", "args", "kwargs"), WRONG)
@pytest.mark.parametrize("options", BUSY, ids="".join)
@pytest.mark.parametrize("aio", [False, True])
def test_wrong_arguments_raise_pythons_own_error(
    aio: bool,
    options: dict[str, Any],
    fn: Callable[..., Any],
    args: tuple[int, ...],
    kwargs: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A wrong call is no failed attempt, and no rule is called."""
    target: Any = coloured(fn) if aio else fn
    decorated = Retry(on=lambda error: pytest.fail(f"{error!r} was judged"), **options)(target)
    with pytest.raises(TypeError) as by_hand:
        target(*args, **kwargs)
    with pytest.raises(TypeError) as caught:  # raised by the call, without an await
        decorated(*args, **kwargs)
    assert str(caught.value) == str(by_hand.value)
    assert fn.__name__ in str(caught.value)
    assert report(caught.value) is None
    assert not capsys.readouterr().out


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


def test_a_parameter_whose_name_is_no_identifier() -> None:
    """The parameter of a comprehension is called ``.0``; a function with such a name is still callable."""
    code = positional.__code__.replace(co_varnames=(".0", "b"))
    strange = FunctionType(code, {}, "strange", (1, 2))
    assert policy(strange)(5) == (5, 2)
    keyword = FunctionType(only_keyword.__code__.replace(co_varnames=("class", "b")), {}, "strange")
    keyword.__kwdefaults__ = {"b": 2}
    assert policy(keyword)(**{"class": 5}) == (5, 2)


def test_a_parameter_may_have_a_name_that_wrappers_use() -> None:
    @policy
    def fetch(redouble_fn: int, *, redouble_ambient: int = 2) -> tuple[int, int]:
        redouble_run = redouble_fn
        return redouble_run, redouble_ambient

    assert fetch(1) == (1, 2)


def stacked(fn: Callable[..., Any]) -> Callable[..., Any]:
    return Bulkhead(5)(policy(CircuitBreaker(failures=5)(fn)))


LAYERS = Pipeline(Bulkhead(5), policy, CircuitBreaker(failures=5))


@pytest.mark.parametrize("wrap", [LAYERS, stacked], ids=["pipeline", "stacked"])
@pytest.mark.parametrize(("fn", "args", "kwargs"), CALLS)
@pytest.mark.parametrize("aio", [False, True])
def test_every_layer_has_the_exact_signature(
    aio: bool,
    wrap: Callable[..., Any],
    fn: Callable[..., Any],
    args: tuple[int, ...],
    kwargs: dict[str, Any],
) -> None:
    """The locals of an inner wrapper begin with ``redouble_`` too; only its parameters count."""
    target: Any = coloured(fn) if aio else fn
    flags = target.__code__.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    names = inspect.getargs(target.__code__)
    layer: Any = wrap(target)
    while layer is not target:
        assert inspect.getargs(layer.__code__) == names
        assert layer.__code__.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS) == flags
        layer = layer.__wrapped__
    if not aio:
        assert wrap(fn)(*args, **kwargs) == fn(*args, **kwargs)


@pytest.mark.parametrize(("source", "times"), [("b", 0), ("aba", 2)])
def test_a_derived_template_replaces_each_text_once(source: str, times: int) -> None:
    derived = Template("x", "aba").derive("y", ("b", "c"))
    assert (derived.title, derived.source) == ("y", "aca")
    with pytest.raises(ValueError, match=f"template 'x' has 'a' {times} times, not once"):
        Template("x", source).derive("y", ("a", "c"))


def test_wrappers_of_one_signature_share_their_code() -> None:
    def other(a: object, b: object) -> None: ...

    first: Any
    second: Any
    first = compile_wrapper(positional, ATTEMPTS, is_async=False)
    second = compile_wrapper(other, ATTEMPTS, is_async=False)
    assert first.__code__ is second.__code__


def test_the_source_of_a_template_is_cached_once() -> None:
    """However many signatures there are."""
    cached = list[int]()
    for number in range(50):
        names: dict[str, Any] = {}
        exec(f"def one(a{number}): ...\nasync def two(a{number}): ...", names)  # noqa: S102
        for options in BUSY:
            for fn in (names["one"], names["two"]):
                assert Retry(**options)(fn) is not fn
        cached.append(len(SOURCES))
    assert len({*cached}) == 1
