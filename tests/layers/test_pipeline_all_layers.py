"""`Fallback`, `Bulkhead`, `Retry`, `CircuitBreaker` and `Timeout` in one pipeline, in every colour."""

from __future__ import annotations

import asyncio
import inspect
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

import redouble
from redouble import (
    Bulkhead,
    CircuitBreaker,
    Fallback,
    Kind,
    Pipeline,
    Retry,
    Timeout,
    TokenBucket,
    Worker,
    errors,
    policy_of,
)
from redouble.testing import Script, ok
from tests.support.fakes import COLOURS, Boom, Virtual, in_colour
from tests.support.streams import Reader, ScriptedSource

HOUR = 3600.0
COOLDOWN = 30.0


@dataclass
class Guards:
    """A pipeline of all these layers, with its parts; its clock stands still unless a test moves it."""

    clock: Virtual = field(default_factory=Virtual)
    limit: int = 1
    failures: int = 3
    attempts: int = 3

    def __post_init__(self) -> None:
        self.bulkhead = Bulkhead(self.limit, wait=0)
        self.budget = TokenBucket(100, {Kind.unknown: 10, None: 10}, success_increment=0)
        self.breaker = CircuitBreaker(failures=self.failures, cooldown=COOLDOWN, clock=self.clock)
        self.retry = Retry(
            on=Boom, attempts=self.attempts, backoff=[0] * 9, budget=self.budget, clock=self.clock
        )
        self.inner = self.bulkhead | self.retry | self.breaker
        self.whole = Fallback(type, on=(Boom, errors.Rejected)) | self.inner | Timeout(HOUR, worker=Worker())

    def called(self, colour: str, *steps: Any) -> tuple[object, int]:
        """Call an operation that follows the steps; return the result, and how often it was called."""
        script = Script(*steps)
        outcome = in_colour(colour, lambda: self.whole.call(script), lambda: self.whole.call(script.aio))
        return outcome, len(script.calls)

    def left(self) -> tuple[float, float, object]:
        """Return what is left behind: slots in use, tokens, and the state of the breaker."""
        return self.bulkhead.snapshot()["in_use"], self.budget.snapshot()["tokens"], self.breaker.state


@pytest.mark.parametrize(
    ("steps", "failures", "outcome", "left"),
    [
        ([ok(3)], 3, (3, 1), (0, 100, "closed")),
        ([Boom(), ok(3)], 3, (3, 2), (0, 100, "closed")),  # a successful retry refunds its cost
        ([Boom()] * 9, 4, (Boom, 3), (0, 80, "closed")),
        ([Boom()] * 9, 3, (Boom, 3), (0, 80, "open")),
        ([Boom()] * 9, 1, (errors.CircuitOpen, 1), (0, 100, "open")),  # a rejected retry is refunded
        ([Boom(), Boom(), ok(3)], 2, (errors.CircuitOpen, 2), (0, 90, "open")),
    ],
)
def test_one_call(colour: str, steps: list[Any], failures: int, outcome: Any, left: Any) -> None:
    """The result, the number of calls of the function, and the state that is left behind."""
    guards = Guards(failures=failures)
    assert guards.called(colour, *steps) == outcome
    assert guards.left() == left


def test_an_error_that_retry_and_fallback_do_not_handle(colour: str) -> None:
    """It is not retried and not replaced; for the breaker it is a failure like any other."""
    guards, wrong = Guards(failures=1), KeyError("x")
    with pytest.raises(KeyError) as caught:
        guards.called(colour, wrong)
    assert caught.value is wrong
    assert guards.left() == (0, 100, "open")


def test_the_error_of_a_full_bulkhead_is_replaced(colour: str) -> None:
    guards = Guards()
    with guards.bulkhead:
        assert guards.called(colour, ok(3)) == (errors.BulkheadFull, 0)
    assert guards.left() == (0, 100, "closed")


