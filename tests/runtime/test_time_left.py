"""The time left inside calls: `remaining` knows the limits of the policies around the running code."""

from __future__ import annotations

import asyncio
import copy
import pickle
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import nullcontext
from contextvars import copy_context
from dataclasses import replace
from datetime import timedelta
from functools import partial
from math import inf
from typing import Any

import pytest

from redouble import Retry, Timeout, Worker, deadline, remaining
from redouble._runtime import call_stack
from redouble._runtime.deadline import times_left_for_stream, uninterrupted_time_left, wait_limit
from redouble.testing import VirtualClock, virtual_time
from tests.support.call_shapes import EVERY_ASYNC_SHAPE, EVERY_SHAPE
from tests.support.fakes import Boom
from tests.support.virtual_time import VIRTUAL_COLOURS, at, in_virtual_colour, no_real_waits

pytestmark = pytest.mark.usefixtures(no_real_waits.__name__)


def in_shape(colour: str, shape: str, policy: Retry, work: Callable[[VirtualClock], object]) -> Any:
    """Run blocking code as the attempts of a policy, in virtual time."""

    def blocking(clock: VirtualClock) -> object:
        return EVERY_SHAPE[shape](policy, lambda: work(clock))

    async def waiting(clock: VirtualClock) -> object:
        async def coroutine() -> object:
            return work(clock)

        return await EVERY_ASYNC_SHAPE[shape](policy, coroutine)

    return in_virtual_colour(colour, blocking, waiting)


EVERY = pytest.mark.parametrize("shape", EVERY_SHAPE)


@VIRTUAL_COLOURS
@EVERY
@pytest.mark.parametrize("option", ["timeout", "give_up_after", "work_timeout"])
def test_the_limit_of_a_call_counts_down_over_its_attempts(colour: str, shape: str, option: str) -> None:
    """Delays count, except for the time of work."""
    seen: list[float | None] = []

    def work(clock: VirtualClock) -> str:
        seen.append(remaining())
        clock.advance(2)
        seen.append(remaining())
        if len(seen) < 4:
            raise Boom
        return "done"

    options: dict[str, Any] = {option: 10}
    policy = Retry(on=Boom, backoff=[3], **options)
    assert in_shape(colour, shape, policy, work) == "done"
    assert seen == ([10, 8, 8, 6] if option == "work_timeout" else [10, 8, 5, 3])


@pytest.mark.parametrize("colour", ["asyncio", "trio"])
@EVERY
def test_the_limit_of_an_attempt_begins_with_each(colour: str, shape: str) -> None:
    seen: list[float | None] = []

    def work(clock: VirtualClock) -> str:
        seen.append(remaining())
        clock.advance(1)
        seen.append(remaining())
        if len(seen) < 4:
            raise Boom
        return "done"

    assert in_shape(colour, shape, Retry(on=Boom, backoff=[3], attempt_timeout=2), work) == "done"
    assert seen == [2, 1, 2, 1]


@VIRTUAL_COLOURS
@EVERY
def test_the_default_of_give_up_after_is_no_limit_of_code_inside(colour: str, shape: str) -> None:
    """It interrupts nothing, and code that runs for hours is retried too."""
    assert in_shape(colour, shape, Retry(), lambda clock: remaining("none")) == "none"
    assert in_shape(colour, shape, Retry(attempts=None), lambda clock: remaining("none")) == "none"


@pytest.mark.parametrize("written", [30, 30.0, timedelta(seconds=30)])
def test_a_give_up_after_that_was_written_counts_whatever_it_is(written: Any) -> None:
    """Also in policies made of it, and in those that were pickled."""
    policy = Retry(give_up_after=written)
    policies = [
        policy,
        replace(policy, attempts=2),
        copy.deepcopy(policy),
        pickle.loads(pickle.dumps(policy)),
    ]
    with virtual_time():
        assert [each.call(remaining) for each in policies] == [30] * 4
        default = Retry(attempts=3)
        defaults = [default, replace(default, attempts=2), pickle.loads(pickle.dumps(default))]
        assert [each.call(remaining) for each in defaults] == [None] * 3
    assert policy == Retry()


