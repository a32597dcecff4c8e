"""The labels of a model are in every event, report and metric; a prompt is in none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import redouble
from redouble import Retry, report
from redouble.errors import AttemptTimeout, BudgetExhausted, DeadlineExceeded
from redouble.instruments import memory
from redouble.llm import CutShort, ErrorEvent, Spend, SpendExceeded, SpendRefused, Timeouts
from redouble.types import Event
from tests.support.llm.chunk_sources import Feed, Takes
from tests.support.llm.guarded_streams import VIRTUAL, play
from tests.support.llm.scripted_model import (
    LABELS,
    STREAMS,
    Service,
    ask,
    every_shape,
    model_of,
    status,
    text_chunk,
    text_of,
)
from tests.support.llm.spends import spent

LOST = ConnectionResetError
TIMED = [place for place in VIRTUAL if place != "alone"]


def emptied() -> Spend:
    """Return a `Spend` with nothing left."""
    spend = Spend(tokens=3, name="purse")
    spent(spend, 3)
    return spend


# --------------------------------------------------------------------------------- events


@every_shape
def test_every_event_has_the_labels_and_bound_fields(colour: str, shape: str) -> None:
    events: list[Event] = []
    policy = Retry(backoff=[0] * 9, labels={"team": "chat"})
    with redouble.observe(events.append), redouble.bind(run_id="r-1"):
        ask(colour, shape, model_of(policy=policy), Service(status(503), LOST(), text_of(shape, "hi")))
        ask(colour, shape, model_of(policy=policy), Service(status(401)))
    assert [event.what for event in events] == [
        *("before_attempt", "failure", "retry") * 2,
        *("before_attempt", "success"),
        *("before_attempt", "failure", "give_up"),
    ]
    assert all(event.labels == {**LABELS, "team": "chat"} for event in events)
    assert all(event.bound == {"run_id": "r-1"} for event in events)
    assert {event.name.startswith("Service.") for event in events} == {True}


@every_shape
def test_the_name_of_the_policy_is_the_name_of_the_call(colour: str, shape: str) -> None:
    model = model_of(policy=Retry(name="talk", attempts=1))
    assert ask(colour, shape, model, Service(LOST())).report.name == "talk"


@every_shape
def test_no_prompt_and_no_answer_is_reported(
    colour: str, shape: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    events: list[Event] = []
    with redouble.observe(events.append, only=["failure", "retry", "give_up", "before_attempt"]):
        model = model_of(spend=Spend(tokens=9, warn_at=0.1), reserve=5)
        ask(colour, shape, model, Service(status(503), text_of(shape, "secret")), "secret", prompt="secret")
        ask(colour, shape, model, Service(status(400)), "secret", prompt="secret")
    assert events
    assert "secret" not in f"{events}{caplog.text}"


# -------------------------------------------------------------------------------- reports


@every_shape
@pytest.mark.parametrize(
    ("script", "reason", "attempts"),
    [
        (lambda: [LOST()], "attempts", 4),
        (lambda: [status(401)], "stopped", 1),
        (lambda: [LOST(), status(400)], "stopped", 2),
    ],
    ids=["attempts", "stopped", "stopped later"],
)
def test_the_report_of_a_failed_call_has_the_labels(
    colour: str, shape: str, script: Callable[[], list[Any]], reason: str, attempts: int
) -> None:
    call_report = ask(
        colour, shape, model_of(policy=Retry(attempts=4, backoff=[0] * 3)), Service(*script())
    ).report
    assert (call_report.labels, call_report.reason, call_report.attempts) == (LABELS, reason, attempts)


@every_shape
def test_wrapped_and_rejected_errors_have_the_labels(colour: str, shape: str) -> None:
    wrapping = model_of(policy=Retry(wrap=True, attempts=2, backoff=[0]))
    seen = ask(colour, shape, wrapping, Service(LOST()))
    assert seen.error.report.labels == seen.report.labels == LABELS
    spent = model_of(policy=Retry(wrap=True, backoff=[0] * 9, budget=redouble.TokenBucket(capacity=1)))
    assert ask(colour, shape, spent, Service(LOST())).report.labels == LABELS
    assert isinstance(ask(colour, shape, spent, Service(LOST())).error, BudgetExhausted)
    refused = ask(colour, shape, model_of(spend=emptied(), reserve=2), Service())
    assert isinstance(refused.error, SpendRefused)
    assert refused.report.labels == LABELS


@pytest.mark.parametrize("place", TIMED)
@pytest.mark.parametrize(
    ("script", "options", "kind", "limit"),
    [
        (["a", Takes(9), "end"], {"timeouts": Timeouts(read=3)}, AttemptTimeout, "attempt"),
        (["a", Takes(9), "end"], {"timeouts": Timeouts(total=3)}, DeadlineExceeded, "total"),
        ([Takes(9), "a"], {"timeouts": Timeouts(total=3)}, DeadlineExceeded, "total"),
        (
            [Takes(9), "a"],
            {"timeouts": Timeouts(read=3), "policy": Retry(attempts=1)},
            AttemptTimeout,
            "attempt",
        ),
        (["a"], {}, CutShort, None),
        (["a", "!no"], {}, ErrorEvent, None),
        (["!no"], {"policy": Retry(attempts=1)}, ErrorEvent, None),
        (["a"] * 9, {"reserve": 1}, SpendExceeded, None),
    ],
    ids=["silence", "total", "total at once", "first", "cut", "event", "first event", "spend"],
)
def test_the_report_of_a_failed_stream_has_the_labels(
    place: str, script: list[Any], options: dict[str, Any], kind: type[Exception], limit: str | None
) -> None:
    if "reserve" in options:
        options = {**options, "spend": Spend(tokens=4)}
    error = play(place, Feed(script), **options).error
    assert isinstance(error, kind)
    call_report = report(error)
    assert call_report is not None
    assert (call_report.labels, call_report.limit) == ({"provider": "acme", "model": "m-1"}, limit)
    assert call_report.attempts == 1


# -------------------------------------------------------------------------------- metrics


def labelled(model: str = "gpt-5") -> dict[str, str]:
    return {"provider": "openai", "model": model}


@every_shape
def test_metrics_are_by_provider_and_model(colour: str, shape: str) -> None:
    good = text_of(shape, "hi")
    with memory.instrument() as metrics:
        ask(colour, shape, model_of(), Service(good))
        ask(colour, shape, model_of(), Service(status(429), status(503), LOST(), good))
        ask(colour, shape, model_of(), Service(status(401)))
        ask(colour, shape, model_of(policy=Retry(attempts=1)), Service(status(529)))
    assert metrics.counter("calls", ok="true", **labelled()) == 2
    assert metrics.counter("calls", ok="false", **labelled()) == 2
    for code in ("401", "529"):
        assert metrics.counter("errors", code=code, **labelled()) == 1
    for reason in ("rate_limit", "http_5xx", "network"):
        assert metrics.counter("retries", reason=reason, **labelled()) == 1
    assert metrics.histogram("call_duration", **labelled()).many == 4
    assert metrics.histogram("time_to_first_item", **labelled()).many == (2 if shape in STREAMS else 0)
    assert metrics.counter("calls", **labelled("gpt-6")) == 0


@pytest.mark.parametrize("place", TIMED)
def test_the_time_to_the_first_chunk_is_reported(place: str) -> None:
    with memory.instrument() as metrics:
        play(place, Feed([Takes(1), LOST], [Takes(2), "a", Takes(3), "end"]))
        play(place, Feed([Takes(2), "a", Takes(4), LOST]))
        play(place, Feed([Takes(2), LOST]), policy=Retry(attempts=1))
    seen = metrics.histogram("time_to_first_item", provider="acme", model="m-1")
    assert (seen.many, seen.total) == (
        2,
        1 + 1 + 2 + 2,
    )  # a failed attempt, a delay, the second attempt; then the other stream
    took = metrics.histogram("call_duration", provider="acme", model="m-1")
    assert (took.many, took.total) == (3, 7 + 6 + 2)  # the calls last until their last chunk
    assert metrics.counter("errors", provider="acme", code="ConnectionResetError") == 2


@pytest.mark.parametrize("place", TIMED)
def test_the_reason_of_each_retry_is_counted(place: str) -> None:
    with memory.instrument() as metrics:
        play(
            place,
            Feed([Takes(9), "a"], [], ["!no"], ["end"]),
            timeouts=Timeouts(read=3),
            policy=Retry(attempts=4, backoff=[0] * 3),
        )
    for reason in ("timeout_read", "network", "overloaded"):
        assert metrics.counter("retries", provider="acme", reason=reason) == 1
    assert metrics.counter("calls", provider="acme", ok="true") == 1


@every_shape
def test_rejections_are_counted(colour: str, shape: str) -> None:
    with memory.instrument() as metrics:
        ask(colour, shape, model_of(spend=emptied(), reserve=2), Service())
    assert metrics.counter("rejected", by="spend", name="purse") == 1
    assert metrics.counter("calls") == 0


def test_a_stream_that_is_closed_early_is_a_success() -> None:
    stream = model_of().stream(Service([text_chunk("a"), text_chunk("b")]).chunks)
    with memory.instrument() as metrics, stream:
        next(stream)
    assert metrics.counter("calls", ok="true", **labelled()) == 1
    assert metrics.counter("errors") == 0
