"""Classes of calls through one bulkhead: who is admitted, in every colour; their options."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Generator
from math import inf
from typing import Any

import pytest

from redouble import SYSTEM, AdaptiveConcurrency, Bulkhead, Retry, errors, observe, priority
from redouble._internal.callables import UsageError
from redouble._layers.limits.ranked_slots import RankedSlots
from redouble.config import from_mapping, to_mapping
from redouble.testing import VirtualClock
from redouble.types import Event, WorstCase
from tests.support.bulkhead_callers import callers, until
from tests.support.fakes import ASYNC, Boom, in_colour, nothing
from tests.support.runtime.tasks import together
from tests.support.virtual_time import VIRTUAL_COLOURS, in_virtual_colour

TWO = {"interactive": 0.6, "batch": 0.2}
INHERITING = ["sync", *ASYNC]  # a thread has a context of its own


@pytest.fixture(params=INHERITING)
def colour(request: pytest.FixtureRequest) -> str:
    """Parametrize by the colours whose calls have the context of the test."""
    return str(request.param)


def occupied(gate: Bulkhead, *names: str | None) -> list[Any]:
    """Take a slot for each class; return the tickets."""
    tickets = list[Any]()
    for name in names:
        with priority(name):
            tickets.append(gate.admit(0.0))
    return tickets


@pytest.mark.parametrize("order", ["fifo", "lifo"])
def test_waiters_of_all_colours_are_admitted_by_class(order: Any) -> None:
    """First "batch", which is below its share, then the higher class, and then "batch" again."""
    gate = Bulkhead(5, None, shares=TWO, order=order)
    tickets = occupied(gate, *["interactive"] * 3, None, None)
    with callers(gate) as group:
        classes = ["interactive", "batch"] * len(INHERITING)
        started = [group.start(colour, of) for colour, of in zip(INHERITING, classes, strict=False)]
        names = [caller.name for caller in started]
        interactive, batch = names[0::2], names[1::2]
        if order == "lifo":
            interactive, batch = interactive[::-1], batch[::-1]
        expected = [batch[0], *interactive, *batch[1:]]
        gate.ended(tickets.pop(), None, 0.0)
        for number, name in enumerate(expected):
            until(lambda number=number: len(group.admitted) == number + 1)  # type: ignore[misc]
            assert group.admitted[-1] == name
            if number == 0:
                gate.ended(tickets.pop(), None, 0.0)  # "batch" keeps its slot
            else:
                next(caller for caller in started if caller.name == name).finish()
        for ticket in tickets:
            gate.ended(ticket, None, 0.0)
        next(caller for caller in started if caller.name == batch[0]).finish()
    assert {**gate.snapshot()} == dict.fromkeys(gate.snapshot(), 0) | {"limit": 5}


# ------------------------------------------------------------------- the class of a call


def of_name(name: str | None = None) -> Any:
    """Return the class that a call names; raise if that is a mistake."""
    if name == "boom":
        raise Boom
    return 3 if name == "three" else name


class Service:
    """Functions of every kind behind a bulkhead; they return how many slots each class uses."""

    def __init__(self, gate: Bulkhead) -> None:
        self.gate = gate

    def used(self) -> dict[str, float]:
        now = self.gate.snapshot()
        return {name: now[f"in_use.{name}"] for name in TWO if now[f"in_use.{name}"]}

    def call(self, name: str | None = None) -> dict[str, float]:
        return self.used()

    async def acall(self, name: str | None = None) -> dict[str, float]:
        return self.used()

    def items(self, name: str | None = None) -> Generator[dict[str, float]]:
        yield self.used()

    async def aitems(self, name: str | None = None) -> AsyncGenerator[dict[str, float]]:
        yield self.used()

    def uses(self, colour: str, *args: str | None) -> list[dict[str, float]]:
        """Return the classes in use during a call and during a stream, in this colour."""
        gate = self.gate
        fn, afn, items, aitems = gate(self.call), gate(self.acall), gate(self.items), gate(self.aitems)

        async def waiting() -> list[dict[str, float]]:
            return [await afn(*args), *[item async for item in aitems(*args)]]

        seen: list[dict[str, float]] = in_colour(colour, lambda: [fn(*args), *items(*args)], waiting)
        assert self.used() == {}
        return seen


def test_the_class_of_the_context(colour: str) -> None:
    service = Service(Bulkhead(5, shares=TWO))
    assert service.uses(colour) == [{}, {}]
    with priority("batch"):
        assert service.uses(colour) == [{"batch": 1}] * 2
        with priority("unknown"):
            assert service.uses(colour) == [{}, {}]
        with priority(None):
            assert service.uses(colour) == [{}, {}]


def test_the_class_of_a_call_without_one(colour: str) -> None:
    service = Service(Bulkhead(5, shares=TWO, priority="batch"))
    assert service.uses(colour) == [{"batch": 1}] * 2
    with priority("interactive"):
        assert service.uses(colour) == [{"interactive": 1}] * 2
    with priority("unknown"):
        assert service.uses(colour) == [{}, {}]


def test_the_class_of_the_arguments(colour: str) -> None:
    service = Service(Bulkhead(5, shares=TWO, priority=of_name))
    assert service.uses(colour) == [{}, {}]
    assert service.uses(colour, "batch") == [{"batch": 1}] * 2
    with priority("interactive"):
        assert service.uses(colour, "batch") == [{"batch": 1}] * 2
        assert service.uses(colour) == [{"interactive": 1}] * 2


def test_a_function_that_raises_admits_nothing(colour: str) -> None:
    gate = Bulkhead(1, 0, shares=TWO, priority=of_name)
    service = Service(gate)
    with gate:  # it is called before the call is refused
        for name, kind in (("boom", Boom), ("three", UsageError)):
            with pytest.raises(kind):
                service.uses(colour, name)
    assert gate.snapshot()["in_use"] == 0


def test_blocks(colour: str) -> None:
    gate = Bulkhead(5, shares=TWO, priority=of_name)

    def blocking() -> float:
        with priority("batch"), gate:
            return gate.snapshot()["in_use.batch"]

    async def waiting() -> float:
        with priority("batch"):
            async with gate:
                return gate.snapshot()["in_use.batch"]

    assert in_colour(colour, blocking, waiting) == 1
    assert gate.snapshot()["in_use.batch"] == 0


def test_in_a_pipeline(colour: str) -> None:
    gate = Bulkhead(5, shares=TWO, priority=of_name)
    service, pipeline = Service(gate), gate | Retry()
    call, acall = pipeline(service.call), pipeline(service.acall)
    assert in_colour(colour, lambda: call("batch"), lambda: acall("batch")) == {"batch": 1}


# ---------------------------------------------------------------------------- the queue


@VIRTUAL_COLOURS
def test_a_call_without_a_slot_is_rejected_after_its_wait(colour: str) -> None:
    gate = Bulkhead(1, 5, shares=TWO)

    def blocking(clock: VirtualClock) -> float:
        with gate, pytest.raises(errors.BulkheadFull, match="no slot came free within 5 s"):
            gate.call(int)
        return clock.now()

    async def waiting(clock: VirtualClock) -> float:
        with gate, pytest.raises(errors.BulkheadFull, match="no slot came free within 5 s"):
            await gate.call(nothing)
        return clock.now()

    assert in_virtual_colour(colour, blocking, waiting) == 5


def test_a_displaced_waiter_is_rejected_at_once(colour: str) -> None:
    gate = Bulkhead(1, None, 1, shares={"interactive": 0.9})
    ticket = gate.admit(0.0)
    with callers(gate) as group:
        low = group.start(colour)
        lease = gate._slots.lease("interactive") if isinstance(gate._slots, RankedSlots) else None
        assert lease is not None
        assert gate._slots.enqueue(lease, object, 1)
        low.thread.join()
        assert isinstance(low.error, errors.BulkheadFull)
        assert str(low.error).endswith("and another call took its place in the queue")
        gate.ended(ticket, None, 0.0)
        assert lease in gate._slots.leases
        gate._slots.release(lease)


@pytest.mark.parametrize("colour", ["asyncio", "trio"])
def test_a_call_that_has_waited_is_an_event(colour: str) -> None:
    gate, seen = Bulkhead(1, None, name="db"), list[Event]()

    async def waiting(clock: VirtualClock) -> None:
        async def stay() -> None:
            await SYSTEM.asleep(3)

        async def one() -> None:
            await gate.call(stay)

        with observe(seen.append, only=["waited"]):
            await together(colour, one, one)
        await together(colour, one, one)

    in_virtual_colour(colour, lambda clock: None, waiting)
    assert [(event.what, event.by, event.name, event.delay) for event in seen] == [
        ("waited", "bulkhead", "db", 3)
    ]


# --------------------------------------------------------------------------- the options


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"order": "random"}, ValueError, "Bulkhead order='random': write 'fifo', 'lifo' or 'adaptive'"),
        (
            {"shares": {"a": 0.7, "b": 0.7}},
            ValueError,
            "Bulkhead shares= add up to 1.4",
        ),
        ({"priority": "a"}, TypeError, "Bulkhead priority='a' needs shares"),
    ],
)
def test_wrong_options(options: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=re.escape(message)):
        Bulkhead(1, **options)


def test_what_it_says() -> None:
    gate = Bulkhead(10, 0, shares=TWO, order="lifo", name="db")
    assert repr(gate) == f"Bulkhead(10, wait=0.0, order='lifo', shares={TWO}, name='db')"
    assert gate.describe() == "10 at once, 60% for interactive, 20% for batch, others are refused"
    assert gate.snapshot() == {
        "limit": 10,
        "in_use": 0,
        "queued": 0,
        "in_use.interactive": 0,
        "in_use.batch": 0,
        "queued.interactive": 0,
        "queued.batch": 0,
    }


def test_changes_in_place() -> None:
    seen = list[Event]()
    gate, other = Bulkhead(1, shares=TWO), Bulkhead(9, 0, shares={"batch": 1}, order="lifo")
    assert gate.can_reconfigure(other)
    with gate, observe(seen.append, only=["limit_changed"]):
        gate.reconfigure(other)
        gate.reconfigure(other)
        assert gate.snapshot() == {"limit": 9, "in_use": 1, "queued": 0, "in_use.batch": 0, "queued.batch": 0}
    assert [(event.by, event.level) for event in seen] == [("bulkhead", 9)]
    assert Bulkhead(1, order="lifo").can_reconfigure(gate)
    for one, another in (
        (Bulkhead(1), gate),
        (gate, Bulkhead(1)),
        (gate, Bulkhead(1, shares=TWO, priority=of_name)),
    ):
        assert not one.can_reconfigure(another)


def test_in_a_document() -> None:
    document = {
        "gates": {
            "db": {
                "type": "bulkhead",
                "limit": 10,
                "order": "adaptive",
                "shares": {"interactive": 0.6, "batch": 0.1},
                "priority": "batch",
            }
        }
    }
    config = from_mapping(document)
    assert to_mapping(config) == document
    with pytest.raises(errors.ConfigError, match=r"gates\.db\.shares: Bulkhead shares= add up to 1\.2"):
        from_mapping({"gates": {"db": {"type": "bulkhead", "limit": 1, "shares": {"a": 0.6, "b": 0.6}}}})
    by_argument = Bulkhead(1, shares=TWO, priority=of_name)
    with pytest.raises(errors.ConfigError, match="cannot be written to a document: set it in code"):
        to_mapping(by_argument)


@pytest.mark.parametrize(
    ("options", "described", "waiting"),
    [
        ({}, "9 at once, others wait up to 1 s", 1),
        ({"order": "lifo"}, "9 at once, others wait up to 1 s, the newest first", 1),
        (
            {"order": "adaptive", "wait": None},
            "9 at once, others wait, the newest first while the queue is long",
            inf,
        ),
        ({"order": "lifo", "wait": 0}, "9 at once, others are refused", 0),
        ({"queue": 0}, "9 at once, others are refused", 0),
        ({"shares": {"a": 0.001}, "wait": 0}, "9 at once, 0.1% for a, others are refused", 0),
    ],
)
def test_how_explain_describes_the_queue(options: dict[str, Any], described: str, waiting: float) -> None:
    bulkhead = Bulkhead(9, **options)
    assert bulkhead.describe() == described
    assert bulkhead.worst_case(WorstCase(1, 0)).waiting == waiting


def test_an_adaptive_limit_describes_its_order() -> None:
    gate = AdaptiveConcurrency(queue=3, order="lifo")
    assert gate.describe().endswith("currently 20, others wait up to 1 s, the newest first")