def test_an_outage_from_its_beginning_to_its_end(colour: str) -> None:
    guards = Guards(failures=2, attempts=2)
    assert guards.called(colour, Boom(), Boom()) == (Boom, 2)
    for _ in range(3):
        assert guards.called(colour, ok(3)) == (errors.CircuitOpen, 0)
    guards.clock.time += COOLDOWN * 9
    assert guards.called(colour, Boom(), ok(3)) == (errors.CircuitOpen, 1)  # the probe fails
    guards.clock.time += COOLDOWN * 9
    assert guards.called(colour, ok(3)) == (3, 1)
    assert guards.left() == (0, 90, "closed")


def test_the_budget_runs_out(colour: str) -> None:
    """Then each call is made once."""
    guards = Guards(failures=99, attempts=2)
    assert [guards.called(colour, Boom(), Boom()) for _ in range(12)] == [(Boom, 2)] * 10 + [(Boom, 1)] * 2
    assert guards.left() == (0, 0, "closed")


@pytest.mark.parametrize(
    ("script", "reader", "taken", "left"),
    [
        ([[1, 2]], Reader(), [1, 2], (0, 100, "closed")),
        ([["fail"], [1, 2]], Reader(), [1, 2], (0, 100, "closed")),
        ([["fail"]], Reader(), ["a", "b"], (0, 80, "open")),
        ([[1, 2]], Reader("close", 1), [1], (0, 100, "closed")),
        ([[1, 2]], Reader("drop", 1), [1], (0, 100, "closed")),
        ([["fail"], [1, 2]], Reader("break", 1), [1], (0, 100, "closed")),
    ],
)
def test_streams_through_all_layers(
    colour: str, script: list[Any], reader: Reader, taken: list[object], left: Any
) -> None:
    guards = Guards()
    pipeline, tape, seen = (
        Fallback(value="ab") | guards.inner,
        ScriptedSource(script, Virtual(), []),
        list[object](),
    )

    async def waiting() -> None:
        await reader.aread(pipeline(tape.aitems), seen)

    in_colour(colour, lambda: reader.read(pipeline(tape.items), seen), waiting)
    assert seen == taken
    assert guards.left() == left
    assert len(tape.trail) == 2 * tape.opened


def test_a_slot_is_held_while_a_stream_is_open(colour: str) -> None:
    guards = Guards()

    def items() -> Iterator[int]:
        yield from (1, 2)

    async def aitems() -> AsyncIterator[int]:
        for item in (1, 2):
            yield item

    def blocking() -> None:
        stream = guards.inner(items)()
        assert guards.left()[0] == 0
        assert next(stream) == 1
        assert guards.left()[0] == 1
        assert [*stream] == [2]

    async def waiting() -> None:
        stream = guards.inner(aitems)()
        assert guards.left()[0] == 0
        assert await anext(stream) == 1
        assert guards.left()[0] == 1
        assert [item async for item in stream] == [2]

    in_colour(colour, blocking, waiting)
    assert guards.left() == (0, 100, "closed")


# ---------------------------------------------------------------------- decorated functions

INNER = Bulkhead(9) | Retry(on=Boom, attempts=2, backoff=[0]) | CircuitBreaker(failures=99)
GUARDED = Fallback(value=b"", on=OSError) | INNER | Timeout(HOUR, worker=Worker())


class Client:
    """Every kind of method, guarded."""

    fails: int = 0

    @GUARDED
    def get(self, url: str, /, *parts: str, size: int = 1, **more: object) -> bytes:
        """Get it."""
        return self.answer(url, *parts) * size

    @GUARDED
    async def aget(self, url: str, /, *parts: str, size: int = 1, **more: object) -> bytes:
        """Get it."""
        return self.answer(url, *parts) * size

    @classmethod
    @GUARDED
    def of_class(cls, url: str) -> bytes:
        return url.encode()

    @GUARDED
    @staticmethod
    def static(url: str) -> bytes:
        return url.encode()

    def answer(self, *parts: str) -> bytes:
        if self.fails:
            self.fails -= 1
            raise Boom
        return "".join(parts).encode()


