"""The queue in front of an adaptive limit: who waits, for how long, and who is admitted; classes of calls."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from redouble import SYSTEM, AdaptiveConcurrency, Retry, errors, observe, priority
from redouble._drivers import slot_wait
from redouble._internal import reentrancy, shared_context_manager
from redouble._layers import gate as _gate
from redouble._layers.limits import adaptive_concurrency as _adaptive
from redouble._layers.limits import in_flight, ranked_slots, slot_gate
from redouble._runtime import slots
from redouble.config import from_mapping, to_mapping
from redouble.testing import VirtualClock, virtual_time
from redouble.types import Event
from tests.support.fakes import ASYNC, Boom, in_colour, nothing
from tests.support.interruption import SignalHandler, ctrl_c
from tests.support.layers.breaker_scripts import SHAPES, Service, result_of
from tests.support.layers.limits.adaptive_concurrency import learned_gate
from tests.support.runtime.tasks import together
from tests.support.virtual_time import VIRTUAL_COLOURS, in_virtual_colour

TWO = {"interactive": 0.6, "batch": 0.2}


def first(name: str) -> str:
    """Return the class that a call names."""
    return name


def zero() -> int:
    """Return a result that is refused."""
    return 0


EACH = pytest.mark.parametrize("shape", SHAPES)


def one(**options: Any) -> AdaptiveConcurrency:
    """Return a gate with a limit of 1, and a queue."""
    queued: dict[str, Any] = {"queue": 5}
    return AdaptiveConcurrency(1, 1, 1, **queued | options)


def free(gate: AdaptiveConcurrency) -> dict[str, float]:
    """Return the snapshot of a gate that no call uses."""
    return dict.fromkeys(gate.snapshot(), 0.0) | {"limit": gate.limit}


# ------------------------------------------------------------------------------ the queue


@EACH
def test_a_call_is_in_flight_while_it_runs(colour: str, shape: str) -> None:
    gate, used = one(), list[float]()

    class Looking(Service):
        def __call__(self, item: int = 0, *, scale: int = 1) -> int:
            used.append(gate.snapshot()["in_use"])
            return super().__call__(item, scale=scale)

    assert [result_of(colour, shape, gate, Looking()) for _ in range(3)] == [6, 6, 6]
    assert used == [1, 1, 1]
    assert gate.snapshot() == free(gate)


@VIRTUAL_COLOURS
@pytest.mark.parametrize(("wait", "when"), [(5, 5), (0, 0), (0.25, 0.25)])
def test_a_call_waits_until_its_time_is_over(colour: str, wait: float, when: float) -> None:
    gate = one(wait=wait)

    def blocking(clock: VirtualClock) -> float:
        for _ in range(2):
            with gate, pytest.raises(errors.BulkheadFull) as caught:
                gate.call(int)
            assert (caught.value.limit, caught.value.wait) == (1, wait)
        with gate, pytest.raises(errors.BulkheadFull), gate:
            pass
        return clock.now()

    async def waiting(clock: VirtualClock) -> float:
        for _ in range(2):
            async with gate:
                with pytest.raises(errors.BulkheadFull) as caught:
                    await gate.call(nothing)
            assert (caught.value.limit, caught.value.wait) == (1, wait)
        async with gate:
            with pytest.raises(errors.BulkheadFull):
                async with gate:
                    pass
        return clock.now()

    assert in_virtual_colour(colour, blocking, waiting) == 3 * when
    assert gate.snapshot() == free(gate)


@pytest.mark.parametrize("colour", ["asyncio", "trio"])
@pytest.mark.parametrize(
    ("order", "admitted", "rejected"),
    [("fifo", [0, 3, 6], [0]), ("lifo", [0, 3, 6], [0])],
)
def test_a_bounded_queue(colour: str, order: Any, admitted: list[float], rejected: list[float]) -> None:
    """Four calls start at once, each takes three seconds, and two may wait."""
    gate, began, refused = one(queue=2, wait=None, order=order), list[float](), list[float]()
    seen = list[Event]()

    async def waiting(clock: VirtualClock) -> None:
        async def stay() -> None:
            began.append(clock.now())
            await SYSTEM.asleep(3)

        async def call() -> None:
            try:
                await gate.call(stay)
            except errors.BulkheadFull as error:
                refused.append(clock.now())
                reasons.append(str(error).rpartition(", ")[2])

        with observe(seen.append, only=["waited"]):
            await together(colour, *[call] * 4)

    reasons = list[str]()
    in_virtual_colour(colour, lambda clock: None, waiting)
    displaced = "and another call took its place in the queue"
    assert reasons == [displaced if order == "lifo" else "and 2 are waiting already"]
    assert (began, refused) == (admitted, rejected)
    assert [(event.by, event.delay) for event in seen] == [
        ("adaptive_concurrency", 3),
        ("adaptive_concurrency", 6),
    ]


def test_a_limit_that_grows_admits_waiters() -> None:
    with virtual_time():
        gate = AdaptiveConcurrency(1, 1, 9, queue=9, wait=None)
        woken, waiters = list[int](), [gate._new_lease(None) for _ in range(4)]
        for number, lease in enumerate(waiters):
            assert gate._slots.try_acquire(lease) or gate._slots.enqueue(
                lease, partial(woken.append, number), 9
            )
        gate._in_flight.limit = 3
        gate._apply_limit()
        assert woken == [1, 2]


def test_waiting_is_no_part_of_the_latency() -> None:
    gate = learned_gate(initial=1, queue=5, by="aimd", slow=5)
    with virtual_time() as clock:
        with gate:
            clock.advance(1)
        (call,) = [gate.admit(clock.now())]
        assert call.started == 1


# ------------------------------------------------------------------------------- classes


@pytest.mark.parametrize("colour", ["sync", *ASYNC])
def test_the_class_of_a_call(colour: str) -> None:
    gate = AdaptiveConcurrency(5, shares=TWO, priority=first)

    def used(*_: str) -> list[str]:
        return [name for name in TWO if gate.snapshot()[f"in_use.{name}"]]

    async def aused(name: str) -> list[str]:
        return used()

    def items(name: str) -> Iterator[list[str]]:
        yield used()

    def block() -> list[str]:
        with priority("interactive"), gate:
            return used()

    async def ablock() -> list[str]:
        with priority("interactive"):
            async with gate:
                return used()

    def look(name: str) -> list[str]:
        return used()

    assert in_colour(colour, lambda: gate(look)("batch"), lambda: gate(aused)("batch")) == ["batch"]
    assert in_colour(colour, lambda: gate(look)("x"), lambda: gate(aused)("x")) == []
    assert list(gate(items)("batch")) == [["batch"]]
    assert in_colour(colour, block, ablock) == ["interactive"]
    assert gate.snapshot() == free(gate)


def test_a_refused_class_claims_the_next_slot() -> None:
    gate = AdaptiveConcurrency(1, 1, 1, shares=TWO)
    with virtual_time():
        with gate, priority("batch"), pytest.raises(errors.BulkheadFull, match=r"can handle$"):
            gate.call(int)
        with pytest.raises(errors.BulkheadFull):
            gate.call(int)
        with priority("batch"):
            gate.call(int)
        gate.call(int)
    assert gate.snapshot() == free(gate)


# --------------------------------------------------------------------- results as failures


@pytest.mark.parametrize("colour", ["sync", "asyncio", "uvloop"])
@pytest.mark.parametrize("options", [{}, {"queue": 5}])
def test_a_refused_result_of_a_function(colour: str, options: dict[str, Any]) -> None:
    seen = list[Event]()
    with virtual_time() as clock, observe(seen.append, only=["limit_changed"]):
        gate = AdaptiveConcurrency(20, by="aimd", until=bool, window=0.001, **options)
        call, acall = gate(zero), gate(nothing)
        clock.advance(2)
        assert in_colour(colour, call, acall) in (0, None)
        assert gate.limit == 18
        assert gate.snapshot()["in_use"] == 0
        with gate as admission:
            clock.advance(2)
            admission.failed(TimeoutError())
        assert gate.limit == 16
    assert [(event.by, event.level) for event in seen] == [("adaptive_concurrency", 16)]


@pytest.mark.parametrize("options", [{}, {"queue": 5}])
def test_an_accepted_result_and_an_until_that_raises(colour: str, options: dict[str, Any]) -> None:
    def until(result: object) -> bool:
        if result == 3:
            raise Boom
        return True

    async def three() -> int:
        return 3

    gate = AdaptiveConcurrency(20, by="aimd", until=until, **options)
    assert in_colour(colour, lambda: gate.call(int), lambda: gate.call(nothing)) in (0, None)
    with pytest.raises(Boom):
        in_colour(colour, lambda: gate.call(int, "3"), lambda: gate.call(three))
    assert gate.limit == 20
    assert gate.snapshot()["in_use"] == 0


# --------------------------------------------------------------------------- interruptions

MODULES = (
    _adaptive,
    _gate,
    in_flight,
    slot_gate,
    slot_wait,
    slots,
    ranked_slots,
    reentrancy,
    shared_context_manager,
)
FILES = {module.__file__ for module in MODULES} | {"<redouble> adaptive concurrency"}


def called(gate: AdaptiveConcurrency) -> None:
    gate.call(int)


def entered(gate: AdaptiveConcurrency) -> None:
    with gate:
        pass


def by_hand(gate: AdaptiveConcurrency) -> None:
    gate.ended(gate.admit(0.0), None, 0.0)


@pytest.mark.parametrize("use", [called, entered])
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("until", [None, bool])
def test_ctrl_c_at_any_point_loses_no_slot(
    use: Callable[[AdaptiveConcurrency], None], full: bool, until: Any
) -> None:
    number, more = 0, True
    while more:
        number += 1
        with virtual_time():
            gate = one(wait=0.001, shares=TWO, priority="batch", until=until)
            ticket = gate.admit(0.0) if full else None
            handler = SignalHandler(FILES, ctrl_c, number)
            more = handler.interrupt(partial(use, gate), KeyboardInterrupt, errors.BulkheadFull)
            if ticket is not None:
                gate.ended(ticket, None, 0.0)
            assert gate.snapshot() == free(gate), number
            by_hand(gate)
    assert number > 5


def test_a_limit_that_changes_while_another_is_applied_is_not_lost() -> None:
    """Another thread may end a window meanwhile."""

    def change(limit: int) -> None:
        gate._in_flight.limit = limit
        gate._apply_limit()

    number, more = 0, True
    while more:
        number += 1
        gate = AdaptiveConcurrency(10, 1, 10, queue=5)
        handler = SignalHandler(FILES, partial(change, 3), number, everywhere=True)
        more = handler.interrupt(partial(change, 8))
        assert gate._ranked is not None
        assert gate._ranked.limit == gate.limit == (3 if more else 8)
    assert number > 5


def test_an_admission_that_fails_by_hand_leaves_nothing() -> None:
    gate = one(wait=0)
    ticket = gate.admit(0.0)
    with pytest.raises(errors.BulkheadFull):
        gate.admit(0.0)
    gate.ended(ticket, None, 0.0)
    assert gate.snapshot() == free(gate)


# ------------------------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"queue": -1}, ValueError, "AdaptiveConcurrency queue=-1: write how many calls may wait, 0 or more"),
        ({"queue": None}, TypeError, "AdaptiveConcurrency queue=None"),
        ({"wait": -1}, ValueError, "AdaptiveConcurrency wait=-1"),
        ({"order": "x"}, ValueError, "AdaptiveConcurrency order='x': write 'fifo', 'lifo' or 'adaptive'"),
        ({"shares": {}}, ValueError, "AdaptiveConcurrency shares={} is empty"),
        ({"until": 3}, TypeError, "until=3"),
    ],
)
def test_wrong_options(options: dict[str, Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=re.escape(message)):
        AdaptiveConcurrency(**options)


def test_what_it_says() -> None:
    plain, full = AdaptiveConcurrency(), AdaptiveConcurrency(queue=9, wait=2, order="lifo", shares=TWO)
    able = "as many at once as the service can handle, currently 20"
    assert plain.describe() == able
    assert (
        full.describe()
        == f"{able}, 60% for interactive, 20% for batch, others wait up to 2 s, the newest first"
    )
    assert repr(full) == f"AdaptiveConcurrency(by='gradient', limit=20, queue=9, order='lifo', shares={TWO})"
    assert (plain.wait, plain.queue, full.wait, full.queue) == (0, 0, 2, 9)
    assert "up to 2 s" in (full | Retry(attempts=1)).explain()
    assert "no limit" not in (plain | Retry(attempts=1)).explain()
    (AdaptiveConcurrency(queue=9, wait=None) | Retry(attempts=1)).explain()


def test_changes_in_place() -> None:
    gate = AdaptiveConcurrency(20, 1, 50, queue=5, name="a", until=bool)
    other = AdaptiveConcurrency(3, 2, 10, queue=7, wait=3, order="lifo", shares=TWO, until=callable, on=Boom)
    assert gate.can_reconfigure(other)

    @gate
    def call() -> float:
        return gate.snapshot()["in_use"]

    gate.reconfigure(other)
    assert (gate.limit, gate.queue, gate.wait, gate.name) == (10, 7, 3, "a")
    assert gate.settings.order == "lifo"
    assert call() == 1
    assert gate.snapshot()["in_use.batch"] == 0
    plain = AdaptiveConcurrency(20)
    plain.reconfigure(AdaptiveConcurrency(5, 1, 5))
    assert plain.limit == 5
    for changed in (
        AdaptiveConcurrency(),
        AdaptiveConcurrency(queue=5, until=bool, by="aimd"),
        AdaptiveConcurrency(queue=5, until=bool, slow=9),
        AdaptiveConcurrency(queue=5, until=bool, shares=TWO, priority=first),
    ):
        assert not gate.can_reconfigure(changed)


def test_in_a_document() -> None:
    document = {
        "gates": {
            "api": {
                "type": "adaptive_concurrency",
                "queue": 20,
                "wait": 0.5,
                "order": "adaptive",
                "shares": {"interactive": 0.6, "batch": 0.1},
                "priority": "batch",
            }
        }
    }
    assert to_mapping(from_mapping(document)) == document


@pytest.mark.parametrize("options", [{}, {"queue": 5}])
def test_a_reload_that_lowers_the_limit_is_an_event(options: dict[str, Any]) -> None:
    seen = list[Event]()
    with observe(seen.append, only=["limit_changed"]):
        gate = AdaptiveConcurrency(20, **options)
        gate.reconfigure(AdaptiveConcurrency(5, most=5, **options))
    assert [(event.by, event.level) for event in seen] == [("adaptive_concurrency", 5)]
