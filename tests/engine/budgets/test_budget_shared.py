"""One budget shared by many policies, in every colour, by the same clock."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import Any

import pytest

from redouble import Kind, Retry, RetryBudget, TokenBucket, Worker, observe, report, types
from redouble.testing import VirtualClock
from tests.support.budgets import bucket_of, budget_of
from tests.support.call_shapes import ASYNC_SHAPES, SHAPES
from tests.support.fakes import COLOURS, Boom, Ledger, Virtual, in_colour
from tests.support.virtual_time import at, no_real_waits

pytestmark = pytest.mark.usefixtures(no_real_waits.__name__)

MANY = ("call", "decorator", "run", "loop", "stream", "worker")
AGES = 1e6  # a window that no test outlives


def fails() -> None:
    raise Boom


async def afails() -> None:
    raise Boom


def fail_in(policy: Retry, shape: str) -> None:
    """Make a blocking call that fails."""

    def items() -> Generator[int]:
        fails()
        yield 1

    with pytest.raises(Boom):
        if shape == "stream":
            next(policy(items)())
        elif shape == "worker":
            Retry(**worked(policy)).call(fails)
        else:
            SHAPES[shape](policy, fails)


async def afail_in(policy: Retry, shape: str) -> None:
    """Make an async call that fails."""

    async def items() -> AsyncGenerator[int]:
        await afails()
        yield 1

    with pytest.raises(Boom):
        if shape == "stream":
            await anext(policy(items)())
        elif shape == "worker":
            await policy.acall(fails)
        else:
            await ASYNC_SHAPES[shape](policy, afails)


def worked(policy: Retry) -> dict[str, Any]:
    return {
        "on": Boom,
        "attempts": policy.attempts,
        "backoff": [0],
        "budget": policy.budget,
        "worker": Worker(),
    }


# ---------------------------------------------------------------------------------- one clock


@pytest.mark.parametrize("shape", MANY)
@pytest.mark.parametrize("observed", [False, True])
def test_every_colour_reads_the_same_clock(colour: str, shape: str, observed: bool) -> None:
    """Trio's own clock is far off; credits of one colour have to count in the others."""
    ledger = Ledger()
    policy = Retry(on=Boom, attempts=2, backoff=[0], budget=ledger)
    before = monotonic()
    handle = observe(lambda _: None) if observed else None
    try:
        in_colour(colour, lambda: fail_in(policy, shape), lambda: afail_in(policy, shape))
    finally:
        if handle is not None:
            handle.remove()
    assert ledger.lines == ["start", "failed unknown", "spend unknown", "failed unknown"]
    assert before <= min(ledger.times) <= max(ledger.times) <= monotonic()


@pytest.mark.parametrize("shape", ["call", "decorator", "run"])
def test_a_call_that_succeeds_reads_the_same_clock(colour: str, shape: str) -> None:
    ledger = Ledger()
    policy = Retry(on=Boom, budget=ledger)

    async def works() -> int:
        return 1

    before = monotonic()
    in_colour(colour, lambda: SHAPES[shape](policy, lambda: 1), lambda: ASYNC_SHAPES[shape](policy, works))
    assert ledger.lines == ["start", "credit None"]
    assert before <= min(ledger.times) <= max(ledger.times) <= monotonic()


BOTH: list[Callable[[], types.Budget]] = [
    lambda: RetryBudget(ratio=0, per_second=10 / AGES, window=AGES),
    lambda: bucket_of(10),
    lambda: bucket_of(10, refill_per_second=1 / AGES),
]


@pytest.mark.parametrize("make", BOTH, ids=["budget", "bucket", "refilled"])
def test_all_colours_share_one_budget(make: Callable[[], types.Budget]) -> None:
    """Ten retries are granted in all, in every shape in turn."""
    budget, retries = make(), list[None]()
    policy = Retry(on=Boom, attempts=2, backoff=[0], budget=budget, on_retry=lambda _: retries.append(None))
    for shape in ("call", "stream", "loop"):
        for colour in COLOURS:
            in_colour(colour, lambda: fail_in(policy, shape), lambda: afail_in(policy, shape))  # noqa: B023
    assert len(retries) == 10


@pytest.mark.parametrize("make", BOTH, ids=["budget", "bucket", "refilled"])
def test_concurrent_calls_of_all_colours_share_one_budget(make: Callable[[], types.Budget]) -> None:
    budget, retries = make(), list[None]()
    policy = Retry(on=Boom, attempts=2, backoff=[0], budget=budget, on_retry=lambda _: retries.append(None))

    def several(colour: str) -> None:
        def blocking() -> None:
            for shape in SHAPES:
                fail_in(policy, shape)

        async def waiting() -> None:
            for shape in ASYNC_SHAPES:
                await afail_in(policy, shape)

        in_colour(colour, blocking, waiting)

    with ThreadPoolExecutor(2 * len(COLOURS)) as pool:
        list(pool.map(several, COLOURS * 2))
    assert len(retries) == 10


