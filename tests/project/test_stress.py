"""One policy shared by threads, event loops and tasks: no call sees the state of another.

Threads switch every microsecond. Every call has its own script, every error its own text, and the value,
error, attempts, report and events of a call must be its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

import pytest
import trio

import redouble
from redouble import Backoff, Outcome, Reason, Report, Retry
from redouble._runtime.ambient import ambient
from redouble.types import Event
from tests.support.thread_switching import run_in_threads, switching

pytestmark = [pytest.mark.stress, pytest.mark.usefixtures(switching.__name__)]

ATTEMPTS = 4
CALLS = 40

# The one policy. It has no delays, because a sleeping thread does not compete.
POLICY = Retry(on=ConnectionError, attempts=ATTEMPTS, backoff=Backoff.constant(0), labels={"shared": "yes"})


class Fatal(Exception):
    """An error that is not retried."""


@dataclass
class Script:
    """The script of one call: some failures, then a value or an error that is not retried."""

    owner: str
    number: int
    most: int = ATTEMPTS
    errors: list[Exception] = field(default_factory=list[Exception])
    made: int = 0

    @property
    def failures(self) -> int:
        return self.number % (ATTEMPTS + 1)  # sometimes as many as there are attempts

    @property
    def fatal(self) -> bool:
        return self.number % 3 == 0

    def __call__(self) -> str:
        self.made += 1
        if self.made <= self.failures:
            self.errors.append(ConnectionError(f"{self.owner}/{self.number}/{self.made}"))
            raise self.errors[-1]
        if self.fatal:
            self.errors.append(Fatal(f"{self.owner}/{self.number}/{self.made}"))
            raise self.errors[-1]
        return f"{self.owner}/{self.number}"

    async def acall(self) -> str:
        await redouble.SYSTEM.asleep(0)
        return self()

    # ------------------------------------------------------------ expected results

    @property
    def exhausted(self) -> bool:
        return self.failures >= self.most

    @property
    def attempts(self) -> int:
        return min(self.failures + 1, self.most)

    def check_value(self, value: object) -> None:
        assert value == f"{self.owner}/{self.number}"
        assert not self.fatal
        assert self.made == self.attempts

    def check_error(self, error: Exception) -> None:
        assert error is self.errors[-1]
        assert self.made == self.attempts
        report = redouble.report(error)
        assert report is not None
        self.check_report(report)
        notes = getattr(error, "__notes__", [])
        assert len(notes) == (0 if self.made == 1 and not self.exhausted else 1)
        assert all(f"after {self.made} attempt" in note for note in notes)

    def check_report(self, report: Report) -> None:
        if self.exhausted:
            assert report.reason is Reason.attempts
        else:
            assert report.reason is (Reason.stopped if self.fatal else None)
        assert report.attempts == self.attempts
        texts = [record.error_text for record in report.history]
        assert texts == [*map(str, self.errors)] + ([] if report.reason else [None])
        assert report.labels == {"shared": "yes"}

    def check_outcome(self, outcome: Outcome[str]) -> None:
        self.check_report(outcome.report)
        if outcome.ok:
            self.check_value(outcome.unwrap())
        else:
            assert outcome.error is not None
            self.check_error(outcome.error)


# ------------------------------------------------------------------------------ shapes


@POLICY
def decorated(script: Script) -> str:
    return script()


@POLICY
async def adecorated(script: Script) -> str:
    return await script.acall()


def block(script: Script) -> str:
    value = ""
    for attempt in POLICY:
        with attempt:
            assert attempt.number == script.made + 1
            value = script()
    return value


async def ablock(script: Script) -> str:
    value = ""
    async for attempt in POLICY:
        with attempt:
            assert attempt.number == script.made + 1
            value = await script.acall()
    return value


def called(script: Script) -> str:
    return POLICY.call(script)


async def acalled(script: Script) -> str:
    return await POLICY.call(script.acall)


SHAPES: list[Callable[[Script], str]] = [decorated, block, called]
ASHAPES: list[Callable[[Script], Awaitable[str]]] = [adecorated, ablock, acalled]


def make(owner: str, number: int) -> None:
    """Make one call in some shape, and check its results."""
    script = Script(owner, number)
    if number % 4 == 3:
        script.check_outcome(POLICY.run(script))
        return
    try:
        value = SHAPES[number % 4](script)
    except (ConnectionError, Fatal) as error:
        script.check_error(error)
    else:
        script.check_value(value)


async def amake(owner: str, number: int) -> None:
    """Make one async call in some shape, and check its results."""
    script = Script(owner, number)
    if number % 4 == 3:
        script.check_outcome(await POLICY.run(script.acall))
        return
    try:
        value = await ASHAPES[number % 4](script)
    except (ConnectionError, Fatal) as error:
        script.check_error(error)
    else:
        script.check_value(value)


# ----------------------------------------------------------------------------- threads


def blocking(owner: str) -> None:
    for number in range(CALLS):
        make(owner, number)


def looping(owner: str) -> None:
    """Make all calls concurrently, on this thread's own event loop."""

    async def main() -> None:
        async with asyncio.TaskGroup() as tasks:
            for number in range(CALLS):
                tasks.create_task(amake(owner, number))

    asyncio.run(main())


