"""The messages of the logger `redouble`, none of which can fail a call."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from redouble import Retry, observe
from redouble._telemetry import observers as _watch
from redouble.types import Event
from tests.support.fakes import Boom, Virtual, in_colour

HOOKS = ("before_attempt", "on_success", "on_failure", "on_retry", "on_give_up")


class Broken(logging.Filter):
    """A filter that raises."""

    calls_made = 0

    def filter(self, record: logging.LogRecord) -> bool:
        self.calls_made += 1
        raise ZeroDivisionError("a bug in the filter")


@pytest.fixture
def broken() -> Iterator[Broken]:
    """Add a filter that raises for every record of the logger."""
    logger, failing_filter = logging.getLogger("redouble"), Broken()
    logger.addFilter(failing_filter)
    yield failing_filter
    logger.removeFilter(failing_filter)


def policy(**options: Any) -> Retry:
    given: dict[str, Any] = {"on": Boom, "attempts": 2, "backoff": [1], "clock": Virtual()}
    return Retry(**given | options)


def once_failing() -> tuple[Callable[[], int], Callable[[], Any]]:
    """Return an operation that fails once, in both colours."""
    fails = [Boom()]

    def work() -> int:
        if fails:
            raise fails.pop()
        return 3

    async def awork() -> int:
        return work()

    return work, awork


def test_a_failing_filter_does_not_fail_a_call_with_a_failing_observer(
    colour: str, broken: Broken, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_watch, "_logged", set[object]())  # the observer is the same code in every colour

    def fails(event: Event) -> None:
        raise ValueError("a bug in the observer")

    retrying = policy(**dict.fromkeys(HOOKS, fails))
    work, awork = once_failing()
    assert in_colour(colour, lambda: retrying.call(work), lambda: retrying.call(awork)) == 3
    assert broken.calls_made == 4


def test_a_failing_filter_does_not_fail_nested_calls(colour: str, broken: Broken) -> None:
    inner, outer = policy(), policy()
    calls: list[None] = []

    def work() -> None:
        calls.append(None)
        raise Boom

    async def awork() -> None:
        work()

    with pytest.raises(Boom):
        in_colour(colour, lambda: outer.call(inner(work)), lambda: outer.call(inner(awork)))
    assert (len(calls), broken.calls_made) == (4, 1)


def test_two_failing_lambdas_are_logged_separately(caplog: pytest.LogCaptureFixture) -> None:
    """They have the same name; each is logged once per event."""
    empty: dict[str, int] = {}
    first: Callable[[Event], object] = lambda event: 1 / 0
    second: Callable[[Event], object] = lambda event: empty["missing"]
    for _ in range(3):
        with observe(first), observe(second):
            policy(attempts=1).call(lambda: 1)
    kinds = [record.getMessage().rpartition("once: ")[2].partition(":")[0] for record in caplog.records]
    assert sorted(kinds) == ["KeyError"] * 2 + ["ZeroDivisionError"] * 2


def test_arguments_bound_to_an_observer_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """They may contain a password."""

    class Sender:
        def __init__(self, token: str) -> None:
            self.token = token

        def __repr__(self) -> str:
            return f"Sender({self.token})"

        def __call__(self, event: Event) -> None:
            raise ValueError("a bug")

        def send(self, event: Event) -> None:
            raise ValueError("a bug")

    def failing(token: str, event: Event, *, key: str) -> None:
        raise ValueError("a bug")

    bound = [partial(partial(failing, "hunter2"), key="hunter3"), Sender("hunter4"), Sender("hunter5").send]
    for one in bound:
        policy(on_success=one).call(lambda: 1)
    assert len(caplog.records) == 3
    assert "hunter" not in "".join(record.getMessage() + str(record.args) for record in caplog.records)
    assert [record.getMessage().split(" failed")[0].rpartition(".")[2] for record in caplog.records] == [
        "failing",
        "Sender",
        "send",
    ]


def test_the_levels_of_log_messages(caplog: pytest.LogCaptureFixture) -> None:
    """A failing observer is an error, with the place where it failed; nested retries are a warning."""

    def fails(event: Event) -> None:
        raise ValueError("a bug")

    def work() -> None:
        raise Boom

    policy(on_success=fails).call(lambda: 1)
    with pytest.raises(Boom):
        policy().call(policy()(work))
    mistake, nesting = caplog.records
    assert (mistake.levelno, nesting.levelno) == (logging.ERROR, logging.WARNING)
    assert re.search(r"once: ValueError: a bug \(\S+test_logger.py:\d+ in .*fails\)$", mistake.getMessage())
    assert not mistake.exc_info
    assert not nesting.exc_info


def test_the_number_of_logged_observer_failures_is_limited(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Observers created for each call have different locations."""
    monkeypatch.setattr(_watch, "_logged", set[object]())
    monkeypatch.setattr(_watch, "MAX_LOGGED_FAILURES", 3)
    for number in range(9):
        names: dict[str, Any] = {"__name__": "made"}
        exec(f"def fails_{number}(event): raise ValueError", names)  # noqa: S102
        policy(on_success=names[f"fails_{number}"]).call(lambda: 1)
    assert len(caplog.records) == 3


@pytest.mark.parametrize("limit", ["give_up_after", "timeout", "work_timeout"])
def test_giving_up_before_any_attempt_is_emitted(limit: str) -> None:
    """No attempt was made, so that there is no verdict."""
    events: list[Event] = []
    outcome = policy(**{limit: 0, "before_attempt": events.append, "on_give_up": events.append}).run(
        lambda: 1
    )
    assert (outcome.ok, outcome.report.attempts) == (False, 0)
    assert [(event.what, event.attempt, event.verdict, event.kind) for event in events] == [
        ("give_up", 0, None, None)
    ]
