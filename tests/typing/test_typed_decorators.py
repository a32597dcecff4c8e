"""A decorated function keeps its type, checked by two type checkers and at run time."""
# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol, TypeVar, assert_type, overload

import pytest

import redouble
from redouble import Layer, Pipeline, Retry

pytestmark = pytest.mark.one_python

T = TypeVar("T")

POLICY = Retry(on=ConnectionError, attempts=2, backoff=[0])
PIPELINE = POLICY | Retry(attempts=1)


# --------------------------------------------------------------------------- functions


@redouble.retry
def bare(url: str, *, chunk: int = 1) -> bytes:
    return url.encode() * chunk


@redouble.retry(on=ConnectionError, attempts=5, give_up_after=10)
def optioned(url: str, *, chunk: int = 1) -> bytes:
    return url.encode() * chunk


@redouble.retry()
def empty(url: str) -> bytes:
    return url.encode()


@POLICY
def by_value(url: str, *, chunk: int = 1) -> bytes:
    return url.encode() * chunk


@PIPELINE
def piped(url: str, *, chunk: int = 1) -> bytes:
    return url.encode() * chunk


@POLICY
def generic(value: T) -> T:
    return value


def test_functions() -> None:
    assert_type(bare("a"), bytes)
    assert_type(optioned("a", chunk=2), bytes)
    assert_type(empty("a"), bytes)
    assert_type(by_value("a"), bytes)
    assert_type(piped("a"), bytes)
    assert_type(generic(1), int)
    assert_type(generic("a"), str)


def test_decorating_by_hand() -> None:
    assert_type(redouble.retry(), Retry)
    assert_type(redouble.retry(attempts=3), Retry)

    def plain(x: int, /, y: str = "", *args: float, flag: bool, **more: bytes) -> list[int]:
        return [x]

    for wrapped in (
        redouble.retry(plain),
        redouble.retry(attempts=3)(plain),
        Retry()(plain),
        PIPELINE(plain),
    ):
        assert_type(wrapped(1, "y", 2.0, flag=True, z=b""), list[int])


