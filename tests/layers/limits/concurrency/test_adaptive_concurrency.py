"""`AdaptiveConcurrency`: an admitted call is in flight until it ends; one beyond the limit is rejected."""

from __future__ import annotations

import pickle
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any

import pytest

from redouble import AdaptiveConcurrency, errors, policy_of
from redouble._internal.locks import _after_fork
from redouble._runtime.backend import backend
from tests.support.fakes import ASYNC, Boom, Panic, in_colour
from tests.support.layers.breaker_scripts import SHAPES, Service, result_of
from tests.support.runtime.cancellation import cancelled

EACH = pytest.mark.parametrize("shape", SHAPES)


def one(**options: Any) -> AdaptiveConcurrency:
    """Return a gate with a limit of 1."""
    return AdaptiveConcurrency(1, **options)


# ------------------------------------------------------------------------ calls in flight


@EACH
def test_a_call_is_in_flight_while_it_runs(colour: str, shape: str) -> None:
    gate, used = one(), list[float]()

    class Looking(Service):
        def __call__(self, item: int = 0, *, scale: int = 1) -> int:
            used.append(gate.snapshot()["in_use"])
            return super().__call__(item, scale=scale)

    assert [result_of(colour, shape, gate, Looking()) for _ in range(3)] == [6, 6, 6]
    assert used == [1, 1, 1]
    assert gate.snapshot() == {"limit": 1, "in_use": 0}


@EACH
@pytest.mark.parametrize(
    ("limit", "name", "message"),
    [
        (1, None, "the adaptive limit is reached: 1 call is in flight, as many as the service can handle"),
        (
            2,
            "db",
            "the adaptive limit db is reached: 2 calls are in flight, as many as the service can handle",
        ),
    ],
)
def test_a_call_beyond_the_limit_is_rejected(
    colour: str, shape: str, limit: int, name: str | None, message: str
) -> None:
    gate, service = AdaptiveConcurrency(limit, name=name), Service()
    tickets = [gate.admit(0.0) for _ in range(limit)]
    rejected = result_of(colour, shape, gate, service)
    assert isinstance(rejected, errors.BulkheadFull)
    assert isinstance(rejected, errors.Rejected)
    assert str(rejected) == message
    assert (rejected.limit, rejected.wait, rejected.retry_after) == (limit, 0, None)
    assert str(pickle.loads(pickle.dumps(rejected))) == message
    assert service.calls == 0
    assert gate.snapshot()["in_use"] == limit
    gate.ended(tickets.pop(), None, 0.0)
    assert result_of(colour, shape, gate, service) == 6


@EACH
@pytest.mark.parametrize("raised", [Boom(), Panic(), TimeoutError()])
def test_a_failed_call_is_no_longer_in_flight(colour: str, shape: str, raised: BaseException) -> None:
    gate, service = one(), Service()
    service.down = raised
    assert result_of(colour, shape, gate, service) is raised
    assert gate.snapshot()["in_use"] == 0


@pytest.mark.parametrize("colour", ASYNC)
@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape != "mixed"])
def test_a_cancelled_call_is_no_longer_in_flight(colour: str, shape: str) -> None:
    class Hanging(Service):
        async def acall(self, item: int = 0, *, scale: int = 1) -> int:
            await backend().sleep(1e6)
            return item

    gate: Any = one()
    assert cancelled(colour, lambda: SHAPES[shape][1](gate, Hanging())) == "cancelled"
    assert gate.snapshot() == {"limit": 1, "in_use": 0}


def test_a_stream_is_in_flight_while_it_is_open(colour: str) -> None:
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


def test_a_plain_function_that_returns_a_coroutine_raises_type_error() -> None:
    async def late() -> int:
        return 1

    def plain() -> object:
        return late()

    gate = one()
    with pytest.raises(TypeError, match="coroutine"):
        gate.call(plain)
    assert gate.snapshot()["in_use"] == 0


def test_a_closed_coroutine_is_no_longer_in_flight() -> None:
    async def work() -> None:
        await Yields()

    gate = one()
    coroutine = gate(work)()
    coroutine.send(None)
    assert gate.snapshot()["in_use"] == 1
    coroutine.close()
    assert gate.snapshot()["in_use"] == 0


class Yields:
    """An awaitable that suspends once."""

    def __await__(self) -> Any:
        yield


def test_a_decorated_function_keeps_its_parameters_name_and_docstring() -> None:
    gate = one()

    @gate
    def add(first: int, *more: int, key: int = 1) -> tuple[int, tuple[int, ...], int]:
        """Add."""
        return first, more, key

    assert add(1, 2, 3, key=4) == (1, (2, 3), 4)
    assert (add.__name__, add.__doc__) == ("add", "Add.")
    assert policy_of(add) is gate


# --------------------------------------------------------------------------------- forks


def test_a_child_process_begins_without_calls_in_flight() -> None:
    """The end of a call that began before the fork does not change the child's count."""
    gate, after = AdaptiveConcurrency(2), list[float]()
    look: Callable[[], None] = lambda: after.append(gate.snapshot()["in_use"])

    @gate
    def forking() -> None:
        _after_fork()
        look()
        gate.call(look)

    with gate:
        forking()
        look()
    look()
    assert after == [0, 1, 0, 0]
    assert gate.limit == 2
    tickets = [gate.admit(0.0) for _ in range(2)]
    with pytest.raises(errors.BulkheadFull):
        gate.admit(0.0)
    assert len(tickets) == 2
