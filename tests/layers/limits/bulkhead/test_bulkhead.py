"""`Bulkhead`: its options and errors; every use of it acquires a slot and releases it."""

from __future__ import annotations

import copy
import pickle
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import timedelta
from math import inf, nan
from typing import Any

import pytest

from redouble import Bulkhead, Retry, Timeout, errors, policy_of
from tests.support.fakes import Boom, Panic, in_colour

# ------------------------------------------------------------------------------ options


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((0,), ValueError, "Bulkhead limit=0: write a whole number, 1 or more"),
        ((-3,), ValueError, "Bulkhead limit=-3"),
        ((True,), TypeError, "Bulkhead limit=True"),
        ((2.0,), TypeError, "Bulkhead limit=2.0"),
        (("2",), TypeError, "Bulkhead limit='2'"),
        ((None,), TypeError, "Bulkhead limit=None"),
        ((print,), TypeError, r"write @Bulkhead\(10\), with the limit"),
        ((1, -1), ValueError, "Bulkhead wait=-1"),
        ((1, nan), ValueError, "Bulkhead wait=nan"),
        ((1, inf), ValueError, "Bulkhead wait=inf"),
        ((1, True), TypeError, "Bulkhead wait=True"),
        ((1, "1s"), TypeError, "Bulkhead wait='1s'"),
        ((1, 1, -1), ValueError, "Bulkhead queue=-1: write .*0 or more, or None"),
        ((1, 1, 1.5), TypeError, "Bulkhead queue=1.5"),
        ((1, 1, False), TypeError, "Bulkhead queue=False"),
    ],
)
def test_wrong_options_are_reported(arguments: tuple[Any, ...], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Bulkhead(*arguments)


def test_a_name_that_is_not_a_string_is_reported() -> None:
    with pytest.raises(TypeError, match="Bulkhead name=3"):
        Bulkhead(1, name=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("gate", "text"),
    [
        (Bulkhead(10), "Bulkhead(10, wait=1.0)"),
        (Bulkhead(1, None), "Bulkhead(1, wait=None)"),
        (Bulkhead(1, 0, 0), "Bulkhead(1, wait=0.0, queue=0)"),
        (
            Bulkhead(2, timedelta(milliseconds=250), 7, name="db"),
            "Bulkhead(2, wait=0.25, queue=7, name='db')",
        ),
    ],
)
def test_its_repr_recreates_it(gate: Bulkhead, text: str) -> None:
    assert repr(gate) == text
    other = eval(text)  # noqa: S307
    assert repr(other) == text
    assert (other.limit, other.wait, other.queue, other.name) == (
        gate.limit,
        gate.wait,
        gate.queue,
        gate.name,
    )


def test_it_is_shared_and_never_copied() -> None:
    gate = Bulkhead(1)
    assert copy.copy(gate) is copy.deepcopy(gate) is gate
    with pytest.raises(TypeError, match="a Bulkhead is shared by the calls of one process"):
        pickle.dumps(gate)


# ------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("gate", "message"),
    [
        (Bulkhead(1, 0), "the bulkhead is full: 1 call is in flight, and it does not wait"),
        (Bulkhead(2, 0, name="db"), "the bulkhead db is full: 2 calls are in flight, and it does not wait"),
        (Bulkhead(1, 5, 0), "the bulkhead is full: 1 call is in flight, and no call may wait"),
    ],
)
def test_the_error_of_a_full_bulkhead(colour: str, gate: Bulkhead, message: str) -> None:
    tickets = [gate.admit(0.0) for _ in range(gate.limit)]

    async def waiting() -> None:
        await gate.call(nothing)

    with pytest.raises(errors.BulkheadFull) as caught:
        in_colour(colour, lambda: gate.call(int), waiting)
    assert str(caught.value) == message
    assert (caught.value.limit, caught.value.wait, caught.value.retry_after) == (gate.limit, gate.wait, None)
    assert isinstance(caught.value, errors.Rejected)
    sent = pickle.loads(pickle.dumps(caught.value))
    assert (str(sent), vars(sent)) == (message, vars(caught.value))
    for ticket in tickets:
        gate.ended(ticket, None, 0.0)
    assert gate.snapshot() == {"limit": gate.limit, "in_use": 0, "queued": 0}


# ----------------------------------------------------------------------- every use of it


async def nothing() -> None: ...


class Service:
    """Methods of every kind behind one gate."""

    gate = Bulkhead(1, 0)

    def used(self) -> float:
        return self.gate.snapshot()["in_use"]

    @gate
    def plain(self, number: int, *more: int, key: int = 1) -> tuple[Any, ...]:
        return number, more, key, self.used()

    @gate
    async def coroutine(self, number: int, *more: int, key: int = 1) -> tuple[Any, ...]:
        return number, more, key, self.used()

    @gate
    def items(self, number: int) -> Iterator[float]:
        yield number
        yield self.used()

    @gate
    async def aitems(self, number: int) -> AsyncIterator[float]:
        yield number
        yield self.used()

    @classmethod
    @gate
    def of_class(cls) -> float:
        return cls.gate.snapshot()["in_use"]

    @staticmethod
    @gate
    async def static() -> float:
        return Service.gate.snapshot()["in_use"]


