"""Rate limits: the adaptive mode of the AWS SDKs, failsafe-go's smooth limiter, and waiters for a permit.

Calls are made one after the other in every colour, and side by side in async code, all in virtual time.
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
Arrival = tuple[float, type[Exception] | None]  # when, and how it ends

THROTTLED, UNHEARD = ScriptedError, errors.Rejected  # one without a verdict does not change the rate


def in_turn(
    colour: str, make: Callable[[], Gate], arrivals: Sequence[Arrival]
) -> tuple[list[float], Mapping[str, float | None]]:
    """Make calls one after the other, none before its time; return when each began and how it ended."""
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
                with suppress(THROTTLED, UNHEARD):
                    gate.call(fetch, clock, ends)
            return gate.snapshot()

    async def waiting() -> Mapping[str, float | None]:
        with virtual_time() as clock:
            gate = make()
            for moment, ends in arrivals:
                await SYSTEM.asleep(max(0.0, moment - clock.now()))
                with suppress(THROTTLED, UNHEARD):
                    await gate.call(afetch, clock, ends)
            return gate.snapshot()

    return began, in_colour(colour, blocking, waiting, MockClock(autojump_threshold=0))


def side_by_side(colour: str, scene: Callable[[VirtualClock], Sequence[Call]]) -> None:
    """Run all that there is in a scene at the same time."""

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
    """Wait for a call for so long, and cancel it then."""
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
def test_what_is_measured(colour: str, records: list[float], last: float) -> None:
    """Answers per second, in halves of a second, smoothed."""
    _, seen = in_turn(colour, AdaptiveRate, [(t, None) for t in records])
    assert seen["measured"] == pytest.approx(last, abs=1e-7)


@pytest.mark.parametrize(
    ("least", "arrivals", "began"),
    [
        # Once throttled, the rate is the minimum, and the bucket holds the tokens of one second.
        pytest.param(10, [(2.0, UNHEARD)] * 11, [2.0] * 10 + [2.1], id="KT-RL-02"),
        # A call takes one token; where smithy takes five at once, five calls take one each.
        pytest.param(1, [(0.0, UNHEARD)] * 5, [1, 2, 3, 4, 5], id="KT-RL-03"),
        pytest.param(0.2, [(60.0, UNHEARD)] * 2, [60, 65], id="aws.adaptive.clamps.min_rate"),
    ],
)
@pytest.mark.parametrize("colour", EVERY)
def test_who_waits_once_throttled(
    colour: str, least: float, arrivals: list[Arrival], began: list[float]
) -> None:
    """No wait before the first throttling; then each call waits for the rate."""
    unlimited: list[Arrival] = [(0.0, UNHEARD)] * 20
    gate = partial(AdaptiveRate, on=THROTTLED, least=least)
    made, _ = in_turn(colour, gate, [*unlimited, (0.0, THROTTLED), *arrivals])
    assert made == pytest.approx([0.0] * 21 + began)


@pytest.mark.parametrize(
    ("interval", "arrivals", "began"),
    [
        pytest.param(0.5, [0.0] * 7 + [11.0], [0, 0.5, 1, 1.5, 2, 2.5, 3, 11], id="ratelimit.smooth.500"),
        pytest.param(0.1, [0.0, 0.15], [0, 0.15], id="ratelimit.smooth.100"),
        # failsafe-go admits the third one at 0.2 and 0.3: half an interval too early.
        pytest.param(0.1, [0.0, 0.15, 0.2], [0, 0.15, 0.25], id="ratelimit.smooth.100-deviates.200"),
        pytest.param(0.1, [0.0, 0.25, 0.25], [0, 0.25, 0.35], id="ratelimit.smooth.100-deviates.300"),
    ],
)
@pytest.mark.parametrize("colour", EVERY)
def test_one_after_the_other(colour: str, interval: float, arrivals: list[float], began: list[float]) -> None:
    """A call begins an interval after the one before, or at once if that is over."""
    made, _ = in_turn(colour, lambda: RateLimit(1, per=interval), [(moment, None) for moment in arrivals])
    assert made == pytest.approx(began)


# When how many come at once, how long the last of them waits, and when the next one could begin.
SMOOTH = [(0.0, 7, 3.0, 3.5), (0.8, 3, 3.7, 5.0), (2.3, 1, 2.7, 5.5), (3.5, 3, 3.0, 7.0)]


@pytest.mark.parametrize(
    ("interval", "crowds"),
    [
        pytest.param(0.5, [*SMOOTH, (11.0, 1, 0, 11.5)], id="ratelimit.smooth.500"),
        # After a rest failsafe-go goes on in multiples of the interval: 0.9 s and 10.5 s, 0.05 s and 0.4 s.
        pytest.param(
            0.5, [*SMOOTH, (9.1, 3, 1.0, 10.6), (11.0, 1, 0, 11.5)], id="ratelimit.smooth.500-deviates"
        ),
        pytest.param(
            0.1,
            [(0.0, 1, 0, 0.1), (0.15, 1, 0, 0.25), (0.25, 2, 0.1, 0.45)],
            id="ratelimit.smooth.100-deviates",
        ),
    ],
)
@pytest.mark.parametrize("colour", ASYNC)
def test_many_at_once(colour: str, interval: float, crowds: list[tuple[float, int, float, float]]) -> None:
    """Waiters queue, and later calls wait for them too."""
    limit = RateLimit(1, per=interval)
    longest, free = dict[float, float](), dict[float, float]()

    async def nothing() -> None: ...

    def scene(clock: VirtualClock) -> list[Call]:
        async def come(moment: float) -> None:
            await SYSTEM.asleep(moment)
            await limit.call(nothing)
            longest[moment] = clock.now() - moment

        async def look(moment: float) -> None:
            await SYSTEM.asleep(moment + 0.001)
            free[moment] = clock.now() + limit.snapshot()["retry_after"]

        looks: list[Call] = [partial(look, moment) for moment, *_ in crowds]
        return looks + [partial(come, moment) for moment, many, *_ in crowds for _ in range(many)]

    side_by_side(colour, scene)
    assert longest == pytest.approx({moment: wait for moment, _, wait, _ in crowds})
    assert free == pytest.approx({moment: following for moment, *_, following in crowds})


@pytest.mark.parametrize("colour", ASYNC)
@pytest.mark.parametrize("gone", [(1,), (3,), (5,), (1, 2), (2, 4), (1, 2, 3, 4)])
def test_ratelimit_semantics_the_queue_closes_up(colour: str, gone: tuple[int, ...]) -> None:
    """ratelimit.semantics: if one of five waiters leaves, first, middle or last, the later ones advance."""
    limit, began = RateLimit(1), list[tuple[int, float]]()

    def scene(clock: VirtualClock) -> list[Call]:
        limit.admit(clock.now())

        async def fetch(number: int) -> None:
            began.append((number, clock.now()))

        async def come(number: int) -> None:
            await SYSTEM.asleep(number / 100)
            patience = 0.5 if number in gone else 60
            await given_up_after(patience, colour, partial(limit(fetch), number))

        return [partial(come, number) for number in range(1, 6)]

    side_by_side(colour, scene)
    left = [number for number in range(1, 6) if number not in gone]
    assert [number for number, _ in began] == left
    assert [moment for _, moment in began] == pytest.approx([*range(1, 1 + len(left))])


@pytest.mark.parametrize("colour", ASYNC)
@pytest.mark.parametrize(
    ("leaves", "next_begins"),
    [
        pytest.param([0.3, 0.6, 0.9, 0.9], 1.0, id="no-phantom-debt"),  # none of them had its permit
        pytest.param([1.5], 2.0, id="inside"),  # it had, and has used one
        pytest.param([1.0], None, id="in-that-moment"),  # one or the other
    ],
)
def test_ratelimit_semantics_a_permit_is_whose_call_began(
    colour: str, leaves: list[float], next_begins: float | None
) -> None:
    """ratelimit.semantics: a waiter that leaves has consumed nothing, and an admitted call one permit."""
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