def test_wrong_arguments_are_reported() -> None:
    with pytest.raises(TypeError):
        bare()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError):
        optioned("a", chunk="b")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        by_value("a", size=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def takes(fn: Callable[[str], bytes]) -> bytes:
    return fn("a")


def test_decorated_functions_can_be_passed_on() -> None:
    assert_type(takes(bare), bytes)
    assert_type(takes(functools.partial(by_value, chunk=2)), bytes)
    assert_type(takes(POLICY(functools.partial(by_value, chunk=2))), bytes)


# --------------------------------------------------------------- coroutine functions


@redouble.retry
async def abare(url: str, *, chunk: int = 1) -> bytes:
    return url.encode() * chunk


@redouble.retry(attempts=3)
async def aoptioned(url: str, *, chunk: int = 1) -> bytes:
    return url.encode() * chunk


@POLICY
async def aby_value(url: str, *, chunk: int = 1) -> bytes:
    return url.encode() * chunk


@PIPELINE
async def apiped(url: str, *, chunk: int = 1) -> bytes:
    return url.encode() * chunk


async def atakes(fn: Callable[[str], Awaitable[bytes]]) -> bytes:
    return await fn("a")


def test_coroutine_functions() -> None:
    async def main() -> None:
        assert_type(await abare("a"), bytes)
        assert_type(await aoptioned("a", chunk=2), bytes)
        assert_type(await aby_value("a"), bytes)
        assert_type(await apiped("a"), bytes)
        assert_type(await atakes(abare), bytes)

    asyncio.run(main())
    unused: Coroutine[Any, Any, bytes] = abare("a")
    unused.close()


def test_a_coroutine_function_is_not_accepted_as_a_plain_one() -> None:
    # both checkers report the argument
    wrong = takes(abare)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert asyncio.iscoroutine(wrong)
    wrong.close()


# ----------------------------------------------------------------------------- methods


class Client:
    base: str = "b"

    @redouble.retry
    def get(self, url: str) -> bytes:
        return (self.base + url).encode()

    @redouble.retry(attempts=3)
    async def aget(self, url: str) -> bytes:
        return (self.base + url).encode()

    @classmethod
    @redouble.retry(attempts=3)
    def make(cls, url: str) -> bytes:
        return (cls.base + url).encode()

    @staticmethod
    @POLICY
    def join(*parts: str) -> str:
        return "/".join(parts)

    @POLICY
    @classmethod
    def made(cls, url: str) -> bytes:
        return (cls.base + url).encode()

    @redouble.retry
    @staticmethod
    def joined(*parts: str) -> str:
        return "/".join(parts)

    @property
    @POLICY
    def state(self) -> int:
        return 1

    @overload
    def parse(self, text: str) -> str: ...
    @overload
    def parse(self, text: bytes) -> bytes: ...
    @POLICY
    def parse(self, text: str | bytes) -> str | bytes:
        return text


class Cached(Client):
    """A decorated method can be overridden, by a decorated method or not."""

    def get(self, url: str) -> bytes:
        return super().get(url) + b"!"

    @redouble.retry(attempts=5)
    async def aget(self, url: str) -> bytes:
        return await super().aget(url) + b"!"

    @classmethod
    @POLICY
    def make(cls, url: str) -> bytes:
        return super().make(url) + b"!"

    @staticmethod
    def join(*parts: str) -> str:
        return "!".join(parts)


class Wrong(Client):
    def get(self, url: int) -> bytes:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        return b""


@pytest.mark.parametrize("client", [Client(), Cached()])
def test_methods(client: Client) -> None:
    assert_type(client.get("a"), bytes)
    assert_type(Client.get(client, "a"), bytes)
    assert_type(client.make("a"), bytes)
    assert_type(Client.make("a"), bytes)
    assert_type(client.join("a", "b"), str)
    assert_type(Client.join("a", "b"), str)
    assert_type(client.made("a"), bytes)
    assert_type(Client.made("a"), bytes)
    assert_type(client.joined("a", "b"), str)
    assert_type(Client.joined("a", "b"), str)
    assert_type(client.state, int)
    assert_type(asyncio.run(client.aget("a")), bytes)


def test_overloads() -> None:
    assert_type(Client().parse("a"), str)
    assert_type(Client().parse(b"a"), bytes)

    @overload
    def parse(text: str) -> str: ...
    @overload
    def parse(text: bytes) -> bytes: ...
    @redouble.retry(attempts=3)
    def parse(text: str | bytes) -> str | bytes:
        return text

    assert_type(parse("a"), str)
    wrapped = POLICY(parse)  # all overloads of the function are kept
    assert_type(wrapped(b"a"), bytes)


def test_wrong_arguments_of_methods_are_reported() -> None:
    with pytest.raises(TypeError):
        Client().get()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError):
        Client().get("a", "b")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


# --------------------------------------------------------------------------- protocols


class Fetches(Protocol):
    def get(self, url: str) -> bytes: ...
    async def aget(self, url: str) -> bytes: ...


class Fetch(Protocol):
    def __call__(self, url: str, *, chunk: int = 1) -> bytes: ...


class AsyncFetch(Protocol):
    async def __call__(self, url: str, *, chunk: int = 1) -> bytes: ...


def test_protocols() -> None:
    clients: list[Fetches] = [Client(), Cached()]
    fetches: list[Fetch] = [bare, optioned, by_value, piped]
    afetches: list[AsyncFetch] = [abare, aoptioned, aby_value, apiped]
    assert {fetch("a", chunk=2) for fetch in fetches} == {b"aa"}
    assert {asyncio.run(fetch("a")) for fetch in afetches} == {b"a"}
    assert [client.get("a") for client in clients] == [b"ba", b"ba!"]


class Fetcher:
    def __call__(self, url: str) -> bytes:
        return url.encode()


def test_callable_objects_keep_their_type() -> None:
    """F -> F: the wrapper has the type of the function."""
    assert_type(POLICY(Fetcher())("a"), bytes)


# ------------------------------------------------------------------ user-defined layers


def test_layers_and_decorators_of_decorators() -> None:
    def guarded(layer: Layer) -> Callable[[str], bytes]:
        return layer(empty)

    assert_type(POLICY | POLICY, Pipeline)
    assert_type(PIPELINE | POLICY | PIPELINE, Pipeline)
    assert_type(guarded(PIPELINE)("a"), bytes)
    with pytest.raises(TypeError):
        POLICY | 3  # type: ignore[operator]  # pyright: ignore[reportOperatorIssue, reportUnusedExpression]
