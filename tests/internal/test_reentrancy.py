"""A `SerialExecutor` runs calls one after the other, each of them completely."""

from __future__ import annotations

import sys
from itertools import count
from types import FrameType
from typing import Any

import pytest

from redouble._internal.reentrancy import SerialExecutor
from tests.support.fakes import Boom


class Office:
    """An executor, and the log of its calls."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.desk = SerialExecutor(lambda: self.done.append("after"))

    def deed(self, name: str) -> str:
        assert self.desk.busy
        self.done += [f"{name} begins", f"{name} ends"]
        return name.upper()


def test_a_deed_and_what_it_returns() -> None:
    office = Office()
    assert office.desk.run(office.deed, "a") == "A"
    assert office.done == ["a begins", "a ends", "after"]
    assert not office.desk.busy


def test_one_in_the_middle_of_another_comes_after_it() -> None:
    office = Office()

    def outer(name: str) -> str:
        office.done.append(f"{name} begins")
        assert office.desk.run(office.deed, "inner") is None
        office.done.append(f"{name} ends")
        return name

    assert office.desk.run(outer, "outer") == "outer"
    assert office.done == ["outer begins", "outer ends", "inner begins", "inner ends", "after"]


def test_one_that_fails_does_not_keep_the_others_out() -> None:
    office = Office()

    def fail(_: str) -> None:
        office.desk.run(office.deed, "left")
        raise Boom

    with pytest.raises(Boom):
        office.desk.run(fail, "x")
    assert not office.desk.busy
    assert office.desk.run(office.deed, "next") == "NEXT"
    assert office.done == ["after", "left begins", "left ends", "next begins", "next ends", "after"]


def test_interrupted_at_every_line() -> None:
    """Each call runs once and completely, and the outermost caller gets the result of its own."""
    for line in count(1):
        office, left = Office(), [line]

        def interrupt(
            frame: FrameType, what: str, _: object, office: Office = office, left: Any = left
        ) -> Any:
            if frame.f_code is not SerialExecutor.run.__code__:
                return None
            left[0] -= what == "line"
            if what == "line" and not left[0]:
                sys.settrace(None)
                office.desk.run(office.deed, "inner")
            return interrupt

        before = sys.gettrace()
        sys.settrace(interrupt)
        try:
            returned = office.desk.run(office.deed, "outer")
        finally:
            sys.settrace(before)
        if left[0] > 0:
            assert line > 5
            return
        assert returned == "OUTER"
        whole = [word for word in office.done if word != "after"]
        assert whole[0].split()[0] == whole[1].split()[0]
        assert sorted(whole) == ["inner begins", "inner ends", "outer begins", "outer ends"]
        assert office.done[-1] == "after"
        assert not office.desk.busy
