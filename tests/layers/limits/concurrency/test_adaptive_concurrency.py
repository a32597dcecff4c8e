"""`AdaptiveConcurrency`: a call has a place or is refused, and leaves it in whatever way it ends."""

from __future__ import annotations

import pickle
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any

import pytest

from redouble import AdaptiveConcurrency, errors, policy_of
from redouble._internal.locks import _after_fork
from redouble._runtime.backend import backend
from tests.runtime.test_cancellation import cancelled
from tests.support.breaker_scripts import SHAPES, Service
from tests.support.fakes import ASYNC, Boom, Panic, in_colour

EACH = pytest.mark.parametrize("shape", SHAPES)


def made(colour: str, shape: str, gate: Any, service: Service) -> Any:
    """Make one call through any gate; return what came out, errors too."""
    blocking, waiting = SHAPES[shape]

    async def main() -> Any:
        return await waiting(gate, service)

    try:
        return in_colour(colour, lambda: blocking(gate, service), main)
    except BaseException as error:
        return error


def one(**options: Any) -> AdaptiveConcurrency:
    """Make one that has a single place."""
    return AdaptiveConcurrency(1, **options)


# -------------------------------------------------------------------------------- a place


@EACH
def test_a_call_holds_a_place_and_leaves_it(colour: str, shape: str) -> None:
    gate, used = one(), list[float]()

    class Looking(Service):
        def __call__(self, item: int = 0, *, scale: int = 1) -> int:
            used.append(gate.snapshot()["in_use"])
            return super().__call__(item, scale=scale)

    assert [made(colour, shape, gate, Looking()) for _ in range(3)] == [6, 6, 6]
    assert used == [1, 1, 1]
    assert gate.snapshot() == {"limit": 1, "in_use": 0}


@EACH
@pytest.mark.parametrize(
    ("limit", "name", "says"),
    [
        (1, None, "the adaptive limit is reached: 1 call is inside, which is what the service takes"),
        (2, "db", "the adaptive limit db is reached: 2 calls are inside, which is what the service takes"),
    ],
)
def test_who_comes_when_it_is_reached_is_refused(
    colour: str, shape: str, limit: int, name: str | None, says: str
) -> None:
    gate, service = AdaptiveConcurrency(limit, name=name), Service()
    tickets = [gate.admit(0.0) for _ in range(limit)]
    refused = made(colour, shape, gate, service)
    assert isinstance(refused, errors.BulkheadFull)
    assert isinstance(refused, errors.Rejected)
    assert str(refused) == says
    assert (refused.limit, refused.wait, refused.retry_after) == (limit, 0, None)
    assert str(pickle.loads(pickle.dumps(refused))) == says
    assert service.calls == 0
    assert gate.snapshot()["in_use"] == limit
    gate.ended(tickets.pop(), None, 0.0)
    assert made(colour, shape, gate, service) == 6


@EACH
@pytest.mark.parametrize("raised", [Boom(), Panic(), TimeoutError()])
def test_a_place_is_left_by_an_error(colour: str, shape: str, raised: BaseException) -> None:
    gate, service = one(), Service()
    service.down = raised
    assert made(colour, shape, gate, service) is raised
    assert gate.snapshot()["in_use"] == 0


@pytest.mark.parametrize("colour", ASYNC)
@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape != "mixed"])
def test_a_place_is_left_by_a_cancelled_call(colour: str, shape: str) -> None:
    class Hanging(Service):
        async def acall(self, item: int = 0, *, scale: int = 1) -> int:
            await backend().sleep(1e6)
            return item

    gate: Any = one()
    assert cancelled(colour, lambda: SHAPES[shape][1](gate, Hanging())) == "cancelled"
    assert gate.snapshot() == {"limit": 1, "in_use": 0}


def test_a_stream_holds_its_place_while_it_is_open(colour: str) -> None:
    gate = one()

    @gate
    def items() -> Iterator[int]:
        yield 1
        yield 2

    @gate
    async def aitems() -> AsyncGenerator[int]:
        yield 1
        yield 2

    def blocking() -> None:
        stream: Any = items()
        assert gate.snapshot()["in_use"] == 0  # not begun
        assert next(stream) == 1
        assert gate.snapshot()["in_use"] == 1
        with pytest.raises(errors.BulkheadFull):
            next(items())
        stream.close()

    async def waiting() -> None:
        stream = aitems()
        assert gate.snapshot()["in_use"] == 0
        assert await anext(stream) == 1
        assert gate.snapshot()["in_use"] == 1
        with pytest.raises(errors.BulkheadFull):
            await anext(aitems())
        await stream.aclose()

    in_colour(colour, blocking, waiting)
    assert gate.snapshot()["in_use"] == 0


def test_a_plain_function_that_gives_a_coroutine_is_told_so() -> None:
    async def late() -> int:
        return 1

    def plain() -> object:
        return late()

    gate = one()
    with pytest.raises(TypeError, match="coroutine"):
        gate.call(plain)
    assert gate.snapshot()["in_use"] == 0


def test_a_coroutine_that_is_dropped_leaves_its_place() -> None:
    async def work() -> None:
        await Yields()

    gate = one()
    coroutine = gate(work)()
    coroutine.send(None)
    assert gate.snapshot()["in_use"] == 1
    coroutine.close()
    assert gate.snapshot()["in_use"] == 0


class Yields:
    """Awaits once."""

    def __await__(self) -> Any:
        yield


def test_the_decorated_function_is_what_it_was() -> None:
    gate = one()

    @gate
    def add(first: int, *more: int, key: int = 1) -> tuple[int, tuple[int, ...], int]:
        """Add."""
        return first, more, key

    assert add(1, 2, 3, key=4) == (1, (2, 3), 4)
    assert (add.__name__, add.__doc__) == ("add", "Add.")
    assert policy_of(add) is gate


# --------------------------------------------------------------------------------- forks


def test_a_child_process_begins_with_all_places_free() -> None:
    """The calls inside go on elsewhere; when they end here all the same, that changes nothing."""
    gate, after = AdaptiveConcurrency(2), list[float]()
    look: Callable[[], None] = lambda: after.append(gate.snapshot()["in_use"])

    @gate
    def inside() -> None:
        _after_fork()
        look()
        gate.call(look)

    with gate:
        inside()
        look()
    look()
    assert after == [0, 1, 0, 0]
    assert gate.limit == 2
    tickets = [gate.admit(0.0) for _ in range(2)]
    with pytest.raises(errors.BulkheadFull):
        gate.admit(0.0)
    assert len(tickets) == 2
