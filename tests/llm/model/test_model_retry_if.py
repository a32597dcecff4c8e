"""``retry_if``: the caller decides first on what is retried, with the context of the call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

import redouble
from redouble import Retry
from redouble.llm import Context
from redouble.types import Event
from tests.support.llm.scripted_model import (
    STREAMS,
    Service,
    ask,
    every_shape,
    every_stream,
    model_of,
    said,
    status,
    text_of,
)

RETRIED, STOPPED = status(503), status(400)


def fresh(error: Any) -> Exception:
    return status(error.response.status_code)


def answers(answer: Any) -> Any:
    def rule(error: Exception, attempt: int, context: Context) -> Any:
        return answer

    return rule


@every_shape
@pytest.mark.parametrize(
    ("error", "answer", "calls"),
    [
        (RETRIED, True, 3),
        (RETRIED, False, 1),
        (RETRIED, None, 3),
        (STOPPED, True, 3),
        (STOPPED, False, 1),
        (STOPPED, None, 1),
    ],
)
def test_it_overrides_the_table_unless_it_has_no_opinion(
    colour: str, shape: str, error: Exception, answer: bool | None, calls: int
) -> None:
    service = Service(fresh(error))
    seen = ask(
        colour, shape, model_of(policy=Retry(attempts=3, backoff=[0, 0]), retry_if=answers(answer)), service
    )
    assert (service.calls, seen.report.attempts) == (calls, calls)
    assert seen.report.reason == ("attempts" if calls == 3 else "stopped")


@every_shape
def test_retry_if_receives_the_context(colour: str, shape: str) -> None:
    """The error itself, the number of the attempt, whose call it is, what is bound, if it is a stream."""
    told: list[tuple[Exception, int, Context, dict[str, Any]]] = []

    def rule(error: Exception, attempt: int, context: Context) -> bool:
        told.append((error, attempt, context, dict(context.bound)))
        return attempt < 3

    first, second = KeyError(), status(401)
    with redouble.bind(run_id="r-17", tenant="acme"):
        seen = ask(colour, shape, model_of(retry_if=rule), Service(first, second, KeyError("last")))
    assert [(error, attempt) for error, attempt, _, _ in told[:2]] == [(first, 1), (second, 2)]
    assert (told[-1][0], told[-1][1]) == (seen.error, 3)
    for _, _, context, bound in told:
        assert (context.provider, context.model, context.stream) == ("openai", "gpt-5", shape in STREAMS)
        assert bound == {"run_id": "r-17", "tenant": "acme"}


def test_nothing_is_bound_unless_it_is(colour: str) -> None:
    told: list[Mapping[str, Any]] = []

    def rule(error: Exception, attempt: int, context: Context) -> None:
        told.append(context.bound)

    ask(colour, "call", model_of(retry_if=rule), Service(KeyError()))
    assert told == [{}]
    assert Context("openai", "gpt-5") == ("openai", "gpt-5", {}, False)


@every_shape
@pytest.mark.parametrize("answer", [1, "yes", 2.5, 0])
def test_a_wrong_answer_is_called_by_name(colour: str, shape: str, answer: Any) -> None:
    service = Service(status(503))
    seen = ask(colour, shape, model_of(retry_if=answers(answer)), service)
    assert isinstance(seen.error, TypeError)
    assert str(seen.error) == f"retry_if answered {answer!r}: write True, False, or None for no opinion"
    assert service.calls == 1


@every_shape
def test_one_that_raises_ends_the_call(colour: str, shape: str) -> None:
    def rule(error: Exception, attempt: int, context: Context) -> bool:
        return 1 / 0 > 0

    error = status(503)
    service = Service(error)
    seen = ask(colour, shape, model_of(retry_if=rule), service)
    assert isinstance(seen.error, ZeroDivisionError)
    assert seen.error.__context__ is error
    assert service.calls == 1


@every_stream
def test_it_has_no_say_after_the_first_chunk(colour: str, shape: str) -> None:
    """It may be called; the stream is over whatever it returns."""
    service = Service([said("a"), ConnectionResetError()], text_of(shape, "ab"))
    seen = ask(colour, shape, model_of(retry_if=answers(True)), service)
    assert isinstance(seen.error, ConnectionResetError)
    assert (seen.report.reason, service.calls, service.closed) == ("committed", 1, 1)


@pytest.mark.parametrize(
    ("error", "answer", "kind", "reason"),
    [
        (status(429), True, "throttled", "rate_limit"),
        (status(429), False, "throttled", "rate_limit"),
        (status(400), True, "unknown", None),
        (KeyError(), False, "unknown", None),
        (TimeoutError(), True, "timeout", "timeout"),
    ],
)
def test_what_the_error_is_stays_what_the_table_says(
    error: Exception, answer: bool, kind: str, reason: str | None
) -> None:
    events: list[Event] = []
    with redouble.observe(events.append, only=["failure"]):
        ask("sync", "call", model_of(retry_if=answers(answer)), Service(error))
    assert events[0].verdict is not None
    assert (events[0].kind, events[0].verdict.reason) == (kind, reason)


def test_a_hint_that_the_table_has_found_is_kept(colour: str) -> None:
    service = Service(status(429, {"Retry-After": "3"}), "hi")
    seen = ask(colour, "call", model_of(retry_if=answers(True)), service)
    assert [3 <= delay <= 3.3 for delay in seen.delays] == [True]


@every_shape
def test_it_comes_before_the_rules_of_the_policy(colour: str, shape: str) -> None:
    policy = Retry(on=KeyError, attempts=2, backoff=[0])
    for error, answer, calls in [
        (KeyError, None, 2),
        (KeyError, False, 1),
        (OSError, None, 1),
        (OSError, True, 2),
    ]:
        service = Service(error())
        ask(colour, shape, model_of(policy=policy, retry_if=answers(answer)), service)
        assert service.calls == calls


def test_results_are_the_business_of_until(colour: str) -> None:
    """The rule of a model is asked about errors alone."""
    asked: list[Exception] = []
    policy = Retry(until=bool, attempts=3, backoff=[0, 0])

    def rule(error: Exception, attempt: int, context: Context) -> None:
        asked.append(error)

    seen = ask(colour, "call", model_of(policy=policy, retry_if=rule), Service("", "", "said"))
    assert (seen.value, asked) == ("said", [])
