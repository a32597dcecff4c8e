"""Hedging: Finagle's backup requests, and the hedging of gRPC, Tower, Polly, failsafe-go and Kevlar."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import pytest
from trio.testing import MockClock

from redouble import (
    SYSTEM,
    Backoff,
    CircuitBreaker,
    Hedge,
    Keyed,
    Layer,
    RateLimit,
    Retry,
    RetryBudget,
    Timeout,
    TokenBucket,
)
from redouble.testing import virtual_time
from tests.conformance.flows import answers, in_colour
from tests.conformance.hedged import GRPC, GRPC_AT_ONCE, Service, hedged_call, in_async_code, late
from tests.support.scripted import ScriptedError, cancelled_in


def broken() -> NoReturn:
    raise ScriptedError("broken")


def no_delay(number: int) -> None:
    """Return None: an extra attempt only starts after a failure, if at all."""


def thrice_around(hedge: Hedge) -> Layer:
    return Retry(on=Exception, attempts=3, backoff=Backoff.constant(0)) | hedge


@pytest.mark.parametrize(
    ("make", "script", "seen"),
    [
        pytest.param(late(1), "a:0.5 b:1", "0: a at 0.5", id="hedge.finagle_behaviour.in-time"),
        pytest.param(late(1), "a:9 b:0.5", "0 1: b at 1.5, cut 1, won", id="hedge.finagle_behaviour.wins"),
        pytest.param(late(1), "a:9 !b:0.5", "0 1: a at 9", id="hedge.finagle_behaviour.backup-fails"),
        pytest.param(late(1), "!a:0.5", "0: !a at 0.5", id="hedge.finagle_behaviour.primary-fails"),
        pytest.param(
            GRPC, "a:999", "0 100 200 300 400 500: a at 999, cut 2 3 4 5 6", id="hedge.grpc_timeline.starts"
        ),
        pytest.param(
            GRPC, "a:999 b:999 c:50", "0 100 200: c at 250, cut 1 2, won", id="hedge.grpc_timeline.commit"
        ),
        pytest.param(
            GRPC, "a:999 b:999 c:50", "0 100 200: c at 250, cut 1 2, won", id="stream.commit_points.hedges"
        ),
        pytest.param(
            GRPC, "!after-101:150 b:999 c:9", "0 100 251: c at 260, cut 2, won", id="hedge.grpc_timeline.101"
        ),
        pytest.param(
            GRPC, "!after-99:150 b:999 c:9", "0 100 249: c at 258, cut 2, won", id="hedge.grpc_timeline.99"
        ),
        pytest.param(
            GRPC_AT_ONCE,
            "!a:50 b:999 c:9",
            "0 50 150: c at 159, cut 2, won",
            id="hedge.grpc_timeline.failure-restarts-timer",
        ),
        pytest.param(
            GRPC_AT_ONCE,
            "!a:50 !b:40 !c:30 !d:20 !e:10 !f:5",
            "0 50 90 120 140 150: !a at 155",
            id="hedge.grpc_timeline.all-fail",
        ),
        pytest.param(
            GRPC_AT_ONCE,
            "!after-101:50 b:9",
            "0 151: b at 160, won",
            id="hedge.grpc_timeline.failure-101",
        ),
        pytest.param(
            GRPC_AT_ONCE,
            "a:999 !after-99:50 c:9",
            "0 100 249: c at 258, cut 1, won",
            id="hedge.grpc_timeline.failure-99",
        ),
        pytest.param(GRPC_AT_ONCE, "!stop:50 b:9", "0: !stop at 50", id="hedge.grpc_timeline.failure-stop"),
        pytest.param(
            late(2, failover=True), "!a:1 b:1", "0 1: b at 2, won", id="hedge.polly.all-running-failed"
        ),
        pytest.param(
            late(no_delay, 2, failover=True),
            "!a:9 !b:9 c:9",
            "0 9 18: c at 27, won",
            id="hedge.polly.fallback",
        ),
        pytest.param(late(no_delay), "a:9", "0: a at 9", id="hedge.failsafe_go.no-hedge"),
        pytest.param(late(2), "a:9 b:1", "0 2: b at 3, cut 1, won", id="hedge.polly.latency"),
        pytest.param(late(0, 3), "a:2 b:3", "0 0 0 0: a at 2, cut 2 3 4", id="hedge.polly.parallel"),
        pytest.param(late(2), "!a:3 !b:3", "0 2: !a at 5", id="hedge.polly.all-fail"),
        pytest.param(late(1, different=broken), "a:9", "0: a at 9", id="hedge.polly.generator-throws"),
        pytest.param(
            late(1, on=answers({"*": False})),
            "a:9 !b:0.5",
            "0 1: !b at 1.5, cut 1, won",
            id="hedge.failsafe_go.any",
        ),
        pytest.param(
            late(1, on=OSError), "a:9 !b:0.5", "0 1: !b at 1.5, cut 1, won", id="hedge.kevlar_races.unhandled"
        ),
        # A group of attempts starts when all attempts of the previous group have failed.
        pytest.param(
            lambda: thrice_around(late(1)()),
            "!a:2 !b:1.5 !c:2 !d:1.5 !e:2 !f:1.5",
            "0 1 2.5 3.5 5 6: !e at 7.5",
            id="hedge.kevlar_races.retry-outside",
        ),
        # Each attempt has a timeout of 2 s.
        pytest.param(
            lambda: late(1)() | Timeout(2),
            "a:9",
            "0 1: !Service.fetch took longer than 2 s at 3, cut 1 2",
            id="hedge.kevlar_races.timeout-inside",
        ),
    ],
)
@in_async_code
def test_one_call(colour: str, make: Callable[[], Layer], script: str, seen: str) -> None:
    """When attempts begin, the result and its time, and the cancelled attempts."""
    assert hedged_call(colour, make, script) == seen


@pytest.mark.parametrize(
    "fact", ["hedge.finagle_behaviour.budget", "budget.failsafe_go.hedge_rejected_is_not_fatal"]
)
@pytest.mark.parametrize("budget", [RetryBudget(0, 0), TokenBucket(1)])
@in_async_code
def test_with_an_exhausted_budget_there_is_no_hedge(
    colour: str, budget: RetryBudget | TokenBucket, fact: str
) -> None:
    """The first attempt continues."""
    assert hedged_call(colour, late(1, budget=budget), "a:9 b:0.5") == "0: a at 9, suppressed"


@in_async_code
def test_hedge_grpc_timeline_throttle(colour: str) -> None:
    """hedge.grpc_timeline: with half of the tokens gone, 2 of 4, there is no hedge."""
    budget = TokenBucket.grpc(4, 0.8)
    budget.failed()
    assert hedged_call(colour, late(1, budget=budget), "a:9 b:0.5") == "0 1: b at 1.5, cut 1, won"
    budget.failed()
    assert hedged_call(colour, late(1, budget=budget), "a:9 b:0.5") == "0: a at 9, suppressed"


def one_by_one(colour: str, hedge: Hedge, *scripts: str) -> list[str]:
    """Make calls through one hedge, and return the result of each as a line."""

    async def waiting() -> list[str]:
        with virtual_time() as clock:
            return [await Service(clock, script).call_through(hedge) for script in scripts]

    return in_colour(colour, list[str], waiting, MockClock(autojump_threshold=0))


SLOW, HEDGED, ALONE = "a:9 b:0.5", "0 1: b at 1.5, cut 1", "0: a at 9"


@in_async_code
def test_hedge_finagle_behaviour_deposits(colour: str) -> None:
    """hedge.finagle_behaviour: 100 calls allow one more hedge; a shared budget is not credited."""
    budget = RetryBudget(1, 5, credit="request")
    hedge = Hedge(1, 0.01, budget=budget)
    assert one_by_one(colour, hedge, SLOW, SLOW) == [HEDGED, ALONE]
    assert set(one_by_one(colour, hedge, *["a:0"] * 97)) == {"0: a at 0"}
    assert one_by_one(colour, hedge, SLOW, SLOW) == [HEDGED, ALONE]
    counts = {"calls": 101, "hedged": 2, "won": 2, "suppressed": 2}
    assert {word: hedge.snapshot()[word] for word in counts} == counts
    assert {word: budget.snapshot()[word] for word in ("credits", "granted")} == {"credits": 0, "granted": 2}


@pytest.mark.parametrize(("share", "too_few"), [(0.02, 48), (0.5, 17)])
@in_async_code
def test_hedge_tower(colour: str, share: float, too_few: int) -> None:
    """hedge.tower: nothing is hedged before there are enough samples for the delay."""
    hedge = Hedge(max_extra_load=share)
    assert one_by_one(colour, hedge, *["a:0.01"] * too_few, SLOW)[-1] == ALONE
    assert hedge.snapshot()["delay"] is None
    seen = one_by_one(colour, hedge, *["a:0.01"] * 14, SLOW)[-1]
    assert hedge.snapshot()["delay"] == pytest.approx(0.01, rel=1 / 16)
    assert seen.endswith(", cut 1")


@in_async_code
def test_hedge_kevlar_races_cancelled_during_the_delay(colour: str) -> None:
    """hedge.kevlar_races: a call that is cancelled during the hedge delay makes no further attempt."""

    async def waiting() -> list[float]:
        with virtual_time() as clock:
            service = Service(clock, "a:9")
            await cancelled_in(colour, late(1)()(service.fetch))
            await SYSTEM.asleep(60)
            return service.start_times

    assert in_colour(colour, list[float], waiting, MockClock(autojump_threshold=0)) == [0]


@in_async_code
def test_hedge_kevlar_races_a_cancelled_attempt_is_no_failure(colour: str) -> None:
    """hedge.kevlar_races: a breaker does not count the losing attempt."""
    breaker = CircuitBreaker(failures=1)
    assert hedged_call(colour, lambda: late(1)() | breaker | Timeout(2), SLOW) == HEDGED + ", won"
    assert breaker.state == "closed"


class Response:
    """A response that must be closed."""

    def __init__(self, status: int) -> None:
        self.status, self.is_closed = status, False

    def close(self) -> None:
        self.is_closed = True


def is_good(response: Response) -> bool:
    return response.status == 200


@in_async_code
def test_stream_commit_points_a_losing_response_is_closed(colour: str) -> None:
    """stream.commit_points: once the winner is known."""
    responses = [Response(503), Response(200)]
    called: list[Response] = []

    async def fetch() -> Response:
        response = responses[len(called)]
        called.append(response)
        await SYSTEM.asleep(2)
        return response

    async def waiting() -> Response:
        with virtual_time():
            return await late(1, until=is_good)().call(fetch)

    assert in_colour(colour, lambda: responses[0], waiting, MockClock(autojump_threshold=0)) is responses[1]
    assert [response.is_closed for response in responses] == [True, False]


def host() -> str:
    return "a host"


@in_async_code
def test_pipeline_dotnet_standard_hedging(colour: str) -> None:
    """pipeline.dotnet_standard: a timeout, the hedge, then a rate, a breaker and a timeout per endpoint."""
    rate = Keyed(host, lambda: RateLimit(10, burst=5))
    breaker = Keyed(host, CircuitBreaker)
    pipeline = Timeout(30) | late(1)() | rate | breaker | Keyed(host, lambda: Timeout(10))
    assert [type(layer).__name__ for layer in pipeline.layers] == ["Timeout", "Hedge", *["Keyed"] * 3]
    assert pipeline.check() == []
    assert hedged_call(colour, lambda: pipeline, SLOW) == HEDGED + ", won"
    assert (rate.snapshot()["keys"], breaker.snapshot()["keys"]) == (1, 1)
