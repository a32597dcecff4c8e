"""Calls in worker processes: their arguments, results, errors and limits."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from redouble import Timeout, Worker, deadline, errors, report
from redouble._drivers.workers.processes import WorkerTraceback
from tests.support.workers import functions as in_process
from tests.support.workers.calls import ASYNCS, COLOURS, LONG, in_any, policy


@COLOURS
def test_a_call_runs_in_another_process_which_is_reused(colour: str) -> None:
    first = in_any(colour, policy(), in_process.pid)
    assert first != os.getpid()
    assert in_any(colour, policy(), in_process.pid) == first
    assert in_any(colour, policy(), in_process.echo, 1, "two") == ((1, "two"), {})


def test_every_shape_of_a_call_runs_in_a_process() -> None:
    expected = ((1,), {"two": 2})
    assert policy().call(in_process.echo, 1, two=2) == expected
    assert policy().run(in_process.echo, 1, two=2).unwrap() == expected
    assert policy()(in_process.echo)(1, two=2) == expected
    assert policy().call(partial(in_process.echo, 1), two=2) == expected
    assert Timeout(LONG, worker=in_process.PROCESS).call(in_process.echo, 1, two=2) == expected


@pytest.mark.parametrize(
    "decorated",
    [in_process.doubled, in_process.Shop().method, in_process.Shop.static, in_process.Shop.of_class],
    ids=["function", "method", "staticmethod", "classmethod"],
)
def test_a_decorated_function_is_sent_without_its_decorator(
    decorated: Callable[[int], tuple[int, int]],
) -> None:
    """With its decorator, the process would start another process, without end."""
    where, made = decorated(21)
    assert (where, made) == (policy().call(in_process.pid), 42)


def test_a_worker_process_may_start_worker_processes() -> None:
    where, made = policy().call(in_process.doubled, 21)
    assert made == 42
    assert where not in (os.getpid(), policy().call(in_process.pid))


def test_a_builtin_function_runs_in_a_process() -> None:
    assert policy().call(os.getpid) == policy().call(in_process.pid)


@COLOURS
@pytest.mark.parametrize("kind", [ValueError, SystemExit, KeyboardInterrupt])
def test_an_exception_of_the_process_is_raised_with_its_traceback(
    colour: str, kind: type[BaseException]
) -> None:
    before = in_any(colour, policy(), in_process.pid)
    with pytest.raises(kind, match="no") as caught:
        in_any(colour, policy(), in_process.fail, kind, "no")
    assert "noted there" in caught.value.__notes__
    assert isinstance(caught.value.__cause__, WorkerTraceback)
    assert "in fail" in str(caught.value.__cause__)
    assert in_any(colour, policy(), in_process.pid) == before


def test_errors_of_the_process_are_retried() -> None:
    with pytest.raises(ConnectionError, match="lost") as caught:
        policy(attempts=3).call(in_process.fail, ConnectionError, "lost")
    reported = report(caught.value)
    assert reported is not None
    assert (reported.attempts, reported.reason) == (3, "attempts")


def test_nested_retries_are_recognised_across_processes() -> None:
    outcome = policy(attempts=3, nested="stop").run(in_process.nested)
    assert (outcome.report.attempts, outcome.report.reason) == (1, "nested")


@COLOURS
@pytest.mark.parametrize(
    ("fn", "args", "message"),
    [
        (lambda: None, (), "<lambda> or its arguments cannot be sent to a worker process: .*pickle"),
        (in_process.echo, (threading.Lock(),), "echo or its arguments cannot be sent .*lock"),
        (in_process.echo, (in_process.Unreadable(),), "echo cannot be called .* ValueError: invalid literal"),
        (
            in_process.locked,
            (),
            "the result or error of locked cannot be sent back .* cannot pickle '_thread.lock'",
        ),
        (
            in_process.fail,
            (in_process.UnpicklableError, "why"),
            "(?s)error of fail cannot be sent back .*in fail.*UnpicklableError",
        ),
        (in_process.fail, (in_process.OneWayError, "w", "hy"), "(?s)cannot be unpickled: .*OneWayError: why"),
        (
            in_process.fail,
            (in_process.NotAnError, "why"),
            "(?s)that fail raised cannot be unpickled.*NotAnError: why",
        ),
        (in_process.leave, (3,), r"the worker process has died \(exit code 3\)"),
    ],
    ids=["function", "argument", "argument there", "value", "error", "error here", "odd error", "exit"],
)
def test_what_cannot_be_pickled_raises_worker_failed(
    colour: str, fn: Callable[..., object], args: tuple[Any, ...], message: str
) -> None:
    with pytest.raises(errors.WorkerFailed, match=message) as caught:
        in_any(colour, policy(), fn, *args)
    reported = report(caught.value)
    assert reported is not None
    assert (reported.reason, reported.attempts, reported.workers_left) == ("stopped", 1, 0)
    assert in_any(colour, policy(), in_process.pid) != os.getpid()


def test_what_cannot_be_loaded_raises_worker_failed() -> None:
    """The process stays usable for the next call."""
    before = policy().call(in_process.pid)
    sent = partial(in_process.echo, in_process.Unreadable())
    with pytest.raises(errors.WorkerFailed, match="echo cannot be called"):
        policy().call(sent)
    assert policy().call(in_process.pid) == before


@COLOURS
def test_the_process_has_the_deadline_of_the_call(colour: str) -> None:
    assert in_any(colour, policy(), in_process.remaining_and_cancelled) == (None, False)
    for options in ({"attempt_timeout": LONG}, {"timeout": LONG}):
        time_left, is_cancelled = in_any(colour, policy(**options), in_process.remaining_and_cancelled)
        assert 0 < time_left <= LONG
        assert not is_cancelled
    with deadline(LONG):
        time_left, _ = in_any(colour, policy(), in_process.remaining_and_cancelled)
    assert 0 < time_left <= LONG


@COLOURS
@pytest.mark.parametrize("seconds", [3e6, 1e10, 1e300])
def test_a_limit_may_be_of_any_length(colour: str, seconds: float) -> None:
    time_left, _ = in_any(colour, policy(attempt_timeout=seconds), in_process.remaining_and_cancelled)
    assert time_left > seconds / 2


@ASYNCS
def test_concurrent_calls_get_their_own_results(colour: str) -> None:
    def call(number: int) -> object:
        return in_any(colour, policy(), in_process.echo, number)

    with ThreadPoolExecutor(3) as pool:
        results = list(pool.map(call, range(9)))
    assert results == [((number,), {}) for number in range(9)]


def test_a_fork_server_has_its_own_processes() -> None:
    retrying = policy(worker=Worker(kind="process", start="forkserver"))
    first = retrying.call(in_process.pid)
    assert retrying.call(in_process.pid) == first != policy().call(in_process.pid)
