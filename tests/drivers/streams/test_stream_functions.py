"""Decorated generator functions look like the wrapped ones to `inspect`, to classes and to pickle."""

from __future__ import annotations

import copy
import functools
import inspect
import pickle
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from redouble import Pipeline, Retry, policy_of, report, variant
from tests.support.fakes import Boom, in_colour
from tests.support.streams import RecordingGate

POLICY = Retry(on=Boom, attempts=3, backoff=[0] * 9)


@POLICY
def items(start: int, /, *more: int, step: int = 1, **rest: int) -> Iterator[int]:
    """Count."""
    yield from (start, *more, step, *rest.values())


@POLICY
async def aitems(start: int, /, *more: int, step: int = 1, **rest: int) -> AsyncIterator[int]:
    """Count."""
    for item in (start, *more, step, *rest.values()):
        yield item


def listed(colour: str, sync: Callable[..., Any], aio: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return all items of the function of this colour."""

    async def waiting() -> list[Any]:
        return [item async for item in aio(*args, **kwargs)]

    return in_colour(colour, lambda: list(sync(*args, **kwargs)), waiting)


EITHER = pytest.mark.parametrize("fn", [items, aitems])


@EITHER
def test_inspect_sees_the_wrapped_function(fn: Callable[..., Any]) -> None:
    assert inspect.isgeneratorfunction(fn) is (fn is items)
    assert inspect.isasyncgenfunction(fn) is (fn is aitems)
    assert not inspect.iscoroutinefunction(fn)
    kind = "Iterator[int]" if fn is items else "AsyncIterator[int]"
    signature = f"(start: 'int', /, *more: 'int', step: 'int' = 1, **rest: 'int') -> '{kind}'"
    assert str(inspect.signature(fn)) == signature
    name = fn.__name__
    assert (name, fn.__qualname__, fn.__module__) == (name, name, __name__)
    assert name == ("items" if fn is items else "aitems")
    assert fn.__doc__ == "Count."
    assert f"<function {name}" in repr(fn)


def test_arguments_are_passed_on(colour: str) -> None:
    assert listed(colour, items, aitems, 1, 2, step=3, other=4) == [1, 2, 3, 4]
    assert listed(colour, items, aitems, 1) == [1, 1]


@EITHER
def test_wrong_arguments_raise_when_the_function_is_called(fn: Callable[..., Any]) -> None:
    """As with the bare function, the call raises, and not the first item."""
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'start'"):
        fn()


@EITHER
def test_nothing_runs_before_it_is_read(fn: Callable[..., Any]) -> None:
    """A stream that is never read causes no warning either."""
    stream = fn(1)
    assert inspect.isgenerator(stream) is (fn is items)
    assert hasattr(stream, "__next__") is (fn is items)
    assert hasattr(stream, "__anext__") is (fn is aitems)
    del stream


@EITHER
def test_pickled_and_copied(fn: Callable[..., Any]) -> None:
    assert pickle.loads(pickle.dumps(fn)) is fn
    assert copy.copy(fn) is fn
    assert copy.deepcopy(fn) is fn


@EITHER
def test_policy_of_and_variant(fn: Any) -> None:
    assert policy_of(fn) is POLICY
    varied = variant(fn, attempts=1)
    policy = policy_of(varied)
    assert isinstance(policy, Retry)
    assert policy.attempts == 1
    assert varied.__wrapped__ is fn.__wrapped__
    piped = (RecordingGate() | POLICY)(fn.__wrapped__)
    assert isinstance(policy_of(piped), Pipeline)


class Client:
    """A class with every kind of method."""

    def __init__(self) -> None:
        self.fails = 2
        self._make = self._policy = None  # names that a wrapper might have too

    def _fail_twice(self) -> None:
        if self.fails:
            self.fails -= 1
            raise Boom

    @POLICY
    def items(self, item: str) -> Iterator[str]:
        self._fail_twice()
        yield item

    @POLICY
    async def aitems(self, item: str) -> AsyncIterator[str]:
        self._fail_twice()
        yield item

    @POLICY
    @classmethod
    def of_class(cls, item: str) -> Iterator[str]:
        yield f"{cls.__name__} {item}"

    @classmethod
    @POLICY
    async def aof_class(cls, item: str) -> AsyncIterator[str]:
        yield f"{cls.__name__} {item}"

    @POLICY
    @staticmethod
    def static(item: str) -> Iterator[str]:
        yield item

    @staticmethod
    @POLICY
    async def astatic(item: str) -> AsyncIterator[str]:
        yield item

    def __call__(self, item: str) -> Iterator[str]:
        self._fail_twice()
        yield item


class AsyncClient(Client):
    """An object that is called like an async generator function."""

    async def __call__(self, item: str) -> AsyncIterator[str]:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        self._fail_twice()
        yield item


def test_methods(colour: str) -> None:
    client = Client()
    assert listed(colour, client.items, client.aitems, "a") == ["a"]
    assert client.fails == 0
    assert listed(colour, client.of_class, client.aof_class, "a") == ["Client a"]
    assert listed(colour, Client.static, Client.astatic, "a") == ["a"]
    assert listed(colour, client.static, client.astatic, "a") == ["a"]
    unbound = listed(colour, Client.items, Client.aitems, Client(), "a")
    assert unbound == ["a"]
    assert policy_of(client.items) is policy_of(client.aitems) is POLICY


def test_variant_of_a_bound_method(colour: str) -> None:
    client = Client()
    sync, aio = variant(client.items, attempts=1), variant(client.aitems, attempts=1)
    with pytest.raises(Boom):
        listed(colour, sync, aio, "a")
    assert client.fails == 1


def test_partials_and_callable_objects(colour: str) -> None:
    sync, aio = POLICY(functools.partial(items, 1, step=3)), POLICY(functools.partial(aitems, 1, step=3))
    assert listed(colour, sync, aio, 2) == [1, 2, 3]
    assert listed(colour, POLICY(Client()), POLICY(AsyncClient()), "a") == ["a"]
    assert listed(colour, POLICY(Client().items), POLICY(Client().aitems), "a") == ["a"]
    partial = functools.partial(Client(), "a")
    apartial = functools.partial(AsyncClient(), "a")
    assert listed(colour, POLICY(partial), POLICY(apartial)) == ["a"]
    for fn in (aio, POLICY(AsyncClient()), POLICY(apartial)):
        assert inspect.isasyncgenfunction(fn)
        assert repr(fn)


def test_attributes_are_kept() -> None:
    """They are copied as by `functools.wraps`; attributes set later stay on the wrapper."""

    async def marked() -> AsyncIterator[int]:
        yield 1

    marked.tag = "slow"  # type: ignore[attr-defined]  # pyright: ignore[reportFunctionMemberAccess]
    wrapped: Any = POLICY(marked)
    assert wrapped.tag == "slow"
    wrapped.other = 1
    assert not hasattr(marked, "other")


def test_the_outer_of_two_policies_retries_what_the_inner_one_gave_up(colour: str) -> None:
    """The report is that of the outer policy."""
    opened: list[int] = []
    inner = Retry(on=Boom, attempts=2, backoff=[0], nested="allow")
    outer = Retry(on=Boom, attempts=3, backoff=[0] * 2, nested="allow")

    @outer
    @inner
    def sync() -> Iterator[int]:
        opened.append(1)
        if len(opened) < 5:
            raise Boom
        yield 1
        raise Boom("late")

    @outer
    @inner
    async def aio() -> AsyncIterator[int]:
        opened.append(1)
        if len(opened) < 5:
            raise Boom
        yield 1
        raise Boom("late")

    with pytest.raises(Boom, match="late") as caught:
        listed(colour, sync, aio)
    assert len(opened) == 5
    reported = report(caught.value)
    assert reported is not None
    assert (reported.reason, reported.attempts) == ("committed", 3)
    assert policy_of(sync) is policy_of(aio) is outer
