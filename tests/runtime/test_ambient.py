"""The one flag that every successful call reads, and whom it concerns."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from contextvars import copy_context

import pytest

from redouble import Retry, deadline, errors, observe
from redouble._runtime.ambient import Ambient, ambient
from redouble._telemetry.events import WHATS
from redouble.testing import VirtualClock, no_retries, virtual_time
from redouble.types import What
from tests.drivers.test_attempt import AT_ONCE, SOON, Stuck
from tests.support.call_shapes import ASYNC_SHAPES, SHAPES
from tests.support.fakes import Boom, Virtual, in_colour


def test_the_ambient_flag_is_counted() -> None:
    flag = Ambient()
    seen = [bool(flag.active)]
    for users in (1, 1, -1, -1):
        flag.count_user(users)
        seen.append(bool(flag.active))
    assert seen == [False, True, True, True, False]


def test_observers_are_counted_apart_from_others() -> None:
    flag = Ambient()
    seen: list[str] = []
    for count, users in (
        (flag.count_observer, 1),
        (flag.count_user, 1),
        (flag.count_observer, -1),
        (flag.count_user, -1),
    ):
        count(users)
        seen.append(f"{bool(flag.active)} {bool(flag.others)}")
    assert seen == ["True False", "True True", "True True", "False False"]


@pytest.mark.parametrize("only", [("success",), ("before_attempt", "retry"), ()])
def test_observers_hold_it_up(only: tuple[What, ...]) -> None:
    before = list(ambient.active)
    first, second = observe(print, only=only), observe(print, only=only)
    assert ambient.active
    first.remove()
    assert ambient.active
    second.remove()
    assert ambient.active == before


def test_who_only_hears_of_trouble_does_not() -> None:
    with observe(print, only=[what for what in WHATS if what not in ("before_attempt", "success")]):
        assert not ambient.active


# ----------------------------------------------------------- which calls take the slow path


class Counting(Virtual):
    """Counts how often the time is asked for, which is more often once a call is seen to."""

    asked = 0

    def now(self) -> float:
        self.asked += 1
        return super().now()

    def anow(self) -> float:
        return self.now()


def reads(colour: str, shape: str) -> int:
    """Count the reads of the clock that a call costs which succeeds at once."""
    clock = Counting()
    policy = Retry(clock=clock)

    async def awork() -> None:
        pass

    async def waiting() -> None:
        await ASYNC_SHAPES[shape](policy, awork)

    in_colour(colour, lambda: SHAPES[shape](policy, lambda: None), waiting)
    return clock.asked


@contextmanager
def elsewhere(block: Callable[[], AbstractContextManager[object]]) -> Generator[None]:
    """Enter a block in a context that is not this one."""
    context, entered = copy_context(), block()
    context.run(entered.__enter__)
    try:
        yield
    finally:
        context.run(entered.__exit__, None, None, None)


@contextmanager
def worker() -> Generator[None]:
    """Leave a worker running that no call waits for."""
    with Stuck() as stuck:
        Retry(attempt_timeout=SOON, attempts=1, worker=AT_ONCE).run(stuck)
        assert stuck.called(1)
        yield


OTHERS: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "deadline": lambda: elsewhere(lambda: deadline(60)),
    "worker": worker,
    "virtual time": lambda: elsewhere(virtual_time),
    "no retries": lambda: elsewhere(no_retries),
}
BESIDE = pytest.mark.parametrize("other", OTHERS)


@BESIDE
@pytest.mark.parametrize("shape", ["decorator", "loop"])
def test_what_is_at_work_elsewhere_costs_a_call_nothing(colour: str, other: str, shape: str) -> None:
    alone = reads(colour, shape)
    with OTHERS[other]():
        assert ambient.active
        assert reads(colour, shape) == alone
    if colour != "thread":  # which has a context of its own
        with deadline(60):
            assert reads(colour, shape) > alone


def failing(times: int, clock: VirtualClock | None = None) -> Callable[[], str]:
    """Return an operation that fails ``times`` times; with a clock, each attempt takes time."""
    left = [Boom() for _ in range(times)]

    def work() -> str:
        if clock is not None:
            clock.advance(4000)
        if left:
            raise left.pop()
        return "done"

    return work


@BESIDE
@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_at_work_here_reaches_every_call_beside_it(other: str, shape: str) -> None:
    call, policy = SHAPES[shape], Retry(on=Boom, backoff=[3600] * 9, give_up_after=10_000)
    heard: list[object] = []
    with OTHERS[other]():
        with virtual_time() as clock:
            assert call(policy, failing(2)) == "done"
            assert clock.delays == [3600, 3600]
            with pytest.raises(Boom):
                call(policy, failing(9, clock))
            assert clock.delays == [3600] * 3
            with deadline(60), pytest.raises(Boom):
                call(policy, failing(2))
            assert clock.delays == [3600] * 3
        with no_retries(), pytest.raises(Boom):
            call(Retry(on=Boom, backoff=[0]), failing(1))
        with observe(lambda event: heard.append(event.what)):
            assert call(policy, failing(0)) == "done"
    assert heard == ["before_attempt", "success"]


@BESIDE
@pytest.mark.parametrize("shape", ASYNC_SHAPES)
def test_what_is_at_work_here_reaches_every_async_call_beside_it(other: str, shape: str) -> None:
    call, policy = ASYNC_SHAPES[shape], Retry(on=Boom, backoff=[3600] * 9, give_up_after=10_000)
    heard: list[object] = []

    def coloured(work: Callable[[], str]) -> Callable[[], Awaitable[str]]:
        async def awork() -> str:
            return work()

        return awork

    async def main() -> None:
        with virtual_time() as clock:
            assert await call(policy, coloured(failing(2))) == "done"
            assert clock.delays == [3600, 3600]
            with pytest.raises(Boom):
                await call(policy, coloured(failing(9, clock)))
            assert clock.delays == [3600] * 3
            with deadline(60), pytest.raises(Boom):
                await call(policy, coloured(failing(2)))
            assert clock.delays == [3600] * 3
        with no_retries(), pytest.raises(Boom):
            await call(Retry(on=Boom, backoff=[0]), coloured(failing(1)))
        with observe(lambda event: heard.append(event.what)):
            assert await call(policy, coloured(failing(0))) == "done"

    with OTHERS[other]():
        asyncio.run(main())
    assert heard == ["before_attempt", "success"]


@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_at_work_here_reaches_calls_that_are_observed(shape: str) -> None:
    heard: list[str] = []
    call, policy = SHAPES[shape], Retry(on=Boom, backoff=[3600], give_up_after=None)
    with observe(lambda event: heard.append(event.what[0])):
        with deadline(0), pytest.raises(errors.DeadlineExceeded):
            call(policy, failing(0))
        with no_retries(), pytest.raises(Boom):
            call(policy, failing(1))
        with virtual_time() as clock:
            assert call(policy, failing(1)) == "done"
    assert clock.delays == [3600]
    assert " ".join(heard) == "g b f g b f r b s"
