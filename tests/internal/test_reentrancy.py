"""A `SerialExecutor` runs calls one after the other, each of them completely."""

from __future__ import annotations

import sys
from itertools import count
from types import FrameType
from typing import Any

import pytest

from redouble._internal.reentrancy import SerialExecutor
from tests.support.fakes import Boom


class Recorder:
    """An executor and the log of its calls."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.executor = SerialExecutor(lambda: self.log.append("after"))

    def call(self, name: str) -> str:
        assert self.executor.busy
        self.log += [f"{name} begins", f"{name} ends"]
        return name.upper()


def test_run_returns_the_result_of_the_call() -> None:
    recorder = Recorder()
    assert recorder.executor.run(recorder.call, "a") == "A"
    assert recorder.log == ["a begins", "a ends", "after"]
    assert not recorder.executor.busy


def test_a_re_entrant_call_runs_after_the_outer_one() -> None:
    recorder = Recorder()

    def outer(name: str) -> str:
        recorder.log.append(f"{name} begins")
        assert recorder.executor.run(recorder.call, "inner") is None
        recorder.log.append(f"{name} ends")
        return name

    assert recorder.executor.run(outer, "outer") == "outer"
    assert recorder.log == ["outer begins", "outer ends", "inner begins", "inner ends", "after"]


def test_a_failing_call_does_not_block_later_ones() -> None:
    recorder = Recorder()

    def fail(_: str) -> None:
        recorder.executor.run(recorder.call, "left")
        raise Boom

    with pytest.raises(Boom):
        recorder.executor.run(fail, "x")
    assert not recorder.executor.busy
    assert recorder.executor.run(recorder.call, "next") == "NEXT"
    assert recorder.log == ["after", "left begins", "left ends", "next begins", "next ends", "after"]


def test_a_call_may_be_interrupted_at_every_line() -> None:
    """Each call runs once and completely, and the outer caller gets its own result."""
    for line in count(1):
        recorder, left = Recorder(), [line]

        def interrupt(
            frame: FrameType, what: str, _: object, recorder: Recorder = recorder, left: Any = left
        ) -> Any:
            if frame.f_code is not SerialExecutor.run.__code__:
                return None
            left[0] -= what == "line"
            if what == "line" and not left[0]:
                sys.settrace(None)
                recorder.executor.run(recorder.call, "inner")
            return interrupt

        before = sys.gettrace()
        sys.settrace(interrupt)
        try:
            returned = recorder.executor.run(recorder.call, "outer")
        finally:
            sys.settrace(before)
        if left[0] > 0:
            assert line > 5
            return
        assert returned == "OUTER"
        whole = [word for word in recorder.log if word != "after"]
        assert whole[0].split()[0] == whole[1].split()[0]
        assert sorted(whole) == ["inner begins", "inner ends", "outer begins", "outer ends"]
        assert recorder.log[-1] == "after"
        assert not recorder.executor.busy
