"""A rate limit in every colour and for every shape of a call: which calls pass, wait or are rejected."""

from __future__ import annotations

from typing import Any

import pytest

from redouble import RateLimit, errors
from redouble.testing import VirtualClock
from tests.support.fakes import ASYNC, Boom, Panic, in_colour, nothing
from tests.support.layers.breaker_scripts import SHAPES, Service
from tests.support.runtime.tasks import together
from tests.support.virtual_time import in_virtual_colour


class Timed(Service):
    """A service that records when it was called."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self.clock, self.began = clock, clock.now()
        self.called_at: list[float] = []

    def __call__(self, item: int = 0, *, scale: int = 1) -> int:
        self.called_at.append(self.clock.now() - self.began)
        return super().__call__(item, scale=scale)


def limited(*arguments: Any, **options: Any) -> Any:
    """Return a limit; its type is Any, because the shapes are typed for a breaker."""
    return RateLimit(*arguments, **options)


WAITING = [shape for shape in SHAPES if shape != "mixed"]  # `with` never waits in async code


@pytest.mark.parametrize(
    ("options", "calls", "rest", "passed"),
    [
        ({"rate": 2}, 4, 0, [0, 0.5, 1, 1.5]),
        ({"rate": 2, "following": True}, 4, 0, [0, 0.5, 1, 1.5]),
        ({"rate": 2}, 4, 10, [0, 0.5, 10.5, 11]),
        ({"rate": 1, "per": 60, "burst": 3}, 5, 0, [0, 0, 0, 60, 120]),
        ({"rate": 2, "burst": 2}, 6, 10, [0, 0, 10, 10, 10.5, 11]),
        ({"rate": 2, "wait": 0.5}, 3, 0, [0, 0.5, 1]),
    ],
)
def test_when_calls_pass(
    colour: str, options: dict[str, Any], calls: int, rest: float, passed: list[float]
) -> None:
    """One call after the other, with a ``rest`` after the second."""

    def blocking(clock: VirtualClock) -> None:
        for shape in WAITING:
            service, limit = Timed(clock), limited(**options)
            for number in range(calls):
                clock.advance(rest if number == 2 else 0)
                assert SHAPES[shape][0](limit, service) == 6
            assert service.called_at == pytest.approx(passed), shape

    async def waiting(clock: VirtualClock) -> None:
        for shape in WAITING:
            service, limit = Timed(clock), limited(**options)
            for number in range(calls):
                clock.advance(rest if number == 2 else 0)
                assert await SHAPES[shape][1](limit, service) == 6
            assert service.called_at == pytest.approx(passed), shape

    in_virtual_colour(colour, blocking, waiting)


@pytest.mark.parametrize("following", [False, True])
def test_a_rejected_call_does_not_call_the_function(colour: str, following: bool) -> None:
    def check(service: Service, errors_seen: list[errors.RateLimited], limit: Any) -> None:
        assert service.calls == 2
        assert [error.retry_after for error in errors_seen] == pytest.approx([0.5, 0.5])
        assert limit.snapshot()["queued"] == 0

    def blocking(clock: VirtualClock) -> None:
        for make, _ in SHAPES.values():
            service, seen = Service(), list[errors.RateLimited]()
            limit = limited(2, burst=2, wait=0, following=following)
            for _ in range(4):
                try:
                    make(limit, service)
                except errors.RateLimited as error:
                    seen.append(error)
            check(service, seen, limit)

    async def waiting(clock: VirtualClock) -> None:
        for _, make in SHAPES.values():
            service, seen = Service(), list[errors.RateLimited]()
            limit = limited(2, burst=2, wait=0, following=following)
            for _ in range(4):
                try:
                    await make(limit, service)
                except errors.RateLimited as error:
                    seen.append(error)
            check(service, seen, limit)

    in_virtual_colour(colour, blocking, waiting)


ERRORS = [Boom(), Panic(), KeyboardInterrupt(), GeneratorExit(), errors.Rejected("further in")]


@pytest.mark.parametrize("following", [False, True])
@pytest.mark.parametrize("shape", ["decorator", "block", "stream"])
def test_errors_are_raised_unchanged_and_take_a_permit(colour: str, shape: str, following: bool) -> None:
    limit = limited(1, 1e6, burst=len(ERRORS) + 1, wait=0, following=following)
    service, raised = Service(), list[BaseException]()

    def blocking() -> None:
        for service.down in ERRORS:
            try:
                SHAPES[shape][0](limit, service)
            except BaseException as error:
                raised.append(error)

    async def waiting() -> None:
        for service.down in ERRORS:
            try:
                await SHAPES[shape][1](limit, service)
            except BaseException as error:
                raised.append(error)

    in_colour(colour, blocking, waiting)
    assert raised == ERRORS
    assert limit.snapshot()["available"] == 1


@pytest.mark.parametrize("colour", ASYNC)
def test_a_plain_with_does_not_wait_in_async_code(colour: str) -> None:
    limit = RateLimit(1, 1e6)

    async def main() -> None:
        with limit:
            pass
        with pytest.raises(errors.RateLimited, match="cannot wait on the thread of an event loop"), limit:
            pass

    in_colour(colour, lambda: None, main)


@pytest.mark.parametrize("colour", ASYNC)
def test_a_blocking_call_never_waits_on_the_thread_of_a_loop(colour: str) -> None:
    limit = RateLimit(1, 1e6)

    async def main() -> None:
        assert limit.call(int) == 0
        with pytest.raises(errors.RateLimited, match="cannot wait on the thread of an event loop"):
            limit.call(int)

    in_colour(colour, lambda: None, main)


@pytest.mark.parametrize("colour", ["asyncio", "uvloop", "trio"])
@pytest.mark.parametrize(
    ("wait", "admitted_at", "retry_after"),
    [(None, [0, 1, 2, 3], []), (2, [0, 1, 2], [3.0]), (0.5, [0], [1.0] * 3), (0, [0], [1.0] * 3)],
)
def test_concurrent_calls_wait_in_order_or_are_rejected_at_once(
    colour: str, wait: float | None, admitted_at: list[float], retry_after: list[float]
) -> None:
    """A call that cannot be admitted within its wait is rejected at once, and delays no other."""
    limit = RateLimit(1, wait=wait)
    times, hints = list[float](), list[float]()

    async def waiting(clock: VirtualClock) -> None:
        async def one() -> None:
            try:
                await limit.call(nothing)
            except errors.RateLimited as error:
                assert clock.now() == 0
                hints.append(error.retry_after or 0)
            else:
                times.append(clock.now())

        await together(colour, *[one] * 4)

    in_virtual_colour(colour, lambda clock: None, waiting)
    assert (times, hints) == (admitted_at, retry_after)
    assert limit.snapshot()["queued"] == 0


def test_calls_wait_in_real_time(colour: str) -> None:
    """A thousand a second is a wait of a millisecond."""
    limit = RateLimit(1000)
    passed_calls: list[int] = []

    async def work(number: int) -> None:
        passed_calls.append(number)

    async def waiting() -> None:
        for number in range(5):
            await limit.call(work, number)

    in_colour(colour, lambda: [limit.call(passed_calls.append, number) for number in range(5)], waiting)
    assert passed_calls == [0, 1, 2, 3, 4]
