"""A circuit breaker in every colour: calls, blocks, streams, cancellations, and the policy outside."""

from __future__ import annotations

import asyncio
import gc
from contextlib import suppress
from typing import Any

import pytest
import trio

from redouble import CircuitBreaker, Hints, Retry, Timeout, errors, report, transient
from redouble._runtime.backend import backend
from redouble.testing import VirtualClock
from tests.support.fakes import ASYNC, Boom, Panic, Virtual, in_colour
from tests.support.layers.breaker_scripts import SHAPES, Service, outcome_of
from tests.support.runtime.cancellation import cancelled
from tests.support.streams import Reader, ScriptedSource
from tests.support.virtual_time import PLACES, at, no_real_waits

pytestmark = pytest.mark.usefixtures(no_real_waits.__name__)
LOOPS = pytest.mark.parametrize("colour", ASYNC)
FOR_EVER = 1e6


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("options", [{}, {"ratio": 1, "minimum": 2}, {"slow": 9}])
def test_it_opens_and_closes(colour: str, shape: str, options: dict[str, Any]) -> None:
    clock, service, boom = Virtual(), Service(), Boom()
    breaker = CircuitBreaker(Boom, failures=2, cooldown=10, clock=clock, **options)
    for down, after, out, state in [
        (boom, 0, boom, "closed"),
        (ZeroDivisionError(), 0, ..., "closed"),
        (Panic(), 0, ..., "closed"),
        (errors.Rejected("further in"), 0, ..., "closed"),
        (boom, 0, boom, "open"),
        (None, 9, "no", "open"),
        (Panic(), 1, ..., "half_open"),
        (boom, 0, boom, "open"),
        (None, 10, 6, "closed"),
        (None, 0, 6, "closed"),
    ]:
        clock.time += after
        service.down = down
        assert outcome_of(colour, shape, breaker, service) == (down if out is ... else out)
        assert breaker.state == state
    assert service.calls == 9


@pytest.mark.parametrize("shape", SHAPES)
def test_a_subclass_admits_every_call_itself(colour: str, shape: str) -> None:
    asked: list[str] = []

    class Own(CircuitBreaker):
        def admit(self, now: float, /) -> Any:
            asked.append("in")
            return super().admit(now)

        def ended(self, ticket: Any, error: BaseException | None, now: float, /) -> None:
            asked.append("good" if error is None else "bad")
            super().ended(ticket, error, now)

    breaker, service, boom = Own(failures=1), Service(), Boom()
    assert outcome_of(colour, shape, breaker, service) == 6
    service.down = boom
    assert [outcome_of(colour, shape, breaker, service) for _ in range(2)] == [boom, "no"]
    assert asked == ["in", "good", "in", "bad", "in"]


# -------------------------------------------------------------------------- cancellations


def broken(clock: Virtual, **options: Any) -> CircuitBreaker:
    """Make a breaker that is half open."""
    breaker = CircuitBreaker(failures=1, clock=clock, **options)
    with pytest.raises(Boom), breaker:
        raise Boom
    clock.time += 30
    return breaker


@LOOPS
@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape != "mixed"])
@pytest.mark.parametrize("half_open", [False, True])
def test_a_cancelled_call_is_not_counted(colour: str, shape: str, half_open: bool) -> None:
    class Hanging(Service):
        async def acall(self, item: int = 0, *, scale: int = 1) -> int:
            await backend().sleep(FOR_EVER)
            return item

    breaker = broken(Virtual()) if half_open else CircuitBreaker(failures=1)
    assert cancelled(colour, lambda: SHAPES[shape][1](breaker, Hanging())) == "cancelled"
    assert breaker.state == ("half_open" if half_open else "closed")
    assert breaker.call(int) == 0  # it occupied no probe slot
    assert breaker.state == "closed"


@pytest.mark.parametrize(
    "crash", [KeyboardInterrupt, SystemExit, GeneratorExit, Panic, asyncio.CancelledError]
)
@pytest.mark.parametrize("shape", ["call", "block"])
def test_a_base_exception_is_not_counted(colour: str, shape: str, crash: type[BaseException]) -> None:
    breaker, service = broken(Virtual()), Service()
    service.down = crash()
    seen: list[BaseException] = []

    def blocking() -> None:
        try:
            SHAPES[shape][0](breaker, service)
        except BaseException as error:
            seen.append(error)

    async def waiting() -> None:
        try:
            await SHAPES[shape][1](breaker, service)
        except BaseException as error:
            seen.append(error)

    in_colour(colour, blocking, waiting)
    assert seen == [service.down]
    assert breaker.state == "half_open"
    assert breaker.call(int) == 0


def test_a_dropped_coroutine_releases_its_probe_slot() -> None:
    breaker = broken(Virtual())

    async def work() -> None:
        await asyncio.sleep(0)

    coroutine = breaker(work)()
    coroutine.send(None)
    with pytest.raises(errors.CircuitOpen):
        breaker.call(int)
    del coroutine
    gc.collect()
    assert breaker.call(int) == 0