def test_methods_of_every_kind(colour: str) -> None:
    client = Client()
    client.fails = 1

    def blocking() -> list[bytes]:
        return [client.get("a", "b", size=2, x=1), Client.of_class("c"), client.static("d")]

    async def waiting() -> list[bytes]:
        return [await client.aget("a", "b", size=2, x=1), b"c", b"d"]

    assert in_colour(colour, blocking, waiting) == [b"abab", b"c", b"d"]


def test_a_decorated_function_keeps_its_signature() -> None:
    for guarded in (Client.get, Client.aget):
        plain: Any = inspect.unwrap(guarded)
        assert inspect.signature(guarded) == inspect.signature(plain)
        assert (guarded.__name__, guarded.__doc__) == (plain.__name__, "Get it.")
        assert inspect.iscoroutinefunction(guarded) is inspect.iscoroutinefunction(plain)
        assert set(vars(guarded)) == {"__wrapped__"}


def test_policy_of_and_variant(colour: str) -> None:
    """A variant shares the slots, the budget and the breaker."""
    client = Client()
    for guarded in (client.get, Client.get, client.aget, client.of_class, client.static):
        assert policy_of(guarded) is GUARDED
    once, aonce = redouble.variant(client.get, attempts=1), redouble.variant(client.aget, attempts=1)
    layers = policy_of(once)
    assert isinstance(layers, Pipeline)
    assert [type(layer) for layer in layers.layers] == [type(layer) for layer in GUARDED.layers]
    assert layers.layers[1] is GUARDED.layers[1]
    assert layers.layers[3] is GUARDED.layers[3]
    client.fails = 1
    with pytest.raises(Boom):
        in_colour(colour, lambda: once("a"), lambda: aonce("a"))
    assert in_colour(colour, lambda: once("a"), lambda: aonce("a")) == b"a"


@pytest.mark.parametrize("colour", COLOURS)
def test_wrong_arguments_are_raised_and_take_nothing(colour: str) -> None:
    """No slot stays in use, and no token is spent."""
    guards = Guards()

    def fetch(url: str) -> str:
        return url

    async def afetch(url: str) -> str:
        return url

    guarded: Callable[..., Any] = guards.inner(fetch)
    aguarded: Callable[..., Any] = guards.inner(afetch)
    for wrong in ({}, {"url": "a", "size": 1}):
        with pytest.raises(TypeError, match="argument"):
            in_colour(colour, lambda: guarded(**wrong), lambda: aguarded(**wrong))  # noqa: B023  called at once
    assert guards.left()[:2] == (0, 100)


def test_a_traceback_can_be_read(colour: str) -> None:
    """Every frame shows its line, the last one is the caller's own, and each layer has a frame or two."""

    def broken() -> None:
        raise Boom("this very line")

    async def abroken() -> None:
        raise Boom("this very line")

    pipeline = Fallback(value=1, on=OSError) | Guards(attempts=1).inner
    with pytest.raises(Boom) as caught:
        in_colour(colour, pipeline(broken), pipeline(abroken))
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert frames[-1].line == 'raise Boom("this very line")'
    first = next(n for n, frame in enumerate(frames) if frame.name == "replaced")
    assert len(frames[first:-1]) <= 2 * len(pipeline.layers)
    assert all(frame.line for frame in frames[first:])
    assert {"held", "guarded"} <= {frame.name for frame in frames}


def test_a_coroutine_that_is_never_awaited_takes_nothing() -> None:
    """Slots and tokens are taken when it runs."""
    guards = Guards()

    async def fetch() -> int:
        return 3

    coroutine = guards.inner(fetch)()
    assert guards.left() == (0, 100, "closed")
    coroutine.close()
    assert asyncio.run(guards.inner(fetch)()) == 3
    assert guards.left() == (0, 100, "closed")
