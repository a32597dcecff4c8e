"""Events and observers: which events are emitted, in which order, and the effect of a failing observer."""

from __future__ import annotations

import gc
import pickle
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from redouble import Kind, Retry, Verdict, observe
from redouble._telemetry.events import EVENT_NAMES
from redouble.types import Event
from tests.support.fakes import Boom, Operation, Panic, Virtual, always, fail, in_colour, ok, steps

pytestmark = pytest.mark.usefixtures("no_observers_left")

HOOKS = ("before_attempt", "on_success", "on_failure", "on_retry", "on_give_up")


def hooks(events: list[Event]) -> dict[str, Any]:
    return dict.fromkeys(HOOKS, events.append)


def policy(**options: Any) -> Retry:
    given: dict[str, Any] = {"on": Boom, "backoff": [1] * 9, "clock": Virtual()}
    return Retry(**given | options)


def call(retrying: Retry, *script: Any) -> object:
    clock = retrying.clock
    assert isinstance(clock, Virtual)
    operation = Operation(steps(script), clock)
    try:
        return retrying.call(operation)
    except (Exception, Panic):
        return None


def test_the_fields_of_events() -> None:
    events: list[Event] = []
    lost = Boom("lost")
    retrying = policy(
        on=always(Verdict.retry(kind=Kind.server, after=3)),
        labels={"team": "x"},
        name="fetch",
        **hooks(events),
    )
    call(retrying, fail(lost, takes=2), ok("done", takes=1))
    before, failure, retry, again, success = events
    assert (before.what, before.name, before.attempt, before.elapsed) == ("before_attempt", "fetch", 1, 0)
    assert (before.attempt_elapsed, before.error, before.verdict, before.kind, before.hint) == (None,) * 5
    assert (failure.error, failure.kind, failure.hint, failure.delay) == (lost, "server", 3, None)
    assert (failure.attempt_elapsed, failure.elapsed) == (2, 2)
    assert failure.verdict == Verdict.retry(kind=Kind.server, after=3)
    assert retry.delay is not None
    assert retry.delay >= 3
    assert (again.attempt, again.attempt_elapsed) == (2, None)
    assert (success.value, success.error, success.kind, success.hint) == ("done", None, None, None)
    assert (success.attempt, success.attempt_elapsed, success.reason) == (2, 1, None)
    assert all(event.labels == {"team": "x"} for event in events)


@pytest.mark.parametrize("hook", HOOKS)
def test_a_single_hook_is_called(hook: str) -> None:
    events: list[Event] = []
    retrying = policy(attempts=2, **{hook: events.append})
    for step in (fail(), ok(1)):
        with suppress(Boom):
            retrying(Operation([step], Virtual()))()
    times = {"before_attempt": 3, "on_failure": 2}
    assert [event.what for event in events] == [hook.removeprefix("on_")] * times.get(hook, 1)


def test_an_unaccepted_result_is_emitted_once() -> None:
    """An error that follows has no value."""
    events: list[Event] = []

    def until(value: object) -> bool:
        return value == "done"

    retrying = policy(until=until, attempts=3, **hooks(events))
    call(retrying, ok("pending"), "fail", ok("done"))
    seen = [(event.what, event.attempt, event.value, type(event.error)) for event in events]
    assert [entry for entry in seen if entry[0] != "before_attempt"] == [
        ("failure", 1, "pending", type(None)),
        ("retry", 1, "pending", type(None)),
        ("failure", 2, None, Boom),
        ("retry", 2, None, Boom),
        ("success", 3, "done", type(None)),
    ]
    assert [entry[2:] for entry in seen if entry[0] == "before_attempt"] == [(None, type(None))] * 3


def test_an_event_is_immutable_and_picklable() -> None:
    events: list[Event] = []
    call(policy(labels={"team": "x"}, **hooks(events)), ok(1))
    assert pickle.loads(pickle.dumps(events[0])) == events[0]
    for target, word in [(events[0], "attempt"), (events[0], "extra")]:
        with pytest.raises(AttributeError):
            setattr(target, word, 3)
    with pytest.raises(TypeError):
        events[0].labels["team"] = "y"  # type: ignore[index]  # pyright: ignore[reportIndexIssue]


def test_an_event_never_holds_the_arguments() -> None:
    """Its repr does not contain the result either, because events end up in logs."""
    events: list[Event] = []

    def login(password: str, *, token: str) -> str:
        if len(events) < 4:
            raise Boom("no")
        return "the secret result"

    assert policy(**hooks(events)).call(login, "hunter2", token="hunter3")  # noqa: S106
    with observe(events.append):
        policy()(login)("hunter2", token="hunter3")  # noqa: S106
    assert len(events) > 5
    texts = [repr(event) for event in events]
    assert not [text for text in texts if "hunter" in text or "secret" in text]
    assert "hunter" not in str([[field for field in event if field is not event.error] for event in events])


