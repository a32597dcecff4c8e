"""Copies of an error: one for each caller, equal to the original in all that it holds."""

from __future__ import annotations

from typing import Any

import pytest

from redouble._layers.results.flight import Flight, duplicate


class Custom(Exception):
    """An error whose class takes other arguments than it stores."""

    def __init__(self, *, code: int) -> None:
        super().__init__(f"code {code}")
        self.code = code


class Slotted(Exception):
    __slots__ = ("code", "unset")

    def __init__(self, code: int) -> None:
        self.code = code


class WithNew(Exception):
    def __new__(cls, *args: Any, code: int) -> WithNew:
        made = super().__new__(cls, *args)
        made.code = code
        return made

    def __init__(self, *args: Any, code: int) -> None:
        super().__init__(*args)

    code: int


class Choosy(OSError):
    """A subclass of a class written in C, with a constructor of its own."""

    def __init__(self, path: str) -> None:
        super().__init__(2, "not found", path)


ORIGINALS = [
    Exception("x"),
    Custom(code=3),
    Slotted(3),
    WithNew("x", code=3),
    Choosy("x"),
    FileNotFoundError(2, "not found", "a", None, "b"),
    UnicodeDecodeError("utf-8", b"x", 0, 1, "why"),
    ImportError("x", name="module", path="path"),
    StopIteration(3),
    KeyError("k"),
    ExceptionGroup("two", [ValueError("1"), OSError("2")]),
    SyntaxError("wrong", ("file", 1, 2, "text")),
    AttributeError("x", name="name", obj=3),
]


@pytest.mark.parametrize("error", ORIGINALS, ids=lambda error: type(error).__name__)
def test_a_copy_holds_what_the_original_holds(error: Exception) -> None:
    error.add_note("note")
    error.__cause__, error.__context__ = cause, context = ValueError("cause"), ValueError("context")
    try:
        raise error
    except Exception as raised:
        traceback = raised.__traceback__
    copy = duplicate(error)
    assert copy is not error
    assert type(copy) is type(error)
    assert (copy.args, str(copy), repr(copy)) == (error.args, str(error), repr(error))
    assert {**vars(copy)} == {**vars(error)}
    assert copy.__notes__ is not error.__notes__
    assert (copy.__cause__, copy.__context__, copy.__suppress_context__) == (cause, context, True)
    assert copy.__traceback__ is traceback
    for name in ("code", "errno", "filename", "filename2", "start", "reason", "name", "path", "value", "obj"):
        assert getattr(copy, name, None) == getattr(error, name, None)


def test_an_error_that_cannot_be_copied_is_shared() -> None:
    class Odd(Exception):
        def __setattr__(self, name: str, value: object) -> None:
            raise RuntimeError

    error = Odd("x")
    assert duplicate(error) is error


def test_the_chain_of_a_context_holds_no_flight_that_has_ended() -> None:
    """Tasks that start one another would make it longer and longer."""
    outer, inner, innermost = Flight(), Flight(), Flight()
    outer.enter()
    inner.enter()
    inner.lead.ended = True
    innermost.enter()
    assert innermost.lead.outer is outer.lead
    assert innermost.is_around()
    assert outer.is_around()
    assert not inner.is_around()
    innermost.leave()
    innermost.leave()
    outer.leave()
    assert not outer.is_around()
