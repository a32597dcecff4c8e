"""Gates written by a user, used in every possible way."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextvars import copy_context

import pytest
import trio

from redouble import SYSTEM, Gate, errors
from tests.support.fakes import Panic, in_colour
from tests.support.layers.gates import AtMost, aadd, add

# ------------------------------------------------------------------------------- gates


def test_a_gate_as_decorator_by_call_and_by_with(colour: str) -> None:
    gate = AtMost(1)

    def blocking() -> list[int]:
        with gate:
            assert gate.inside == 1
            gate.virtual.time += 3
        return [gate(add)(1, two=3), gate.call(add, 1)]

    async def waiting() -> list[int]:
        with gate:
            await SYSTEM.asleep(0)
            assert gate.inside == 1
            gate.virtual.time += 3
        return [await gate(aadd)(1, two=3), await gate.call(aadd, 1)]

    assert in_colour(colour, blocking, waiting) == [4, 3]
    assert gate.log == [(1, None, 3)] * 3
    assert gate.inside == 0


@pytest.mark.parametrize("error", [ValueError("x"), KeyboardInterrupt(), Panic()], ids=repr)
@pytest.mark.parametrize("form", ["decorator", "with"])
def test_a_gate_records_the_error_of_a_call(form: str, error: BaseException, colour: str) -> None:
    gate = AtMost(1)

    def blocking() -> None:
        raise error

    async def waiting() -> None:
        raise error

    def within() -> None:
        with gate:
            blocking()

    async def awithin() -> None:
        with gate:
            await waiting()

    functions = (gate(blocking), gate(waiting)) if form == "decorator" else (within, awithin)
    with pytest.raises(type(error)):
        in_colour(colour, *functions)
    assert gate.log == [(1, error, 0)]
    assert gate.inside == 0


def test_a_closed_gate_does_not_call_the_function(colour: str) -> None:
    gate, calls = AtMost(0), list[int]()

    async def waiting() -> None:
        await gate.call(aadd, 1)

    with pytest.raises(errors.Rejected, match="0 are inside"):
        in_colour(colour, lambda: gate.call(calls.append, 1), waiting)
    with pytest.raises(errors.Rejected), gate:
        calls.append(2)
    assert (calls, gate.log) == ([], [])


def test_gates_inside_gates() -> None:
    outer, inner = AtMost(2), AtMost(2)
    with outer, inner, outer:
        assert (outer.inside, inner.inside) == (2, 1)
        with pytest.raises(errors.Rejected), outer:
            pass
        assert (outer.inside, inner.inside) == (2, 1)
    assert [ticket for ticket, _, _ in outer.log] == [2, 1]
    assert [ticket for ticket, _, _ in inner.log] == [1]


def test_gates_may_end_in_any_order() -> None:
    """A generator may be closed while its caller is inside another gate: each gate ends its own admission."""
    one, other = AtMost(1), AtMost(1)

    def items() -> Iterator[int]:
        with one:
            yield 1

    iterator = iter(items())
    assert next(iterator) == 1
    with other:
        del iterator
        assert (one.inside, other.inside) == (0, 1)
    assert isinstance(one.log[0][1], GeneratorExit)
    assert other.log == [(1, None, 0)]


def test_a_gate_exited_in_another_context_ends_its_admission() -> None:
    """Frameworks may enter and exit a context manager in different contexts."""
    gate = AtMost(1)
    copy_context().run(gate.__enter__)
    assert gate.inside == 1
    copy_context().run(gate.__exit__, None, None, None)
    assert gate.inside == 0
    with pytest.raises(RuntimeError, match="more often than it was entered"):
        gate.__exit__(None, None, None)


@pytest.mark.parametrize("colour", ["asyncio", "trio"])
def test_each_task_has_its_own_admission(colour: str) -> None:
    """Admitted tasks end in any order, each with its own ticket."""
    gate, seen = AtMost(3), list[tuple[int, int]]()

    async def one(turns: int) -> None:
        with gate:
            mine = gate.inside
            for _ in range(turns):
                await SYSTEM.asleep(0)
            at = len(gate.log)
        seen.append((mine, gate.log[at][0]))

    async def together() -> None:
        if colour == "trio":
            async with trio.open_nursery() as nursery:
                for turns in (5, 1, 3):
                    nursery.start_soon(one, turns)
        else:
            await asyncio.gather(*map(one, (5, 1, 3)))

    in_colour(colour, lambda: None, together)
    assert sorted(seen) == [(1, 1), (2, 2), (3, 3)]
    assert gate.inside == 0


@pytest.mark.parametrize("form", ["decorator", "with"])
@pytest.mark.parametrize("colour", ["asyncio", "trio"])
def test_a_cancellation_reaches_the_gate(form: str, colour: str) -> None:
    gate = AtMost(1)

    async def forever() -> None:
        await SYSTEM.asleep(3600)

    async def within() -> None:
        with gate:
            await forever()

    work = gate(forever) if form == "decorator" else within

    async def cancelled() -> None:
        if colour == "trio":
            with trio.move_on_after(0):
                await work()
        else:
            task = asyncio.ensure_future(work())
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])

    in_colour(colour, lambda: None, cancelled)
    ((ticket, error, _),) = gate.log
    assert ticket == 1
    assert isinstance(error, trio.Cancelled if colour == "trio" else asyncio.CancelledError)


def test_a_gate_needs_an_admit_method() -> None:
    with pytest.raises(TypeError, match=r"Gate cannot admit a call at .*: a gate needs a method admit"):
        Gate().call(add, 1)

    class Open(Gate):
        def admit(self, now: float, /) -> None: ...

    assert Open().call(add, 1) == 3
