"""A retry that is refused tells the delay it would have had: in the event, and in the report."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from redouble import Backoff, Hints, Retry, RetryBudget, Verdict, report
from redouble.testing import virtual_time
from redouble.types import Event
from tests.support.fakes import Boom, Draws, Ledger, Virtual, in_colour, options


def hinted(seconds: float) -> Callable[[Exception], Verdict]:
    return lambda _: Verdict.retry(after=seconds)


@pytest.mark.parametrize(
    ("given", "reason", "delay"),
    [
        # by the budget
        ({"budget": Ledger(retries=0), "backoff": [3]}, "budget", 3),
        ({"budget": RetryBudget(per_second=0), "backoff": [3]}, "budget", 3),
        ({"budget": Ledger(retries=0), "backoff": [0]}, "budget", 0),
        ({"budget": Ledger(retries=0), "on": hinted(8), "backoff": [3]}, "budget", 8),
        # by time
        ({"backoff": [3], "timeout": 2}, "timeout", 3),
        ({"backoff": [3], "timeout": 3}, "timeout", 3),
        ({"backoff": [3], "give_up_after": 1}, "timeout", 3),
        ({"on": hinted(200), "backoff": [0], "timeout": 50}, "timeout", 200),
        ({"on": hinted(200), "backoff": [3], "timeout": 50, "hints": Hints("ignore")}, "attempts", None),
        ({"budget": Ledger(wait=9), "backoff": [1], "timeout": 5}, "timeout", 9),
        # by a hint that is too long, or by the end of the backoff
        ({"on": hinted(200), "backoff": [3], "hints": Hints(longest=60)}, "hint_too_long", 200),
        ({"on": hinted(200), "backoff": [3], "hints": Hints(longest=60, over=5)}, "hint_too_long", 8),
        ({"on": hinted(200), "backoff": [300], "hints": Hints(longest=60)}, "hint_too_long", 300),
        (
            {"on": hinted(200), "backoff": [300], "hints": Hints("instead", longest=60)},
            "hint_too_long",
            200,
        ),
        ({"backoff": []}, "backoff_ended", None),
        ({"on": hinted(7), "backoff": []}, "backoff_ended", 7),
        ({"on": hinted(7), "backoff": [], "hints": Hints("ignore")}, "backoff_ended", None),
        # by a limit that the attempt has used up: no delay is drawn
        ({"on": hinted(7), "timeout": 0.5, "backoff": [1]}, "timeout", 7),
        ({"on": hinted(7), "work_timeout": 0.5, "backoff": [1]}, "work_timeout", 7),
        ({"timeout": 0.5, "backoff": [1]}, "timeout", None),
        # nobody refuses these
        ({"attempts": 1}, "attempts", None),
        ({"on": KeyError}, "stopped", None),
        ({"timeout": 0}, "timeout", None),
    ],
)
def test_the_delay_of_a_refused_retry(
    colour: str, given: dict[str, Any], reason: str, delay: float | None
) -> None:
    seen: list[Event] = []
    defaults = options(
        on=Boom, attempts=2, backoff=[1], clock=Virtual(), random=Draws(0), on_give_up=seen.append
    )
    policy = Retry(**defaults | given)

    def fails() -> None:
        policy.clock.sleep(0.5)
        raise Boom

    async def afails() -> None:
        fails()

    outcome = in_colour(colour, lambda: policy.run(fails), lambda: policy.run(afails))
    assert (outcome.report.reason, outcome.report.next_delay) == (reason, delay)
    (event,) = seen
    assert (event.reason, event.delay) == (reason, delay)
    if outcome.report.history:
        assert outcome.report.history[-1].delay == delay
    if outcome.error is not None and outcome.report.attempts:
        reported = report(outcome.error)
        assert reported is not None
        assert reported.next_delay == delay


def test_an_observer_that_takes_the_time_of_the_retry() -> None:
    """The retry was announced, and does not follow."""
    clock, seen = Virtual(), list[Event]()

    def slow(_: Event) -> None:
        clock.time += 40

    def fails() -> None:
        raise Boom

    policy = Retry(on=Boom, backoff=[50], timeout=80, clock=clock, on_retry=slow, on_give_up=seen.append)
    outcome = policy.run(fails)
    assert (outcome.report.reason, outcome.report.next_delay, seen[0].delay) == ("timeout", 50, 50)


def test_the_delays_before_it_are_those_that_were_waited() -> None:
    outcome = Retry(on=Boom, attempts=9, backoff=[1, 2, 30], give_up_after=10, clock=Virtual()).run(
        always_fails
    )
    assert [record.delay for record in outcome.report.history] == [1, 2, 30]
    assert outcome.report.work_elapsed == 0
    assert outcome.report.elapsed == 3


def always_fails() -> None:
    raise Boom


def test_a_success_has_no_next_delay() -> None:
    policy = Retry(on=Boom, backoff=[1], clock=Virtual())
    assert policy.run(lambda: "done").report.next_delay is None


def test_a_loop_that_polls_keeps_its_pace() -> None:
    """Although its budget is empty: the recipe of the guide."""
    policy = Retry(on=Boom, backoff=Backoff.constant(2), budget=RetryBudget(per_second=0))
    calls: list[float] = []

    with virtual_time() as clock:

        def receive() -> None:
            calls.append(clock.now())
            raise Boom

        def poll() -> None:
            while len(calls) < 5:
                outcome = policy.run(receive)
                clock.sleep(outcome.report.next_delay or 1.0)

        poll()
    assert calls == [0, 2, 4, 6, 8]
