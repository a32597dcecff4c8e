"""The main loop of a worker process, run in a thread of this process."""

from __future__ import annotations

import pickle
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from math import inf
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

import pytest

from redouble import Retry, Worker, cancelled, remaining
from redouble._drivers.workers.child import LOAD, READY, Reply, make_call, serve
from redouble._runtime.call_stack import InheritedCall
from redouble._runtime.clock import context_clock
from redouble._runtime.deadline import inherited_calls
from tests.support.workers import functions as in_process


def work(
    fn: Callable[..., object],
    *args: object,
    seconds: float = inf,
    calls: Iterable[InheritedCall] = (),
    **kwargs: object,
) -> bytes:
    return pickle.dumps((partial(fn, *args, **kwargs), seconds, [*calls], {}, None))


@pytest.fixture
def wires() -> Iterator[tuple[Connection, Connection]]:
    """Both ends of a connection."""
    ours, theirs = Pipe()
    with ours, theirs:
        yield ours, theirs


def test_a_value_is_sent_back() -> None:
    what, sent, text = make_call(work(in_process.echo, 1, two=2))
    assert (what, pickle.loads(sent), text) == ("value", ((1,), {"two": 2}), "")


@pytest.mark.parametrize("kind", [ValueError, SystemExit, KeyboardInterrupt, GeneratorExit])
def test_an_exception_is_sent_back_with_its_traceback(kind: type[BaseException]) -> None:
    what, sent, text = make_call(work(in_process.fail, kind, "no"))
    error = pickle.loads(sent)
    assert what == "error"
    assert (type(error), error.args, error.__notes__) == (kind, ("no",), ["noted there"])
    assert "in fail" in text
    assert f"{kind.__name__}: no" in text


@pytest.mark.parametrize(
    ("fn", "args", "expected"),
    [
        (in_process.locked, (), ("unpicklable value", "lock: cannot pickle '_thread.lock' object")),
        (
            in_process.fail,
            (in_process.UnpicklableError, "why"),
            ("unpicklable error", "tests.support.workers.functions.UnpicklableError: ('why', "),
        ),
    ],
)
def test_an_unpicklable_result_is_reported_as_text(
    fn: Callable[..., object], args: tuple[Any, ...], expected: tuple[str, str]
) -> None:
    what, sent, text = make_call(work(fn, *args))
    assert (what, sent) == (expected[0], b"")
    assert expected[1] in text


def test_an_argument_that_cannot_be_unpickled_is_reported_as_text() -> None:
    assert make_call(work(in_process.echo, in_process.Unreadable())) == (
        "unreadable",
        b"",
        "ValueError: invalid literal for int() with base 10: 'no number'",
    )


@pytest.mark.parametrize(("seconds", "least", "most"), [(50.0, 0.0, 50.0), (0.0, 0.0, 0.0), (-3.0, 0.0, 0.0)])
def test_the_time_left_becomes_a_deadline(seconds: float, least: float, most: float) -> None:
    _, sent, _ = make_call(work(in_process.remaining_and_cancelled, seconds=seconds))
    time_left, is_cancelled = pickle.loads(sent)
    assert least <= time_left <= most
    assert not is_cancelled
    assert remaining() is None


def test_without_a_limit_there_is_no_deadline() -> None:
    assert pickle.loads(make_call(work(in_process.remaining_and_cancelled))[1]) == (None, False)
    assert not cancelled()


@pytest.mark.parametrize(
    ("policy", "left", "soft"),
    [
        (Retry(name="fetch", labels={"team": "a"}), inf, inf),
        (Retry(name="fetch", labels={"team": "a"}, give_up_after=50), 50, 50),
        (Retry(name="fetch", labels={"team": "a"}, timeout=50), 50, 50),
        (Retry(name="fetch", labels={"team": "a"}, timeout=50, worker=Worker()), 50, inf),
    ],
)
def test_the_calls_around_are_those_of_the_caller(policy: Retry, left: float, soft: float) -> None:
    """While it runs, with the time that was left when the call was sent."""

    def sent() -> bytes:
        return work(in_process.calls_around, calls=inherited_calls(sys._getframe(1), context_clock()))

    [call, *same] = pickle.loads(make_call(policy.call(sent))[1])
    assert call == (1, 4, "fetch", {"team": "a"}, pytest.approx(left, abs=20), pytest.approx(soft, abs=20))
    assert {other[2] for other in same} <= {"fetch"}
    assert pickle.loads(make_call(work(in_process.calls_around))[1]) == []
    assert remaining() is None


def test_serve_makes_one_call_after_the_other(wires: tuple[Connection, Connection]) -> None:
    """It loads functions before the calls; a call reports the errors of loading."""
    ours, theirs = wires
    received: list[object] = []

    def parent() -> None:
        received.append(ours.recv_bytes())
        for needed in (pickle.dumps(in_process.echo), pickle.dumps(in_process.Unreadable())):
            ours.send_bytes(LOAD + needed)
            received.append(ours.recv_bytes())
        for number in range(3):
            ours.send_bytes(work(in_process.echo, number))
            reply: Reply = pickle.loads(ours.recv_bytes())
            received.append(pickle.loads(reply[1]))
        ours.close()

    thread = threading.Thread(target=parent)
    thread.start()
    serve(theirs)
    thread.join()
    assert received == [READY, READY, READY, ((0,), {}), ((1,), {}), ((2,), {})]


def test_serve_returns_if_the_parent_is_gone_before_ready(wires: tuple[Connection, Connection]) -> None:
    ours, theirs = wires
    ours.close()
    serve(theirs)
    assert not theirs.closed  # serve() has returned; its caller closes the connection


def test_serve_returns_if_the_parent_is_gone_before_the_reply(wires: tuple[Connection, Connection]) -> None:
    """The connection is closed, so that the reply cannot be sent."""
    ours, theirs = wires
    serving = threading.Thread(target=serve, args=(theirs,))
    with in_process.WorkerConnections() as line:
        serving.start()
        assert ours.recv_bytes() == READY
        ours.send_bytes(work(in_process.stuck, line.port))
        line.accept()
        ours.close()
        line.release()
        serving.join()


def test_printed_text_is_flushed_before_the_reply(
    wires: tuple[Connection, Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process may be killed at any time after its reply, and would lose what it has not written."""
    ours, theirs = wires
    flushes: list[str] = []

    class Out:
        def write(self, text: str) -> int:
            return len(text)

        def flush(self) -> None:
            flushes.append("flush")

    monkeypatch.setattr("sys.stdout", Out())
    ours.send_bytes(work(in_process.print_word, "hello"))
    serving = threading.Thread(target=serve, args=(theirs,))
    serving.start()
    assert ours.recv_bytes() == READY
    ours.recv_bytes()
    seen = list(flushes)
    ours.close()
    serving.join()
    assert seen
