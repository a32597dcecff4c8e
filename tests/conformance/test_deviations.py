"""Intended deviations of Redouble: each row has the id of the fact from which it deviates.

The reasons are in docs/conformance.md. Other deviations are beside their facts, and marked in their ids.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from math import inf, log10

import pytest
from trio.testing import MockClock

from redouble import SYSTEM, Backoff, CircuitBreaker, Hedge, Keyed, Reason, Retry, TokenBucket, errors
from redouble._layers.limits.limit_algorithms import Gradient, LimitAlgorithm, Sample, Vegas
from redouble._layers.limits.rate.cubic import CubicCurve
from redouble.testing import virtual_time
from tests.conformance.flows import EVERY, Flow, answers, check, flow, in_colour, in_every_colour, takes
from tests.conformance.hedged import GRPC, hedged_call, in_async_code, late
from tests.support.scripted import ScriptedError, fail, ok, series

RETRY, STOP, AFTER_7 = answers({"*": True}), answers({"*": False}), answers({"*": 7})
NO_OPINION = answers({})


def first(fact: str, *rules: object, reason: Reason, sleeps: list[float]) -> Flow:
    attempts = 1 if reason is Reason.stopped else 2
    expected = {"reason": reason, "attempts": attempts, "sleeps": sleeps}
    return flow(fact, fail(), attempts=2, rules=rules, expected=expected)


FLOWS = [
    # An attempt that never began is not counted (qubit 0.9: 1).
    flow(
        "Q-R16",
        ok("never-reached"),
        attempts=2,
        total=20,
        observers={"before_attempt": takes(40)},
        expected={
            "reason": Reason.timeout,
            "attempts": 0,
            "calls": 0,
            "last": None,
            "elapsed": 40,
            "events": ["before:1", "error:timeout"],
        },
    ),
    # The first opinion decides (qubit 0.9: the last).
    first("Q-X01.1", STOP, RETRY, reason=Reason.stopped, sleeps=[]),
    first("Q-X01.2", RETRY, STOP, reason=Reason.attempts, sleeps=[]),
    first("Q-X01.3", STOP, NO_OPINION, reason=Reason.stopped, sleeps=[]),
    first("Q-X01.4", AFTER_7, RETRY, reason=Reason.attempts, sleeps=[7]),
    first("Q-X01.5", RETRY, AFTER_7, reason=Reason.attempts, sleeps=[]),
    first("Q-X01.6", STOP, RETRY, reason=Reason.stopped, sleeps=[]),
    # By default a hint only lengthens the backoff (qubit 0.9: it replaces it).
    flow(
        "Q-R05",
        fail(),
        attempts=2,
        backoff=Backoff.constant(10000),
        rules=[answers({"*": 1})],
        expected={"sleeps": [10000]},
    ),
    flow(
        "Q-X02.4",
        fail(),
        attempts=2,
        backoff=Backoff.constant(20),
        rules=[answers({"*": 3})],
        expected={"sleeps": [20]},
    ),
    # An error that no rule knows is not retried (qubit: retried).
    flow("Q-V06", fail(), on=[NO_OPINION], expected={"reason": Reason.stopped, "calls": 1}),
]


@in_every_colour(FLOWS)
def test_one_call(colour: str, row: Flow) -> None:
    """The behaviour of Redouble."""
    check(colour, row)


@pytest.mark.parametrize(
    ("make", "first"),
    [
        pytest.param(lambda: Backoff.constant(0), 0, id="Q-D03.fixed-0"),
        pytest.param(lambda: Backoff.random(0, 1), 0.5, id="Q-D03.random-0"),
        pytest.param(lambda: Backoff.exponential(0).maximum(1000), 0, id="Q-D03.initial-0"),
        pytest.param(lambda: Backoff.exponential(1000, 1).maximum(2000), 1000, id="Q-D03.factor-1"),
        pytest.param(lambda: Backoff.exponential(2000).maximum(1000), 1000, id="Q-D03.cap-below-initial"),
        pytest.param(lambda: Backoff.exponential(2000).maximum(1000), 1000, id="N-09.cap-below-initial"),
        pytest.param(lambda: Backoff.exponential(0), 0, id="LF-CODE-04.base-0"),
        pytest.param(lambda: Backoff.exponential(5).maximum(1), 1, id="LF-CODE-04.cap-below-base"),
    ],
)
def test_backoffs_that_others_refuse_are_accepted(make: Callable[[], Backoff], first: float) -> None:
    """Zero delays are useful, and each modifier is validated alone."""
    assert series(make(), 1, 0.5) == [first]


def test_q_d04_and_q_b05_defaults() -> None:
    """Q-D04, Q-B05: fewer attempts, shorter delays, full jitter, and a time limit."""
    policy = Retry()
    assert policy.attempts == 4
    assert policy.give_up_after == 30
    assert (policy.timeout, policy.work_timeout) == (None, None)
    assert isinstance(policy.backoff, Backoff)
    assert series(policy.backoff, 6, 1) == [0.2, 0.4, 0.8, 1.6, 2, 2]
    assert series(policy.backoff, 6, 0) == [0] * 6


# ------------------------------------------------------------------------- rates, limits and hedges

GO_VARIANT = [4.670125557970046, 4.770870456867401, 6.011819748005445, 10.792973431384178]
SPECIFIED = [6.606547753887045, 6.763279816944947, 7.598174833907107, 11.511232804773524]


def test_aws_cubic_mixed_go_variant() -> None:
    """aws.cubic.mixed.go_variant: the curve returns to the throttled rate, Go's to the reduced rate."""
    cubic = CubicCurve(10, 5)
    left = cubic.cut(cubic.cut(cubic.rate_at(6), 7), 8)
    assert [cubic.rate_at(t) for t in range(9, 13)] == pytest.approx(SPECIFIED, abs=5e-7)
    assert [CubicCurve(left, 8).rate_at(t) for t in range(9, 13)] == pytest.approx(GO_VARIANT, abs=5e-7)


