"""The errors that `Chaos` raises: a new exception each time, from a type, an exception or a function."""

from __future__ import annotations

import functools
import re
from typing import Any

import pytest

from redouble import Chaos
from tests.support.fakes import Boom, in_colour
from tests.support.layers.chaos import afetch, call_with_chaos, fetch, items


class Picky(Exception):
    """An exception that needs two arguments, so that it cannot be copied either."""

    def __init__(self, code: int, *, reason: str) -> None:
        super().__init__(code)
        self.reason = reason


class Silent(Exception):
    """An exception without arguments."""

    def __init__(self) -> None:
        super().__init__("as it says itself")


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (OSError, OSError("injected by Chaos")),
        (KeyError, KeyError("injected by Chaos")),
        (Silent, Silent()),
        (OSError(111, "refused"), ConnectionRefusedError(111, "refused")),
        (lambda: ValueError("made"), ValueError("made")),
        (functools.partial(ValueError, "made"), ValueError("made")),
        (lambda: Picky(3, reason="x"), Picky(3, reason="x")),
    ],
)
def test_the_injected_exception(fault: Any, expected: Exception) -> None:
    error, _ = call_with_chaos(fault=fault)
    assert (type(error), error.args) == (type(expected), expected.args)


def test_an_exception_is_copied_each_time() -> None:
    """A raised exception collects a traceback, a context and notes: no other exception shares them."""
    own = Boom("x")
    own.__cause__ = cause = KeyError()
    own.add_note("mine")
    own.code = 7  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    chaos = Chaos(fault=own, rate=1)
    seen: list[Boom] = []
    for _ in range(3):
        with pytest.raises(Boom) as caught:
            chaos.call(fetch)
        assert (caught.value.args, vars(caught.value)["code"]) == (("x",), 7)
        assert caught.value.__notes__ == ["mine"]
        caught.value.add_note("another")
        seen.append(caught.value)
    assert len({id(error) for error in [own, *seen]}) == 4
    assert (own.__traceback__, own.__cause__, own.__notes__) == (None, cause, ["mine"])


def test_a_fault_is_made_at_each_call() -> None:
    numbers = iter(range(9))
    chaos = Chaos(fault=lambda: Boom(next(numbers)), rate=1)
    for number in range(3):
        with pytest.raises(Boom, match=str(number)):
            chaos.call(fetch)


@pytest.mark.parametrize("made", [None, "text", OSError, KeyboardInterrupt()])
def test_a_function_that_returns_no_exception_is_reported(colour: str, made: Any) -> None:
    chaos = Chaos(fault=lambda: made, rate=1)
    message = re.escape(f"made {made!r}, which is no Exception")
    with pytest.raises(TypeError, match=rf"^Chaos fault=.*<lambda> {message}$"):
        in_colour(colour, lambda: chaos.call(fetch), lambda: chaos.call(afetch))


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (KeyboardInterrupt, r"fault=KeyboardInterrupt: write a subclass of Exception"),
        (int, r"fault=int: write a subclass of Exception"),
        (KeyboardInterrupt(), r"fault=KeyboardInterrupt\(\): write an exception, its type, or a function "),
        ("boom", r"fault='boom': write an exception, its type, or a function that makes one"),
        (3, r"fault=3: write an exception, its type, or a function that makes one"),
        (Picky, r"fault=Picky cannot be made without arguments: write a function, lambda: Picky\(\.\.\.\)"),
        (
            UnicodeDecodeError,
            r"fault=UnicodeDecodeError cannot be made without arguments: write a function, lambda:",
        ),
        (Picky(3, reason="x"), r"fault=Picky.* cannot be .*: write a function, lambda: Picky\(\.\.\.\)"),
        (afetch, r"fault=afetch is a coroutine function: write a plain function"),
        (items, r"fault=items is a generator function: write a plain function"),
    ],
)
def test_wrong_faults_are_reported(fault: Any, message: str) -> None:
    with pytest.raises(TypeError, match=rf"^Chaos {message}"):
        Chaos(fault=fault)
