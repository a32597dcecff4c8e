"""A rate limit with shares: guaranteed ones, borrowed ones, and which calls go last under pressure."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from math import ceil, inf
from typing import Any

import pytest

import redouble
from redouble import SYSTEM, Pipeline, RateLimit, errors
from redouble._layers.limits.rate.pacing import LOOKAHEAD
from redouble._layers.limits.rate.ranked_queue import RankedWaiter, RateClass
from redouble.testing import VirtualClock, virtual_time
from tests.support.fakes import Boom, nothing
from tests.support.layers.limits.wait_queues import LOOPS, with_tasks
from tests.support.runtime.tasks import Task, settled
from tests.support.virtual_time import in_virtual_colour, in_virtual_time

Start = Callable[..., Task]
SHARES = {"interactive": 0.6, "batch": 0.1}


def class_of(name: str | None, cost: float = 1) -> str | None:
    """Return the class of a call."""
    return name


def cost_of(name: str | None, cost: float = 1) -> float:
    """Return the cost of a call."""
    return cost


async def nothing_of(name: str | None) -> None:
    """Do nothing, for a call of a class."""


def passed_in(
    colour: str, limit: RateLimit, calls: list[tuple[str | None, float]]
) -> list[tuple[Any, float]]:
    """Start all of these calls at once, in this order; return which class passed when."""
    found: list[tuple[str | None, float]] = []

    async def main(clock: VirtualClock, start: Start) -> None:
        async def work(name: str | None, cost: float = 1) -> None:
            found.append((name, clock.now()))

        for name, cost in calls:
            start(partial(limit.call, work, name, cost))
            await settled(colour)
        while limit.snapshot()["queued"]:
            await SYSTEM.asleep(10)

    with_tasks(colour, main)
    return found


# ------------------------------------------------------------------------------ options


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"shares": {}}, ValueError, "RateLimit shares"),
        ({"shares": {"a": 0.7, "b": 0.7}}, ValueError, "RateLimit shares"),
        ({"shares": 0.5}, TypeError, "RateLimit shares=0.5"),
        ({"shares": SHARES, "priority": "other"}, ValueError, "RateLimit priority='other'"),
        ({"priority": "batch"}, TypeError, "RateLimit priority='batch' needs shares"),
        ({"shares": SHARES, "priority": nothing}, TypeError, "RateLimit priority=nothing"),
    ],
)
def test_wrong_options_are_reported(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        RateLimit(10, **options)


def test_its_description_and_its_snapshot() -> None:
    limit = RateLimit(10, shares=SHARES, wait=0)
    drawn = Pipeline(limit).explain().splitlines()[0]
    assert drawn.endswith("10 a second, 60% for interactive, 10% for batch, others are refused")
    assert repr(limit) == f"RateLimit(10, per=1, burst=1, wait=0.0, shares={SHARES})"
    assert limit.snapshot() == {
        "rate": 10,
        "available": 1,
        "queued": 0,
        "retry_after": 0,
        "queued.interactive": 0,
        "queued.batch": 0,
    }


# ---------------------------------------------------------------------------- waiting calls


@LOOPS
@pytest.mark.parametrize(
    ("options", "first"),
    [
        # Of the first ten, six and one are guaranteed; the others go to the highest class.
        ({"rate": 10}, {"interactive": 9, "batch": 1}),
        ({"rate": 10, "burst": 10}, {"interactive": 9, "batch": 1}),
        ({"rate": 10, "window": "sliding"}, {"interactive": 9, "batch": 1}),
        ({"rate": 10, "window": "fixed"}, {"interactive": 9, "batch": 1}),
    ],
)
def test_under_pressure_each_class_gets_its_share(
    colour: str, options: dict[str, Any], first: dict[str, int]
) -> None:
    """The rest goes to the highest class, and calls without a class go last."""
    limit = RateLimit(**options, shares=SHARES, priority=class_of)
    limit.admit(0.0)  # of no class
    calls: list[tuple[str | None, float]] = [(None, 1), ("batch", 1), ("interactive", 1)] * 60
    found = passed_in(colour, limit, calls)
    names = [name for name, moment in found if moment >= 2]
    counts = Counter(names[:30])
    assert counts["interactive"] == pytest.approx(3 * first["interactive"], abs=2)
    assert counts["batch"] == pytest.approx(3 * first["batch"], abs=2)
    assert counts[None] == 0
    assert [name for name, _ in found[-30:]] == [None] * 30


HALVES = {"a": 0.5, "b": 0.5}
EVERY_KIND = pytest.mark.parametrize(
    "options", [{}, {"burst": 5}, {"window": "sliding"}, {"window": "fixed"}, {"rate": 7, "per": 3}]
)


@EVERY_KIND
@pytest.mark.parametrize(
    "shares",
    [
        HALVES,
        {"a": 0.34, "b": 0.33, "c": 0.33},
        {"a": 0.1, "b": 0.9},
        {"a": 0.1, "b": 0.2, "c": 0.7},
        {f"class {number}": 0.1 for number in range(10)},
    ],
)
def test_a_class_that_always_waits_gets_all_of_its_share(
    options: dict[str, Any], shares: dict[str, float]
) -> None:
    """Also if its permits come due between those of the limit, or those of the limit all at once."""
    given: dict[str, Any] = {"rate": 5, **options}
    limit = RateLimit(**given, shares=shares, priority=class_of)
    calls: list[tuple[str | None, float]] = [(None, 1)] * 10
    for name, share in shares.items():
        calls += [(name, 1)] * ceil(60 * share + 6)
    counts = Counter(name for name, _ in passed_in("asyncio", limit, calls)[5:65])
    for name, share in shares.items():
        assert counts[name] == pytest.approx(60 * share, abs=2)


def test_shares_apply_to_the_rate_that_the_service_allows() -> None:
    """One a second, of ten: the lowest class still gets no more than its share."""
    limit = RateLimit(10, shares=SHARES, priority=class_of)
    with virtual_time():
        limit.follow({"RateLimit-Remaining": "60", "RateLimit-Reset": "60"})
        calls: list[tuple[str | None, float]] = [("batch", 1), ("interactive", 1)] * 60
        counts = Counter(name for name, _ in passed_in("asyncio", limit, calls)[:50])
    assert counts["batch"] == pytest.approx(5, abs=1)


def test_a_class_that_was_idle_has_saved_up_no_more_than_a_burst() -> None:
    limit = RateLimit(10, burst=4, shares=HALVES, priority=class_of)
    moments = list[float]()

    async def main() -> None:
        async def call(name: str) -> None:
            await limit.call(nothing_of, name)
            if name == "b":
                moments.append(SYSTEM.now())

        async with asyncio.TaskGroup() as tasks:
            for _ in range(60):
                tasks.create_task(call("a"))
            await asyncio.sleep(3)
            began = SYSTEM.now()
            for _ in range(10):
                tasks.create_task(call("b"))
        first = [moment - began for moment in moments[:6]]
        assert first == pytest.approx([0, 0.1, 0.3, 0.5, 0.7, 0.9], abs=0.15)

    in_virtual_time("asyncio", lambda _: main())


@pytest.mark.parametrize("options", [{}, {"burst": 10}, {"window": "sliding"}])
@pytest.mark.parametrize("name", ["interactive", "batch", None])
@pytest.mark.parametrize("waiting", [10, 40, 200])
def test_the_wait_behind_many_is_estimated(options: dict[str, Any], name: str | None, waiting: int) -> None:
    limit = RateLimit(10, **options, shares=SHARES, priority=class_of)
    passed: list[float] = []

    async def main() -> None:
        async with asyncio.TaskGroup() as tasks:
            for number in range(waiting):
                tasks.create_task(limit.call(nothing_of, ["interactive", "batch", None, None][number % 4]))
            await settled("asyncio")
            with redouble.priority(name):
                promised = limit.snapshot()["retry_after"]
            await limit.call(nothing_of, name)
            passed.append(SYSTEM.now())
        assert passed == [pytest.approx(promised, rel=0.1, abs=0.5)]

    in_virtual_time("asyncio", lambda _: main())


def test_the_order_of_many_waiters_is_not_computed() -> None:
    """It takes long, and under the lock."""
    limit = RateLimit(10, shares=SHARES)
    queue: Any = limit._wait_queue
    with virtual_time():
        limit.acquire()
        for number in range(300):
            waiter = queue.new_waiter(1.0, ["interactive", "batch", None][number % 3])
            queue._try_acquire_in_turn(waiter, object, inf)
        looked = Counter[str]()
        pacer_take = queue._pacer.take

        def counted(*args: float) -> None:
            looked["take"] += 1
            pacer_take(*args)

        queue._pacer.take = counted
        for name in ("interactive", "batch", None):
            ahead = queue.ahead_of(queue.new_waiter(1.0, name), 0.0)
            assert ahead.number > LOOKAHEAD
    assert looked["take"] <= 3 * LOOKAHEAD


@LOOPS
def test_what_is_idle_is_borrowed(colour: str) -> None:
    limit = RateLimit(10, shares=SHARES, priority=class_of)
    found = passed_in(colour, limit, [("batch", 1)] * 21)
    assert found[-1][1] == pytest.approx(2)
    limit = RateLimit(10, shares=SHARES, priority=class_of)
    found = passed_in(colour, limit, [(None, 1)] * 21)
    assert found[-1][1] == pytest.approx(2)


@LOOPS
def test_a_class_that_has_borrowed_keeps_its_share(colour: str) -> None:
    """What it borrowed while others were idle is no debt."""
    limit = RateLimit(10, shares={"high": 0.5, "low": 0.5}, priority=class_of)
    found = passed_in(colour, limit, [("low", 1)] * 60)
    assert found[-1][1] == pytest.approx(5.9)
    calls: list[tuple[str | None, float]] = [*[("low", 1)] * 20, *[("high", 1)] * 20]
    names = [name for name, _ in passed_in(colour, limit, calls)]
    assert Counter(names[:20])["low"] == pytest.approx(10, abs=1)


@LOOPS
@pytest.mark.parametrize("options", [{"burst": 10}, {"window": "sliding"}, {"window": "fixed"}])
def test_a_class_with_large_calls_does_not_starve(colour: str, options: dict[str, Any]) -> None:
    """Its call waits for many permits, and then no smaller one overtakes it."""
    limit = RateLimit(10, **options, shares={"high": 0.5, "low": 0.5}, priority=class_of, cost=cost_of)
    calls: list[tuple[str | None, float]] = [("high", 1)] * 100
    calls[10:10] = [("low", 10)] * 3
    found = passed_in(colour, limit, calls)
    moments = [moment for name, moment in found if name == "low"]
    assert moments[0] <= 3
    assert moments[-1] <= 8
    assert found[-1][0] == "high"
    assert found[-1][1] <= 14  # a window has room left over that is too small for a large call


@LOOPS
def test_the_wait_of_a_call_is_known_from_the_start(colour: str) -> None:
    """A call of a high class waits less, and one that could not pass in time is refused at once."""
    limit = RateLimit(10, wait=1, shares={"high": 1.0}, priority=class_of)

    async def main(clock: VirtualClock, start: Start) -> None:
        async def work(name: str | None) -> None: ...

        for _ in range(10):
            start(partial(limit.call, work, None))
            await settled(colour)
        assert limit.snapshot()["queued"] == 9
        high = start(partial(limit.call, work, "high"))
        await settled(colour)
        assert limit.snapshot()["queued.high"] == 1
        with pytest.raises(errors.RateLimited) as caught:
            await limit.call(work, None)
        assert clock.now() == 0
        assert caught.value.retry_after == pytest.approx(1.1)
        await SYSTEM.asleep(0.1)
        await settled(colour)
        assert high.ended == "well"
        await SYSTEM.asleep(20)

    with_tasks(colour, main)
    assert limit.snapshot()["queued"] == 0


@LOOPS
def test_a_cancelled_call_leaves_its_place_to_the_next_class(colour: str) -> None:
    limit = RateLimit(1, shares={"high": 1.0}, priority=class_of)
    ended: list[float] = []

    async def main(clock: VirtualClock, start: Start) -> None:
        async def work(name: str | None) -> None:
            ended.append(clock.now())

        await limit.call(work, None)
        low = start(partial(limit.call, work, None))
        await settled(colour)
        high = start(partial(limit.call, work, "high"))
        await settled(colour)
        await SYSTEM.asleep(0.5)
        high.cancel()
        await SYSTEM.asleep(0.5)
        await settled(colour)
        assert (low.ended, ended) == ("well", [0, 1])

    with_tasks(colour, main)
    assert limit.snapshot()["queued"] == 0


def test_the_order_of_the_waiters() -> None:
    """That in which they will pass if no other call arrives."""
    limit = RateLimit(10, shares={"high": 0.5, "low": 0.5})
    queue: Any = limit._wait_queue
    with virtual_time():
        limit.acquire()
        names = ["none", "low", "low", "high", "high", "none"]
        waiters = {queue.new_waiter(1.0, name): name for name in names}
        for waiter in waiters:
            queue._try_acquire_in_turn(waiter, object, inf)
        order = [waiters[waiter] for waiter in queue._in_order(0.0)]
        assert order == ["high", "low", "high", "low", "none", "none"]
        assert limit.snapshot()["retry_after"] == pytest.approx(0.7)
        for waiter in waiters:
            queue._dequeue(waiter)


def test_threads_pass_by_class() -> None:
    """Blocking code has the same queue."""
    limit = RateLimit(10, shares=SHARES, priority="batch")
    with virtual_time() as clock:
        moments = [limit.call(clock.now) for _ in range(3)]
        with redouble.priority("interactive"), limit:
            moments.append(clock.now())
    assert moments == pytest.approx([0, 0.1, 0.2, 0.3])


# ------------------------------------------------------------------------------ classes


def test_the_class_of_the_context(colour: str) -> None:
    limit = RateLimit(1, 100, wait=0, shares={"high": 0.5, "low": 0.5}, priority="low")
    stands: list[tuple[bool, bool]] = []

    def look() -> None:
        queue: Any = limit._wait_queue
        high, low = (bool(queue._classes[name].refused) for name in ("high", "low"))
        stands.append((high, low))

    def blocking(clock: VirtualClock) -> None:
        limit.call(int)
        with redouble.priority("high"):
            with pytest.raises(errors.RateLimited):
                limit.call(int)
            look()
            with pytest.raises(errors.RateLimited), redouble.priority(None), limit:
                pass
        look()

    async def waiting(clock: VirtualClock) -> None:
        await limit.call(nothing)
        with redouble.priority("high"):
            with pytest.raises(errors.RateLimited):
                await limit.call(nothing)
            look()
            with redouble.priority(None), pytest.raises(errors.RateLimited):
                async with limit:
                    pass
        look()

    in_virtual_colour(colour, blocking, waiting)
    assert stands == [(True, False), (True, True)]


@pytest.mark.parametrize(
    ("name", "refused"), [("low", "low"), (None, "low"), ("unknown", None), ("high", "high")]
)
def test_the_class_by_the_arguments(colour: str, name: str | None, refused: str | None) -> None:
    limit = RateLimit(1, 100, wait=0, cost=cost_of, shares={"high": 0.5, "low": 0.5}, priority=class_of)

    async def work(name: str | None, cost: float = 1) -> None: ...

    def blocking(clock: VirtualClock) -> None:
        limit.acquire()
        with redouble.priority("low"), pytest.raises(errors.RateLimited):
            limit.call(cost_of, name, 1)

    async def waiting(clock: VirtualClock) -> None:
        await limit.aacquire()
        with redouble.priority("low"), pytest.raises(errors.RateLimited):
            await limit.call(work, name, 1)

    in_virtual_colour(colour, blocking, waiting)
    queue: Any = limit._wait_queue
    assert [key for key, found in queue._classes.items() if found.refused] == [refused]


def test_an_error_of_the_priority_function_comes_out() -> None:
    def priority(name: str) -> str:
        raise Boom

    limit = RateLimit(10, shares=SHARES, priority=priority)
    with pytest.raises(Boom):
        limit.call(str, "x")
    assert limit.snapshot()["available"] == 1


# ---------------------------------------------------------------------------- without waiting


def test_a_refused_call_stands_for_its_class_for_a_while() -> None:
    limit = RateLimit(1, wait=0, shares={"high": 1.0}, priority="high")
    with virtual_time() as clock:
        limit.acquire()
        with pytest.raises(errors.RateLimited):
            limit.acquire()
        clock.advance(1.5)
        with redouble.priority("other"), pytest.raises(errors.RateLimited) as caught:
            limit.acquire()
        assert caught.value.retry_after == 1
        limit.acquire()
        clock.advance(1)
        with redouble.priority("other"):
            limit.acquire()  # none stands any more
        with pytest.raises(errors.RateLimited):
            limit.acquire()
        clock.advance(2.1)
        with redouble.priority("other"):
            limit.acquire()  # the high one did not come back in time


def test_a_refused_call_that_can_never_begin_counts_for_nothing() -> None:
    limit = RateLimit(1, wait=0, shares={"high": 1.0}, priority="high")
    with virtual_time():
        limit.acquire()
        with pytest.raises(ValueError, match="can never begin"):
            limit.acquire(2)
        ahead = limit._wait_queue.ahead_of(RankedWaiter(1, RateClass("other")), 0.0)
        assert not ahead.number


def test_a_refused_call_of_another_clock_stands_for_nothing() -> None:
    limit = RateLimit(1, wait=0, shares={"high": 1.0}, priority="high")
    limit.admit(1000.0)
    with pytest.raises(errors.RateLimited):
        limit.admit(1000.0)
    with redouble.priority("other"):
        limit.admit(5.0)


@pytest.mark.parametrize("options", [{}, {"burst": 10}, {"window": "sliding"}, {"window": "fixed"}])
def test_calls_that_do_not_wait_get_the_shares_too(options: dict[str, Any]) -> None:
    """Each class tries often; calls of the lowest always come first."""
    limit = RateLimit(10, wait=0, **options, shares={"high": 0.5, "low": 0.2})
    counts: Counter[str] = Counter()
    with virtual_time() as clock:
        for _ in range(4000):
            clock.advance(0.005)
            for name in ("none", "low", "high"):
                with redouble.priority(name), suppress(errors.RateLimited):
                    limit.acquire()
                    counts[name] += 1
    total = counts.total()
    assert total <= 200 + 10
    assert counts["high"] >= 0.5 * total - 10
    assert counts["low"] >= 0.2 * total - 12
    assert counts["none"] <= 0.1 * total


# -------------------------------------------------------------------------- reconfigure


@pytest.mark.parametrize(
    ("old", "new", "can"),
    [
        (RateLimit(1), RateLimit(1, shares=SHARES), False),
        (RateLimit(1, shares=SHARES), RateLimit(1, shares={"a": 0.5}), True),
        (RateLimit(1, shares=SHARES), RateLimit(1, shares=SHARES, priority="batch"), True),
        (RateLimit(1, shares=SHARES), RateLimit(1, shares=SHARES, priority=class_of), False),
    ],
)
def test_what_can_be_reconfigured(old: RateLimit, new: RateLimit, can: bool) -> None:
    assert old.can_reconfigure(new) is can


@LOOPS
def test_new_shares_apply_to_the_calls_that_wait(colour: str) -> None:
    limit = RateLimit(1, shares={"old": 0.9, "low": 0.1}, priority=class_of)
    found: list[str | None] = []

    async def main(clock: VirtualClock, start: Start) -> None:
        async def work(name: str | None) -> None:
            found.append(name)

        await limit.call(work, None)
        for name in ("old", "low", None, "new"):
            start(partial(limit.call, work, name))
            await settled(colour)
        limit.reconfigure(RateLimit(1, shares={"new": 0.5, "low": 0.5}, priority=class_of))
        await SYSTEM.asleep(20)

    with_tasks(colour, main)
    assert found == [None, "low", None, "new", "old"]


# ------------------------------------------------------------------ waiters that leave


def test_a_waiter_that_can_never_pass_takes_nothing_from_others() -> None:
    """The burst was reduced meanwhile: it is rejected once it is the first."""
    limit = RateLimit(10, burst=5, shares=HALVES)
    queue: Any = limit._wait_queue
    with virtual_time():
        limit.acquire(5)
        for cost in (5.0, 1.0):
            queue._try_acquire_in_turn(queue.new_waiter(cost, "a"), object, inf)
        limit.reconfigure(RateLimit(10, shares=HALVES))
        ahead = queue.ahead_of(queue.new_waiter(1.0, "a"), 0.0)
        assert ahead.costs == [5, 1]
        assert queue._pacer.due(0.0, 1, ahead) == pytest.approx(0.2)


def test_a_skipped_waiter_that_reacts_late_is_the_first_of_its_class_again() -> None:
    limit = RateLimit(10, shares=HALVES)
    queue: Any = limit._wait_queue
    with virtual_time():
        limit.acquire()
        first, second, third = (queue.new_waiter(1.0, "a") for _ in range(3))
        for waiter in (first, second, third):
            queue._try_acquire_in_turn(waiter, object, inf)
        queue._queue.pop(first)  # as if it had been skipped
        assert [*queue._in_order(0.0)] == [second, third]
        queue._try_acquire_in_turn(first, object, inf)
        assert [*queue._in_order(0.0)] == [first, second, third]


def test_a_call_whose_share_is_removed_before_it_waits_passes_in_its_turn() -> None:
    limit = RateLimit(10, shares=HALVES)
    queue: Any = limit._wait_queue
    with virtual_time() as clock:
        limit.acquire()
        late, other = queue.new_waiter(1.0, "b"), queue.new_waiter(1.0, "a")
        limit.reconfigure(RateLimit(10, shares={"a": 1.0}))
        for waiter in (late, other):
            assert queue._try_acquire_in_turn(waiter, object, inf) > 0
        assert [*queue._in_order(0.0)] == [other, late]
        for waiter in (other, late):
            clock.advance(0.1)
            assert queue._try_acquire_in_turn(waiter, object, inf) is None
            queue._dequeue(waiter)


def test_waiters_that_give_up_are_forgotten_at_once() -> None:
    """Also while no call passes, such as in a pause that the server asks for."""
    limit = RateLimit(10, shares=HALVES)
    queue: Any = limit._wait_queue
    with virtual_time():
        limit.follow({"Retry-After": "60"})
        for _ in range(3):
            waiter = queue.new_waiter(1.0, "a")
            queue._try_acquire_in_turn(waiter, object, inf)
            queue._dequeue(waiter)
        assert not queue._classes["a"].waiting


def test_in_a_forked_child_no_call_of_the_parent_waits() -> None:
    limit = RateLimit(10, shares=HALVES)
    queue: Any = limit._wait_queue
    with virtual_time():
        limit.acquire()
        queue._try_acquire_in_turn(queue.new_waiter(1.0, "a"), object, inf)
        queue._after_fork()
        assert not queue._classes["a"].waiting
        assert limit.snapshot()["queued"] == 0


def test_waiters_whose_leaving_was_interrupted_are_forgotten() -> None:
    limit = RateLimit(10, shares=HALVES)
    queue: Any = limit._wait_queue
    with virtual_time() as clock:
        limit.acquire()
        first, second, third = (queue.new_waiter(1.0, "a") for _ in range(3))
        for waiter in (first, second, third):
            queue._try_acquire_in_turn(waiter, object, inf)
        queue._queue.pop(second)
        clock.advance(0.1)
        assert queue._try_acquire_in_turn(first, object, inf) is None
        queue._dequeue(first)
        clock.advance(0.1)
        assert queue._try_acquire_in_turn(third, object, inf) is None
        assert [*queue._classes["a"].waiting] == [third]


def kind_of(kind: str) -> str:
    return kind


def test_explain_names_the_function_of_the_class_and_the_limits_of_the_server() -> None:
    limit = RateLimit(10, following=True, shares={"users": 0.5, "batch": 0.25}, priority=kind_of)
    assert limit.describe() == (
        "10 a second, less if the server asks for it, 50% for users, 25% for batch by kind_of(), others wait"
    )