def test_observe_gets_the_events_of_all_policies(colour: str) -> None:
    """Until its handle is removed; the policy's own hook comes first."""
    seen: list[str] = []

    def work() -> None: ...

    async def awork() -> None: ...

    def first(event: Event) -> None:
        seen.append("own")

    own = policy(before_attempt=first, name="a")
    pairs = [
        (lambda: own.call(work), lambda: own.call(awork)),
        (policy(name="b")(work), policy(name="b")(awork)),
    ]
    handle = observe(lambda event: seen.append(f"{event.name} {event.what}"))
    for pair in pairs:
        in_colour(colour, *pair)
    handle.remove()
    handle.remove()
    for pair in pairs:
        in_colour(colour, *pair)
    assert seen == ["own", "a before_attempt", "a success", "b before_attempt", "b success", "own"]


def test_a_handle_can_be_called_removed_or_entered() -> None:
    """The same observer subscribed twice is called twice."""
    seen: list[Event] = []
    first, second = observe(seen.append), observe(seen.append)
    other = seen.append  # another bound method of the same list
    third = observe(other)
    call(policy(), ok(1))
    assert len(seen) == 6
    second()
    call(policy(), ok(1))
    assert len(seen) == 10
    with third as entered:
        assert entered is third
        first()
        call(policy(), ok(1))
    assert len(seen) == 12
    call(policy(), ok(1))
    assert len(seen) == 12


def test_a_handle_removes_its_own_observer() -> None:
    first: list[Event] = []
    second: list[Event] = []
    with observe(first.append):
        observe(second.append).remove()
        call(policy(), ok(1))
    assert (len(first), len(second)) == (2, 0)


def test_observers_must_be_plain_functions() -> None:
    async def observer(event: Event) -> None: ...

    class Coloured:
        async def __call__(self, event: Event) -> None: ...

    for one in (observer, Coloured()):
        with pytest.raises(TypeError, match="is a coroutine function and would never run"):
            observe(one)
    with pytest.raises(TypeError, match="write a function of one event"):
        observe(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_a_failing_observer_is_logged_once_per_event_type(caplog: pytest.LogCaptureFixture) -> None:
    class Unnamed:
        def __call__(self, event: Event) -> None:
            raise ValueError("a bug")

    def failing(event: Event) -> None:
        raise RuntimeError("a bug")

    seen: list[Event] = []
    with observe(partial(failing)), observe(Unnamed()), observe(seen.append):
        for _ in range(3):
            call(policy(on_failure=failing, attempts=2), "fail")
    assert len(seen) == 6 * 3
    assert [record.name for record in caplog.records] == ["redouble"] * len(caplog.records)
    assert len(caplog.records) == 2 * 4  # four types of event, two observers that fail
    assert "failing failed on before_attempt; it stays registered" in caplog.text
    assert "RuntimeError: a bug (" in caplog.text


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("crash", [KeyboardInterrupt, SystemExit])
def test_a_base_exception_of_an_observer_is_raised(hook: str, crash: type[BaseException]) -> None:
    def observer(event: Event) -> None:
        raise crash

    script = ok(1) if hook == "on_success" else "fail"
    for options in ({hook: observer}, {hook: observer, "timeout": 99}):
        with pytest.raises(crash):
            call(policy(**options), script)


def test_without_observers_there_is_no_event() -> None:
    """An Event is a tuple, so that the garbage collector can count them."""
    retrying = policy(attempts=3)
    kept: list[Event] = []

    def events() -> int:
        gc.collect()
        return sum(type(thing) is Event for thing in gc.get_objects())

    before = events()

    def work() -> int:
        return events() - before

    assert retrying(work)() == 0
    assert retrying.call(work) == 0
    with observe(kept.append):
        assert retrying(work)() == 1
    assert events() - before == len(kept) == 2


def test_a_handle_removes_its_own_observer_among_equal_ones() -> None:
    class Equal:
        def __init__(self) -> None:
            self.calls = 0

        def __call__(self, event: Event) -> None:
            self.calls += 1

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Equal)

        __hash__ = None  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]

    first, second = Equal(), Equal()
    with observe(first):
        observe(second).remove()
        Retry().call(lambda: None)
    assert (first.calls, second.calls) == (2, 0)


def test_every_event_is_on_the_page_about_events() -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "observe.md").read_text("utf-8")
    assert [what for what in EVENT_NAMES if f"`{what}`" not in page] == []