@VIRTUAL_COLOURS
@EVERY
def test_no_time_is_left_after_the_limit(colour: str, shape: str) -> None:
    def work(clock: VirtualClock) -> object:
        clock.advance(60)
        return remaining()

    assert in_shape(colour, shape, Retry(give_up_after=10), work) == 0


@VIRTUAL_COLOURS
@pytest.mark.parametrize(("outer", "inner", "expected"), [(10, 3, 3), (3, 10, 3), (4, 4, 4)])
@EVERY
def test_of_nested_calls_the_earliest_limit_counts(
    colour: str, shape: str, outer: float, inner: float, expected: float
) -> None:
    def work(clock: VirtualClock) -> object:
        return Retry(timeout=inner).call(remaining)

    assert in_shape(colour, shape, Retry(timeout=outer), work) == expected


@VIRTUAL_COLOURS
@EVERY
def test_deadlines_and_calls_are_one_notion(colour: str, shape: str) -> None:
    def work(clock: VirtualClock) -> object:
        with deadline(7):
            first = remaining()
        with deadline(60):
            return first, remaining()

    assert in_shape(colour, shape, Retry(timeout=10), work) == (7, 10)


@VIRTUAL_COLOURS
@EVERY
def test_after_the_call_there_is_no_limit(colour: str, shape: str) -> None:
    def blocking(clock: VirtualClock) -> object:
        EVERY_SHAPE[shape](Retry(timeout=5), int)
        return remaining("none")

    async def waiting(clock: VirtualClock) -> object:
        async def coroutine() -> int:
            return 0

        await EVERY_ASYNC_SHAPE[shape](Retry(timeout=5), coroutine)
        return remaining("none")

    assert in_virtual_colour(colour, blocking, waiting) == "none"


@pytest.mark.parametrize("colour", ["asyncio", "trio"])
def test_inside_a_timeout(colour: str) -> None:
    async def read(clock: VirtualClock) -> list[float | None]:
        seen = [remaining()]
        clock.advance(2)
        return [*seen, remaining()]

    async def items(clock: VirtualClock) -> AsyncIterator[object]:
        yield await read(clock)
        yield remaining()

    async def waiting(clock: VirtualClock) -> object:
        stream = [item async for item in Timeout(5)(items)(clock)]
        return await Timeout(5)(read)(clock), stream, await (Timeout(9) | Timeout(4)).call(read, clock)

    expected = ([5, 3], [[5, 3], None], [4, 2])
    assert in_virtual_colour(colour, lambda clock: None, waiting) == expected


@pytest.mark.parametrize("colour", ["asyncio", "trio"])
def test_a_limit_that_was_reached_has_no_time_left(colour: str) -> None:
    """Also while the operation handles its cancellation."""
    seen: list[float | None] = []

    async def stubborn(clock: VirtualClock) -> None:
        try:
            await clock.asleep(60)
        finally:
            seen.append(remaining())

    async def waiting(clock: VirtualClock) -> None:
        with pytest.raises(TimeoutError):
            await Timeout(5).call(stubborn, clock)

    in_virtual_colour(colour, lambda clock: None, waiting)
    assert seen == [0]


def test_a_coroutine_that_is_driven_by_hand_has_no_timer() -> None:
    async def read() -> object:
        return remaining("none")

    with pytest.raises(StopIteration) as end:
        Timeout(5)(read)().send(None)
    assert end.value.value == "none"


# --------------------------------------------------------------------------------- workers


LONG, SOON = 3600.0, 3599.0


def test_on_a_worker_the_calls_around_its_caller_count() -> None:
    """Also those that cannot interrupt it."""
    seen: list[float] = []

    def work() -> None:
        seen.append(remaining(0.0))

    inner = Retry(attempt_timeout=2 * LONG, worker=Worker())
    Retry(give_up_after=LONG).call(inner.call, work)
    Retry(timeout=LONG)(inner(work))()
    (Retry(timeout=LONG) | Timeout(2 * LONG, worker=Worker()))(work)()
    assert len(seen) == 3
    assert all(SOON < seconds <= LONG for seconds in seen)


