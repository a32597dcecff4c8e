"""``retry_if``: a rule of the caller that is asked first, with the context of the call."""

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
    status,
    text_chunk,
    text_of,
)

RETRIED, STOPPED = status(503), status(400)


def fresh(error: Any) -> Exception:
    return status(error.response.status_code)


def rule_returning(answer: Any) -> Any:
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
def test_retry_if_overrides_the_table_unless_it_returns_none(
    colour: str, shape: str, error: Exception, answer: bool | None, calls: int
) -> None:
    service = Service(fresh(error))
    seen = ask(
        colour,
        shape,
        model_of(policy=Retry(attempts=3, backoff=[0, 0]), retry_if=rule_returning(answer)),
        service,
    )
    assert (service.calls, seen.report.attempts) == (calls, calls)
    assert seen.report.reason == ("attempts" if calls == 3 else "stopped")


@every_shape
def test_retry_if_receives_the_context(colour: str, shape: str) -> None:
    """The error, the number of the attempt, provider and model, bound fields, True for a stream."""
    received: list[tuple[Exception, int, Context, dict[str, Any]]] = []

    def rule(error: Exception, attempt: int, context: Context) -> bool:
        received.append((error, attempt, context, dict(context.bound)))
        return attempt < 3

    first, second = KeyError(), status(401)
    with redouble.bind(run_id="r-17", tenant="acme"):
        seen = ask(colour, shape, model_of(retry_if=rule), Service(first, second, KeyError("last")))
    assert [(error, attempt) for error, attempt, _, _ in received[:2]] == [(first, 1), (second, 2)]
    assert (received[-1][0], received[-1][1]) == (seen.error, 3)
    for _, _, context, bound in received:
        assert (context.provider, context.model, context.stream) == ("openai", "gpt-5", shape in STREAMS)
        assert bound == {"run_id": "r-17", "tenant": "acme"}


def test_without_bind_the_bound_fields_are_empty(colour: str) -> None:
    received: list[Mapping[str, Any]] = []

    def rule(error: Exception, attempt: int, context: Context) -> None:
        received.append(context.bound)

    ask(colour, "call", model_of(retry_if=rule), Service(KeyError()))
    assert received == [{}]
    assert Context("openai", "gpt-5") == ("openai", "gpt-5", {}, False)


@every_shape
@pytest.mark.parametrize("answer", [1, "yes", 2.5, 0])
def test_a_rule_that_returns_something_else_raises(colour: str, shape: str, answer: Any) -> None:
    service = Service(status(503))
    seen = ask(colour, shape, model_of(retry_if=rule_returning(answer)), service)
    assert isinstance(seen.error, TypeError)
    assert str(seen.error) == f"retry_if answered {answer!r}: write True, False, or None for no opinion"
    assert service.calls == 1


@every_shape
def test_a_rule_that_raises_ends_the_call(colour: str, shape: str) -> None:
    def rule(error: Exception, attempt: int, context: Context) -> bool:
        return 1 / 0 > 0

    error = status(503)
    service = Service(error)
    seen = ask(colour, shape, model_of(retry_if=rule), service)
    assert isinstance(seen.error, ZeroDivisionError)
    assert seen.error.__context__ is error
    assert service.calls == 1


@every_stream
def test_after_the_first_chunk_retry_if_changes_nothing(colour: str, shape: str) -> None:
    """The rule may be called; the stream ends whatever it returns."""
    service = Service([text_chunk("a"), ConnectionResetError()], text_of(shape, "ab"))
    seen = ask(colour, shape, model_of(retry_if=rule_returning(True)), service)
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
def test_kind_and_reason_are_those_of_the_table(
    error: Exception, answer: bool, kind: str, reason: str | None
) -> None:
    events: list[Event] = []
    with redouble.observe(events.append, only=["failure"]):
        ask("sync", "call", model_of(retry_if=rule_returning(answer)), Service(error))
    assert events[0].verdict is not None
    assert (events[0].kind, events[0].verdict.reason) == (kind, reason)


def test_the_hint_of_the_table_is_kept(colour: str) -> None:
    service = Service(status(429, {"Retry-After": "3"}), "hi")
    seen = ask(colour, "call", model_of(retry_if=rule_returning(True)), service)
    assert [3 <= delay <= 3.3 for delay in seen.delays] == [True]


@every_shape
def test_retry_if_comes_before_the_rules_of_the_policy(colour: str, shape: str) -> None:
    policy = Retry(on=KeyError, attempts=2, backoff=[0])
    for error, answer, calls in [
        (KeyError, None, 2),
        (KeyError, False, 1),
        (OSError, None, 1),
        (OSError, True, 2),
    ]:
        service = Service(error())
        ask(colour, shape, model_of(policy=policy, retry_if=rule_returning(answer)), service)
        assert service.calls == calls


def test_retry_if_is_not_called_for_results(colour: str) -> None:
    """Results are checked by ``until`` alone."""
    asked: list[Exception] = []
    policy = Retry(until=bool, attempts=3, backoff=[0, 0])

    def rule(error: Exception, attempt: int, context: Context) -> None:
        asked.append(error)

    seen = ask(colour, "call", model_of(policy=policy, retry_if=rule), Service("", "", "said"))
    assert (seen.value, asked) == ("said", [])
