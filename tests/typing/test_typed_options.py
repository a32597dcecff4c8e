"""The options of `Retry` in every function that accepts them: valid ones pass, wrong ones are reported."""
# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any, assert_type

import pytest

import redouble
from redouble import Backoff, Hints, Kind, Retry, Verdict
from redouble.types import Answer, Ended

pytestmark = pytest.mark.one_python

# ---------------------------------------------------------------------------------- on


class Busy(Exception):
    retry_after = 0.5


def yes(error: Exception) -> bool:
    return True


def hint(error: Exception) -> float | None:
    return error.retry_after if isinstance(error, Busy) else None


def later(error: Exception) -> timedelta | None:
    return None


def answer(error: Exception) -> Answer:
    return Verdict.stop()


class Judge:
    def judge(self, ended: Ended, /) -> Answer:
        return None


def test_forms_of_on() -> None:
    Retry(on=OSError)
    Retry(on=(OSError, Busy))
    Retry(on=redouble.transient)
    Retry(on=yes)
    Retry(on=hint)
    Retry(on=later)
    Retry(on=answer)
    Retry(on=lambda error: isinstance(error, Busy))
    Retry(on=Judge())
    Retry(on=[hint, redouble.transient])
    Retry(on=[Busy, (OSError, KeyError), hint, Judge()])
    redouble.retry(on=[hint, redouble.transient])
    kinds: tuple[type[Exception], ...] = (OSError,)
    Retry(on=kinds)


def test_wrong_on() -> None:
    with pytest.raises(TypeError):
        Retry(on="OSError")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        Retry(on=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="KeyboardInterrupt"):
        Retry(on=KeyboardInterrupt)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        Retry(on=Busy())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


# ------------------------------------------------------------------- all other options


def done(result: list[int]) -> bool:
    return bool(result)


def test_options() -> None:
    assert_type(
        Retry(
            on=OSError,
            until=done,
            attempts=None,
            backoff=Backoff.exponential(0.1),
            give_up_after=timedelta(seconds=3),
            timeout=3,
            work_timeout=0.5,
            hints=Hints(mode="instead", longest=timedelta(minutes=1), over=5, spread=0),
            before_attempt=print,
            on_success=lambda event: event.attempt,
            on_failure=None,
            nested="stop",
            wrap=True,
            name="n",
            labels={"a": "b"},
            clock=redouble.SYSTEM,
            random=random.Random(3),
        ),
        Retry,
    )
    Retry(until=lambda result: result is not None)
    Retry(backoff=[0.1, 1, 2])
    Retry(backoff=(0.1, 1))
    Retry(backoff={Kind.network: Backoff.constant(1), None: Backoff.constant(2)})
    Retry(backoff={Kind.network: [1], None: [1, 2]})
    assert_type(replace(Retry(), attempts=2), Retry)


def test_wrong_options() -> None:
    with pytest.raises(TypeError):
        Retry(attempts="3")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        Retry(attempt=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError):
        Retry(OSError)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError):
        Retry(timeout="3s")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        Retry(backoff=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="nested"):
        Retry(nested="never")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        Retry(hints="at_least")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        Retry(budget=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        Retry(on_retry=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        Retry(rules=())  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def test_wrong_options_of_the_decorator() -> None:
    """They are the options of `Retry`."""
    with pytest.raises(TypeError):
        redouble.retry(attempts="3")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        redouble.retry(attempt=3)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError):
        redouble.retry(3)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        redouble.retry(OSError, attempts=3)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]


def test_a_policy_is_frozen() -> None:
    policy: Any = Retry()
    with pytest.raises(AttributeError):
        policy.attempts = 3
    with pytest.raises(AttributeError):
        Retry().attempts = 3  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]


# ----------------------------------------------------------------------------- backoff


def test_backoff() -> None:
    recipe = (
        Backoff.exponential(0.1, factor=3)
        .minimum(0.1)
        .maximum(timedelta(seconds=5))
        .full_jitter()
        .equal_jitter()
        .jitter(0.5)
        .take(3)
    )
    assert_type(recipe, Backoff)
    assert_type(Backoff.constant(timedelta(seconds=1)), Backoff)
    assert_type(Backoff.linear(1, 2), Backoff)
    assert_type(Backoff.random(1, 2), Backoff)
    assert_type(Backoff.decorrelated(1, 2), Backoff)
    assert_type(Backoff.fibonacci(1), Backoff)
    assert_type(Backoff.of([1, 2.5, timedelta(seconds=3)]), Backoff)
    assert_type(iter(recipe), Iterator[float])
    assert_type(recipe.delays(random.Random(1)), Iterator[float])
    assert_type(list(recipe), list[float])


def test_wrong_backoff() -> None:
    with pytest.raises(TypeError):
        Backoff.exponential("1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        Backoff.constant(1).take(1.5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        Backoff.of(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


# ---------------------------------------------------------------------------- verdicts


def test_verdicts() -> None:
    assert_type(Verdict.retry(kind=Kind.server, after=timedelta(seconds=1), sent=False, reason="x"), Verdict)
    assert_type(Verdict.stop(), Verdict)
    assert_type(Verdict.accept(), Verdict)
    assert_type(Verdict.retry().after, float | None)
    assert_type(Verdict.retry().sent, bool | None)
    assert_type(redouble.transient(OSError()), Verdict | None)
    with pytest.raises(ValueError, match="action"):
        Verdict("maybe")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
