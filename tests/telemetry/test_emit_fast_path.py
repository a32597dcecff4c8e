"""Calls that only observers concern use the fast emitter, with the same events and results."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from itertools import pairwise
from math import inf
from typing import Any, NamedTuple, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redouble import SYSTEM, Hints, Kind, Report, Retry, Verdict, bind, deadline, observe, report
from redouble._runtime.ambient import ambient
from redouble.testing import virtual_time
from redouble.types import BudgetTraits, Event, What
from tests.support.call_shapes import ASYNC_SHAPES, SHAPES
from tests.support.fakes import (
    ASYNC,
    Boom,
    Ledger,
    Operation,
    Panic,
    Script,
    Step,
    Virtual,
    always,
    fail,
    in_colour,
    ok,
    steps,
)
from tests.support.fakes import options as defaults
from tests.support.telemetry.flaky_calls import flaky_call

pytestmark = pytest.mark.usefixtures("no_observers_left")

Row: TypeAlias = tuple[Script, dict[str, Any]]


class IgnoresStarts(Ledger):
    """A budget that ignores the starts of calls."""

    traits = BudgetTraits(counts_starts=False)


class Observed(NamedTuple):
    """Everything that can be observed of one call, errors by their type and text."""

    value: object
    error: str | None
    notes: list[str]
    report: Report | None
    events: list[dict[str, Any]]
    ledger: list[str] | None
    waits: list[float]


def text_of(error: BaseException | None) -> str | None:
    return None if error is None else f"{type(error).__name__}: {error}"


def fresh(step: Step) -> Step:
    """Return the same step with a new error, without a stamp of another call."""
    error = step.error
    return replace(step, error=type(error)(*error.args)) if isinstance(error, BaseException) else step


@contextmanager
def elsewhere() -> Generator[None]:
    """Activate an ambient feature that does not apply to this context."""
    user = object()
    ambient.add(user)
    try:
        yield
    finally:
        ambient.remove(user)


def ignore(event: Event) -> None: ...


SLOW: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "deadline": lambda: deadline(1e9),
    "virtual time": virtual_time,
    "elsewhere": elsewhere,
    "hook": nullcontext,
}


def observed_call(colour: str, shape: str, row: Row, way: str, late: float = 0.0) -> Observed:
    """Make a call whose observer takes ``late`` seconds for each event; return what was observed."""
    script, options = row
    clock, events, ledger = Virtual(100.0), list[Event](), options.get("budget", lambda: None)()
    given: dict[str, Any] = (
        defaults(on=Exception, backoff=[1, 2, 4], labels={"team": "x"}, hints=Hints(spread=0)) | options
    )
    given |= {"clock": clock, "budget": ledger} | ({"before_attempt": ignore} if way == "hook" else {})
    policy = Retry(**given)
    operation = Operation([fresh(step) for step in steps(script)], clock)

    def record(event: Event) -> None:
        events.append(event)
        clock.time += late

    async def later() -> object:
        return operation()

    def blocking() -> object:
        with observe(record), bind(run=7), SLOW.get(way, nullcontext)():
            return SHAPES[shape](policy, operation)

    async def waiting() -> object:
        with observe(record), bind(run=7), SLOW.get(way, nullcontext)():
            return await ASYNC_SHAPES[shape](policy, later)

    value: object = None
    error: BaseException | None = None
    try:
        value = in_colour(colour, blocking, waiting)
    except (Exception, Panic) as failed:
        error = failed
    assert all(a.elapsed <= b.elapsed for a, b in pairwise(events))
    assert all(0 <= (event.attempt_elapsed or 0) <= event.elapsed for event in events)
    found: list[dict[str, Any]] = [
        event._asdict() | {"error": text_of(event.error), "bound": dict(event.bound)} for event in events
    ]
    lines = None if ledger is None else [line for line in ledger.lines if line != "start"]
    if isinstance(ledger, Ledger) and not isinstance(ledger, IgnoresStarts):
        assert ledger.lines.count("start") == 1
    waits = [wait for wait in clock.waits if wait]
    notes: list[str] = list(getattr(error, "__notes__", ()))
    return Observed(
        value, text_of(error), notes, None if error is None else report(error), found, lines, waits
    )


ROWS: dict[str, Row] = {
    "at once": ([ok(1)], {}),
    "after a while": ([ok(1, takes=3)], {"name": "x"}),
    "the second time": (["fail", ok(2)], {}),
    "never": (["fail", "fail", "fail"], {"attempts": 3, "name": "x"}),
    "taking time": ([fail(takes=2), ok("done", takes=5)], {}),
    "one attempt": (["fail"], {"attempts": 1}),
    "not retried": ([KeyError("k")], {"on": Boom}),
    "not retried, and wrapped": ([KeyError("k")], {"on": Boom, "wrap": True}),
    "accepted": ([Boom("fine")], {"on": always(Verdict.accept())}),
    "too late": ([fail(takes=50)], {"give_up_after": 20}),
    "too late for a delay": ([fail(takes=19)], {"give_up_after": 20, "backoff": [5]}),
    "hinted": (["fail", ok(1)], {"on": always(Verdict.retry(kind=Kind.throttled, after=3))}),
    "wrapped": (["fail", "fail", "fail"], {"attempts": 2, "wrap": True}),
    "backoff ends": (["fail", "fail", "fail"], {"backoff": [1]}),
    "a crash": ([Panic()], {}),
    "a later crash": (["fail", Panic()], {}),
    "an odd error": ([StopIteration(3)], {"attempts": 1}),
    "credited": ([ok(1)], {"budget": Ledger}),
    "granted": (["fail", "fail", ok(1)], {"budget": Ledger}),
    "not granted": (["fail", "fail", ok(1)], {"budget": lambda: Ledger(retries=1)}),
    "credited, and no more": ([ok(1)], {"budget": IgnoresStarts}),
    "granted, and no more": (["fail", ok(1)], {"budget": IgnoresStarts}),
}


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("shape", ["decorator", "call"])
@pytest.mark.parametrize("colour", ["sync", *ASYNC])
def test_the_fast_path_emits_the_same_events(colour: str, shape: str, row: str) -> None:
    fast = observed_call(colour, shape, ROWS[row], "quick")
    assert fast.events
    for way in SLOW:
        if (colour, way) != ("trio", "virtual time"):  # which needs its own clock there
            assert fast == observed_call(colour, shape, ROWS[row], way), way


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("shape", ["decorator", "call"])
@pytest.mark.parametrize("colour", ["sync", "asyncio"])
def test_the_time_of_an_observer_does_not_count_for_attempts(colour: str, shape: str, row: str) -> None:
    """It counts for the call."""
    fast, slow = (observed_call(colour, shape, ROWS[row], way, late=0.5) for way in ("quick", "deadline"))
    assert fast == slow
    events = observed_call(colour, shape, ROWS[row], "quick").events
    assert [e["attempt_elapsed"] for e in fast.events] == [e["attempt_elapsed"] for e in events]
    assert [e["elapsed"] for e in fast.events] == [e["elapsed"] + 0.5 * i for i, e in enumerate(events)]


@pytest.mark.parametrize("shape", ["decorator", "call"])
def test_the_fast_path_with_the_real_clock(colour: str, shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Budgets use one clock in all colours, although Trio has its own."""
    if shape == "decorator":
        monkeypatch.delattr("redouble._drivers.calls.begin_run")
    events, ledger = list[Event](), Ledger()
    policy = Retry(on=Boom, backoff=[0], budget=ledger)
    before = SYSTEM.now()
    with observe(events.append):
        assert flaky_call(colour, shape, policy, 0) == flaky_call(colour, shape, policy, 1) == 7
    times = [before, *ledger.times, SYSTEM.now()]
    assert times == sorted(times)
    assert ledger.lines[:3] == ["start", "credit None", "start"]
    assert [event.what[0] for event in events] == [*"bsbfrbs"]
    assert all(0 <= (event.attempt_elapsed or 0) <= event.elapsed < inf for event in events)
    assert all(a.elapsed <= b.elapsed for a, b in pairwise(events[2:]))


