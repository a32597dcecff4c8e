"""smithy-kotlin and smithy-python: the loop with a token bucket, and backoff."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from redouble import Backoff, Hints, Kind, Reason, Retry, TokenBucket, Verdict, errors
from tests.conformance.flows import EVERY, Flow, answers, check, drive, flow, in_every_colour
from tests.support.scripted import Bucket, Step, fail, ok, series

SERVER, CLIENT = Verdict.retry(kind=Kind.server), Verdict.retry(kind=Kind.client)
TRANSIENT, THROTTLED = Verdict.retry(kind=Kind.network), Verdict.retry(kind=Kind.throttled)
STOP = Verdict.stop()

BY_KIND = {Kind.throttled: Backoff.exponential(1).maximum(20), None: Backoff.exponential(0.05).maximum(20)}
OVER_5 = Hints(over=5, spread=0)


def free(fact: str, *script: Step, attempts: int = 3, **expected: Any) -> Flow:
    return flow(fact, *script, attempts=attempts, budget=lambda: Bucket(1000000, 0), expected=expected)


def legacy(fact: str, *script: Step, **expected: Any) -> Flow:
    backoff = Backoff.exponential(1).maximum(20)
    return flow(fact, *script, attempts=3, backoff=backoff, budget=TokenBucket, expected=expected)


def y2026(fact: str, *script: Step, tokens: float = 500, attempts: int = 3, **expected: Any) -> Flow:
    budget = lambda: TokenBucket(tokens, {Kind.throttled: 5, None: 14})
    return flow(
        fact, *script, attempts=attempts, backoff=BY_KIND, hints=OVER_5, budget=budget, expected=expected
    )


def asked(error: str, after: float) -> Step:
    return fail(error, verdict=Verdict.retry(kind=Kind.server, after=after))


E500, E502, E = fail("E500", verdict=SERVER), fail("E502", verdict=SERVER), fail("E", verdict=SERVER)
E400, E404 = fail("E400", verdict=THROTTLED), fail("E404", verdict=STOP)
FLAKY = fail("Flaky", verdict=CLIENT)

FLOWS = [
    free("KT-LOOP-01", ok("success"), ok="success", calls=1, trail=["success"], retried=[]),
    free(
        "KT-LOOP-02",
        ok("a", verdict=CLIENT),
        ok("b", verdict=SERVER),
        ok("c", verdict=TRANSIENT),
        ok("d", verdict=THROTTLED),
        ok("success", verdict=Verdict.accept()),
        attempts=10,
        ok="success",
        calls=5,
        trail=["retry.client", "retry.server", "retry.network", "retry.throttled", "success"],
        retried=[1, 2, 3, 4],
    ),
    free(
        "KT-LOOP-03",
        fail("IllegalState", verdict=STOP),
        raises="IllegalState",
        same=True,
        calls=1,
        trail=[],
    ),
    free(
        "KT-LOOP-05",
        FLAKY,
        raises="Flaky",
        same=True,
        calls=3,
        reason=Reason.attempts,
        trail=["retry.client", "retry.client"],
        retried=[1, 2],
    ),
    y2026(
        "KT-LOOP-09",
        ok("nope", verdict=SERVER),
        tokens=0,
        type=errors.NotAccepted,
        reason=Reason.budget,
        last="nope",
        calls=1,
        cause=None,
        sleeps=[],
        quota=[0],
    ),
    y2026(
        "KT-LOOP-10",
        fail("Http500", verdict=SERVER),
        tokens=0,
        raises="Http500",
        same=True,
        reason=Reason.budget,
        calls=1,
        sleeps=[],
        quota=[0],
    ),
    legacy("KT-LEG-01", E500, E500, ok(), ok="ok", calls=3, sleeps=[1, 2], quota=[495, 490, 495]),
    y2026("KT-26-01", E500, E500, ok(), ok="ok", calls=3, sleeps=[0.05, 0.1], quota=[486, 472, 486]),
    y2026("KT-26-02", E502, raises="E502", calls=3, sleeps=[0.05, 0.1], quota=[486, 472, 472]),
    y2026("KT-26-03", E500, tokens=14, raises="E500", calls=2, sleeps=[0.05], quota=[0, 0]),
    y2026("KT-26-04", E500, E502, tokens=20, attempts=5, raises="E502", calls=2, sleeps=[0.05], quota=[6, 6]),
    y2026(
        "KT-26-05",
        E,
        attempts=5,
        raises="E",
        calls=5,
        sleeps=[0.05, 0.1, 0.2, 0.4],
        quota=[486, 472, 458, 444, 444],
    ),
    y2026("KT-26-07", E400, ok(), ok="ok", calls=2, sleeps=[1], quota=[495, 500]),
    y2026("KT-26-08", asked("E500", 1.5), ok(), ok="ok", calls=2, sleeps=[1.5], quota=[486, 500]),
    y2026("KT-26-09", asked("E500", 0), ok(), ok="ok", calls=2, sleeps=[0.05], quota=[486, 500]),
    # A header that cannot be parsed is no hint.
    y2026("KT-26-11", E500, ok(), ok="ok", calls=2, sleeps=[0.05], quota=[486, 500]),
    # smithy may sleep once more before it raises, for long polling; here there is no such wait.
    y2026("KT-LP-02-deviates", E400, tokens=0, raises="E400", calls=1, sleeps=[], quota=[0], next_delay=1.0),
    y2026("KT-LP-03", E500, attempts=2, raises="E500", calls=2, sleeps=[0.05]),
    y2026("KT-LP-04", E404, attempts=2, raises="E404", calls=1, sleeps=[]),
]


@in_every_colour(FLOWS)
def test_one_call(colour: str, row: Flow) -> None:
    """Verdicts on errors and results, delays by kind, and the tokens after every attempt."""
    check(colour, row)


@pytest.mark.parametrize("colour", EVERY)
def test_kt_loop_10_the_note_names_the_budget(colour: str) -> None:
    """KT-LOOP-10: and the number of attempts."""
    error = drive(colour, y2026("KT-LOOP-10", E500, tokens=0)).error
    notes: list[str] = getattr(error, "__notes__", [])
    assert len(notes) == 1
    assert notes[0].startswith("redouble: gave up after 1 attempt ")
    assert "budget" in notes[0]


@pytest.mark.parametrize("colour", EVERY)
@pytest.mark.parametrize(
    ("after", "delay"),
    [
        pytest.param(1.5, 1.5, id="KT-BO-06.between"),
        pytest.param(0.0, 0.05, id="KT-BO-06.shorter"),
        pytest.param(10.0, 5.05, id="KT-BO-06.longer"),
        pytest.param(None, 0.05, id="KT-BO-06.none"),
    ],
)
def test_a_hint_lengthens_the_delay_by_at_most_over(colour: str, after: float | None, delay: float) -> None:
    """``Hints(over=5)`` corresponds to smithy, which clamps a hint to [backoff, backoff + 5 s]."""
    row = flow(
        "KT-BO-06",
        fail(),
        ok(),
        rules=[answers({"*": after})],
        backoff=Backoff.constant(0.05),
        hints=OVER_5,
        expected={"sleeps": [delay]},
    )
    check(colour, row)


CAP_100 = Backoff.exponential(0.01).maximum(0.1)


@pytest.mark.parametrize(
    ("backoff", "delays"),
    [
        pytest.param(CAP_100, [0.01, 0.02, 0.04, 0.08, 0.1, 0.1], id="KT-BO-03"),
        pytest.param(Backoff.exponential(1.0), [1, 2, 4], id="KT-BO-04"),
    ],
)
def test_the_delays_of_smithy_kotlin(backoff: Backoff, delays: list[float]) -> None:
    """In order."""
    assert series(backoff, len(delays)) == delays


def exponential(base: float, cap: float) -> Backoff:
    return Backoff.exponential(base).maximum(cap)


@pytest.mark.parametrize(
    ("backoff", "delays"),
    [
        pytest.param(exponential(2, 20), [2, 4, 8, 16, 20, 20], id="PY-BO-01.none-2-20"),
        pytest.param(exponential(1, 20), [1, 2, 4, 8, 16, 20], id="PY-BO-01.none-1-20"),
        pytest.param(exponential(4, 2), [2, 2, 2], id="PY-BO-01.none-4-2"),
        pytest.param(exponential(23.4, 76.5), [23.4, 46.8, 76.5, 76.5], id="PY-BO-01.none-23.4-76.5"),
        pytest.param(exponential(2, 20).full_jitter(), [1, 2, 4, 8, 10, 10], id="PY-BO-01.full-2-20"),
        pytest.param(exponential(5, 10).full_jitter(), [2.5, 5, 5, 5], id="PY-BO-01.full-5-10"),
        pytest.param(exponential(2, 20).equal_jitter(), [1.5, 3, 6, 12, 15, 15], id="PY-BO-01.equal-2-20"),
        pytest.param(
            exponential(23.4, 76.5).equal_jitter(),
            [17.55, 35.1, 57.375, 57.375],
            id="PY-BO-01.equal-23.4-76.5",
        ),
        pytest.param(exponential(5, 0), [0, 0, 0], id="PY-BO-01.none-5-0"),
        pytest.param(exponential(0, 5).full_jitter(), [0, 0, 0], id="PY-BO-01.full-0-5"),
        # base + r * (3 * previous - base), as AWS published it; smithy-python has base + r * 3 * previous.
        pytest.param(
            Backoff.decorrelated(2, 20), [4, 7, 11.5, 18.25, 20], id="PY-BO-01.decorrelated-2-20-deviates"
        ),
        pytest.param(
            Backoff.decorrelated(23.4, 76.5),
            [46.8, 76.5, 76.5],
            id="PY-BO-01.decorrelated-23.4-76.5-deviates",
        ),
    ],
)
def test_the_delays_of_smithy_python(backoff: Backoff, delays: list[float]) -> None:
    """With a random source of 0.5; smithy's first entry, the delay before the first attempt, is left out."""
    assert series(backoff, len(delays), 0.5) == pytest.approx(delays)


@pytest.mark.parametrize("colour", EVERY)
@pytest.mark.parametrize("attempts", [2, 3, 10])
def test_py_std_02_attempts_count_the_first(colour: str, attempts: int) -> None:
    """PY-STD-02: there is one retry less than attempts."""
    row = flow(
        "PY-STD-02", fail(), attempts=attempts, expected={"calls": attempts, "retried": [*range(1, attempts)]}
    )
    check(colour, row)


@pytest.mark.parametrize("colour", EVERY)
def test_py_std_01_an_unclassified_error_is_not_retried(colour: str) -> None:
    """PY-STD-01: there is no response from which a verdict could be derived."""
    nobody: list[Callable[[Exception], None]] = [lambda _: None]
    check(colour, flow("PY-STD-01", fail(), on=nobody, expected={"calls": 1, "reason": Reason.stopped}))


def test_py_std_05_wrong_options() -> None:
    """PY-STD-05: a wrong number is a ValueError, a wrong type a TypeError."""
    with pytest.raises(ValueError, match="attempts"):
        Retry(attempts=-1)
    wrong: Any = "standard"
    with pytest.raises(TypeError, match="backoff"):
        Retry(backoff=wrong)