@LOOPS
def test_a_task_that_hangs_does_not_block_the_breaker(colour: str) -> None:
    """Another call is admitted after the cooldown; when the task finally ends, its result is ignored."""
    clock = Virtual()
    breaker = broken(clock)

    async def hanging() -> None:
        await backend().sleep(FOR_EVER)

    async def meanwhile() -> None:
        await backend().sleep(0)
        with pytest.raises(errors.CircuitOpen):
            breaker.call(int)
        clock.time += 30
        assert breaker.call(int) == 0
        assert breaker.state == "closed"

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(breaker(hanging))
            await trio.testing.wait_all_tasks_blocked()
            await meanwhile()
            nursery.cancel_scope.cancel()

    async def amain() -> None:
        task = asyncio.ensure_future(breaker(hanging)())
        await meanwhile()
        task.cancel()
        await asyncio.wait([task])

    in_colour(colour, lambda: None, main if colour == "trio" else amain)
    assert breaker.state == "closed"


# ------------------------------------------------------------------------------- streams


@pytest.mark.parametrize(
    ("script", "reader", "state"),
    [
        ([1, 2], Reader(), "closed"),
        ([1, 2], Reader("close"), "closed"),  # closing early counts as success
        ([1, 2], Reader("break"), "closed"),
        ([1, 2], Reader("raise", 1, Boom()), "closed"),
        ([Boom()], Reader(), "open"),
        ([1, Boom()], Reader(), "open"),
        ([1, Panic()], Reader(), "half_open"),
        ([1, 2], Reader("drop", 0), "half_open"),  # not begun
    ],
)
def test_the_state_after_a_stream(colour: str, script: list[Any], reader: Reader, state: str) -> None:
    breaker, tape = broken(Virtual()), ScriptedSource([script], Virtual(), [])

    async def waiting() -> None:
        await reader.aread(breaker(tape.aitems), [])

    with suppress(Boom, Panic):
        in_colour(colour, lambda: reader.read(breaker(tape.items), []), waiting)
    assert breaker.state == state


def test_a_stream_holds_its_probe_slot_while_it_is_open(colour: str) -> None:
    breaker, tape = broken(Virtual()), ScriptedSource([[1, 2]], Virtual(), [])

    def blocking() -> None:
        stream = breaker(tape.items)()
        assert next(stream) == 1
        with pytest.raises(errors.CircuitOpen):
            next(breaker(tape.items)())
        assert list(stream) == [2]

    async def waiting() -> None:
        stream = breaker(tape.aitems)()
        assert await anext(stream) == 1
        with pytest.raises(errors.CircuitOpen):
            await anext(breaker(tape.aitems)())
        assert [item async for item in stream] == [2]

    in_colour(colour, blocking, waiting)
    assert (breaker.state, tape.opened) == ("closed", 1)


# ------------------------------------------------------------------- the policy outside


@pytest.mark.parametrize("place", PLACES)
def test_a_policy_outside_waits_for_the_retry_after(place: str) -> None:
    service, boom = Service(), Boom()

    def healing(_: object) -> None:
        service.down = None

    def policy(breaker: CircuitBreaker) -> Any:
        options: dict[str, Any] = {"hints": Hints(spread=0), "on_retry": healing}
        return Retry(on=[Boom, transient], backoff=[0.5, 0.25, 0.25], **options) | breaker

    def blocking(clock: VirtualClock) -> list[float]:
        service.down = boom
        assert policy(CircuitBreaker(failures=1, cooldown=7)).call(service, 5) == 5
        return clock.delays

    async def waiting(clock: VirtualClock) -> list[float]:
        service.down = boom
        assert await policy(CircuitBreaker(failures=1, cooldown=7)).call(service.acall, 5) == 5
        return clock.delays

    assert at(place, blocking, waiting) == [0.5, 6.5]
    assert service.calls == 2


def test_a_policy_that_cannot_wait_so_long_gives_up_at_once(colour: str) -> None:
    breaker, service = CircuitBreaker(failures=1), Service()
    service.down = Boom()
    policy = Retry(on=[Boom, transient], backoff=[0] * 9, give_up_after=5) | breaker

    async def waiting() -> int:
        return await policy.call(service.acall)

    with pytest.raises(errors.CircuitOpen) as caught:
        in_colour(colour, lambda: policy.call(service), waiting)
    found = report(caught.value)
    assert found is not None
    assert (found.reason, found.attempts, service.calls) == ("timeout", 2, 1)


@pytest.mark.parametrize(
    ("outside", "inside", "options", "problem"),
    [
        (Retry(), Timeout(5), {}, ""),
        (
            Timeout(5),
            Retry(),
            {},
            "CircuitBreaker outside Retry: it counts one failure for several",
        ),
        (
            Retry(attempt_timeout=1),
            None,
            {},
            "CircuitBreaker inside the limit of an attempt: it takes a call that is cut",
        ),
        (Retry(attempt_timeout=1), None, {"slow": 1}, ""),
        (Retry(attempt_timeout=1), Timeout(1), {}, ""),
        (Timeout(9) | Retry(), None, {}, ""),  # a limit of the whole call does not count
        (Timeout(9) | Retry() | Timeout(2), None, {}, "CircuitBreaker inside the limit of an attempt"),
        (Timeout(2), None, {}, "CircuitBreaker inside the limit of an attempt"),
    ],
)
def test_lint_in_a_pipeline(outside: Any, inside: Any, options: dict[str, Any], problem: str) -> None:
    pipeline = outside | CircuitBreaker(**options)
    found = [text for text in (pipeline | inside if inside else pipeline).check() if "CircuitBreaker" in text]
    assert "opens after 5 failures in a row" in pipeline.explain()
    assert [text[: len(problem)] for text in found] == ([problem] if problem else [])
