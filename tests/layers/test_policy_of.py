"""`policy_of` finds the layer of a function, and keeps nothing alive."""

from __future__ import annotations

import functools
import gc
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

import pytest

from redouble import Gate, Layer, Pipeline, Retry, policy_of
from redouble._layers.layer import _decorated
from redouble.types import Event
from tests.support.fakes import stable_repr

P = ParamSpec("P")
T = TypeVar("T")


class Forgetful(Layer):
    """A user's own layer, whose wrappers do not refer to it."""

    def around(self, fn: Callable[P, T], /) -> Callable[P, T]:
        def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
            return fn(*args, **kwargs)

        return wrapped

    def around_async(self, fn: Callable[P, Awaitable[T]], /) -> Callable[P, Coroutine[Any, Any, T]]:
        async def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
            return await fn(*args, **kwargs)

        return wrapped


class Door(Gate):
    """A gate that admits every call."""

    def admit(self, now: float, /) -> None: ...


class PlainDoor(Door):
    """A gate whose wrappers of plain functions do not refer to it."""

    def around(self, fn: Callable[P, T], /) -> Callable[P, T]:
        return Forgetful().around(fn)


class AsyncDoor(Door):
    """A gate whose wrappers of coroutine functions do not refer to it."""

    def around_async(self, fn: Callable[P, Awaitable[T]], /) -> Callable[P, Coroutine[Any, Any, T]]:
        return Forgetful().around_async(fn)


class PlainRetry(Retry):
    """A policy whose wrappers of plain functions do not refer to it."""

    def around(self, fn: Callable[P, T], /) -> Callable[P, T]:
        return Forgetful().around(fn)


def work(n: int = 0) -> int:
    return n


async def awork(n: int = 0) -> int:
    return n


# ----------------------------------------------------------------------------- found


@pytest.mark.parametrize("fn", [work, awork])
def test_a_layer_that_nothing_else_refers_to_is_found(fn: Callable[..., Any]) -> None:
    wrapped = Forgetful()(fn)
    doors = [PlainDoor()(fn), AsyncDoor()(fn)]
    piped = (Retry(attempts=2) | Forgetful())(fn)
    gc.collect()
    assert isinstance(policy_of(wrapped), Forgetful)
    assert [type(policy_of(door)) for door in doors] == [PlainDoor, AsyncDoor]
    found = policy_of(piped)
    assert isinstance(found, Pipeline)
    assert [type(layer) for layer in found.layers] == [Retry, Forgetful]


def test_a_policy_of_a_class_with_its_own_wrappers_is_found() -> None:
    wrapped = PlainRetry(attempts=2)(work)
    gc.collect()
    assert policy_of(wrapped) == PlainRetry(attempts=2)


@pytest.mark.parametrize("fn", [work, awork])
def test_a_pipeline_that_nothing_else_refers_to_is_made_again(fn: Callable[..., Any]) -> None:
    """It is equal, with the same layers; a pipeline that still exists is returned itself."""
    policy, door = Retry(attempts=2), Door()
    wrapped = (policy | door)(fn)
    gc.collect()
    found = policy_of(wrapped)
    assert found == policy | door
    assert isinstance(found, Pipeline)
    assert found.layers[0] is policy
    assert found.layers[1] is door
    pipeline = policy | door
    wrapped = pipeline(fn)
    assert policy_of(wrapped) is pipeline


def test_a_policy_that_nothing_else_refers_to_is_found() -> None:
    assert policy_of(Retry(attempts=7)(work)) == Retry(attempts=7)
    assert isinstance(policy_of(Door()(work)), Door)


@pytest.mark.parametrize("thing", [3, [], {}, None, "work", work, awork, print, "".join, Retry(), object()])
def test_undecorated_objects_have_no_policy(thing: object) -> None:
    assert policy_of(thing) is None


# ---------------------------------------------------------------------- not kept alive


class Client:
    """An object whose policy refers to it as an observer, and so to the function that it decorates."""

    def __init__(self, layers: Callable[[Client], Layer]) -> None:
        self.seen: list[Event] = []
        self.fetch = layers(self)(self._fetch)
        self.afetch = layers(self)(self._afetch)

    def log(self, event: Event) -> None:
        self.seen.append(event)

    def _fetch(self) -> int:
        return 1

    async def _afetch(self) -> int:
        return 1


LAYERS: dict[str, Callable[[Client], Layer]] = {
    "Retry": lambda client: Retry(on_retry=client.log),
    "busy": lambda client: Retry(on_retry=client.log, timeout=5),
    "gate": lambda client: Door(),
    "pipeline": lambda client: Retry(on_retry=client.log) | Door() | Retry(on_give_up=client.log),
}


@pytest.mark.parametrize("layers", LAYERS)
def test_objects_that_decorate_their_own_methods_are_freed(layers: str) -> None:
    gc.collect()
    before = len(_decorated)
    clients = [Client(LAYERS[layers]) for _ in range(200)]
    assert [client.fetch() for client in clients] == [1] * 200
    assert all(policy_of(client.fetch) is not None for client in clients)
    references: list[Callable[[], object]] = [weakref.ref(client) for client in clients]
    references += [weakref.ref(client.fetch) for client in clients]
    del clients
    gc.collect()
    assert [reference() for reference in references] == [None] * 400
    assert len(_decorated) == before


@pytest.mark.parametrize("layer", [None, Retry(), Door(), Retry() | Door(), Forgetful()], ids=stable_repr)
def test_functions_that_call_themselves_are_freed(layer: Layer | None) -> None:
    """Each with its own policy (None), or all with the same one."""

    def make() -> weakref.ref[Any]:
        @(layer or Retry(attempts=2))
        def down(n: int) -> int:
            return down(n - 1) if n else 0

        assert down(3) == 0
        return weakref.ref(down)

    references = [make() for _ in range(200)]
    gc.collect()
    assert [reference() for reference in references] == [None] * 200


def test_a_gate_whose_wrappers_a_mixin_makes_is_found() -> None:
    class Mixin:
        def around(self, fn: Callable[..., Any], /) -> Callable[..., Any]:
            return functools.partial(fn)

    class Mixed(Mixin, Gate):
        def admit(self, now: float, /) -> None: ...

    fn = Mixed()(len)
    gc.collect()
    assert isinstance(policy_of(fn), Mixed)