def test_on_a_worker_of_async_code_the_calls_around_its_caller_count() -> None:
    seen: list[float] = []

    def work() -> None:
        seen.append(remaining(0.0))
        seen.append(uninterrupted_time_left())

    async def main() -> None:
        for outer in (Retry(give_up_after=LONG), Retry(timeout=LONG)):
            await outer.call(Retry(attempt_timeout=2 * LONG).acall, work)

    asyncio.run(main())
    hard, soft, limited, interrupted = seen
    assert all(SOON < seconds <= LONG for seconds in (hard, soft, limited))
    assert interrupted > 2 * SOON


# ------------------------------------------------------------------- what is not on the stack


def test_a_thread_of_the_callers_does_not_inherit_a_call() -> None:
    """The recipes are those of deadlines: a thread inherits one with the context of its caller."""
    seen: list[object] = []

    def look() -> None:
        seen.append(remaining("none"))

    def work() -> None:
        with deadline(remaining(0.0)):
            for target in (look, partial(copy_context().run, look)):
                thread = threading.Thread(target=target)
                thread.start()
                thread.join()

    Retry(timeout=LONG).call(work)

    async def coroutine() -> None:
        await asyncio.to_thread(look)
        with deadline(remaining(0.0)):
            await asyncio.to_thread(look)

    asyncio.run(Retry(timeout=LONG).call(coroutine))
    assert seen[::2] == ["none", "none"]
    assert all(SOON < float(str(seconds)) <= LONG for seconds in seen[1::2])


def test_another_call_of_the_same_event_loop_does_not_count() -> None:
    async def main() -> list[object]:
        async def slow() -> None:
            await asyncio.sleep(0)
            await asyncio.sleep(0)

        async def read() -> object:
            await asyncio.sleep(0)
            return remaining("none")

        _, seen, limited = await asyncio.gather(
            Retry(timeout=LONG).call(slow), read(), Retry(timeout=2 * LONG).call(read)
        )
        return [seen, limited]

    unlimited, limited = asyncio.run(main())
    assert unlimited == "none"
    assert isinstance(limited, float)
    assert limited > LONG


def test_a_suspended_block_does_not_count() -> None:
    def items() -> Iterator[float]:
        for attempt in Retry(timeout=LONG):
            with attempt:
                yield remaining(0.0)
                yield remaining(0.0)

    for seconds in items():
        assert SOON < seconds <= LONG
        assert remaining() is None


def test_a_block_that_was_left_does_not_count() -> None:
    seen: list[object] = []

    def by(error: BaseException | None) -> None:
        try:
            for attempt in Retry(on=Boom, timeout=LONG, attempts=1):
                seen.append(remaining("none"))
                with attempt:
                    if error is not None:
                        raise error
                seen.append(remaining("none"))
        except BaseException:
            seen.append(remaining("none"))

    for error in (None, Boom(), ValueError(), KeyboardInterrupt()):
        by(error)
    assert seen == ["none"] * 8


def test_of_nested_blocks_the_inner_one_is_found_first() -> None:
    names: list[str] = []
    for outer in Retry(timeout=LONG, name="outer"):
        with outer:
            for inner in Retry(timeout=2 * LONG, name="inner"):
                with inner:
                    names += [call.name for call in call_stack.calls_on_stack(sys._getframe())]
    assert names.index("inner") < names.index("outer")


def test_what_is_known_of_the_code_of_callers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_stack, "MOST_CODES", 2)

    def inner() -> list[str]:
        for attempt in Retry(timeout=LONG, name="inner"):
            with attempt:
                return [call.name for call in call_stack.calls_on_stack(sys._getframe())]
        return []

    names: list[set[str]] = []
    for outer in Retry(timeout=LONG, name="outer"):
        with outer:
            names += [set(inner()) for _ in range(3)]
    assert names == [{"inner", "outer"}] * 3
    assert len(call_stack._codes) <= 2


