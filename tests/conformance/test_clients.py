"""httpware and llm-fiber: their retries, with errors in place of responses."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from redouble import Backoff, Reason, Retry, RetryBudget, errors, transient
from tests.conformance.flows import EVERY, Flow, answers, check, drive, flow, in_every_colour
from tests.conformance.observables import asserts
from tests.support.scripted import fail, ok, series

SHORT = Backoff.exponential(0.01).maximum(0.02).full_jitter()
WRONG: Any = 2.5  # hidden from type checkers
CONNECT, READ = fail(ConnectionError("connect")), fail(TimeoutError("read"))


def short(fact: str, draw: float, sleeps: list[float], *script: Any, **expected: Any) -> Flow:
    expected = {"sleeps": sleeps, **expected}
    return flow(fact, *script, attempts=3, backoff=SHORT, random=(draw,), expected=expected)


FLOWS = [
    flow("HW-RT-01", ok(200), expected={"ok": 200, "calls": 1, "sleeps": []}),
    # The random numbers 0 and 1 give the bounds of full jitter.
    short("HW-RT-02.lowest", 0, [], fail("503"), ok(200), ok=200, calls=2),
    short("HW-RT-02.highest", 1, [0.01], fail("503"), ok(200), ok=200, calls=2),
    short("HW-RT-03.lowest", 0, [], fail("503"), raises="503", calls=3, reason=Reason.attempts),
    short("HW-RT-03.highest", 1, [0.01, 0.02], fail("503"), raises="503", calls=3, reason=Reason.attempts),
    flow("HW-RT-07", fail("503"), attempts=1, expected={"raises": "503", "calls": 1, "sleeps": []}),
    flow("HW-RT-08", CONNECT, READ, ok(200), on=transient, expected={"ok": 200, "calls": 3}),
    flow(
        "HW-RT-18",
        fail("503"),
        budget=lambda: RetryBudget(ratio=0, per_second=0, credit="request"),
        wrap=True,
        expected={
            "type": errors.BudgetExhausted,
            "cause": "503",
            "calls": 1,
            "sleeps": [],
            "reason": Reason.budget,
        },
    ),
    flow(
        "HW-RT-20",
        fail("503"),
        fail("503"),
        ok(200),
        attempts=3,
        budget=lambda: RetryBudget(credit="request"),
        expected={"ok": 200, "calls": 3, "credits": 1, "granted": 2},
    ),
    # llm-fiber raises an error of its own; here the operation's error is raised.
    flow(
        "LF-CODE-06",
        fail("503"),
        attempts=5,
        total=0.5,
        backoff=Backoff.constant(0.2),
        expected={"raises": "503", "same": True, "reason": Reason.timeout, "calls": 3, "sleeps": [0.2, 0.2]},
    ),
]


@in_every_colour(FLOWS)
def test_one_call(colour: str, row: Flow) -> None:
    """Attempts, delays, budget and result."""
    check(colour, row)


@asserts("HW-RT-03", "notes")
@asserts("HW-RT-07", "notes")
@pytest.mark.parametrize("colour", EVERY)
@pytest.mark.parametrize(
    ("attempts", "note"),
    [
        pytest.param(3, "gave up after 3 attempts", id="HW-RT-03"),
        pytest.param(1, "gave up after 1 attempt ", id="HW-RT-07"),
    ],
)
def test_the_note_has_the_number_of_attempts(colour: str, attempts: int, note: str) -> None:
    """The note of the raised error."""
    error = drive(colour, flow("", fail("503"), attempts=attempts, expected={})).error
    notes: list[str] = getattr(error, "__notes__", [])
    assert len(notes) == 1
    assert note in notes[0]


@pytest.mark.parametrize("colour", EVERY)
@pytest.mark.parametrize("draw", [0, 0.5, 1])
@pytest.mark.parametrize("attempts", [1, 2, 3, 4, 5])
def test_hw_rt_23_bounds(colour: str, attempts: int, draw: float) -> None:
    """HW-RT-23: at most this many attempts, and no delay above the cap."""
    row = flow("HW-RT-23", fail(), attempts=attempts, backoff=SHORT, random=(draw,), expected={})
    words = drive(colour, row).words()
    assert words["calls"] == attempts
    assert sum(words["sleeps"]) <= (attempts - 1) * 0.02


@pytest.mark.parametrize(
    ("make", "error", "named"),
    [
        pytest.param(lambda: Retry(attempts=0), ValueError, "attempts", id="HW-RT-24.attempts"),
        pytest.param(lambda: Backoff.exponential(-1), ValueError, "initial", id="HW-RT-24.base"),
        pytest.param(lambda: Backoff.exponential(math.nan), ValueError, "initial", id="HW-RT-24.base-nan"),
        pytest.param(lambda: Backoff.constant(1).maximum(-1), ValueError, "maximum", id="HW-RT-24.cap"),
        pytest.param(
            lambda: Backoff.constant(1).maximum(math.inf), ValueError, "maximum", id="HW-RT-24.cap-inf"
        ),
        # httpware accepts these two.
        pytest.param(lambda: Retry(attempts=WRONG), TypeError, "attempts", id="HW-RT-24.fraction"),
        pytest.param(lambda: Backoff.exponential(math.inf), ValueError, "initial", id="HW-RT-24.base-inf"),
        pytest.param(lambda: Retry(attempts=0), ValueError, "attempts", id="LF-CODE-04.attempts"),
        pytest.param(lambda: Backoff.exponential(1, 0), ValueError, "factor", id="LF-CODE-04.factor"),
    ],
)
def test_invalid_options_are_rejected(make: Callable[[], object], error: type[Exception], named: str) -> None:
    """The error names the option."""
    with pytest.raises(error, match=named):
        make()


def test_lf_adr_01_full_jitter_caps() -> None:
    """LF-ADR-01: from zero up to 200 ms, doubled for each attempt, with a cap of 2000 ms."""
    backoff = Backoff.exponential(200).maximum(2000).full_jitter()
    assert series(backoff, 5, 1) == [200, 400, 800, 1600, 2000]
    assert series(backoff, 5, 0) == [0] * 5


@pytest.mark.parametrize("colour", EVERY)
@pytest.mark.parametrize(
    ("default", "hook", "calls"),
    [
        pytest.param(True, True, 2, id="LF-ADR-04.retry-True"),
        pytest.param(True, False, 1, id="LF-ADR-04.retry-False"),
        pytest.param(False, True, 2, id="LF-ADR-04.stop-True"),
        pytest.param(False, None, 1, id="LF-ADR-04.stop-None"),
        pytest.param(True, None, 2, id="LF-ADR-04.retry-None"),
    ],
)
def test_an_earlier_rule_overrides_the_default(
    colour: str, default: bool, hook: bool | None, calls: int
) -> None:
    """Unless it has no opinion."""
    rules = [answers({"*": hook}), answers({"*": default})]
    check(colour, flow("LF-ADR-04", fail(), attempts=2, on=rules, expected={"calls": calls}))


def test_lf_code_02_delays() -> None:
    """LF-CODE-02: exponential to the cap; jitter written after the cap may exceed it, before it may not."""
    backoff = Backoff.exponential(1).maximum(60)
    assert series(backoff, 8) == [1, 2, 4, 8, 16, 32, 60, 60]
    assert series(backoff.jitter(0.25), 7, 1)[-1] == 75
    assert series(backoff.jitter(0.25), 7, 0)[-1] == 45
    assert series(Backoff.exponential(1).jitter(0.25).maximum(60), 8, 1)[-2:] == [60, 60]
    assert series(Backoff.constant(0.1).jitter(0.25).minimum(0.1), 1, 0) == [0.1]
