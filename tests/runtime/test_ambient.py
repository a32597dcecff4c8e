"""The ambient flag, which every successful call reads, and the calls that it affects."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from contextvars import copy_context

import pytest

from redouble import Retry, deadline, errors, observe
from redouble._runtime.ambient import Ambient, ambient
from redouble._telemetry.events import EVENT_NAMES
from redouble.testing import VirtualClock, no_retries, virtual_time
from redouble.types import What
from tests.support.call_shapes import ASYNC_SHAPES, SHAPES
from tests.support.drivers.stuck_operations import SOON
from tests.support.drivers.worker_attempts import NO_GRACE, StuckAttempt
from tests.support.fakes import Boom, Virtual, in_colour


def test_the_ambient_flag_is_true_while_it_has_users() -> None:
    """Adding and removing may be repeated: a signal handler may have interrupted them."""
    flag, first, second = Ambient(), object(), object()
    seen = [bool(flag.active)]
    for change, user in (
        (flag.add, first),
        (flag.add, first),
        (flag.add, second),
        (flag.remove, first),
        (flag.remove, first),
        (flag.remove, second),
    ):
        change(user)
        seen.append(bool(flag.active))
    assert seen == [False, True, True, True, True, True, False]


def test_observers_are_apart_from_others() -> None:
    flag, observer, other = Ambient(), object(), object()
    seen: list[str] = []
    for change, user in (
        (flag.add_observer, observer),
        (flag.add, other),
        (flag.remove, observer),
        (flag.remove, other),
    ):
        change(user)
        seen.append(f"{bool(flag.active)} {bool(flag.others)}")
    assert seen == ["True False", "True True", "True True", "False False"]


@pytest.mark.parametrize("only", [("success",), ("before_attempt", "retry"), ()])
def test_an_observer_sets_the_flag(only: tuple[What, ...]) -> None:
    before = list(ambient.active)
    first, second = observe(print, only=only), observe(print, only=only)
    assert ambient.active
    first.remove()
    assert ambient.active
    second.remove()
    assert list(ambient.active) == before


def test_an_observer_of_failures_only_does_not_set_the_flag() -> None:
    with observe(print, only=[what for what in EVENT_NAMES if what not in ("before_attempt", "success")]):
        assert not ambient.active


# ----------------------------------------------------------- which calls take the slow path


class Counting(Virtual):
    """A clock that counts its reads: the slow path has more of them."""

    reads_made = 0

    def now(self) -> float:
        self.reads_made += 1
        return super().now()

    def anow(self) -> float:
        return self.now()


def reads(colour: str, shape: str) -> int:
    """Return the number of clock reads of a call that succeeds at once."""
    clock = Counting()
    policy = Retry(clock=clock)

    async def awork() -> None:
        pass

    async def waiting() -> None:
        await ASYNC_SHAPES[shape](policy, awork)

    in_colour(colour, lambda: SHAPES[shape](policy, lambda: None), waiting)
    return clock.reads_made


@contextmanager
def elsewhere(block: Callable[[], AbstractContextManager[object]]) -> Generator[None]:
    """Enter a block in another context."""
    context, entered = copy_context(), block()
    context.run(entered.__enter__)
    try:
        yield
    finally:
        context.run(entered.__exit__, None, None, None)


@contextmanager
def worker() -> Generator[None]:
    """Leave a worker running that no call waits for."""
    with StuckAttempt() as stuck:
        Retry(attempt_timeout=SOON, attempts=1, worker=NO_GRACE).run(stuck)
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
def test_what_applies_to_another_context_does_not_slow_a_call(colour: str, other: str, shape: str) -> None:
    alone = reads(colour, shape)
    with OTHERS[other]():
        assert ambient.active
        assert reads(colour, shape) == alone
    if colour != "thread":  # a thread has its own context
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
def test_what_applies_to_this_context_affects_every_call(other: str, shape: str) -> None:
    call, policy = SHAPES[shape], Retry(on=Boom, backoff=[3600] * 9, give_up_after=10_000)
    emitted: list[object] = []
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
        with observe(lambda event: emitted.append(event.what)):
            assert call(policy, failing(0)) == "done"
    assert emitted == ["before_attempt", "success"]


@BESIDE
@pytest.mark.parametrize("shape", ASYNC_SHAPES)
def test_what_applies_to_this_context_affects_every_async_call(other: str, shape: str) -> None:
    call, policy = ASYNC_SHAPES[shape], Retry(on=Boom, backoff=[3600] * 9, give_up_after=10_000)
    emitted: list[object] = []

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
        with observe(lambda event: emitted.append(event.what)):
            assert await call(policy, coloured(failing(0))) == "done"

    with OTHERS[other]():
        asyncio.run(main())
    assert emitted == ["before_attempt", "success"]


@pytest.mark.parametrize("shape", SHAPES)
def test_what_applies_to_this_context_affects_observed_calls(shape: str) -> None:
    emitted: list[str] = []
    call, policy = SHAPES[shape], Retry(on=Boom, backoff=[3600], give_up_after=None)
    with observe(lambda event: emitted.append(event.what[0])):
        with deadline(0), pytest.raises(errors.DeadlineExceeded):
            call(policy, failing(0))
        with no_retries(), pytest.raises(Boom):
            call(policy, failing(1))
        with virtual_time() as clock:
            assert call(policy, failing(1)) == "done"
    assert clock.delays == [3600]
    assert " ".join(emitted) == "g b f g b f r b s"
