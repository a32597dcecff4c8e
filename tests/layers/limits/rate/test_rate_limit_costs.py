"""What a call costs: a number, or a function of its arguments, in every colour and shape; `acquire`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator
from functools import partial
from math import inf, nan
from typing import Any

import pytest

from redouble import SYSTEM, CircuitBreaker, Fallback, Keyed, Pipeline, RateLimit, Retry, errors
from redouble.testing import VirtualClock, recorded, virtual_time
from tests.support.fakes import ASYNC, Boom, always, in_colour
from tests.support.layers.limits.wait_queues import LOOPS, with_tasks
from tests.support.runtime.tasks import Task, settled
from tests.support.virtual_time import in_virtual_colour

Start = Callable[..., Task]


def size(item: int, *, scale: int = 1) -> float:
    """Return what a call costs."""
    return item * scale


def named_cost(name: str, cost: float) -> float:
    """Return what a named call costs."""
    return cost


def method_cost(self: object, item: int) -> float:
    """Return what a call of a method costs."""
    return item


def one_key(item: int, *, scale: int = 1) -> int:
    """Return the only key."""
    return 1


def sent(item: int, *, scale: int = 1) -> int:
    return item


async def asent(item: int, *, scale: int = 1) -> int:
    return item


# ------------------------------------------------------------------------------ options


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"cost": -1}, ValueError, "RateLimit cost=-1: write a number of permits, 0 or more"),
        ({"cost": nan}, ValueError, "RateLimit cost=nan"),
        ({"cost": inf}, ValueError, "RateLimit cost=inf"),
        ({"cost": 10**400}, ValueError, "RateLimit cost=1000"),
        ({"cost": True}, TypeError, "RateLimit cost=True: write a number"),
        ({"cost": "3"}, TypeError, "RateLimit cost='3': write a number"),
        ({"cost": asent}, TypeError, "RateLimit cost=asent is a coroutine function: write a plain function"),
        ({"cost": int}, TypeError, "RateLimit cost=<class 'int'>: write a number, or a function"),
        ({"cost": 2}, ValueError, r"cost=2\): at most 1 may begin at once; write burst=2 or more"),
        ({"cost": 2.5, "burst": 2}, ValueError, "write burst=3 or more"),
        (
            {"cost": 11, "window": "sliding"},
            ValueError,
            r"RateLimit\(10, per=1, window='sliding', cost=11\): no window has room for a call; write",
        ),
        ({"rate": 0.5, "window": "fixed"}, ValueError, "no window has room for a call"),
        ({"window": "rolling"}, ValueError, "RateLimit window='rolling': write 'sliding' or 'fixed'"),
        ({"window": 60}, ValueError, "RateLimit window=60: write 'sliding' or 'fixed'"),
        ({"window": "fixed", "burst": 3}, ValueError, "RateLimit burst=3: leave it out, a window has"),
    ],
)
def test_wrong_options_are_reported(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        RateLimit(options.pop("rate", 10), **options)


@pytest.mark.parametrize(
    ("limit", "text", "description"),
    [
        (
            RateLimit(100, 60, window="sliding"),
            "RateLimit(100, per=60, wait=None, window='sliding')",
            "100 in any 60 s, others wait",
        ),
        (
            RateLimit(5, window="fixed", wait=0),
            "RateLimit(5, per=1, wait=0.0, window='fixed')",
            "5 in each second, others are refused",
        ),
        (
            RateLimit(5, window="sliding", cost=2),
            "RateLimit(5, per=1, wait=None, cost=2.0, window='sliding')",
            "5 in any second, a call costs 2, others wait",
        ),
        (
            RateLimit(5, burst=7, cost=size),
            "RateLimit(5, per=1, burst=7, wait=None, cost=size)",
            "5 a second, each at its cost, others wait",
        ),
    ],
)
def test_its_repr_and_its_description(limit: RateLimit, text: str, description: str) -> None:
    assert repr(limit) == text
    assert repr(eval(text)) == text  # noqa: S307
    assert Pipeline(limit).explain().splitlines()[0].endswith(description)


# ------------------------------------------------------------------------------ calls


def stream(limit: RateLimit, items: list[int]) -> None:
    @limit
    def send(item: int, *, scale: int = 1) -> Generator[int]:
        yield item

    for item in items:
        assert list(send(item)) == [item]


async def astream(limit: RateLimit, items: list[int]) -> None:
    @limit
    async def send(item: int, *, scale: int = 1) -> AsyncGenerator[int]:
        yield item

    for item in items:
        assert [found async for found in send(item)] == [item]


def call(limit: RateLimit, items: list[int]) -> None:
    for item in items:
        assert limit.call(sent, item) == item


async def acall(limit: RateLimit, items: list[int]) -> None:
    for item in items:
        assert await limit.call(asent, item) == item


def keyed(limit: RateLimit, items: list[int]) -> None:
    send = (Retry() | Keyed(one_key, lambda: limit))(sent)
    for item in items:
        assert send(item, scale=1) == item


async def akeyed(limit: RateLimit, items: list[int]) -> None:
    send = (Retry() | Keyed(one_key, lambda: limit))(asent)
    for item in items:
        assert await send(item, scale=1) == item


def acquired(limit: RateLimit, items: list[int]) -> None:
    for item in items:
        limit.acquire(item)


async def aacquired(limit: RateLimit, items: list[int]) -> None:
    for item in items:
        await limit.aacquire(item)


@pytest.mark.parametrize(
    ("blocking", "waiting"),
    [(call, acall), (stream, astream), (keyed, akeyed), (acquired, aacquired)],
    ids=["call", "stream", "keyed", "acquire"],
)
@pytest.mark.parametrize(
    ("options", "items", "seconds"),
    [
        ({"rate": 10, "burst": 10}, [10, 5, 5, 1], 1.1),
        ({"rate": 10, "burst": 10, "following": True}, [10, 5, 5, 1], 1.1),
        ({"rate": 10, "window": "sliding"}, [10, 5, 5, 1], 2),
        ({"rate": 10, "window": "sliding", "following": True}, [1, 9, 5, 6], 2),
        ({"rate": 10, "window": "fixed"}, [6, 5, 5, 1], 2),
        ({"rate": 10, "burst": 10}, [10, 0, 0, 10, 0], 1),
        ({"rate": 10, "window": "fixed"}, [10, 0, 0, 0], 0),
    ],
)
def test_when_calls_of_a_cost_pass(
    colour: str, blocking: Any, waiting: Any, options: dict[str, Any], items: list[int], seconds: float
) -> None:
    limit = RateLimit(**options, cost=size)

    async def awaiting(clock: VirtualClock) -> float:
        await waiting(limit, items)
        return clock.now()

    def here(clock: VirtualClock) -> float:
        blocking(limit, items)
        return clock.now()

    assert in_virtual_colour(colour, here, awaiting) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("options", "seconds"),
    [
        ({"rate": 10, "burst": 10, "cost": 5}, 1),
        ({"rate": 10, "window": "sliding", "cost": 5}, 1),
        ({"rate": 10, "window": "fixed", "cost": 4}, 1),
        ({"rate": 10, "cost": 0}, 0),
        ({"rate": 10, "cost": 0.5, "following": True}, 0.1),
    ],
)
def test_a_cost_that_is_a_number(colour: str, options: dict[str, Any], seconds: float) -> None:
    """Blocks have it too."""
    limit = RateLimit(**options)

    def blocking(clock: VirtualClock) -> float:
        call(limit, [1, 2])
        with limit:
            pass
        with limit:
            pass
        return clock.now()

    async def waiting(clock: VirtualClock) -> float:
        await acall(limit, [1, 2])
        async with limit:
            pass
        async with limit:
            pass
        return clock.now()

    assert in_virtual_colour(colour, blocking, waiting) == pytest.approx(seconds)


def test_admit_takes_the_cost() -> None:
    limit = RateLimit(10, burst=10, cost=4)
    limit.admit(0.0)
    limit.admit(0.0)
    with pytest.raises(errors.RateLimited) as caught:
        limit.admit(0.0)
    assert caught.value.retry_after == pytest.approx(0.2)
    RateLimit(10, cost=0).admit(0.0)


def test_methods_pass_their_arguments(colour: str) -> None:
    class Client:
        limit = RateLimit(10, burst=10, wait=0, cost=method_cost)

        @limit
        def send(self, item: int) -> int:
            return item

        @limit
        async def asend(self, item: int) -> int:
            return item

    def blocking(clock: VirtualClock) -> None:
        assert Client().send(8) == 8
        with pytest.raises(errors.RateLimited):
            Client().send(item=3)

    async def waiting(clock: VirtualClock) -> None:
        assert await Client().asend(8) == 8
        with pytest.raises(errors.RateLimited):
            await Client().asend(item=3)

    in_virtual_colour(colour, blocking, waiting)


# ------------------------------------------------------------------------------ mistakes


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (-1, r"RateLimit cost: .*rule\(...\)=-1: write a number of permits, 0 or more"),
        (nan, "=nan: write a number of permits"),
        (inf, "=inf: write a number of permits"),
        (None, "=None: write a number of permits"),
        ("3", "='3': write a number of permits"),
        (True, "=True: write a number of permits"),
        (11, "the rate limit db has at most 10 at once, and a call that costs 11 can never begin"),
        (10.5, "a call that costs 10.5 can never begin"),
    ],
)
@pytest.mark.parametrize("options", [{"burst": 10}, {"window": "sliding"}, {"window": "fixed"}])
def test_a_cost_that_is_none_is_an_error_to_the_caller(
    colour: str, options: dict[str, Any], answer: Any, message: str
) -> None:
    """Nothing is called, taken, retried, replaced or counted."""
    limit = RateLimit(10, **options, cost=always(answer), name="db")
    breaker = CircuitBreaker(failures=1)
    policy = Fallback(value=1) | Retry(on=Exception) | breaker | limit
    calls: list[int] = []

    async def work(item: int) -> None:
        calls.append(item)

    async def waiting(clock: VirtualClock) -> None:
        await policy.call(work, 3)

    with pytest.raises(ValueError, match=message) as caught:
        in_virtual_colour(colour, lambda clock: policy.call(calls.append, 3), waiting)
    assert isinstance(caught.value, TypeError)
    assert (calls, breaker.state) == ([], "closed")
    assert limit.snapshot()["available"] == 10
    assert limit.snapshot()["queued"] == 0


@pytest.mark.parametrize("answer", [-1, nan, inf, None, "3", True, 11])
def test_acquire_reports_a_wrong_cost(colour: str, answer: Any) -> None:
    limit = RateLimit(10, burst=10)
    with pytest.raises(ValueError, match=r"RateLimit acquire=|can never begin"):
        in_virtual_colour(colour, lambda clock: limit.acquire(answer), lambda clock: limit.aacquire(answer))
    assert limit.snapshot()["available"] == 10


def test_an_error_of_the_cost_function_comes_out(colour: str) -> None:
    def cost(item: int) -> float:
        raise Boom

    limit = RateLimit(10, window="sliding", cost=cost)
    calls: list[int] = []

    async def work(item: int) -> None:
        calls.append(item)

    async def waiting(clock: VirtualClock) -> None:
        await limit.call(work, 3)

    with pytest.raises(Boom):
        in_virtual_colour(colour, lambda clock: limit.call(calls.append, 3), waiting)
    assert (calls, limit.snapshot()["available"]) == ([], 10)


def test_a_function_that_does_not_fit_is_reported_when_decorating() -> None:
    with pytest.raises(TypeError, match=r"RateLimit cost=size does not accept the arguments of .*work"):

        @RateLimit(10, burst=5, cost=size)
        def work(host: str, path: str) -> None: ...


def test_a_block_has_no_arguments_to_compute_a_cost_from(colour: str) -> None:
    limit = RateLimit(10, burst=10, cost=size)

    def blocking() -> None:
        with limit:
            pass

    async def waiting() -> None:
        async with limit:
            pass

    with pytest.raises(TypeError, match=r"cost=size needs the arguments of a call.*limit.acquire\(cost\)"):
        in_colour(colour, blocking, waiting)
    with pytest.raises(TypeError, match="needs the arguments of a call"):
        limit.admit(0.0)


@pytest.mark.parametrize("colour", ASYNC)
def test_acquire_never_blocks_an_event_loop(colour: str) -> None:
    limit = RateLimit(1, 1e6)

    async def main() -> None:
        limit.acquire()
        with pytest.raises(errors.RateLimited, match="cannot wait on the thread of an event loop"):
            limit.acquire()

    in_colour(colour, lambda: None, main)


# ------------------------------------------------------------------------------ the queue


@LOOPS
@pytest.mark.parametrize(
    ("options", "moments"),
    [
        ({"rate": 10, "burst": 10}, {"all": 0, "big": 1, "small": 1.1, "half": 1.6}),
        ({"rate": 10, "window": "sliding"}, {"all": 0, "big": 1, "small": 2, "half": 2}),
        ({"rate": 10, "window": "fixed"}, {"all": 0, "big": 1, "small": 2, "half": 2}),
    ],
)
def test_no_call_overtakes_one_that_costs_more(
    colour: str, options: dict[str, Any], moments: dict[str, float]
) -> None:
    """A free one passes at once, because it takes nothing from the others."""
    limit = RateLimit(**options, cost=named_cost)
    began: dict[str, float] = {}

    async def main(clock: VirtualClock, start: Start) -> None:
        async def work(name: str, cost: float) -> None:
            began[name] = clock.now()

        for name, cost in {"all": 10, "big": 10, "small": 1, "half": 5, "free": 0}.items():
            start(partial(limit.call, work, name, cost))
            await settled(colour)
        await SYSTEM.asleep(20)

    with_tasks(colour, main)
    assert began == pytest.approx({**moments, "free": 0})


@LOOPS
@pytest.mark.parametrize("options", [{"burst": 10}, {"window": "sliding"}, {"window": "fixed"}])
def test_a_cancelled_waiter_takes_nothing(colour: str, options: dict[str, Any]) -> None:
    limit = RateLimit(10, **options)
    passed: list[float] = []

    async def main(clock: VirtualClock, start: Start) -> None:
        async def small() -> None:
            await limit.aacquire(1)
            passed.append(clock.now())

        await limit.aacquire(10)
        big = start(partial(limit.aacquire, 10))
        await settled(colour)
        start(small)
        await settled(colour)
        assert limit.snapshot()["queued"] == 2
        big.cancel()
        await settled(colour)
        assert limit.snapshot()["queued"] == 1
        await SYSTEM.asleep(20)

    with_tasks(colour, main)
    assert passed == pytest.approx([0.1 if "burst" in options else 1])
    assert limit.snapshot()["queued"] == 0


def test_a_call_that_could_not_begin_in_time_is_refused_at_once() -> None:
    limit = RateLimit(10, window="sliding", wait=1)
    with virtual_time() as clock:
        limit.acquire(4)
        clock.advance(0.5)
        limit.acquire(6)
        limit.acquire(4)
        assert clock.now() == 1
        limit.reconfigure(RateLimit(10, window="sliding", wait=0.4))
        with pytest.raises(errors.RateLimited, match=r"the wait would be longer than 0\.4 s") as caught:
            limit.acquire(6)
        assert (clock.now(), caught.value.retry_after) == (1, 0.5)


@LOOPS
def test_a_waiter_whose_cost_is_above_a_new_limit_is_refused(colour: str) -> None:
    limit = RateLimit(10, window="sliding")

    async def main(clock: VirtualClock, start: Start) -> None:
        await limit.aacquire(10)
        big = start(partial(limit.aacquire, 8))
        await settled(colour)
        small = start(partial(limit.aacquire, 4))
        await settled(colour)
        limit.reconfigure(RateLimit(5, window="sliding"))
        await settled(colour)
        assert big.ended == "CostError"
        assert limit.snapshot()["queued"] == 1
        assert small.ended is None
        await SYSTEM.asleep(20)
        assert small.ended == "well"

    with_tasks(colour, main)
    assert limit.snapshot()["queued"] == 0


def test_waits_are_emitted(colour: str) -> None:
    limit = RateLimit(10, window="sliding", name="db")

    def blocking(clock: VirtualClock) -> None:
        limit.acquire(8)
        limit.acquire(4)

    async def waiting(clock: VirtualClock) -> None:
        await limit.aacquire(8)
        await limit.aacquire(4)

    with recorded() as events:
        in_virtual_colour(colour, blocking, waiting)
    assert [(event.what, event.name, event.delay) for event in events] == [("waited", "db", 1)]


# -------------------------------------------------------------------------- reconfigure


@pytest.mark.parametrize(
    ("old", "new", "can"),
    [
        (RateLimit(5, window="sliding"), RateLimit(9, 2, window="sliding", wait=3), True),
        (RateLimit(5, window="sliding"), RateLimit(5, window="fixed"), False),
        (RateLimit(5), RateLimit(5, window="fixed"), False),
        (RateLimit(5), RateLimit(5, cost=1), True),
        (RateLimit(5), RateLimit(5, cost=0.5), False),
        (RateLimit(5, burst=5, cost=size), RateLimit(7, burst=3, cost=size), True),
        (RateLimit(5, burst=5, cost=size), RateLimit(7, burst=3, cost=named_cost), False),
    ],
)
def test_what_can_be_reconfigured(old: RateLimit, new: RateLimit, can: bool) -> None:
    assert old.can_reconfigure(new) is can


def test_reconfiguring_a_window() -> None:
    limit = RateLimit(3, 10, window="sliding", name="a")
    fetch = limit(sent)
    with virtual_time() as clock, recorded() as events:
        assert [fetch(1), fetch(2), fetch(3)] == [1, 2, 3]
        limit.reconfigure(RateLimit(4, 10, window="sliding", wait=0))
        fetch(4)
        with pytest.raises(errors.RateLimited, match="4 in any 10 s, and it does not wait"):
            fetch(5)
        assert clock.now() == 0
    assert [(event.what, event.level) for event in events] == [("limit_changed", 0.4), ("rejected", None)]


def test_the_snapshot_of_a_limit_for_parts() -> None:
    limit = RateLimit(0.5, window="sliding", cost=size)
    with virtual_time():
        assert limit.snapshot() == {"rate": 0.5, "available": 0, "queued": 0, "retry_after": 0}
        limit.acquire(0.25)
        assert limit.snapshot() == {"rate": 0.5, "available": 0, "queued": 0, "retry_after": 1}
