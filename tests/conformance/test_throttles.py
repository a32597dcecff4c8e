"""Rejecting calls or retries while too many fail: failsafe-go, Envoy, Finagle, gRPC."""

from __future__ import annotations

from contextlib import suppress

import pytest

from redouble import SYSTEM, Layer, Reason, Retry, Throttle, TokenBucket, Verdict, errors, presets
from redouble._failures.verdict import Answer
from tests.conformance.flows import EVERY, Flow, answers, check, flow, in_colour, in_every_colour
from tests.support.scripted import Draws, Operation, ScriptedError, Step, Virtual, fail, ok


def called(colour: str, guarded: Layer, *script: Step) -> Operation:
    """Make a call for each step of a script, and return the operation, which counts the admitted calls."""
    operation = Operation(script or [ok()], Virtual())

    def blocking() -> None:
        for _ in script:
            with suppress(ScriptedError, errors.Rejected):
                guarded.call(operation)

    async def waiting() -> None:
        for _ in script:
            with suppress(ScriptedError, errors.Rejected):
                await guarded.call(operation.later)

    in_colour(colour, blocking, waiting)
    return operation


@pytest.mark.parametrize(
    ("accepts", "requests", "threshold", "most", "share", "within"),
    [
        pytest.param(0, 1, 0.9, 0.9, 0.5, 0, id="throttle.failsafe_go.first"),
        pytest.param(95, 100, 0.9, 0.8, 0.0, 0, id="throttle.failsafe_go.healthy"),
        pytest.param(90, 120, 0.9, 0.8, 0.1652892562, 1e-9, id="throttle.failsafe_go.some"),
        pytest.param(50, 200, 0.9, 0.8, 0.75, 0.05, id="throttle.failsafe_go.many"),
        pytest.param(10, 1000, 0.9, 0.8, 0.8, 0, id="throttle.failsafe_go.most"),
        pytest.param(0, 0, 0.9, 0.8, 0.0, 0, id="throttle.failsafe_go.none"),
        pytest.param(0, 100, 0.9, 0.8, 0.8, 0, id="throttle.failsafe_go.all"),
        pytest.param(100, 100, 1.0, 0.8, 0.0, 0.01, id="throttle.envoy_admission.100"),
        pytest.param(95, 100, 1.0, 0.8, 0.05, 0.01, id="throttle.envoy_admission.95"),
        pytest.param(75, 100, 1.0, 0.8, 0.25, 0.01, id="throttle.envoy_admission.75"),
        pytest.param(98, 100, 0.95, 0.8, 0.0, 0.01, id="throttle.envoy_admission.98-0.95"),
        pytest.param(95, 100, 0.95, 0.8, 0.0, 0.01, id="throttle.envoy_admission.95-0.95"),
        pytest.param(75, 100, 0.95, 0.8, 0.2, 0.011, id="throttle.envoy_admission.75-0.95"),
        pytest.param(80, 100, 1.0, 0.1, 0.1, 0.01, id="throttle.envoy_admission.most"),
        # Envoy has an exponent, and rejects 22 %; here the formula is that of Google's SRE book.
        pytest.param(95, 100, 1.0, 0.8, 0.05, 0.01, id="throttle.envoy_admission.aggression-2-deviates"),
        # Counted over the last two minutes; Finagle has a moving average over them.
        pytest.param(100, 100, 0.5, 0.75, 0.0, 0.005, id="limit.finagle_nack_admission.1.0"),
        pytest.param(50, 100, 0.5, 0.75, 0.0, 0.006, id="limit.finagle_nack_admission.0.5"),
        pytest.param(40, 100, 0.5, 0.75, 0.2, 0.006, id="limit.finagle_nack_admission.0.4"),
        pytest.param(25, 100, 0.5, 0.75, 0.5, 0.006, id="limit.finagle_nack_admission.0.25"),
        pytest.param(1, 100, 0.5, 0.75, 0.75, 0, id="limit.finagle_nack_admission.most"),
    ],
)
@pytest.mark.parametrize("colour", EVERY)
def test_the_share_of_rejected_calls(
    colour: str, accepts: int, requests: int, threshold: float, most: float, share: float, within: float
) -> None:
    """Computed from recent calls; a call is rejected if the random number is below the share."""
    draws = Draws(1.0)
    throttle = Throttle(1 / threshold, most=most, random=draws)
    called(colour, throttle, *[ok()] * accepts, *[fail()] * (requests - accepts))
    snapshot = throttle.snapshot()
    assert snapshot == {"share": pytest.approx(share, abs=within), "requests": requests, "accepts": accepts}
    draws.draws = (snapshot["share"],)
    assert called(colour, throttle, ok()).calls == 1
    draws.draws = (max(0.0, throttle.snapshot()["share"] - 1e-9),)
    assert called(colour, throttle, ok()).calls == (0 if share else 1)