@pytest.mark.parametrize(
    ("algorithm", "initial", "samples", "limits"),
    [
        # A limit that is less than half used does not change (failsafe-go: 21, 22); a used one grows faster.
        pytest.param(Vegas(), 20, [(1, 5), (1, 5), (0.5, 5)], [20] * 3, id="limit.failsafe_go_step.unused"),
        pytest.param(Vegas(), 20, [(1, 20), (1, 20)], [20, 26], id="limit.failsafe_go_step.used"),
        # With less load the limit stays (failsafe-go: 20 again).
        pytest.param(
            Vegas(), 20, [(1, 20), (1, 20), (1, 5)], [20, 26, 26], id="limit.failsafe_go_stabilization"
        ),
        # The limit falls by a step (Netflix can be told to halve it, and to smooth that).
        pytest.param(
            Vegas(), 100, [(10, 100), (20, 100), (20, 100)], [100, 98, 97], id="limit.vegas.halving"
        ),
        # A shorter latency becomes the minimum at once (Envoy measures it later: 214).
        pytest.param(Gradient(), 100, [(10, 1), (1, 100)], [100, 136], id="limit.envoy_gradient.shorter"),
    ],
)
def test_the_next_limit_deviates(
    algorithm: LimitAlgorithm, initial: float, samples: list[tuple[float, int]], limits: list[int]
) -> None:
    """The limit after calls of this latency, with this many in flight."""
    limit, seen = initial, list[int]()
    for rtt, in_flight in samples:
        limit = algorithm.next(limit, Sample(rtt, in_flight))
        seen.append(int(limit))
    assert seen == limits


@pytest.mark.parametrize("in_flight", [10, 100, 200, 1000, 10000])
def test_limit_failsafe_go_max_limit(in_flight: int) -> None:
    """limit.failsafe_go_max_limit: the limit stops at twice the calls in flight; the factor is fixed."""
    algorithm, limit = Vegas(), float(in_flight)
    for _ in range(in_flight):
        limit = algorithm.next(limit, Sample(1, in_flight))
    assert 2 * in_flight < limit <= 2 * in_flight + 6 * max(1, int(log10(2 * in_flight)))


