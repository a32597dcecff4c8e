"""Ctrl-C at any point of a call through a bulkhead: no slot is lost, and every waiter is admitted."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import pytest

from redouble import Bulkhead, errors
from redouble._drivers import slot_wait
from redouble._internal import reentrancy, shared_context_manager
from redouble._layers import gate as _gate
from redouble._layers.limits import bulkhead as _bulkhead
from redouble._layers.limits import ranked_slots, slot_gate
from redouble._runtime import slots
from redouble.testing import virtual_time
from tests.support.bulkhead_callers import callers, until
from tests.support.interruption import SignalHandler, ctrl_c

A_LITTLE = 0.001

MODULES = (_bulkhead, _gate, slot_gate, slot_wait, slots, ranked_slots, reentrancy, shared_context_manager)
FILES = {module.__file__ for module in MODULES} | {"<redouble> bulkhead"}
SHARES: dict[str, Any] = {"shares": {"interactive": 0.6, "batch": 0.2}, "priority": "batch"}
KINDS = pytest.mark.parametrize("options", [{}, SHARES], ids=["plain", "shares"])


def interrupted(number: int, work: Callable[[], object]) -> bool:
    """Run ``work`` with Ctrl-C at the n-th point; return True if there is such a point."""
    return SignalHandler(FILES, ctrl_c, number).interrupt(work, KeyboardInterrupt, errors.BulkheadFull)


def called(gate: Bulkhead, body: Callable[[], object]) -> None:
    gate.call(body)


def streamed(gate: Bulkhead, body: Callable[[], object]) -> None:
    def items() -> Iterator[object]:
        yield body()

    list(gate(items)())


def entered(gate: Bulkhead, body: Callable[[], object]) -> None:
    with gate:
        body()


@KINDS
@pytest.mark.parametrize("use", [called, streamed, entered])
@pytest.mark.parametrize("case", ["free", "full", "rejected", "admitted later", "with a waiter"])
def test_ctrl_c_at_any_point_loses_no_slot_and_no_waiter(
    use: Callable[[Bulkhead, Callable[[], object]], None], case: str, options: dict[str, Any]
) -> None:
    number, more = 0, True
    while more:
        number += 1
        gate = Bulkhead(1, {"full": A_LITTLE, "rejected": 0}.get(case), **options)
        with callers(gate) as group, virtual_time():
            body = partial(group.start, "sync") if case == "with a waiter" else str
            ticket = gate.admit(0.0) if case in ("full", "rejected", "admitted later") else None
            with released_when_a_call_waits(gate, ticket) if case == "admitted later" else nullcontext():
                more = interrupted(number, partial(use, gate, body))
            if ticket is not None:
                gate.ended(ticket, None, 0.0)
            for caller in group.started:
                until(lambda caller=caller: caller.name in group.admitted)  # type: ignore[misc]
                caller.finish()
            gate.ended(gate.admit(0.0), None, 0.0)  # the slot is free
            assert gate.snapshot() == free(gate)
    assert number > 5


def free(gate: Bulkhead) -> dict[str, float]:
    """Return the snapshot of a bulkhead that no call uses."""
    return dict.fromkeys(gate.snapshot(), 0.0) | {"limit": gate.limit}


@KINDS
def test_ctrl_c_in_a_rejected_call_admits_the_waiter(options: dict[str, Any]) -> None:
    """The lease that the call added before it was rejected kept the slot from the waiter."""
    number, more = 0, True
    while more:
        number += 1
        gate = Bulkhead(1, None, **options)
        me = gate._new_lease(None)
        with callers(gate) as group:
            ticket = gate.admit(0.0)
            caller = group.start("sync")
            gate._slots.add(me)
            gate.ended(ticket, None, 0.0)
            assert not group.admitted
            more = interrupted(number, partial(acquire_and_release, gate, me))
            until(lambda name=caller.name: group.admitted == [name])  # type: ignore[misc]
    assert number > 5


def acquire_and_release(gate: Bulkhead, me: slots.Lease) -> None:
    try:
        gate._acquire_now(me, "full")
    finally:
        gate._slots.release(me)


@contextmanager
def released_when_a_call_waits(gate: Bulkhead, ticket: Any) -> Generator[None]:
    """Release the slot on another thread as soon as a call waits."""
    over = threading.Event()

    def free() -> None:
        until(lambda: over.is_set() or gate.snapshot()["queued"] == 1)
        gate.ended(ticket, None, 0.0)

    other = threading.Thread(target=free)
    other.start()
    try:
        yield
    finally:
        over.set()
        other.join()
