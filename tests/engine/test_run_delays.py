"""The delays of a run: hints of the other side, and backoffs by kind."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any

import pytest

from redouble import Backoff, Hints, Kind, Retry, Verdict
from redouble._engine.run import Run
from tests.support.fakes import Boom, Draws, always
from tests.support.fakes import options as defaults


def answer(
    asked: Any, delay: float = 2, draws: float = 0.5, **options: Any
) -> tuple[float | None, str | None]:
    """Fail once with this hint; return the delay, or the reason why there is none."""
    given = defaults(on=always(asked), backoff=[2], random=Draws(draws)) | options
    run = Run(Retry(**given), 0.0)
    return run.failed(Boom(), 0.0), run.reason


def hints(**options: Any) -> dict[str, Any]:
    return {"hints": Hints(**defaults(spread=0) | options)}


@pytest.mark.parametrize(
    ("asked", "options", "expected"),
    [
        # at_least: the longer of the two
        (5, hints(), (5, None)),
        (1, hints(), (2, None)),
        (2, hints(), (2, None)),
        (0, hints(), (2, None)),
        (timedelta(seconds=5), hints(), (5, None)),
        (Verdict.retry(after=5), hints(), (5, None)),
        (True, hints(), (2, None)),
        (-9, hints(), (2, None)),  # a moment in the past
        # instead: the hint alone, also when it is shorter
        (5, hints(mode="instead"), (5, None)),
        (1, hints(mode="instead"), (1, None)),
        (0, hints(mode="instead"), (0, None)),
        (True, hints(mode="instead"), (2, None)),
        # ignore: the backoff alone, whatever the other options are
        (5, hints(mode="ignore"), (2, None)),
        (500, hints(mode="ignore", longest=1), (2, None)),
        # longest: compared with the hint, without the spread
        (60, hints(longest=60) | {"give_up_after": 99}, (60, None)),
        (60, hints(longest=60, spread=0.1) | {"give_up_after": 99}, (63, None)),
        (60.1, hints(longest=60) | {"give_up_after": 99}, (None, "hint_too_long")),
        (60.1, hints(longest=60, mode="instead"), (None, "hint_too_long")),
        (60.1, hints(longest=60, over=1), (None, "hint_too_long")),
        # over: a hint adds at most this to the backoff
        (20, hints(over=5), (7, None)),
        (20, hints(over=5, mode="instead"), (7, None)),
        (20, hints(over=0), (2, None)),
        (6, hints(over=5), (6, None)),
        (6.9, hints(over=5, spread=1), (7, None)),
        (500, hints(over=5), (7, None)),  # `over` has shortened it
        # spread: a share of the hint, drawn; none for a hint of zero
        (10, hints(spread=0.2), (11, None)),
        (10, hints(spread=0.2) | {"draws": 0}, (10, None)),
        (1.9, hints(spread=0.2), (1.9 + 0.5 * 0.2 * 1.9, None)),
        (1, hints(spread=1), (2, None)),
        (0, hints(spread=1, mode="instead"), (0, None)),
        # the spread is shortened to fit into the time left
        (28, hints(spread=1), (29, None)),
        (28, hints(spread=1) | {"give_up_after": None, "timeout": 29}, (28.5, None)),
        (28, hints(spread=1) | {"give_up_after": None}, (42, None)),
        # a hint that does not fit ends the call at once, since no attempt may come before it
        (30, hints(), (None, "timeout")),
        (600, hints(), (None, "timeout")),
        (600, hints(spread=1), (None, "timeout")),
        (1e300, hints() | {"give_up_after": None}, (1e300, None)),
        (sys.float_info.max, hints() | {"give_up_after": None}, (1e300, None)),
    ],
)
def test_the_delay_for_a_hint(
    asked: Any, options: dict[str, Any], expected: tuple[float | None, str | None]
) -> None:
    seen = answer(asked, **options)
    assert seen == (pytest.approx(expected[0]) if expected[0] else expected[0], expected[1])


def test_the_default_spread_of_hints_is_a_tenth() -> None:
    assert answer(10, draws=0.5) == (10.5, None)


@pytest.mark.parametrize("draw", [1 - 2**-53, 1.0])
@pytest.mark.parametrize("mode", ["at_least", "instead"])
@pytest.mark.parametrize("started", [0.0, 0.1, 1.7e9])
@pytest.mark.parametrize("spare", [1e-6, 0.5, 3.0])
def test_a_hint_that_fits_is_not_lost_to_its_spread(
    draw: float, mode: Any, started: float, spare: float
) -> None:
    """The spread is shortened to fit, and dropped where rounding would still exceed the limit."""
    policy = Retry(
        on=always(30.0),
        backoff=[0],
        give_up_after=30 + spare,
        hints=Hints(mode=mode, spread=0.1),
        random=Draws(draw),
    )
    run = Run(policy, started)
    delay = run.failed(Boom(), started)
    assert delay is not None
    assert 30 <= delay <= 33
    assert started + delay < run.until
    assert run.start(started + delay) is None


def test_no_draw_without_a_hint() -> None:
    source = Draws(0.5)
    answer(True, random=source)
    answer(0, random=source)
    answer(5, random=source, hints=Hints(spread=0))
    answer(5, random=source, hints=Hints(mode="ignore"))
    assert source.drawn == 0
    answer(5, random=source)
    assert source.drawn == 1


def test_the_verdict_of_until_may_have_a_hint() -> None:
    run = Run(Retry(until=lambda _: Verdict.retry(after=7), backoff=[1], hints=Hints(spread=0)), 0.0)
    assert run.returned("busy", 0.0) == 7


BY_KIND: dict[Kind | None, Any] = {
    Kind.throttled: [10, 20],
    Kind.timeout: Backoff.exponential(1),
    None: [0.5, 0.25],
}
THROTTLED, SERVER = Verdict.retry(kind=Kind.throttled), Verdict.retry(kind=Kind.server)


@pytest.mark.parametrize(
    ("failures", "expected"),
    [
        ([THROTTLED, THROTTLED, THROTTLED], [10, 20, None]),
        ([SERVER, SERVER, SERVER], [0.5, 0.25, None]),
        ([THROTTLED, SERVER, THROTTLED, SERVER], [10, 0.5, 20, 0.25]),  # each kind has its own series
        ([SERVER, True, Verdict.retry(kind=Kind.client)], [0.5, 0.25, None]),  # the other kinds share one
        (
            [TimeoutError(), TimeoutError(), SERVER],
            [1, 2, 0.5],
        ),  # without a kind in the verdict, that of the type
    ],
)
def test_backoff_by_kind(failures: list[Any], expected: list[float | None]) -> None:
    answers = [True if isinstance(failure, Exception) else failure for failure in failures]
    policy = Retry(on=lambda _: answers.pop(0), backoff=BY_KIND, attempts=9, give_up_after=None)
    run = Run(policy, 0.0)
    raised = [failure if isinstance(failure, Exception) else Boom() for failure in failures]
    assert [run.failed(error, 0.0) for error in raised] == expected
    assert run.reason == ("backoff_ended" if None in expected else None)


def test_backoff_for_every_kind_needs_no_none_key() -> None:
    every: dict[Kind, Any] = {kind: [number] for number, kind in enumerate(Kind)}
    answers = [Verdict.retry(kind=kind) for kind in Kind]
    run = Run(Retry(on=lambda _: answers.pop(0), backoff=every, attempts=99), 0.0)
    assert [run.failed(Boom(), 0.0) for _ in Kind] == list(range(len(Kind)))


def test_every_call_starts_the_backoff_again() -> None:
    policy = Retry(on=Boom, backoff=[1, 2], attempts=9)
    for _ in range(2):
        run = Run(policy, 0.0)
        assert [run.failed(Boom(), 0.0) for _ in range(3)] == [1, 2, None]


def test_jitter_uses_the_random_of_the_policy() -> None:
    policy = Retry(on=Boom, backoff=Backoff.constant(8).full_jitter(), random=Draws(0.25, 0.75))
    run = Run(policy, 0.0)
    assert [run.failed(Boom(), 0.0) for _ in range(2)] == [2, 6]
