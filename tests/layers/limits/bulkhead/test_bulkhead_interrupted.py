"""Ctrl-C at a bulkhead, wherever it may come: no place is lost, and nobody who waits is forgotten."""

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
from redouble._layers.limits import slots as _entry
from redouble._layers.limits import slots as _places
from redouble.testing import virtual_time
from tests.support.bulkhead_callers import callers, until

A_LITTLE = 0.001

CHECKED = ("CALL", "RESUME", "JUMP_BACKWARD")  # after these Python looks whether there is a signal
FILES = {module.__file__ for module in (_bulkhead, _entry, _gate, _places)} | {"<redouble bulkhead>"}


@cache
def names(code: CodeType) -> dict[int, str]:
    return {step.offset: step.opname for step in dis.get_instructions(code)}


class Interrupt:
    """Ctrl-C at the n-th place where it could come while one of our files is at work."""

    def __init__(self, number: int) -> None:
        self.left = number
        self.last: dict[FrameType, str] = {}

    def trace(self, frame: FrameType, what: str, _: object) -> Any:
        if what == "call" and frame.f_back is not None:
            self.last[frame.f_back] = ""  # nobody looks when a function of Python's returns
        # The first step of a way out is out of anybody's hands.
        if frame.f_code.co_filename not in FILES or frame.f_code.co_name == "__exit__":
            return None
        frame.f_trace_opcodes = True
        if what == "opcode":
            last, self.last[frame] = self.last.get(frame, ""), names(frame.f_code).get(frame.f_lasti, "")
            self.left -= last.startswith(CHECKED)
            if not self.left and last.startswith(CHECKED):
                raise KeyboardInterrupt
        return self.trace

    def come(self, work: Callable[[], object]) -> bool:
        """Interrupt this work; say whether there was so much of it."""
        before = sys.gettrace()
        sys._getframe().f_trace_opcodes = True  # or Python 3.12 would look at no steps at all
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
@pytest.mark.parametrize("case", ["free", "full", "refusing", "served", "waited for"])
def test_interrupted_anywhere(use: Callable[[Bulkhead, Callable[[], object]], None], case: str) -> None:
    """No place is lost, and nobody is forgotten who waits."""
    number, more = 0, True
    while more:
        number += 1
        gate = Bulkhead(1, {"full": A_LITTLE, "refusing": 0}.get(case))
        with callers(gate) as guests, virtual_time():
            body = partial(guests.start, "sync") if case == "waited for" else str
            ticket = gate.admit(0.0) if case in ("full", "refusing", "served") else None
            with freed_when_somebody_waits(gate, ticket) if case == "served" else nullcontext():
                more = Interrupt(number).come(partial(use, gate, body))
            if ticket is not None:
                gate.ended(ticket, None, 0.0)
            for guest in guests.started:
                until(lambda guest=guest: guest.name in guests.admitted)  # type: ignore[misc]
                guest.finish()
            gate.ended(gate.admit(0.0), None, 0.0)  # there is a place
    assert number > 5


def test_interrupted_in_the_way_of_others() -> None:
    """Who has come and not yet looked round keeps a place from who waits, and has to see to that."""
    number, more = 0, True
    while more:
        number += 1
        gate, me = Bulkhead(1, None), _places.Lease()
        with callers(gate) as guests:
            ticket = gate.admit(0.0)
            guest = guests.start("sync")
            gate._slots.leases.add(me)
            gate.ended(ticket, None, 0.0)
            assert not guests.admitted
            more = Interrupt(number).come(partial(look_round, gate, me))
            until(lambda name=guest.name: guests.admitted == [name])  # type: ignore[misc]
    assert number > 5


def look_round(gate: Bulkhead, me: _places.Lease) -> None:
    try:
        gate._slots.try_acquire_now(me, "full")
    finally:
        gate._slots.release(me)


@contextmanager
def freed_when_somebody_waits(gate: Bulkhead, ticket: Any) -> Generator[None]:
    """Leave in another thread as soon as somebody waits."""
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
