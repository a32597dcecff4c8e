"""Ctrl-C at any point of a call through a bulkhead: no slot is lost, and every waiter is admitted."""

from __future__ import annotations

import dis
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache, partial
from types import CodeType, FrameType
from typing import Any

import pytest

from redouble import Bulkhead, errors
from redouble._layers import gate as _gate
from redouble._layers.limits import bulkhead as _bulkhead
from redouble._layers.limits import slots
from redouble.testing import virtual_time
from tests.support.bulkhead_callers import callers, until

A_LITTLE = 0.001

CHECKED = ("CALL", "RESUME", "JUMP_BACKWARD")  # after these opcodes Python checks for signals
FILES = {module.__file__ for module in (_bulkhead, _gate, slots)} | {"<redouble bulkhead>"}


@cache
def names(code: CodeType) -> dict[int, str]:
    return {step.offset: step.opname for step in dis.get_instructions(code)}


class Interrupt:
    """Traces FILES, and raises KeyboardInterrupt at the n-th point where Python checks for signals."""

    def __init__(self, number: int) -> None:
        self.left = number
        self.last: dict[FrameType, str] = {}

    def trace(self, frame: FrameType, event: str, _: object) -> Any:
        if event == "call" and frame.f_back is not None:
            self.last[frame.f_back] = ""  # the return of a Python function is no such point
        # No code can protect the first instruction of an ``__exit__``.
        if frame.f_code.co_filename not in FILES or frame.f_code.co_name == "__exit__":
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            last, self.last[frame] = self.last.get(frame, ""), names(frame.f_code).get(frame.f_lasti, "")
            self.left -= last.startswith(CHECKED)
            if not self.left and last.startswith(CHECKED):
                raise KeyboardInterrupt
        return self.trace

    def run(self, work: Callable[[], object]) -> bool:
        """Run ``work`` with the interrupt; return True if the n-th point was reached."""
        before = sys.gettrace()
        sys._getframe().f_trace_opcodes = True  # without this Python 3.12 traces no opcodes
        sys.settrace(self.trace)
        try:
            work()
        except (KeyboardInterrupt, errors.BulkheadFull):
            pass
        finally:
            sys.settrace(before)
        return self.left <= 0


def called(gate: Bulkhead, body: Callable[[], object]) -> None:
    gate.call(body)


def streamed(gate: Bulkhead, body: Callable[[], object]) -> None:
    def items() -> Iterator[object]:
        yield body()

    list(gate(items)())


def entered(gate: Bulkhead, body: Callable[[], object]) -> None:
    with gate:
        body()


@pytest.mark.parametrize("use", [called, streamed, entered])
@pytest.mark.parametrize("case", ["free", "full", "rejected", "admitted later", "with a waiter"])
def test_ctrl_c_at_any_point_loses_no_slot_and_no_waiter(
    use: Callable[[Bulkhead, Callable[[], object]], None], case: str
) -> None:
    number, more = 0, True
    while more:
        number += 1
        gate = Bulkhead(1, {"full": A_LITTLE, "rejected": 0}.get(case))
        with callers(gate) as group, virtual_time():
            body = partial(group.start, "sync") if case == "with a waiter" else str
            ticket = gate.admit(0.0) if case in ("full", "rejected", "admitted later") else None
            with released_when_a_call_waits(gate, ticket) if case == "admitted later" else nullcontext():
                more = Interrupt(number).run(partial(use, gate, body))
            if ticket is not None:
                gate.ended(ticket, None, 0.0)
            for caller in group.started:
                until(lambda caller=caller: caller.name in group.admitted)  # type: ignore[misc]
                caller.finish()
            gate.ended(gate.admit(0.0), None, 0.0)  # the slot is free
    assert number > 5


def test_ctrl_c_in_a_rejected_call_admits_the_waiter() -> None:
    """The lease that the call added before it was rejected kept the slot from the waiter."""
    number, more = 0, True
    while more:
        number += 1
        gate, me = Bulkhead(1, None), slots.Lease()
        with callers(gate) as group:
            ticket = gate.admit(0.0)
            caller = group.start("sync")
            gate._slots.leases.add(me)
            gate.ended(ticket, None, 0.0)
            assert not group.admitted
            more = Interrupt(number).run(partial(acquire_and_release, gate, me))
            until(lambda name=caller.name: group.admitted == [name])  # type: ignore[misc]
    assert number > 5


def acquire_and_release(gate: Bulkhead, me: slots.Lease) -> None:
    try:
        gate._slots.try_acquire_now(me, "full")
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
