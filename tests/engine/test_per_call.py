"""Options of gates that are functions of the arguments of a call, in every colour and shape."""

from __future__ import annotations

import functools
import re
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any

import httpx
import pytest

from redouble import Gate, Keyed, RateLimit, Retry
from redouble._clients.held_gate import request_gate
from redouble._engine.per_call import PerCall, argument_function
from redouble._layers.gate import Admission
from redouble.httpx import AsyncTransport, Transport
from tests.support.fakes import Boom, in_colour


class Seeing(Gate):
    """A gate that records what its function returned for each call; a result that is an error is raised."""

    def __init__(self, function: Callable[..., Any]) -> None:
        def evaluate(*args: Any, **kwargs: Any) -> Any:
            found = function(*args, **kwargs)
            if isinstance(found, Exception):
                raise found
            return found

        self._per_call = PerCall({"Seeing option": function}, evaluate)
        self.seen, self.open = list[Any](), 0

    def admit(self, now: float, /) -> None:
        self.open += 1

    def ended(self, ticket: None, error: BaseException | None, now: float, /) -> None:
        self.open -= 1

    def _acquire_admission(self, admission: Admission) -> None:
        self.seen.append(admission.per_call)
        super()._acquire_admission(admission)


def both(one: int, *, two: int = 2) -> Any:
    """Return the arguments."""
    return Boom() if one < 0 else (one, two)


def both_of(one: int, two: int | None = None) -> Any:
    """Return the arguments."""
    return one, two


def class_header(request: httpx.Request) -> str:
    """Return a header."""
    return request.headers["x-class"]


def key_of(one: int, *, two: int = 2) -> int:
    """Return the first argument."""
    return one


def without(**options: Any) -> None:
    """Accept no arguments by position."""


def with_another(one: int, two: int = 1, *, three: int) -> None:
    """Require one more."""


def with_any(*args: Any, **kwargs: Any) -> None:
    """Accept everything."""


def add(one: int, *, two: int = 2) -> int:
    return one + two


async def aadd(one: int, *, two: int = 2) -> int:
    return one + two


def count(one: int, *, two: int = 2) -> Generator[int]:
    yield one
    yield two


async def acount(one: int, *, two: int = 2) -> AsyncGenerator[int]:
    yield one
    yield two


def test_functions(colour: str) -> None:
    gate = Seeing(both)
    add_gated, aadd_gated = gate(add), gate(aadd)
    assert in_colour(colour, lambda: add_gated(1), lambda: aadd_gated(1)) == 3
    assert in_colour(colour, lambda: add_gated(one=3, two=4), lambda: aadd_gated(one=3, two=4)) == 7
    assert in_colour(colour, lambda: gate.call(add, 5), lambda: gate.call(aadd, 5)) == 7
    assert gate.seen == [(1, 2), (3, 4), (5, 2)]
    assert gate.open == 0


def test_a_partial_in_a_pipeline(colour: str) -> None:
    """The function sees the arguments that the call passes, without those that a partial adds."""
    gate = Seeing(both_of)
    pipeline = Retry() | gate | Retry()
    blocking, waiting = functools.partial(add, two=7), functools.partial(aadd, two=7)
    assert in_colour(colour, lambda: pipeline.call(blocking, 1), lambda: pipeline.call(waiting, 1)) == 8
    assert gate.seen == [(1, None)]


def of_client(client: object, url: str) -> Any:
    return type(client), url


class Client:
    """A client with methods."""

    gate = Seeing(of_client)

    @gate
    def get(self, url: str) -> str:
        return url

    @gate
    async def aget(self, url: str) -> str:
        return url


def test_methods(colour: str) -> None:
    client, seen = Client(), Client.gate.seen
    seen.clear()
    assert in_colour(colour, lambda: client.get("a"), lambda: client.aget("a")) == "a"
    assert seen == [(Client, "a")]


def test_streams(colour: str) -> None:
    gate = Seeing(both)
    count_gated, acount_gated = gate(count), gate(acount)

    async def waiting() -> list[int]:
        return [item async for item in acount_gated(1, two=3)]

    assert in_colour(colour, lambda: [*count_gated(1, two=3)], waiting) == [1, 3]
    assert gate.seen == [(1, 3)]
    assert gate.open == 0


