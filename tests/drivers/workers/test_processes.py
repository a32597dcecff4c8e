"""Calls in worker processes: what goes there and what comes back."""

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
def test_it_runs_elsewhere_and_the_process_is_used_again(colour: str) -> None:
    first = in_any(colour, policy(), in_process.pid)
    assert first != os.getpid()
    assert in_any(colour, policy(), in_process.pid) == first
    assert in_any(colour, policy(), in_process.echo, 1, "two") == ((1, "two"), {})


def test_in_every_shape() -> None:
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
def test_a_decorated_function_has_the_name_of_its_wrapper(
    decorated: Callable[[int], tuple[int, int]],
) -> None:
    """What is sent is the function itself, or the process would start a process, and so on."""
    where, made = decorated(21)
    assert (where, made) == (policy().call(in_process.pid), 42)


def test_a_worker_process_may_have_worker_processes() -> None:
    where, made = policy().call(in_process.doubled, 21)
    assert made == 42
    assert where not in (os.getpid(), policy().call(in_process.pid))


def test_what_needs_no_module_of_ours() -> None:
    assert policy().call(os.getpid) == policy().call(in_process.pid)


@COLOURS
@pytest.mark.parametrize("kind", [ValueError, SystemExit, KeyboardInterrupt])
def test_what_is_raised_there_is_raised_here(colour: str, kind: type[BaseException]) -> None:
    before = in_any(colour, policy(), in_process.pid)
    with pytest.raises(kind, match="no") as caught:
        in_any(colour, policy(), in_process.fail, kind, "no")
    assert "noted there" in caught.value.__notes__
    assert isinstance(caught.value.__cause__, WorkerTraceback)
    assert "in fail" in str(caught.value.__cause__)
    assert in_any(colour, policy(), in_process.pid) == before


def test_errors_are_retried_as_any_others() -> None:
    with pytest.raises(ConnectionError, match="lost") as caught:
        policy(attempts=3).call(in_process.fail, ConnectionError, "lost")
    said = report(caught.value)
    assert said is not None
    assert (said.attempts, said.reason) == (3, "attempts")


def test_an_inner_policy_there_that_gave_up_is_known_here() -> None:
    outcome = policy(attempts=3, nested="stop").run(in_process.nested)
    assert (outcome.report.attempts, outcome.report.reason) == (1, "nested")


@COLOURS
@pytest.mark.parametrize(
    ("fn", "args", "message"),
    [
        (lambda: None, (), "<lambda> or its arguments cannot be sent to a worker process: .*pickle"),
        (in_process.echo, (threading.Lock(),), "echo or its arguments cannot be sent .*lock"),
        (in_process.echo, (in_process.Unreadable(),), "echo cannot be called .* ValueError: invalid literal"),
        (in_process.locked, (), "what locked made cannot be sent back .* cannot pickle '_thread.lock'"),
        (in_process.fail, (in_process.Held, "why"), "(?s)what fail made cannot be sent back .*in fail.*Held"),
        (in_process.fail, (in_process.OneWay, "w", "hy"), "(?s)cannot be read again: .*OneWay: why"),
        (in_process.fail, (in_process.Odd, "why"), "(?s)what fail raised cannot be read again.*Odd: why"),
        (in_process.leave, (3,), r"the worker process has died \(exit code 3\)"),
    ],
    ids=["function", "argument", "argument there", "value", "error", "error here", "odd error", "exit"],
)
def test_what_cannot_be_pickled_is_reported(
    colour: str, fn: Callable[..., object], args: tuple[Any, ...], message: str
) -> None:
    with pytest.raises(errors.WorkerFailed, match=message) as caught:
        in_any(colour, policy(), fn, *args)
    said = report(caught.value)
    assert said is not None
    assert (said.reason, said.attempts, said.workers_left) == ("stopped", 1, 0)
    assert in_any(colour, policy(), in_process.pid) != os.getpid()


def test_what_cannot_be_loaded_is_reported() -> None:
    """Whatever is wrong with it, the process is there for the next one."""
    before = policy().call(in_process.pid)
    sent = partial(in_process.echo, in_process.Unreadable())
    with pytest.raises(errors.WorkerFailed, match="echo cannot be called"):
        policy().call(sent)
    assert policy().call(in_process.pid) == before


@COLOURS
def test_a_deadline_is_known_there(colour: str) -> None:
    assert in_any(colour, policy(), in_process.left) == (None, False)
    for options in ({"attempt_timeout": LONG}, {"timeout": LONG}):
        time_left, told_to_stop = in_any(colour, policy(**options), in_process.left)
        assert 0 < time_left <= LONG
        assert not told_to_stop
    with deadline(LONG):
        time_left, _ = in_any(colour, policy(), in_process.left)
    assert 0 < time_left <= LONG


@COLOURS
@pytest.mark.parametrize("seconds", [3e6, 1e10, 1e300])
def test_a_limit_may_be_as_long_as_it_likes(colour: str, seconds: float) -> None:
    time_left, _ = in_any(colour, policy(attempt_timeout=seconds), in_process.left)
    assert time_left > seconds / 2


@ASYNCS
def test_many_at_once(colour: str) -> None:
    def call(number: int) -> object:
        return in_any(colour, policy(), in_process.echo, number)

    with ThreadPoolExecutor(3) as pool:
        told = list(pool.map(call, range(9)))
    assert told == [((number,), {}) for number in range(9)]


def test_forkserver() -> None:
    retrying = policy(worker=Worker(kind="process", start="forkserver"))
    first = retrying.call(in_process.pid)
    assert retrying.call(in_process.pid) == first != policy().call(in_process.pid)
