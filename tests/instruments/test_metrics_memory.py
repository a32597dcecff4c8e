"""Metrics in memory: queries, labels and error messages."""

from __future__ import annotations

import threading

import pytest

from redouble.instruments import memory
from redouble.instruments.memory import Summary
from tests.support.fakes import Boom, Operation, Virtual, fail, ok
from tests.support.instruments.counts import counts, policy
from tests.support.thread_switching import frequent_switches


def lose() -> None:
    raise Boom


def test_calls_are_counted_only_while_instrumented() -> None:
    policy().call(int)
    metrics = memory.instrument()
    policy().call(int)
    metrics.remove()
    metrics.remove()
    policy().call(int)
    assert counts(metrics) == {"calls true": 1, "attempts none ok": 1}


def test_a_handle_is_a_context_manager_and_callable() -> None:
    metrics = memory.instrument()
    with metrics as entered:
        assert entered is metrics
        policy().call(int)
    assert metrics.counter("calls") == 1
    with memory.instrument() as handle:
        handle()
        policy().call(int)
    assert handle.series() == {}


def test_two_handles_count_separately() -> None:
    with memory.instrument() as first:
        policy().call(int)
        with memory.instrument() as second:
            policy().call(int)
    assert (first.counter("calls"), second.counter("calls")) == (2, 1)


def test_missing_series_are_zero() -> None:
    with memory.instrument() as metrics:
        found = (metrics.counter("calls"), metrics.gauge("budget_tokens", name="no such budget"))
        assert [repr(number) for number in found] == ["0.0", "0.0"]
        assert metrics.histogram("delay") == Summary(0, 0.0, 0.0, 0.0)
        assert metrics.series() == {}


def test_a_query_sums_over_labels_that_are_not_given() -> None:
    with memory.instrument() as metrics:
        for name, team, times in [("a", "x", 1), ("b", "x", 2), ("b", "y", 4)]:
            for takes in range(1, times + 1):
                clock = Virtual()
                work = Operation([fail(takes=takes), ok(takes=5 * times)], clock)
                policy(name=name, labels={"team": team}, clock=clock).call(work)
    asked = [{}, {"name": "a"}, {"name": "b"}, {"team": "x"}, {"name": "b", "team": "x"}, {"team": "z"}]
    assert [metrics.counter("calls", **labels) for labels in asked] == [7, 1, 6, 3, 2, 0]
    assert [metrics.counter("attempts", result="failed", **labels) for labels in asked] == [7, 1, 6, 3, 2, 0]
    assert [metrics.counter("attempts", **labels) for labels in asked] == [14, 2, 12, 6, 4, 0]
    assert metrics.histogram("call_duration", name="a") == Summary(1, 7, 7, 7)
    assert metrics.histogram("call_duration", team="x") == Summary(3, 32, 7, 13)
    assert metrics.histogram("call_duration", name="b") == Summary(6, 119, 12, 25)
    assert metrics.histogram("call_duration") == Summary(7, 126, 7, 25)
    assert metrics.histogram("attempt_duration", team="z") == Summary(0, 0, 0, 0)


def test_labels_of_a_policy_are_added_and_never_override_the_schema() -> None:
    mine = {"team": "x", "name": "mine", "ok": "mine", "kind": "mine", "result": "mine", "reason": "mine"}
    with memory.instrument() as metrics, pytest.raises(Boom):
        policy(labels=mine, attempts=1).call(lose)
    rest = {key: value for key, value in mine.items() if key not in ("name", "ok")}
    assert {metric: [dict(labels) for labels in series] for metric, series in metrics.series().items()} == {
        "calls": [{"name": "work", "ok": "false"} | rest],
        "attempts": [
            {
                "name": "work",
                "kind": "unknown",
                "result": "failed",
                "team": "x",
                "ok": "mine",
                "reason": "mine",
            }
        ],
        "errors": [mine | {"name": "work", "code": "ScriptedError"}],
        "given_up": [mine | {"name": "work", "reason": "attempts"}],
        "call_duration": [mine | {"name": "work"}],
        "attempt_duration": [mine | {"name": "work"}],
    }


def test_labels_that_collide_with_the_schema_are_dropped() -> None:
    """Policies that differ only in a label of the schema share one series."""
    with memory.instrument() as metrics:
        for number, takes in [("1", 3), ("2", 5)]:
            clock = Virtual()
            policy(labels={"ok": number, "name": number}, clock=clock).call(
                Operation([ok(takes=takes)], clock)
            )
    assert metrics.series()["calls"] == {(("name", "work"), ("ok", "true")): 2}
    assert set(metrics.series()["call_duration"].values()) == {Summary(1, 3, 3, 3), Summary(1, 5, 5, 5)}
    assert metrics.histogram("call_duration", name="work") == Summary(2, 8, 3, 5)


def test_a_label_may_have_the_name_of_a_parameter() -> None:
    with memory.instrument() as metrics:
        policy(labels={"metric": "x"}).call(int)
    assert metrics.counter("calls", metric="x") == 1
    assert metrics.counter("calls", metric="y") == 0


COUNTERS = """
    calls, attempts, retries, errors, given_up, rejected, timeouts, tokens, cost, hedges, hedges_won,
    fallbacks, coalesced
"""
GAUGES = """
    budget_tokens, budget_in_flight, breaker_state, bulkhead_in_use, bulkhead_queued, gate_limit, gate_in_use,
    gate_queued, gate_class_in_use, gate_class_queued, gate_rate, worker_abandoned,
    throttle_requests, throttle_accepts
"""


@pytest.mark.parametrize(
    ("kind", "known"),
    [
        ("counter", " ".join(COUNTERS.split())),
        ("histogram", "call_duration, attempt_duration, delay, time_to_first_item, gate_wait"),
        ("gauge", " ".join(GAUGES.split())),
    ],
)
def test_an_unknown_metric_raises(kind: str, known: str) -> None:
    with memory.instrument() as metrics:
        for wrong in ("call", "delay" if kind != "histogram" else "calls", ""):
            with pytest.raises(ValueError, match=f"^{wrong!r} is no {kind}: write one of {known}$"):
                getattr(metrics, kind)(wrong)


def test_the_value_of_a_label_must_be_a_text() -> None:
    with (
        memory.instrument() as metrics,
        pytest.raises(TypeError, match=r"^calls: ok=True: write a text, such as ok='true'$"),
    ):
        metrics.counter("calls", ok=True)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_many_threads_count_exactly() -> None:
    """Every call, attempt and duration is recorded while other threads read."""
    threads, calls, start = 8, 60, threading.Event()
    clock = Virtual()

    def work() -> None:
        start.wait()
        for number in range(calls):
            script = [fail(), ok()] if number % 3 == 0 else [ok()]
            policy(backoff=[0], clock=clock).call(Operation(script, clock))
            if number % 20 == 0:
                metrics.series()

    with frequent_switches(), memory.instrument() as metrics:
        workers = [threading.Thread(target=work) for _ in range(threads)]
        for thread in workers:
            thread.start()
        start.set()
        for thread in workers:
            thread.join()
    failed = threads * calls // 3
    assert counts(metrics) == {
        "calls true": threads * calls,
        "attempts none ok": threads * calls,
        "attempts unknown failed": failed,
        "retries unknown": failed,
    }
    many = [metrics.histogram(metric).many for metric in ("call_duration", "attempt_duration", "delay")]
    assert many == [threads * calls, threads * calls + failed, failed]
