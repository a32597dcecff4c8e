"""Presets: the values of the systems after which they are named, and calls with them.

Random numbers are the highest, so that the delays are the longest that the preset allows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from redouble import Backoff, Kind, Reason, Retry, RetryBudget, Verdict, presets
from tests.conformance.flows import Flow, check, flow, in_every_colour
from tests.support.scripted import Step, fail, ok, series


def preset(fact: str, make: Callable[..., Retry], *script: Step, attempts: int = 3, **expected: Any) -> Flow:
    return flow(fact, *script, preset=make, attempts=attempts, random=(1.0,), expected=expected)


def failed(kind: Kind = Kind.server, after: float | None = None) -> Step:
    return fail("e", verdict=Verdict.retry(kind=kind, after=after))


AWS, HTTPWARE, FINAGLE, LLM = presets.aws_standard, presets.httpware, presets.finagle, presets.llm
E, OK = failed(), ok("ok")
THROTTLED, IN_10_S = failed(Kind.throttled), failed(after=10)
ATTEMPTS = Reason.attempts

FLOWS = [
    preset(
        "aws.standard.v2_1.preset-retry", AWS, E, E, OK, ok="ok", sleeps=[0.05, 0.1], quota=[486, 472, 486]
    ),
    preset(
        "aws.standard.v2_1.preset-exponential_timing",
        AWS,
        E,
        attempts=5,
        reason=ATTEMPTS,
        sleeps=[0.05, 0.1, 0.2, 0.4],
        quota=[486, 472, 458, 444, 444],
    ),
    preset("aws.standard.v2_1.preset-hint", AWS, IN_10_S, OK, ok="ok", sleeps=[5.05], quota=[486, 500]),
    preset("KT-26-02.preset", AWS, E, reason=ATTEMPTS, calls=3, sleeps=[0.05, 0.1], quota=[486, 472, 472]),
    preset("KT-26-07.preset", AWS, THROTTLED, OK, ok="ok", sleeps=[1], quota=[495, 500]),
    preset("KT-26-08.preset", AWS, failed(after=1.5), OK, ok="ok", sleeps=[1.5], quota=[486, 500]),
    preset("KT-26-09.preset", AWS, failed(after=0), OK, ok="ok", sleeps=[0.05], quota=[486, 500]),
    preset("HW-RT-03.preset", HTTPWARE, E, reason=ATTEMPTS, calls=3, sleeps=[0.1, 0.2]),
    preset("HW-RT-20.preset", HTTPWARE, E, E, OK, ok="ok", credits=1, granted=2),
    preset("HW-RT-23.preset", HTTPWARE, E, attempts=9, sleeps=[0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5, 5]),
    # httpware's treatment of Retry-After: it replaces the delay, up to the longest delay.
    preset("HW-RT-23.preset-hint", HTTPWARE, failed(after=0.01), OK, ok="ok", sleeps=[0.01]),
    preset("HW-RT-23.preset-long-hint", HTTPWARE, failed(after=6), reason=Reason.hint_too_long, sleeps=[]),
    preset("budget.finagle.preset", FINAGLE, E, attempts=121, calls=21, granted=20, sleeps=[]),
    preset("LF-ADR-01.preset", LLM, E, attempts=6, sleeps=[0.2, 0.4, 0.8, 1.6, 2], reason=ATTEMPTS),
]


@in_every_colour(FLOWS)
def test_one_call(colour: str, row: Flow) -> None:
    """Attempts, delays and the budget, all from the preset."""
    check(colour, row)


@pytest.mark.parametrize(
    ("make", "attempts"),
    [
        pytest.param(AWS, 3, id="aws.standard.v2_1"),
        pytest.param(HTTPWARE, 3, id="HW-RT-03"),
        pytest.param(LLM, 4, id="LF-ADR-05"),
    ],
)
def test_the_number_of_attempts(make: Callable[[], Retry], attempts: int) -> None:
    """Of each preset."""
    assert make().attempts == attempts


@pytest.mark.parametrize(
    "make", [pytest.param(HTTPWARE, id="HW-BG-01"), pytest.param(FINAGLE, id="budget.finagle.defaults")]
)
def test_the_budget_credits_requests(make: Callable[[], Retry]) -> None:
    """20 % of the requests and 10 per second, over 10 s: 100 retries without any requests."""
    budget = make().budget
    assert isinstance(budget, RetryBudget)
    assert (budget.ratio, budget.per_second, budget.window) == (0.2, 10, 10)
    assert sum(budget.spend(Kind.server, 0.0) is not None for _ in range(101)) == 100
    budget.start(0.0)
    assert budget.spend(Kind.server, 0.0) is not None


@pytest.mark.parametrize("make", [HTTPWARE, presets.http, FINAGLE, AWS, LLM, presets.database])
def test_hw_rt_23_the_budget_is_per_instance(make: Callable[[], Retry]) -> None:
    """HW-RT-23: two policies have two budgets, unless they share one."""
    assert make().budget is not None
    assert make().budget is not make().budget


@pytest.mark.parametrize(
    ("attempts", "base", "cap", "factor", "delays"),
    [
        pytest.param(3, 1.0, 60.0, 2.0, [1, 2], id="LF-CODE-01.policy"),
        pytest.param(1, 1.0, 60.0, 2.0, [], id="LF-CODE-01.none"),
        pytest.param(5, 2.0, 120.0, 2.0, [2, 4, 8, 16], id="LF-CODE-01.conservative"),
        pytest.param(2, 0.5, 10.0, 1.5, [0.5], id="LF-CODE-01.aggressive"),
    ],
)
def test_lf_code_01_policies_of_llm_fiber_deviate(
    attempts: int, base: float, cap: float, factor: float, delays: list[float]
) -> None:
    """LF-CODE-01: the preset has the values of the decision record; those of the code may be options."""
    backoff = Backoff.exponential(base, factor).maximum(cap).jitter(0.25)
    policy = LLM(attempts=attempts, backoff=backoff, timeout=None)
    assert (policy.attempts, policy.timeout, policy.backoff) == (attempts, None, backoff)
    assert series(backoff, attempts - 1, 0.5) == delays
    assert (LLM().attempts, LLM().timeout) == (4, 30)
