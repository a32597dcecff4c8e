"""Rate limits: the adaptive mode of the AWS SDKs, failsafe-go's smooth limiter, and the queue of waiters.

Calls are made one after the other in every colour, and concurrently in async code, all in virtual time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

import pytest
import trio
from trio.testing import MockClock

from redouble import SYSTEM, AdaptiveRate, RateLimit, errors
from redouble.testing import VirtualClock, virtual_time
from tests.conformance.flows import ASYNC, EVERY, in_colour
from tests.support.scripted import ScriptedError

Gate = AdaptiveRate | RateLimit
Call = Callable[[], Awaitable[None]]
Arrival = tuple[float, type[Exception] | None]  # the time of a call, and its error

THROTTLED, IGNORED = ScriptedError, errors.Rejected  # an ignored error does not change the rate


def in_turn(
    colour: str, make: Callable[[], Gate], arrivals: Sequence[Arrival]
) -> tuple[list[float], Mapping[str, float | None]]:
    """Make calls one after the other, none before its time; return their start times and the snapshot."""
    began: list[float] = []

    def fetch(clock: VirtualClock, ends: type[Exception] | None) -> None:
        began.append(clock.now())
        if ends is not None:
            raise ends

    async def afetch(clock: VirtualClock, ends: type[Exception] | None) -> None:
        fetch(clock, ends)

    def blocking() -> Mapping[str, float | None]:
        with virtual_time() as clock:
            gate = make()
            for moment, ends in arrivals:
                SYSTEM.sleep(max(0.0, moment - clock.now()))
                with suppress(THROTTLED, IGNORED):
                    gate.call(fetch, clock, ends)
            return gate.snapshot()

    async def waiting() -> Mapping[str, float | None]:
        with virtual_time() as clock:
            gate = make()
            for moment, ends in arrivals:
                await SYSTEM.asleep(max(0.0, moment - clock.now()))
                with suppress(THROTTLED, IGNORED):
                    await gate.call(afetch, clock, ends)
            return gate.snapshot()

    return began, in_colour(colour, blocking, waiting, MockClock(autojump_threshold=0))


def side_by_side(colour: str, scene: Callable[[VirtualClock], Sequence[Call]]) -> None:
    """Run all calls of a scene concurrently."""

    async def waiting() -> None:
        with virtual_time() as clock:
            if colour == "trio":
                async with trio.open_nursery() as nursery:
                    for one in scene(clock):
                        nursery.start_soon(one)
            else:
                await asyncio.gather(*(one() for one in scene(clock)))

    in_colour(colour, lambda: None, waiting, MockClock(autojump_threshold=0))


async def given_up_after(seconds: float, colour: str, call: Call) -> None:
    """Make a call, and cancel it after some seconds."""
    if colour == "trio":
        with trio.move_on_after(seconds):
            await call()
    else:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await call()


@pytest.mark.parametrize(
    ("records", "last"),
    [
        pytest.param([1.0], 0.8, id="aws.rate_clocker.single_after_1s"),
        pytest.param([0.1, 0.2, 0.3, 0.4, 0.49], 0, id="aws.rate_clocker.in_bucket_keeps_previous_rate"),
        pytest.param(
            [0.1, 0.2, 0.3, 0.4, 0.49, 0.5], 9.6, id="aws.rate_clocker.boundary_sample_closes_bucket"
        ),
        pytest.param([float(n) for n in range(1, 21)], 1.0, id="aws.rate_clocker.constant_1_tps"),
        pytest.param([1.0, 1.0, 1.0, 2.0, 3.0], 1.312, id="aws.rate_clocker.same_timestamp_noop"),
    ],
)
@pytest.mark.parametrize("colour", EVERY)
def test_the_measured_rate(colour: str, records: list[float], last: float) -> None:
    """Responses per second, measured in slices of half a second, and smoothed."""
    _, seen = in_turn(colour, AdaptiveRate, [(t, None) for t in records])
    assert seen["measured"] == pytest.approx(last, abs=1e-7)


@pytest.mark.parametrize(
    ("least", "arrivals", "began"),
    [
        # Once throttled, the rate is the minimum, and the bucket holds the tokens of one second.
        pytest.param(10, [(2.0, IGNORED)] * 11, [2.0] * 10 + [2.1], id="KT-RL-02"),
        # A call takes one token; five tokens at once in smithy are five calls here.
        pytest.param(1, [(0.0, IGNORED)] * 5, [1, 2, 3, 4, 5], id="KT-RL-03"),
        pytest.param(0.2, [(60.0, IGNORED)] * 2, [60, 65], id="aws.adaptive.clamps.min_rate"),
    ],
)
@pytest.mark.parametrize("colour", EVERY)
def test_after_throttling_calls_wait_for_the_rate(
    colour: str, least: float, arrivals: list[Arrival], began: list[float]
) -> None:
    """Before the first throttling no call waits."""
    unlimited: list[Arrival] = [(0.0, IGNORED)] * 20
    gate = partial(AdaptiveRate, on=THROTTLED, least=least)
    made, _ = in_turn(colour, gate, [*unlimited, (0.0, THROTTLED), *arrivals])
    assert made == pytest.approx([0.0] * 21 + began)


@pytest.mark.parametrize(
    ("interval", "arrivals", "began"),
    [
        pytest.param(0.5, [0.0] * 7 + [11.0], [0, 0.5, 1, 1.5, 2, 2.5, 3, 11], id="ratelimit.smooth.500"),
        pytest.param(0.1, [0.0, 0.15], [0, 0.15], id="ratelimit.smooth.100"),
        # failsafe-go admits the third call at 0.2 and 0.3, half an interval too early.
        pytest.param(0.1, [0.0, 0.15, 0.2], [0, 0.15, 0.25], id="ratelimit.smooth.100-deviates.200"),
        pytest.param(0.1, [0.0, 0.25, 0.25], [0, 0.25, 0.35], id="ratelimit.smooth.100-deviates.300"),
    ],
)
@pytest.mark.parametrize("colour", EVERY)
def test_sequential_calls_keep_the_interval(
    colour: str, interval: float, arrivals: list[float], began: list[float]
) -> None:
    """A call starts one interval after the previous one, or at once if the interval has passed."""
    made, _ = in_turn(colour, lambda: RateLimit(1, per=interval), [(moment, None) for moment in arrivals])
    assert made == pytest.approx(began)


# A time, the number of calls that arrive then, the wait of the last one, and the earliest next start.
SMOOTH = [(0.0, 7, 3.0, 3.5), (0.8, 3, 3.7, 5.0), (2.3, 1, 2.7, 5.5), (3.5, 3, 3.0, 7.0)]
BURSTY = [(0.0, 7, 3.0, 3.0), (0.8, 3, 3.2, 5.0), (2.3, 1, 2.7, 5.0), (3.5, 3, 2.5, 7.0), (7.0, 1, 0, 7.001)]
EVEN = partial(RateLimit, 1)


@pytest.mark.parametrize(
    ("make", "groups"),
    [
        pytest.param(partial(EVEN, 0.5), [*SMOOTH, (11.0, 1, 0, 11.5)], id="ratelimit.smooth.500"),
        # After a pause failsafe-go uses multiples of the interval: 0.9 s and 10.5 s, 0.05 s and 0.4 s.
        pytest.param(
            partial(EVEN, 0.5),
            [*SMOOTH, (9.1, 3, 1.0, 10.6), (11.0, 1, 0, 11.5)],
            id="ratelimit.smooth.500-deviates",
        ),
        pytest.param(partial(RateLimit, 2, window="fixed"), BURSTY, id="ratelimit.failsafe_go_bursty"),
        pytest.param(
            partial(EVEN, 0.1),
            [(0.0, 1, 0, 0.1), (0.15, 1, 0, 0.25), (0.25, 2, 0.1, 0.45)],
            id="ratelimit.smooth.100-deviates",
        ),
    ],
)
@pytest.mark.parametrize("colour", ASYNC)
def test_concurrent_calls_queue(
    colour: str, make: Callable[[], RateLimit], groups: list[tuple[float, int, float, float]]
) -> None:
    """Later calls wait behind them."""
    limit = make()
    longest, free = dict[float, float](), dict[float, float]()

    async def nothing() -> None: ...

    def scene(clock: VirtualClock) -> list[Call]:
        async def arrive(moment: float) -> None:
            await SYSTEM.asleep(moment)
            await limit.call(nothing)
            longest[moment] = clock.now() - moment

        async def measure(moment: float) -> None:
            await SYSTEM.asleep(moment + 0.001)
            free[moment] = clock.now() + limit.snapshot()["retry_after"]

        looks: list[Call] = [partial(measure, moment) for moment, *_ in groups]
        return looks + [partial(arrive, moment) for moment, many, *_ in groups for _ in range(many)]

    side_by_side(colour, scene)
    assert longest == pytest.approx({moment: wait for moment, _, wait, _ in groups})
    assert free == pytest.approx({moment: following for moment, *_, following in groups})


@pytest.mark.parametrize("colour", ASYNC)
@pytest.mark.parametrize("gone", [(1,), (3,), (5,), (1, 2), (2, 4), (1, 2, 3, 4)])
def test_ratelimit_semantics_later_waiters_advance(colour: str, gone: tuple[int, ...]) -> None:
    """ratelimit.semantics: if the first, middle or last of five waiters is cancelled."""
    limit, began = RateLimit(1), list[tuple[int, float]]()

    def scene(clock: VirtualClock) -> list[Call]:
        limit.admit(clock.now())

        async def fetch(number: int) -> None:
            began.append((number, clock.now()))

        async def arrive(number: int) -> None:
            await SYSTEM.asleep(number / 100)
            patience = 0.5 if number in gone else 60
            await given_up_after(patience, colour, partial(limit(fetch), number))

        return [partial(arrive, number) for number in range(1, 6)]

    side_by_side(colour, scene)
    left = [number for number in range(1, 6) if number not in gone]
    assert [number for number, _ in began] == left
    assert [moment for _, moment in began] == pytest.approx([*range(1, 1 + len(left))])


@pytest.mark.parametrize("colour", ASYNC)
@pytest.mark.parametrize(
    ("leaves", "next_begins"),
    [
        pytest.param([0.3, 0.6, 0.9, 0.9], 1.0, id="no-phantom-debt"),  # none of them was admitted
        pytest.param([1.5], 2.0, id="inside"),  # it was admitted, and used a permit
        pytest.param([1.0], None, id="in-that-moment"),  # either of the two
    ],
)
def test_ratelimit_semantics_only_an_admitted_call_uses_a_permit(
    colour: str, leaves: list[float], next_begins: float | None
) -> None:
    """ratelimit.semantics: a cancelled waiter uses none."""
    limit, began = RateLimit(1), list[float]()

    def scene(clock: VirtualClock) -> list[Call]:
        async def fetch(seconds: float) -> None:
            began.append(clock.now())
            await SYSTEM.asleep(seconds)

        async def one_after_the_other() -> None:
            await limit.call(fetch, 0)
            for moment in leaves:
                await given_up_after(moment - clock.now(), colour, partial(limit(fetch), 60))
            await limit.call(fetch, 0)

        return [one_after_the_other]

    side_by_side(colour, scene)
    assert began[-1] == pytest.approx(next_begins or len(began) - 1.0)
    assert len(began) == began[-1] + 1


@pytest.mark.parametrize("colour", EVERY)
def test_ratelimit_failsafe_go_bursty_costs_deviate(colour: str) -> None:
    """ratelimit.failsafe_go_bursty-deviates: a call that costs more than a window is an error.

    In failsafe-go it begins before the windows whose permits it takes. And there windows begin with the
    limiter, at 0, 1 and 2; here with the first call, at 0.3, 1.3 and 2.3.
    """

    def cost_of(_: VirtualClock, cost: int) -> int:
        return cost

    began, limit = list[float](), RateLimit(5, window="fixed", cost=cost_of)

    def fetch(clock: VirtualClock, _: int) -> None:
        began.append(clock.now())

    async def afetch(clock: VirtualClock, _: int) -> None:
        began.append(clock.now())

    def blocking() -> None:
        with virtual_time() as clock:
            for moment, cost in ((0.3, 3), (1.55, 5), (1.55, 2)):
                SYSTEM.sleep(max(0.0, moment - clock.now()))
                limit.call(fetch, clock, cost)
            with pytest.raises(ValueError, match="a call that costs 10 can never begin"):
                limit.call(fetch, clock, 10)

    async def waiting() -> None:
        with virtual_time() as clock:
            for moment, cost in ((0.3, 3), (1.55, 5), (1.55, 2)):
                await SYSTEM.asleep(max(0.0, moment - clock.now()))
                await limit.call(afetch, clock, cost)
            with pytest.raises(ValueError, match="a call that costs 10 can never begin"):
                await limit.call(afetch, clock, 10)

    in_colour(colour, blocking, waiting, MockClock(autojump_threshold=0))
    assert began == pytest.approx([0.3, 1.55, 2.3])