@pytest.mark.parametrize(
    ("make", "script", "seen"),
    [
        # gRPC, and Polly if no attempt is running, start the next one at once.
        pytest.param(GRPC, "!a:150 b:999 c:9", "0 100 200: c at 209, cut 2, won", id="hedge.grpc_timeline"),
        pytest.param(late(2, 3), "!a:2.5 !b:0.25 c:1", "0 2: !a at 2.5", id="hedge.polly.no-attempt-is-left"),
        # gRPC waits for the outstanding attempts.
        pytest.param(GRPC, "!stop:150 b:99", "0 100: !stop at 150, cut 2", id="hedge.grpc_timeline.stop"),
        # A pushback that ends before the next hedge is due changes nothing (gRPC: at 199.5).
        pytest.param(
            GRPC, "!after-99:100.5 b:999 c:9", "0 100 200: c at 209, cut 2, won", id="hedge.grpc_timeline.99"
        ),
        # gRPC raises the error of the last attempt; failsafe-go returns the last finished result, and in
        # failsafe-go the first error wins.
        pytest.param(
            late(100, 2), "!a:150 !b:300 !c:9", "0 100 200: !a at 400", id="hedge.grpc_timeline.all"
        ),
        pytest.param(
            late(1, until=answers({"*": False})), "a:2 b:3", "0 1: a at 4", id="hedge.failsafe_go.no-match"
        ),
        pytest.param(late(1), "a:9 !b:0.5", "0 1: a at 9", id="hedge.failsafe_go.an-error"),
    ],
)
@in_async_code
def test_a_hedged_call(colour: str, make: Callable[[], Hedge], script: str, seen: str) -> None:
    """When attempts begin, the result and its time, and the cancelled attempts."""
    assert hedged_call(colour, make, script) == seen


@in_async_code
def test_hedge_grpc_timeline_throttle(colour: str) -> None:
    """hedge.grpc_timeline: gRPC takes a token for each failure in a race; here hedges take none."""
    budget = TokenBucket.grpc(4, 0.8)
    assert hedged_call(colour, late(1, 2, budget=budget), "!a:2.5 !b:0.5 !c:1") == "0 1 2: !a at 3"
    assert budget.snapshot()["tokens"] == 4


@pytest.mark.parametrize(
    "delay",
    [pytest.param(-1, id="hedge.failsafe_go.negative"), pytest.param(inf, id="hedge.polly.infinite")],
)
def test_a_hedge_that_never_starts_is_rejected(delay: float) -> None:
    """A hedge that would start only after a failure is a `Retry`."""
    with pytest.raises(ValueError, match="Hedge delay"):
        Hedge(delay)


@in_async_code
def test_hedge_polly_context(colour: str) -> None:
    """hedge.polly: the caller does not see context variables that an extra attempt sets, even if it wins."""
    who: ContextVar[str] = ContextVar("who", default="none")
    calls: list[str] = []

    async def fetch() -> str:
        calls.append(str(len(calls) + 1))
        who.set(me := calls[-1])
        await SYSTEM.asleep(9 if me == "1" else 1)
        return me

    async def waiting() -> tuple[str, str]:
        with virtual_time():
            return await late(1)().call(fetch), who.get()

    assert in_colour(colour, lambda: ("", ""), waiting, MockClock(autojump_threshold=0)) == ("2", "1")


@pytest.mark.parametrize("second", EVERY)
@pytest.mark.parametrize("first", EVERY)
def test_hw_bh_07_keyed(first: str, second: str) -> None:
    """HW-BH-07: httpware refuses a second event loop; here the breaker of a key is shared by all loops."""

    def fetch(host: str) -> str:
        if host == "bad":
            raise ScriptedError
        return host

    async def afetch(host: str) -> str:
        return fetch(host)

    breakers = Keyed(str, lambda: CircuitBreaker(failures=1))
    sync, aio = breakers(fetch), breakers(afetch)
    with pytest.raises(ScriptedError):
        in_colour(first, lambda: sync("bad"), lambda: aio("bad"))
    with pytest.raises(errors.CircuitOpen):
        in_colour(second, lambda: sync("bad"), lambda: aio("bad"))
    assert in_colour(second, lambda: sync("good"), lambda: aio("good")) == "good"