def test_threads_share_a_policy() -> None:
    run_in_threads(blocking)


def test_event_loops_share_a_policy() -> None:
    run_in_threads(looping)


def test_threads_and_event_loops_share_a_policy() -> None:
    run_in_threads(blocking, looping)


# --------------------------------------------------------------------------- observers

STEPS = {"before_attempt", "failure", "retry", "success", "give_up"}


def observing(owner: str) -> None:
    """Add and remove an observer of this thread's calls, and check that it receives each event once."""
    seen: list[Event] = []

    def watch(event: Event) -> None:
        if event.name == owner:
            seen.append(event)

    def operation(script: Script) -> str:
        return script()

    operation.__qualname__ = owner
    watched = POLICY(operation)
    for number in range(CALLS // 3):
        script = Script(owner, number)
        handle = redouble.observe(watch)
        try:
            watched(script)
        except (ConnectionError, Fatal) as error:
            script.check_error(error)
        handle.remove()
        handle()  # a second time does nothing
        ok = not script.exhausted and not script.fatal
        steps = ["before_attempt", "failure", "retry"] * (script.attempts - 1)
        steps += ["before_attempt", *(["success"] if ok else ["failure", "give_up"])]
        assert [event.what for event in seen] == steps
        assert [event.error for event in seen if event.what == "failure"] == script.errors
        attempts = [event.attempt for event in seen if event.what == "before_attempt"]
        assert attempts == list(range(1, script.attempts + 1))
        seen.clear()
        watched_not = Script(owner, number)
        try:
            watched(watched_not)
        except (ConnectionError, Fatal) as error:
            watched_not.check_error(error)
        assert seen == []


def test_observers_may_be_added_and_removed_concurrently() -> None:
    run_in_threads(observing, blocking)
    assert not ambient.active
    run_in_threads(observing, looping, threads=8)
    assert not ambient.active


def test_an_observer_receives_the_events_of_all_threads() -> None:
    """While other observers are added and removed."""
    seen: list[Event] = []
    with redouble.observe(seen.append):
        run_in_threads(observing, blocking, threads=16)
    assert {event.what for event in seen} == STEPS
    starts = sum(event.what == "before_attempt" for event in seen)
    ends = sum(event.what in ("success", "failure") for event in seen)
    overs = sum(event.what in ("success", "give_up") for event in seen)
    assert starts == ends
    assert overs == 8 * 2 * (CALLS // 3) + 8 * CALLS
    assert not ambient.active


# ----------------------------------------------------------------- decorating, variants


def decorating(owner: str) -> None:
    for number in range(CALLS):

        def operation(script: Script, *, owned: str = owner) -> str:
            assert owned == script.owner
            return script()

        own = POLICY(operation)
        most = number % 3 + 1
        for varied in (redouble.variant(own, attempts=most), redouble.variant(decorated, attempts=most)):
            assert redouble.policy_of(varied) == replace(POLICY, attempts=most)
            script = Script(owner, number, most)
            try:
                value = varied(script)
            except (ConnectionError, Fatal) as error:
                script.check_error(error)
            else:
                script.check_value(value)
        assert redouble.policy_of(own) is POLICY
        make(owner, number)


def test_threads_may_decorate_and_create_variants() -> None:
    run_in_threads(decorating, blocking)
    assert redouble.policy_of(decorated) is POLICY


# ------------------------------------------------------------------------- many tasks


def test_a_thousand_asyncio_tasks_share_a_policy() -> None:
    async def main() -> None:
        async with asyncio.TaskGroup() as tasks:
            for number in range(1000):
                tasks.create_task(amake(f"task {number}", number))

    asyncio.run(main())


def test_a_thousand_trio_tasks_share_a_policy() -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for number in range(1000):
                nursery.start_soon(amake, f"task {number}", number)

    trio.run(main)
