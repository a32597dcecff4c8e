"""For any script of outcomes, the counters agree with each other and with the calls that were made."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redouble import Verdict
from redouble.instruments import memory
from tests.support.call_shapes import SHAPES
from tests.support.fakes import Boom, Operation, Step, Virtual, fail, ok
from tests.support.instruments.counts import NAME, policy

pytestmark = pytest.mark.one_python

OUTCOMES = st.sampled_from(["ok", "fail", "stop", "not yet"])
CALLS = st.lists(st.lists(st.tuples(OUTCOMES, st.integers(0, 5)), min_size=1, max_size=6), max_size=4)


class Stop(Exception):
    """An error that is not retried."""


class Judge:
    """A rule that accepts a finished result."""

    def judge(self, ended: object, /) -> Verdict | None:
        value = getattr(ended, "value", None)
        return Verdict.accept() if value == "done" else Verdict.retry(reason="not_yet")


def scripted(outcomes: Sequence[tuple[str, int]]) -> list[Step]:
    steps = {"ok": ok("done"), "not yet": ok("not yet"), "fail": fail(Boom()), "stop": fail(Stop())}
    return [replace(steps[outcome], takes=takes) for outcome, takes in outcomes]


@given(
    calls=CALLS,
    attempts=st.integers(1, 4),
    limit=st.one_of(st.none(), st.integers(0, 12)),
    shape=st.sampled_from(["decorator", "call", "run"]),
)
@settings(max_examples=50)
def test_counters_agree(
    calls: list[list[tuple[str, int]]], attempts: int, limit: int | None, shape: str
) -> None:
    clock, made, succeeded = Virtual(), 0, 0
    retrying = policy(on=Boom, until=Judge(), attempts=attempts, give_up_after=limit, clock=clock)
    began = clock.time
    with memory.instrument() as metrics:
        for outcomes in calls:
            operation = Operation(scripted(outcomes), clock)
            with suppress(Exception):
                SHAPES[shape](retrying, operation)
                succeeded += 1
            made += operation.calls

    def total(metric: str, **labels: str) -> float:
        return metrics.counter(metric, name=NAME, **labels)

    assert (total("calls"), total("calls", ok="true")) == (len(calls), succeeded)
    assert total("attempts") == made
    if limit != 0:  # with a limit of zero there are calls without an attempt
        assert total("attempts") == total("calls") + total("retries")
    assert total("attempts", result="ok") == total("attempts", kind="none") == succeeded
    assert total("errors") == total("given_up") == total("calls", ok="false")
    assert total("rejected") == 0
    durations = {metric: metrics.histogram(metric, name=NAME) for metric in ("call_duration", "delay")}
    tried = metrics.histogram("attempt_duration", name=NAME)
    assert durations["call_duration"].many == total("calls")
    assert (tried.many, durations["delay"].many) == (made, total("retries"))
    assert durations["delay"].total == pytest.approx(sum(clock.waits))
    assert durations["call_duration"].total == pytest.approx(clock.time - began)
    assert durations["call_duration"].total == pytest.approx(tried.total + durations["delay"].total)
