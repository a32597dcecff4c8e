"""What a worker process does, seen from inside: here it runs on this side of the wire."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator
from math import inf
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

import pytest

from redouble import cancelled, remaining
from redouble._drivers.workers.child import LOAD, READY, Reply, make_call, serve
from tests.support.workers import functions as in_process


def work(fn: Callable[..., object], *args: object, seconds: float = inf, **kwargs: object) -> bytes:
    return pickle.dumps((fn, args, kwargs, seconds, {}))


@pytest.fixture
def wires() -> Iterator[tuple[Connection, Connection]]:
    """Both ends."""
    ours, theirs = Pipe()
    with ours, theirs:
        yield ours, theirs


def test_a_value_is_sent_back() -> None:
    what, sent, told = make_call(work(in_process.echo, 1, two=2))
    assert (what, pickle.loads(sent), told) == ("value", ((1,), {"two": 2}), "")


@pytest.mark.parametrize("kind", [ValueError, SystemExit, KeyboardInterrupt, GeneratorExit])
def test_whatever_is_raised_is_sent_back_with_its_traceback(kind: type[BaseException]) -> None:
    what, sent, told = make_call(work(in_process.fail, kind, "no"))
    error = pickle.loads(sent)
    assert what == "error"
    assert (type(error), error.args, error.__notes__) == (kind, ("no",), ["noted there"])
    assert "in fail" in told
    assert f"{kind.__name__}: no" in told


@pytest.mark.parametrize(
    ("fn", "args", "expected"),
    [
        (in_process.locked, (), ("unpicklable value", "lock: cannot pickle '_thread.lock' object")),
        (
            in_process.fail,
            (in_process.Held, "why"),
            ("unpicklable error", "tests.support.workers.functions.Held: ('why', "),
        ),
    ],
)
def test_what_cannot_be_sent_back_is_reported_as_text(
    fn: Callable[..., object], args: tuple[Any, ...], expected: tuple[str, str]
) -> None:
    what, sent, told = make_call(work(fn, *args))
    assert (what, sent) == (expected[0], b"")
    assert expected[1] in told


def test_what_cannot_be_read_is_reported_as_text() -> None:
    assert make_call(work(in_process.echo, in_process.Unreadable())) == (
        "unreadable",
        b"",
        "ValueError: invalid literal for int() with base 10: 'no number'",
    )


@pytest.mark.parametrize(("seconds", "least", "most"), [(50.0, 0.0, 50.0), (0.0, 0.0, 0.0), (-3.0, 0.0, 0.0)])
def test_the_time_it_has_is_a_deadline(seconds: float, least: float, most: float) -> None:
    _, sent, _ = make_call(work(in_process.left, seconds=seconds))
    time_left, told_to_stop = pickle.loads(sent)
    assert least <= time_left <= most
    assert not told_to_stop
    assert remaining() is None


def test_without_a_limit_there_is_no_deadline() -> None:
    assert pickle.loads(make_call(work(in_process.left))[1]) == (None, False)
    assert not cancelled()


def test_one_call_after_the_other(wires: tuple[Connection, Connection]) -> None:
    """Before that it loads what they need; errors of that are reported by the call."""
    ours, theirs = wires
    heard: list[object] = []

    def parent() -> None:
        heard.append(ours.recv_bytes())
        for needed in (pickle.dumps(in_process.echo), pickle.dumps(in_process.Unreadable())):
            ours.send_bytes(LOAD + needed)
            heard.append(ours.recv_bytes())
        for number in range(3):
            ours.send_bytes(work(in_process.echo, number))
            said: Reply = pickle.loads(ours.recv_bytes())
            heard.append(pickle.loads(said[1]))
        ours.close()

    with_it = threading.Thread(target=parent)
    with_it.start()
    serve(theirs)
    with_it.join()
    assert heard == [READY, READY, READY, ((0,), {}), ((1,), {}), ((2,), {})]


def test_a_parent_that_is_gone_before_the_process_is_ready(wires: tuple[Connection, Connection]) -> None:
    ours, theirs = wires
    ours.close()
    serve(theirs)
    assert not theirs.closed  # it has ended by itself, and left the wire to whoever gave it


def test_a_parent_that_is_gone_before_the_answer(wires: tuple[Connection, Connection]) -> None:
    """The connection is closed, so nothing is sent."""
    ours, theirs = wires
    serving = threading.Thread(target=serve, args=(theirs,))
    with in_process.Line() as line:
        serving.start()
        assert ours.recv_bytes() == READY
        ours.send_bytes(work(in_process.stuck, line.port))
        line.answer()
        ours.close()
        line.hang_up()
        serving.join()


def test_what_was_printed_is_written_before_the_answer(
    wires: tuple[Connection, Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process may be killed at any time after that, with all that it had not written yet."""
    ours, theirs = wires
    written: list[str] = []

    class Out:
        def write(self, text: str) -> int:
            return len(text)

        def flush(self) -> None:
            written.append("all of it")

    monkeypatch.setattr("sys.stdout", Out())
    ours.send_bytes(work(in_process.speak, "hello"))
    serving = threading.Thread(target=serve, args=(theirs,))
    serving.start()
    assert ours.recv_bytes() == READY
    ours.recv_bytes()
    seen = list(written)
    ours.close()
    serving.join()
    assert seen
