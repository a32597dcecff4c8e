"""What a `Spend` reports: its errors, its warnings, its events and its statistics."""

from __future__ import annotations

import gc
import json
import pickle
import sys
from typing import Any
from weakref import ref

import pytest

from redouble import observe, stats
from redouble.instruments import memory
from redouble.llm import Spend, SpendRefused
from redouble.types import Event
from tests.support.llm.spends import refusal, spent, tokens


@pytest.mark.parametrize(
    ("options", "asked", "what", "message"),
    [
        (
            {"tokens": 1000, "per": 60},
            {"tokens": 50},
            "tokens",
            "Spend(tokens=1000 per 60 s): 900 are spent and 80 reserved, and 50 were asked for",
        ),
        (
            {"tokens": 1000, "name": "chat"},
            {"tokens": 1001},
            "tokens",
            "Spend(tokens=1000, name='chat'): 1001 were asked for, which is more than it ever allows",
        ),
        (
            {"requests": 2},
            {},
            "requests",
            "Spend(requests=2): 1 are spent and 1 reserved, and 1 was asked for",
        ),
        ({"cost": 0.98}, {}, "cost", "Spend(cost=0.98): 0.9 are spent and 0.08 reserved, and none is left"),
        (  # of several limits, the one with the longest wait
            {"tokens": 980, "cost": 1, "requests": 2, "per": 9},
            {"tokens": 1, "cost": 2},
            "cost",
            "Spend(cost=1 per 9 s): 2 were asked for, which is more than it ever allows",
        ),
    ],
)
def test_a_rejection_names_the_limit_and_the_amounts(
    options: dict[str, Any], asked: dict[str, Any], what: str, message: str
) -> None:
    spend = Spend(**options)
    spend.reserve(tokens=900, cost=0.9).commit()
    kept = spend.reserve(tokens=80, cost=0.08)
    error = refusal(spend, **asked)
    assert (str(error), error.what) == (message, what)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.what, again.retry_after) == (message, what, error.retry_after)
    kept.release()


def test_observers_receive_the_rejection() -> None:
    events: list[Event] = []
    with observe(events.append, only=["rejected"]), memory.instrument() as metrics:
        error = refusal(Spend(tokens=1, name="chat"), tokens=2)
    assert [(event.by, event.name, event.error) for event in events] == [("spend", "chat", error)]
    assert metrics.counter("rejected", name="chat", by="spend") == 1


def test_a_named_spend_is_in_the_statistics() -> None:
    spend = Spend(tokens=9, cost=0.5, name="spend of a test")
    spent(spend, 2, cost=0.25)
    shown = stats()["limits"]["spend of a test"]
    assert json.loads(json.dumps(shown)) == {"type": "Spend", **spend.snapshot()}
    with memory.instrument() as metrics:
        assert "spend of a test" not in str(metrics.series())


def test_a_rejection_keeps_nothing_alive() -> None:
    """Neither the error nor its traceback is part of a cycle."""
    spend, errors = Spend(tokens=1), list[ref[SpendRefused]]()
    gc.disable()
    try:
        try:
            spend.reserve(tokens=2)
        except SpendRefused as error:
            errors.append(ref(error))
        assert [error() for error in errors] == [None]
        assert sys.getrefcount(spend) == 2
    finally:
        gc.enable()


# --------------------------------------------------------------------------------------- warnings


def test_a_warning_is_logged_once_for_each_limit(caplog: pytest.LogCaptureFixture) -> None:
    """When the spent and reserved amounts reach the share ``warn_at`` of a limit."""
    spend = Spend(tokens=100, cost=0.5, requests=100, name="chat")
    spend.reserve(tokens=50).commit()
    kept = spend.reserve(tokens=29)
    assert caplog.messages == []
    assert kept.more(tokens=1)
    spend.reserve(tokens=10, cost=0.4).release()
    spend.reserve(tokens=20).commit()
    assert caplog.messages == [
        "Spend(tokens=100, name='chat'): 80 of 100 are spent or reserved",
        "Spend(cost=0.5, name='chat'): 0.4 of 0.5 are spent or reserved",
    ]
    assert {record.levelname for record in caplog.records} == {"WARNING"}


@pytest.mark.parametrize(
    ("warn_at", "tokens", "logged"),
    [(None, 10, 0), (1, 9, 0), (1, 10, 1), (0.1, 1, 1), (0.3, 3, 1), (0.3, 2, 0)],
)
def test_the_warning_is_logged_from_warn_at_on(
    warn_at: float | None, tokens: int, logged: int, caplog: pytest.LogCaptureFixture
) -> None:
    spent(Spend(tokens=10, warn_at=warn_at), tokens)
    assert len(caplog.messages) == logged


def test_a_commit_above_its_reservation_may_cause_the_warning(caplog: pytest.LogCaptureFixture) -> None:
    Spend(tokens=100).reserve(tokens=1).commit(tokens=90)
    assert caplog.messages == ["Spend(tokens=100): 90 of 100 are spent or reserved"]


def test_an_overdrawn_limit_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    spend = Spend(tokens=100, warn_at=None)
    first, second = spend.reserve(tokens=60), spend.reserve(tokens=30)
    first.commit(tokens=90)
    second.commit(tokens=50)
    assert caplog.messages == ["Spend(tokens=100): 20 more were used than it allows"]
    assert tokens(spend) == (100, 0, 0, 40)