def test_a_frame_whose_variables_cannot_be_read_is_passed_by() -> None:
    class Namespace(dict[str, Any]):
        def values(self) -> Any:
            raise RuntimeError

    names = Namespace(seen=[], remaining=remaining, block=nullcontext())
    for attempt in Retry(timeout=LONG):
        with attempt:
            exec("with block:\n    seen.append(remaining())", {}, names)  # noqa: S102
    assert SOON < names["seen"][0] <= LONG


def test_no_walk_before_there_is_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_stack.limits, "exist", False)
    assert Retry(attempts=3).call(remaining, "none") == "none"
    assert wait_limit(5) == 5
    assert uninterrupted_time_left() == inf
    assert times_left_for_stream() == (inf, inf)
    assert not call_stack.limits.exist
    Retry(timeout=5)
    assert call_stack.limits.exist


@pytest.mark.parametrize(("wait", "expected"), [(None, 10), (60, 10), (3, 3), (0, 0)])
def test_a_wait_ends_with_the_call(wait: float | None, expected: float) -> None:
    def blocking(clock: VirtualClock) -> object:
        return Retry(timeout=10).call(wait_limit, wait)

    async def waiting(clock: VirtualClock) -> object:
        return blocking(clock)

    assert at("sync", blocking, waiting) == expected


@pytest.mark.parametrize(
    ("policy", "blocking", "waiting"),
    [
        (Retry(timeout=10), 10, inf),
        (Retry(work_timeout=10), 10, inf),
        (Retry(give_up_after=10), 10, 10),
        (Retry(give_up_after=10, timeout=5), 5, inf),
        (Retry(give_up_after=5, timeout=10), 5, 5),
        (Retry(), inf, inf),
    ],
)
@EVERY
def test_clients_end_their_waits_by_limits_that_interrupt_nothing(
    policy: Retry, blocking: float, waiting: float, shape: str
) -> None:
    """A limit that interrupts ends the wait of a client, and is the one to be reported."""

    def work(clock: VirtualClock) -> object:
        clock.advance(1)
        return uninterrupted_time_left()

    assert in_shape("sync", shape, policy, work) == blocking - 1
    for colour in ("asyncio", "trio"):
        assert in_shape(colour, shape, policy, work) == waiting - 1
    assert in_shape("sync", shape, replace(policy, attempts=2, on=Boom), work) == blocking - 1


def test_a_timeout_interrupts_clients() -> None:
    async def read() -> float:
        return uninterrupted_time_left()

    assert asyncio.run(Timeout(5).call(read)) == inf


# ------------------------------------------------------------------ delays of calls inside


@VIRTUAL_COLOURS
@pytest.mark.parametrize("shape", [shape for shape in EVERY_SHAPE if shape != "loop"])
def test_no_delay_is_longer_than_the_time_left_around(colour: str, shape: str) -> None:
    """A call inside gives up at once; the limit was that of the context."""
    inner = Retry(on=Boom, backoff=[10], timeout=None)

    def work(clock: VirtualClock) -> object:
        outcome = inner.run(fails)
        return outcome.report.reason, outcome.report.limit, outcome.report.attempts, outcome.report.elapsed

    assert in_shape(colour, shape, Retry(give_up_after=5), work) == ("timeout", "deadline", 1, 0)


def fails() -> None:
    raise Boom


@VIRTUAL_COLOURS
@EVERY
def test_a_delay_that_fits_is_waited_for(colour: str, shape: str) -> None:
    """The limits of the call itself do not count twice: a delay is no work."""
    inner = Retry(on=Boom, backoff=[3], attempts=2, work_timeout=1)

    def work(clock: VirtualClock) -> object:
        report = inner.run(fails).report
        return report.reason, report.attempts, report.elapsed

    assert in_shape("sync", shape, Retry(timeout=5), work) == ("attempts", 2, 3)
    seen: list[str] = []

    def waits(clock: VirtualClock) -> str:
        seen.append("attempt")
        if len(seen) == 1:
            raise Boom
        return "done"

    assert in_shape(colour, shape, replace(inner, work_timeout=1), waits) == "done"
