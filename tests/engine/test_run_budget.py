"""The calls that a run makes to its budget, and their order: start, failed, spend, credit, refund."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from redouble import Grant, Kind, Retry, Verdict, errors, report
from redouble._drivers.calls import begin_run
from redouble._engine.run import Run
from redouble.types import Event
from tests.support.drivers.scripted_calls import Drive
from tests.support.fakes import Boom, Call, Ledger, Panic, Virtual, always, fail, in_colour, ok
from tests.support.fakes import options as defaults

LOST = ConnectionError("lost")
FAILED = "start, failed unknown"


@pytest.mark.parametrize(
    ("script", "options", "expected"),
    [
        ([ok(1)], {}, Call(1, attempts=1, ledger="start, credit None")),
        (
            ["fail", LOST, ok(1)],
            {},
            Call(
                1,
                attempts=3,
                ledger="start, failed unknown, spend unknown, failed network, spend network, credit 2",
            ),
        ),
        (
            ["fail"],
            {"attempts": 2},
            Call(
                raises=Boom,
                reason="attempts",
                attempts=2,
                ledger="start, failed unknown, spend unknown, failed unknown",
            ),
        ),
        # the kind of the verdict has priority over that of the type
        (
            ["fail"],
            {"attempts": 1, "on": always(Verdict.retry(kind=Kind.throttled))},
            Call(raises=Boom, reason="attempts", ledger="start, failed throttled"),
        ),
        # nothing is spent if there is no retry
        (["fail"], {"on": KeyError}, Call(raises=Boom, reason="stopped", ledger=FAILED)),
        (["fail"], {"backoff": [99]}, Call(raises=Boom, reason="timeout", ledger=FAILED)),
        (
            ["fail"],
            {"backoff": []},
            Call(raises=Boom, reason="backoff_ended", ledger=FAILED),
        ),
        (
            [fail(LOST, 99)],
            {},
            Call(raises=ConnectionError, reason="timeout", ledger="start, failed network"),
        ),
        # a refused retry has no wait and no refund
        (
            ["fail"],
            {"budget": lambda: Ledger(retries=1), "backoff": [1, 1]},
            Call(
                raises=Boom,
                reason="budget",
                attempts=2,
                sleeps=[1],
                ledger="start, failed unknown, spend unknown, failed unknown, spend unknown",
            ),
        ),
        # the wait of a grant is the shortest delay, and must fit into the time left
        (["fail", ok(1)], {"budget": lambda: Ledger(wait=5), "backoff": [1]}, Call(1, sleeps=[5])),
        (["fail", ok(1)], {"budget": lambda: Ledger(wait=5), "backoff": [8]}, Call(1, sleeps=[8])),
        (
            ["fail"],
            {"budget": lambda: Ledger(wait=30)},
            Call(
                raises=Boom,
                reason="timeout",
                sleeps=[],
                ledger="start, failed unknown, spend unknown, refund 1",
            ),
        ),
        # a result that is not accepted is a failure; an error that is accepted is a success
        (
            [ok(0), ok(1)],
            {"until": bool},
            Call(1, ledger="start, failed unknown, spend unknown, credit 1"),
        ),
        (["fail"], {"on": always(Verdict.accept())}, Call(raises=Boom, ledger="start, credit None")),
        # a BaseException is not recorded
        (["fail", Panic()], {}, Call(raises=Panic, ledger="start, failed unknown, spend unknown")),
        ([Panic()], {}, Call(raises=Panic, ledger="start")),
        # without time there is no attempt
        ([ok(1)], {"timeout": 0}, Call(raises=errors.DeadlineExceeded, reason="timeout", ledger="start")),
    ],
)
def test_the_calls_of_the_budget(drive: Drive, script: Any, options: dict[str, Any], expected: Call) -> None:
    assert expected == drive(script, **defaults(budget=Ledger) | options)


SPENT = f"{FAILED}, spend unknown"


class Interrupted(Virtual):
    """A clock whose waits are interrupted by Ctrl-C."""

    def sleep(self, seconds: float) -> None:
        raise KeyboardInterrupt

    async def asleep(self, seconds: float) -> None:
        raise KeyboardInterrupt


class Oversleeping(Virtual):
    """A clock whose waits take much longer than requested."""

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds + 100)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"clock": Interrupted}, Call(raises=KeyboardInterrupt, reason="stopped")),
        ({"clock": Oversleeping}, Call(raises=Boom, reason="timeout")),
    ],
)
def test_a_retry_that_never_starts_is_refunded(drive: Drive, options: dict[str, Any], expected: Call) -> None:
    expected.ledger = f"{SPENT}, refund 1"
    assert expected == drive(["fail", ok(1)], **defaults(budget=Ledger, backoff=[1]) | options)


def test_the_engine_refunds_before_give_up_is_emitted() -> None:
    ledger = Ledger(wait=99)

    def record(event: Event) -> None:
        ledger.lines.append(event.what)

    policy = Retry(on=Boom, budget=ledger, clock=Virtual(), on_give_up=record)
    assert begin_run(Run, policy, "work", aio=False, attempt=1, started=0.0).failed(Boom(), 0.0) is None
    assert ledger.lines == ["failed unknown", "spend unknown", "refund 1", "give_up"]


def preventing(moment: str, clock: Virtual) -> Callable[[Event], None]:
    """Return an observer that raises KeyboardInterrupt, or uses up all the time."""

    def observer(event: Event) -> None:
        if moment == "interrupt":
            raise KeyboardInterrupt
        clock.time += 100

    return observer


@pytest.mark.parametrize(("moment", "raises"), [("interrupt", KeyboardInterrupt), ("late", Boom)])
@pytest.mark.parametrize("hook", ["on_retry", "before_attempt"])
def test_a_retry_that_an_observer_prevents_is_refunded(
    colour: str, moment: str, raises: type[BaseException], hook: str
) -> None:
    for shape in ("decorated", "call", "loop"):
        ledger, clock = Ledger(), Virtual()
        prevent = preventing(moment, clock)

        def second(event: Event, prevent: Callable[[Event], None] = prevent) -> None:
            if event.what == "retry" or event.attempt == 2:
                prevent(event)

        policy = Retry(on=Boom, backoff=[1], budget=ledger, clock=clock, **defaults(**{hook: second}))
        with pytest.raises(raises) as caught:
            in_colour(colour, *_failing(policy, shape))
        assert ledger.lines == [*SPENT.split(", "), "refund 1"]
        reported = report(caught.value)
        assert (reported and reported.reason) == (None if moment == "interrupt" else "timeout")


def _failing(policy: Retry, shape: str) -> tuple[Callable[[], object], Callable[[], Any]]:
    def work() -> None:
        raise Boom("e")

    async def awork() -> None:
        raise Boom("e")

    def loop() -> None:
        for attempt in policy:
            with attempt:
                work()

    async def aloop() -> None:
        async for attempt in policy:
            with attempt:
                work()

    if shape == "loop":
        return loop, aloop
    if shape == "decorated":
        return policy(work), policy(awork)
    return lambda: policy.call(work), lambda: policy.call(awork)


def test_leaving_a_loop_after_a_failure_refunds_the_grant(colour: str) -> None:
    ledger = Ledger()
    policy = Retry(on=Boom, backoff=[1], budget=ledger, clock=Virtual())

    def loop() -> None:
        for attempt in policy:
            with attempt:
                raise Boom("e")
            break

    async def aloop() -> None:
        async for attempt in policy:
            with attempt:
                raise Boom("e")
            break

    in_colour(colour, loop, aloop)
    assert ledger.lines == [*SPENT.split(", "), "refund 1"]


def test_an_error_of_the_budget_costs_no_result() -> None:
    class Broken(Ledger):
        def credit(self, grant: Grant | None, now: float) -> None:
            raise KeyError("budget")

    outcome = Retry(budget=Broken()).run(lambda: 3)
    assert (outcome.ok, outcome.value, outcome.error) == (True, 3, None)
