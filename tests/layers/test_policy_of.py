"""`policy_of` finds the layer of a function, and keeps nothing alive."""

from __future__ import annotations

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
    """Admits every call."""

    def admit(self, now: float, /) -> None: ...


class PlainDoor(Door):
    """A gate with a wrapper of its own that forgets it, for plain functions."""

    def around(self, fn: Callable[P, T], /) -> Callable[P, T]:
        return Forgetful().around(fn)


class AsyncDoor(Door):
    """And for coroutine functions."""

    def around_async(self, fn: Callable[P, Awaitable[T]], /) -> Callable[P, Coroutine[Any, Any, T]]:
        return Forgetful().around_async(fn)


def work(n: int = 0) -> int:
    return n


async def awork(n: int = 0) -> int:
    return n


# -------------------------------------------------------------------------- is known


@pytest.mark.parametrize("fn", [work, awork])
def test_a_layer_that_only_its_wrapper_holds(fn: Callable[..., Any]) -> None:
    wrapped = Forgetful()(fn)
    doors = [PlainDoor()(fn), AsyncDoor()(fn)]
    piped = (Retry(attempts=2) | Forgetful())(fn)
    gc.collect()
    assert isinstance(policy_of(wrapped), Forgetful)
    assert [type(policy_of(door)) for door in doors] == [PlainDoor, AsyncDoor]
    found = policy_of(piped)
    assert isinstance(found, Pipeline)
    assert [type(layer) for layer in found.layers] == [Retry, Forgetful]


@pytest.mark.parametrize("fn", [work, awork])
def test_a_pipeline_that_is_gone(fn: Callable[..., Any]) -> None:
    """An equal pipeline of the same layers is returned; while the original lives, it is returned itself."""
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


def test_policies_that_only_their_wrapper_holds() -> None:
    assert policy_of(Retry(attempts=7)(work)) == Retry(attempts=7)
    assert isinstance(policy_of(Door()(work)), Door)


@pytest.mark.parametrize("thing", [3, [], {}, None, "work", work, awork, print, "".join, Retry(), object()])
def test_what_nothing_decorates(thing: object) -> None:
    assert policy_of(thing) is None


# ------------------------------------------------------------------------- is not kept


class Client:
    """Its policy calls it for retries, and so can reach the function that it decorates."""

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
def test_objects_that_decorate_their_own_methods(layers: str) -> None:
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
def test_functions_that_call_themselves(layer: Layer | None) -> None:
    """With a policy of their own (None), or with one for all."""

    def make() -> weakref.ref[Any]:
        @(layer or Retry(attempts=2))
        def down(n: int) -> int:
            return down(n - 1) if n else 0

        assert down(3) == 0
        return weakref.ref(down)

    references = [make() for _ in range(200)]
    gc.collect()
    assert [reference() for reference in references] == [None] * 200