def test_a_stream_that_is_not_read_evaluates_nothing(colour: str) -> None:
    gate = Seeing(both)
    count_gated, acount_gated = gate(count), gate(acount)

    async def waiting() -> None:
        await acount_gated(1).aclose()

    in_colour(colour, lambda: count_gated(1).close(), waiting)
    assert gate.seen == []


def test_what_a_function_raises_comes_out_and_nothing_is_admitted(colour: str) -> None:
    gate = Seeing(both)
    count_gated, acount_gated = gate(count), gate(acount)
    for call, acall in (
        (lambda: gate(add)(-1), lambda: gate(aadd)(-1)),
        (lambda: next(count_gated(-1)), lambda: anext(acount_gated(-1))),
    ):
        with pytest.raises(Boom):
            in_colour(colour, call, acall)
    assert gate.seen == []
    assert gate.open == 0


def test_a_block_has_no_arguments(colour: str) -> None:
    gate = Seeing(both)

    def blocking() -> None:
        with gate:
            pass

    async def waiting() -> None:
        async with gate:
            pass

    in_colour(colour, blocking, waiting)
    assert gate.seen == [None]


def test_inside_a_keyed_layer(colour: str) -> None:
    gate = Seeing(both)
    keyed = Keyed(key_of, lambda: gate)
    assert in_colour(colour, lambda: keyed.call(add, 1), lambda: keyed.call(aadd, 1)) == 3
    assert gate.seen == [(1, 2)]


# ------------------------------------------------------------------------------- clients


def ok(request: httpx.Request) -> httpx.Response:
    return httpx.Response(200, text=request.url.path)


class Counting(Seeing):
    """A gate whose admission ends with the head."""

    ends_with_head = True


@pytest.mark.parametrize("kind", [Seeing, Counting])
@pytest.mark.parametrize("colour", ["sync", "asyncio", "trio"])
def test_in_an_http_client_they_get_the_request(colour: str, kind: type[Seeing]) -> None:
    gate = kind(class_header)
    inner = httpx.MockTransport(ok)

    def blocking() -> str:
        with httpx.Client(transport=Transport(policy=Retry() | gate, wrapped=inner)) as client:
            return client.get("http://a/b", headers={"x-class": "batch"}).text

    async def waiting() -> str:
        transport = AsyncTransport(policy=Retry() | gate, wrapped=inner)
        async with httpx.AsyncClient(transport=transport) as client:
            return (await client.get("http://a/b", headers={"x-class": "batch"})).text

    assert in_colour(colour, blocking, waiting) == "/b"
    assert gate.seen == ["batch"]
    assert gate.open == 0


def test_a_gate_without_such_options_is_the_same_in_a_client() -> None:
    gate = RateLimit(1)
    assert request_gate(gate) is gate


# ------------------------------------------------------------------------ wrong functions


@pytest.mark.parametrize("function", [without, with_another])
@pytest.mark.parametrize("fn", [add, aadd, count, acount])
def test_a_function_that_does_not_accept_the_arguments(fn: Any, function: Callable[..., object]) -> None:
    text = f"does not accept the arguments of {fn.__qualname__}: write a function of (one, *, two)"
    with pytest.raises(TypeError, match=re.escape(text)):
        Seeing(function)(fn)


@pytest.mark.parametrize("fn", [add, aadd, count, acount])
@pytest.mark.parametrize("function", [with_any, both_of])
def test_a_function_that_accepts_them(fn: Any, function: Callable[..., object]) -> None:
    Seeing(function)(fn)


async def lazy() -> None:
    """Do nothing, later."""


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (1, "Gate cost=1: write a function"),
        (int, "Gate cost=<class 'int'>: write a function"),
        (lazy, "Gate cost=lazy is a coroutine function: write a plain function"),
    ],
)
def test_what_is_no_function(wrong: object, message: str) -> None:
    with pytest.raises(TypeError, match=re.escape(message)):
        argument_function(wrong, "Gate cost", "a function")
    assert argument_function(len, "Gate cost", "a function") is len