def test_a_credit_of_one_colour_can_be_spent_in_another() -> None:
    budget = RetryBudget(ratio=1, per_second=0, window=AGES)
    policy = Retry(on=Boom, attempts=2, backoff=[0], budget=budget)

    async def works() -> int:
        return 1

    for earning in COLOURS:
        for spending in COLOURS:
            in_colour(earning, policy(lambda: 1), policy(works))
            with pytest.raises(Boom) as caught:
                in_colour(spending, lambda: policy.call(fails), lambda: policy.call(afails))
            reported = report(caught.value)
            assert reported is not None
            assert (reported.attempts, reported.reason) == (2, "attempts"), (earning, spending)
    assert budget.snapshot()["available"] == 0


PLACES = ["sync", "thread", "asyncio around", "asyncio inside", "trio around jumping", "trio inside"]


@pytest.mark.parametrize("place", PLACES)
def test_the_window_of_a_budget_passes_in_virtual_time(place: str) -> None:
    """A long virtual delay makes another retry possible, in every colour."""

    def policy(delay: float) -> Retry:
        budget = RetryBudget(ratio=0, per_second=0.1, window=10)
        return Retry(on=Boom, attempts=4, backoff=[delay] * 9, give_up_after=None, budget=budget)

    def blocking(clock: VirtualClock) -> list[int]:
        return [policy(delay).run(fails).report.attempts for delay in (4, 10.2)]

    async def waiting(clock: VirtualClock) -> list[int]:
        return [(await policy(delay).run(afails)).report.attempts for delay in (4, 10.2)]

    assert at(place, blocking, waiting) == [2, 4]


# ----------------------------------------------------------------------------------- tiers


def tiers(credit: Any) -> list[Retry]:
    """Return the policies of three services that call each other, each with its own budget."""
    clock = Virtual()
    return [
        Retry(
            on=Exception,
            backoff=[0] * 9,
            nested="allow",
            clock=clock,
            budget=RetryBudget(0.2, 0, credit=credit),
        )
        for _ in range(3)
    ]


@pytest.mark.parametrize(("credit", "expected"), [("request", 120), ("success", 100)])
def test_three_tiers_under_total_failure(colour: str, credit: Any, expected: int) -> None:
    """A hundred calls at the top become 120 at the bottom, and not 1.2 ** 3 or 4 ** 3 times as many."""
    calls: list[None] = []
    top, middle, bottom = tiers(credit)

    def work() -> None:
        calls.append(None)
        raise Boom

    async def awork() -> None:
        work()

    fn, afn = (top | middle | bottom)(work), (top | middle | bottom)(awork)

    def blocking() -> None:
        for _ in range(100):
            with pytest.raises(Boom):
                fn()

    async def waiting() -> None:
        for _ in range(100):
            with pytest.raises(Boom):
                await afn()

    in_colour(colour, blocking, waiting)
    assert len(calls) == expected


def test_tiers_may_share_one_budget() -> None:
    """The retries of the innermost policy are spent for all of them."""
    calls: list[None] = []
    budget = RetryBudget(0, 0.7)
    policy = Retry(on=Exception, backoff=[0] * 9, nested="allow", clock=Virtual(), budget=budget)

    def work() -> None:
        calls.append(None)
        raise Boom

    for _ in range(10):
        with pytest.raises(Boom):
            (policy | policy | policy).call(work)
    assert len(calls) == 10 + 7


def test_a_budget_can_be_used_without_a_policy() -> None:
    """Code that retries by hand, or sends a second request, may share the budget of a policy."""
    budget, bucket = budget_of(ratio=1), TokenBucket(10)
    Retry(budget=budget).call(int)
    Retry(budget=bucket).call(int)
    assert [budget.spend() is None for _ in range(2)] == [False, True]
    assert [bucket.spend(Kind.timeout) is None for _ in range(2)] == [False, True]


@pytest.mark.parametrize("kind", [RetryBudget, TokenBucket])
@pytest.mark.parametrize("observed", [False, True])
def test_a_custom_budget_gets_the_start_of_every_call(colour: str, kind: Any, observed: bool) -> None:
    """Also if it is a subclass of a budget that ignores starts."""
    starts: list[float] = []

    class Own(kind):  # type: ignore[misc]
        def start(self, now: float | None = None, /) -> None:
            assert now is not None
            starts.append(now)

    async def works() -> int:
        return 1

    policy = Retry(budget=Own(), on_success=(lambda _: None) if observed else None)
    in_colour(colour, policy(lambda: 1), policy(works))
    assert len(starts) == 1