def test_methods_of_every_kind(colour: str) -> None:
    service = Service()

    def blocking() -> None:
        assert service.plain(1, 2, key=3) == (1, (2,), 3, 1)
        assert list(service.items(5)) == [5, 1]
        assert service.of_class() == 1

    async def waiting() -> None:
        assert await service.coroutine(1, 2, key=3) == (1, (2,), 3, 1)
        assert [item async for item in service.aitems(5)] == [5, 1]
        assert await service.static() == 1

    in_colour(colour, blocking, waiting)
    assert service.used() == 0
    assert policy_of(Service.plain) is Service.gate


def uses(gate: Bulkhead) -> list[Callable[[], object]]:
    """Return all uses of a bulkhead in blocking code; each returns the number of slots in use."""

    def look() -> float:
        return gate.snapshot()["in_use"]

    def with_statement() -> float:
        with gate:
            return look()

    def by_hand() -> float:
        ticket = gate.admit(0.0)
        try:
            return look()
        finally:
            gate.ended(ticket, None, 0.0)

    return [
        gate(look),
        lambda: gate.call(look),
        with_statement,
        by_hand,
        (gate | Retry(attempts=2))(look),
        (Retry(attempts=2) | gate)(look),
        lambda: (gate | Bulkhead(1)).call(look),
    ]


def async_uses(gate: Bulkhead) -> list[Callable[[], Awaitable[object]]]:
    """Return all uses of a bulkhead in async code."""

    async def look() -> float:
        return gate.snapshot()["in_use"]

    async def with_statement() -> float:
        async with gate:
            return await look()

    async def plain_with() -> float:
        with gate:
            return await look()

    return [
        gate(look),
        lambda: gate.call(look),
        with_statement,
        plain_with,
        (gate | Retry(attempts=2))(look),
        (Timeout(9) | gate | Timeout(9))(look),
        lambda: (gate | Bulkhead(1)).call(look),
    ]


def test_every_use_holds_a_slot(colour: str) -> None:
    gate = Bulkhead(1, 0)

    def blocking() -> None:
        assert [use() for use in uses(gate)] == [1] * 7

    async def waiting() -> None:
        assert [await use() for use in async_uses(gate)] == [1] * 7

    in_colour(colour, blocking, waiting)
    assert gate.snapshot()["in_use"] == 0


def test_every_use_is_rejected_when_it_is_full(colour: str) -> None:
    gate = Bulkhead(1, 0)
    rejected: list[object] = []

    def blocking() -> None:
        for use in uses(gate):
            with pytest.raises(errors.BulkheadFull):
                use()
            rejected.append(use)

    async def waiting() -> None:
        for use in async_uses(gate):
            with pytest.raises(errors.BulkheadFull):
                await use()
            rejected.append(use)

    with gate:
        in_colour(colour, blocking, waiting)
        assert gate.snapshot() == {"limit": 1, "in_use": 1, "queued": 0}
    assert len(rejected) == 7
    assert gate.snapshot()["in_use"] == 0


# -------------------------------------------------------------------- a call that raises


@pytest.mark.parametrize("raised", [Boom(), Panic(), KeyboardInterrupt(), SystemExit(), GeneratorExit()])
def test_an_error_releases_the_slot_and_is_raised_unchanged(colour: str, raised: BaseException) -> None:
    gate = Bulkhead(1, 0)

    def fails() -> None:
        raise raised

    async def afails() -> None:
        raise raised

    def blocking() -> None:
        with pytest.raises(type(raised)) as caught:
            gate.call(fails)
        assert caught.value is raised

    async def waiting() -> None:
        with pytest.raises(type(raised)) as caught:
            await gate.call(afails)
        assert caught.value is raised

    in_colour(colour, blocking, waiting)
    assert gate.snapshot()["in_use"] == 0


class CountingBulkhead(Bulkhead):
    """A bulkhead with its own admission, which never waits."""

    def __init__(self) -> None:
        super().__init__(1, wait=None)
        self.admitted = 0

    def admit(self, now: float, /) -> Any:
        ticket = super().admit(now)
        self.admitted += 1
        return ticket


def test_a_subclass_that_overrides_admit_is_asked_for_every_use(colour: str) -> None:
    gate = CountingBulkhead()

    async def nothing() -> None:
        with pytest.raises(errors.BulkheadFull, match="it does not wait"):
            await gate.call(nothing)

    def blocking() -> None:
        with gate, pytest.raises(errors.BulkheadFull, match="it does not wait"):
            gate.call(print)
        assert gate.call(int) == 0

    async def waiting() -> None:
        async with gate:
            await nothing()
        await gate.call(nothing)

    in_colour(colour, blocking, waiting)
    assert (gate.admitted, gate.snapshot()["in_use"]) == (2, 0)