@pytest.mark.parametrize("colour", EVERY)
def test_throttle_envoy_admission_rejected_calls_count_deviates(colour: str) -> None:
    """throttle.envoy_admission: Envoy samples admitted calls only; here a rejected call counts as a request.

    So the share grows while nothing is accepted, and shrinks as soon as a call is.
    """
    draws = Draws(1.0)
    throttle = Throttle(2, random=draws)
    called(colour, throttle, *[ok()] * 10, *[fail()] * 30)
    before, draws.draws = throttle.snapshot(), (0.0,)
    assert called(colour, throttle, fail()).calls == 0
    after = throttle.snapshot()
    assert (after["requests"], after["accepts"]) == (before["requests"] + 1, before["accepts"])
    assert after["share"] > before["share"]


@pytest.mark.parametrize("colour", EVERY)
def test_throttle_envoy_admission_a_minimum_deviates(colour: str) -> None:
    """throttle.envoy_admission: Envoy rejects nothing below a rate; here, below a number of calls."""
    throttle = Throttle(1, minimum=10, random=Draws(0.0))
    assert called(colour, throttle, *[fail()] * 12).calls == 10


@pytest.mark.parametrize("colour", EVERY)
def test_limit_finagle_nack_admission_retried_deviates(colour: str) -> None:
    """limit.finagle_nack_admission: Finagle does not retry a rejected call; here a policy may retry it."""
    throttle = Throttle(1, random=Draws(0.0, 1.0))
    throttle.ended(None, ScriptedError(), SYSTEM.now())
    assert called(colour, Retry(clock=Virtual()) | throttle, ok()).calls == 1


GRPC = (
    "failed above 3, failed below 2, failed below 1, failed below 0, failed below 0, ok below 0.8, "
    "ok below 1.6, ok above 2.4, ok above 3.2, ok above 4, ok above 4, failed above 3, failed below 2"
)


def test_budget_grpc_throttle() -> None:
    """budget.grpc_throttle: failures take tokens, successes add some; retries need more than half of them."""
    bucket = TokenBucket.grpc(4, 0.8)
    assert bucket.spend() is not None
    for what, above, tokens in (step.split() for step in GRPC.split(", ")):
        bucket.failed() if what == "failed" else bucket.credit()
        assert (bucket.spend() is not None) == (above == "above")
        assert bucket.snapshot()["tokens"] == pytest.approx(float(tokens))


@pytest.mark.parametrize(
    ("again", "tokens"),
    [
        pytest.param(True, 2, id="budget.grpc_throttle_attribution.retriable"),
        pytest.param(False, 3, id="budget.grpc_throttle_attribution.non_retriable"),
        # gRPC takes a token for this too; but a server that responds "do not retry" needs no protection.
        pytest.param(Verdict.stop(), 3, id="budget.grpc_throttle_attribution.do_not_retry-deviates"),
    ],
)
@pytest.mark.parametrize("colour", EVERY)
def test_failures_that_take_a_token(colour: str, again: Answer, tokens: float) -> None:
    """The bucket starts with 3 of 4 tokens; with 2 no call is retried."""
    bucket = TokenBucket.grpc(4, 0.8)
    bucket.failed()
    policy = Retry(on=lambda _: again, budget=bucket, clock=Virtual())
    assert called(colour, policy, fail()).calls == 1
    assert bucket.snapshot()["tokens"] == tokens


PUSHED_BACK = {"first": 0.123, "second": 4567, "third": 0.05}

FLOWS = [
    flow(
        "budget.grpc_throttle.in-a-call",
        fail(),
        attempts=9,
        budget=lambda: TokenBucket.grpc(4, 0.8),
        expected={"calls": 2, "reason": Reason.budget},
    ),
    flow(
        "pushback.grpc.preset",
        fail(),
        preset=presets.grpc,
        random=(0.5,),
        expected={"sleeps": [0.1, 0.2, 0.4], "calls": 4, "reason": Reason.attempts},
    ),
    # Up to the attempts of the service config, or until half of the tokens are taken.
    flow(
        "pushback.grpc.preset-throttled",
        fail(),
        preset=presets.grpc,
        attempts=9,
        random=(0.5,),
        expected={"sleeps": [0.1, 0.2, 0.4, 0.8], "calls": 5, "reason": Reason.budget},
    ),
    flow(
        "pushback.grpc.preset-pushback",
        fail("first"),
        fail("second"),
        fail("third"),
        preset=presets.grpc,
        random=(0.5,),
        rules=[answers(PUSHED_BACK)],
        expected={"sleeps": [0.123, 4567, 0.05], "calls": 4, "reason": Reason.attempts},
    ),
]


@in_every_colour(FLOWS)
def test_one_call(colour: str, row: Flow) -> None:
    """With the retries of a gRPC client."""
    check(colour, row)
