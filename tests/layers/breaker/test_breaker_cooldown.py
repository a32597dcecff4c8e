"""The cooldown of a breaker may depend on how often it has opened again: a backoff, a list or a function."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from redouble import Backoff, CircuitBreaker, errors
from tests.support.fakes import Panic
from tests.support.layers.breaker_scripts import BreakerScript


def opened_for(script: BreakerScript, times: int) -> list[float]:
    """Let every probe fail, and return how long the breaker stays open each time."""
    spans: list[float] = []
    for _ in range(times):
        script.run("bad:open")
        after = script.breaker.snapshot()["retry_after"]
        assert isinstance(after, int | float)
        spans.append(after)
        script.clock.time += after
    return spans


def longer(reopened: int) -> float:
    return 2.5 + reopened


def longer_spans(reopened: int) -> timedelta:
    return timedelta(seconds=1 + reopened)


class Every:
    """Delays of a class of the user."""

    def __iter__(self) -> Iterator[float]:
        yield from (1, 2)


@pytest.mark.parametrize(
    ("cooldown", "spans"),
    [
        (7, [7, 7, 7]),
        (timedelta(minutes=1), [60, 60]),
        (Backoff.exponential(5).maximum(30), [5, 10, 20, 30, 30]),
        (Backoff.constant(3), [3, 3, 3]),
        (Backoff.linear(1, 2).take(2), [1, 3, 3]),  # the last one stays
        ([1, 10], [1, 10, 10]),
        ((timedelta(seconds=2), 1), [2, 1, 1]),
        (Every(), [1, 2, 2]),
        (longer, [2.5, 3.5, 4.5]),
        (longer_spans, [1, 2, 3]),
    ],
)
def test_each_opening_has_its_cooldown(cooldown: Any, spans: list[float]) -> None:
    script = BreakerScript(failures=1, cooldown=cooldown)
    assert opened_for(script, len(spans)) == spans
    assert script.breaker.snapshot()["reopened"] == len(spans) - 1
    script.run("good:closed")
    assert script.breaker.snapshot()["reopened"] == 0
    assert opened_for(script, len(spans)) == spans, "it begins again after it has closed"


@pytest.mark.parametrize("by_hand", ["close", "isolate close", "disable close", "metrics_only close"])
def test_it_begins_again_after_a_change_by_hand(by_hand: str) -> None:
    script = BreakerScript(failures=1, cooldown=[1, 2, 3])
    assert opened_for(script, 2) == [1, 2]
    script.run(by_hand)
    assert opened_for(script, 2) == [1, 2]


def test_a_stage_of_reopening_is_not_closed_yet() -> None:
    script = BreakerScript(failures=1, cooldown=[2, 4, 8], reopening=(0.5,))
    script.run("bad:open +2 good:half_open bad:open +3.9:open +0.1:half_open good:half_open")
    script.run("good +4 good:closed bad:open +2:half_open")


def test_a_lost_probe_is_replaced_after_the_current_cooldown() -> None:
    script = BreakerScript(failures=1, cooldown=[2, 8])
    script.run("bad +2 bad +8 a> +7.9 b>:no +0.1 b>:half_open b=good:closed")


def test_its_random_numbers_come_from_the_breaker() -> None:
    script = BreakerScript(0.5, 0.25, failures=1, cooldown=Backoff.constant(8).full_jitter())
    assert opened_for(script, 2) == [4, 2]


def test_the_event_and_the_error_have_the_current_cooldown() -> None:
    script = BreakerScript(failures=1, cooldown=[2, 8])
    script.run("bad +2 bad")
    assert [event.hint for event in script.events] == [2, None, 8]
    with pytest.raises(errors.CircuitOpen) as caught:
        script.breaker.call(int)
    assert caught.value.retry_after == 8


# ------------------------------------------------------------- functions that fail


def answering(*answers: Any) -> Callable[[int], Any]:
    """Return a function that returns these answers one after the other, and raises the exceptions in it."""
    left = iter(answers)

    def cooldown(reopened: int) -> Any:
        answer = next(left)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    return cooldown


@pytest.mark.parametrize("broken", [ZeroDivisionError("oops"), "5", None, -1, float("nan")])
@pytest.mark.parametrize(("before", "spans"), [([], [30]), ([5], [5, 5])])
def test_a_function_that_fails_is_logged_and_the_last_cooldown_stays(
    caplog: pytest.LogCaptureFixture, broken: Any, before: list[int], spans: list[float]
) -> None:
    script = BreakerScript(failures=1, name="pay", cooldown=answering(*before, broken, 7))
    assert opened_for(script, len(spans)) == spans
    [record] = [record for record in caplog.records if "cooldown" in record.getMessage()]
    assert record.levelno == logging.ERROR
    assert f"the cooldown of pay failed, so it is {spans[-1]} s: " in record.getMessage()
    assert opened_for(script, 1) == [7]


def test_an_iterable_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def __iter__(self) -> Iterator[float]:
            yield 2
            raise ZeroDivisionError

    script = BreakerScript(failures=1, cooldown=Broken())
    assert opened_for(script, 3) == [2, 2, 2]
    assert "the cooldown of the circuit breaker failed, so it is 2 s: ZeroDivisionError" in caplog.text


def test_an_interruption_inside_the_function_loses_nothing() -> None:
    """The breaker opens all the same, for as long as the last time."""
    script = BreakerScript(failures=1, cooldown=answering(3, Panic(), 4))
    script.run("bad:open +3")
    with pytest.raises(Panic):
        script.run("bad")
    script.run("+0:open +2.9:open +0.1:half_open bad:open +3.9:open +0.1:half_open good:closed")


def test_the_function_may_use_the_breaker() -> None:
    def cooldown(reopened: int) -> float:
        breaker = script.breaker
        seen.append((breaker.state, breaker.snapshot()["state"], breaker.call(int)))
        breaker.isolate()  # after the change that runs
        return 5

    seen: list[object] = []
    script = BreakerScript(failures=1, cooldown=cooldown)
    script.run("bad:isolated close:closed")
    assert seen == [("closed", "closed", 0)]
    assert script.emitted == "opened isolated closed"


# ------------------------------------------------------------------------- wrong values


async def later(reopened: int) -> float:
    return 1


@pytest.mark.parametrize(
    ("cooldown", "message"),
    [
        (-1, r"^CircuitBreaker cooldown=-1: write a finite number"),
        ("5s", r"^CircuitBreaker cooldown='5s': write seconds as a number"),
        (None, r"^CircuitBreaker cooldown=None: write seconds as a number"),
        ([], r"^CircuitBreaker cooldown=\[\] has no delay: write at least one"),
        (Backoff.constant(1).take(0), r"has no delay: write at least one"),
        ([1, "2"], r"^CircuitBreaker cooldown='2': write seconds"),
        (iter([1]), r"^CircuitBreaker cooldown=.* can be iterated only once"),
        ({"a": 1}, r"^CircuitBreaker cooldown=.* is not an iterable of seconds"),
        (later, r"^CircuitBreaker cooldown=later is .*: write a plain function"),
        (lambda: 1, r"^CircuitBreaker cooldown=.* takes \(\): write a function of how often"),
    ],
)
def test_wrong_values(cooldown: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        CircuitBreaker(cooldown=cooldown)


def half_a_minute(reopened: int) -> float:
    return 30


@pytest.mark.parametrize(
    ("cooldown", "described", "shown"),
    [
        (5, "for 5 s", "cooldown=5"),
        ([1, 2.5], "for 1 s, then 2.5 s", "cooldown=(1.0, 2.5)"),
        ([1, 2, 3, 4, 5], "for 1 s, then 2 s, 3 s, 4 s, ...", "cooldown=(1.0, 2.0, 3.0, 4.0, 5.0)"),
        (Backoff.exponential(5).maximum(60), "for Backoff.exponential(5, 2).maximum(60)", None),
        (half_a_minute, "for as long as half_a_minute() returns", "cooldown=half_a_minute"),
    ],
)
def test_its_description(cooldown: Any, described: str, shown: str | None) -> None:
    breaker = CircuitBreaker(cooldown=cooldown)
    assert breaker.describe() == f"opens after 5 failures in a row, {described}"
    assert (shown or repr(cooldown)) in repr(breaker)