@pytest.mark.parametrize("shape", ["decorator", "call"])
@pytest.mark.parametrize("what", ["before_attempt", "success"])
def test_an_observer_of_one_event_receives_no_other(colour: str, shape: str, what: What) -> None:
    events = list[Event]()
    with observe(events.append, only=[what]):
        assert flaky_call(colour, shape, Retry(on=Boom), 0) == 7
    assert [event.what for event in events] == [what]


STEPS = st.one_of(
    st.builds(fail, takes=st.sampled_from([0.0, 0.5, 30.0])),
    st.builds(ok, st.booleans(), takes=st.sampled_from([0.0, 3.0])),
    st.builds(fail, st.builds(KeyError)),
)


@settings(max_examples=50)
@given(
    script=st.lists(STEPS, min_size=1, max_size=5),
    options=st.fixed_dictionaries(
        {},
        optional={
            "attempts": st.integers(1, 4),
            "on": st.sampled_from([Boom, Exception]),
            "budget": st.sampled_from([Ledger, IgnoresStarts, lambda: Ledger(retries=1)]),
            "give_up_after": st.sampled_from([None, 10]),
            "wrap": st.booleans(),
            "name": st.sampled_from(["x", None]),
        },
    ),
    shape=st.sampled_from(["decorator", "call"]),
    colour=st.sampled_from(["sync", "asyncio"]),
    late=st.sampled_from([0.0, 0.25]),
)
def test_both_paths_emit_the_same_events_for_any_script(
    script: list[Step], options: dict[str, Any], shape: str, colour: str, late: float
) -> None:
    row = (script, options)
    assert observed_call(colour, shape, row, "quick", late) == observed_call(
        colour, shape, row, "deadline", late
    )
