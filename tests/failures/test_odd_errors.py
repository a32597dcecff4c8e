"""Errors that raise when they are inspected: the policy raises them unchanged."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan
from typing import Any

import pytest

from redouble import Retry, errors, report
from tests.support.call_shapes import ASYNC_SHAPES, SHAPES
from tests.support.fakes import Virtual, always, in_colour

NOTE = "redouble: gave up after 3 attempts in 3.0 s (attempts exhausted)"


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


MUTE = Mute()


class Closed(Exception):
    """An error whose attributes raise."""

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]  # pyright: ignore[reportIncompatibleVariableOverride]
        raise RuntimeError("no attributes")


class Locked(Exception):
    """An error without readable attributes."""

    def __getattribute__(self, name: str) -> Any:
        if name == "__class__":  # without it neither `isinstance` nor pytest nor asyncio works
            return Locked
        raise RuntimeError(f"no {name}")


class Untraced(Exception):
    """An error whose ``with_traceback`` raises."""

    def with_traceback(self, tb: object, /) -> Any:
        raise RuntimeError("no tracebacks")


class Odd(Exception):
    """An exception with malformed ``__notes__``."""

    def __init__(self, notes: object) -> None:
        super().__init__("odd")
        self.__dict__["__notes__"] = notes


class Noted(Odd):
    """An exception whose notes are no list."""

    def __init__(self) -> None:
        super().__init__(3)


def failing(error: Exception) -> Callable[[], object]:
    def operation() -> object:
        raise error

    return operation


@pytest.mark.parametrize(
    ("notes", "expected"),
    [
        ([], [NOTE]),
        (["mine"], ["mine", NOTE]),
        (
            ["mine", "redouble: gave up after 9 attempts in 1.0 s (no time left)", "too"],
            ["mine", "too", NOTE],
        ),
        ([3, None, MUTE], [3, None, MUTE, NOTE]),
        (None, [NOTE]),
        (("a tuple",), ("a tuple",)),
        ("a text", "a text"),
        (3, 3),
    ],
)
def test_malformed_notes_do_not_replace_the_exception(notes: object, expected: object) -> None:
    error = Odd(notes)
    with pytest.raises(Odd):
        Retry(on=Odd, attempts=3, backoff=[1, 2], clock=Virtual()).call(failing(error))
    assert error.__dict__["__notes__"] == expected
    assert report(error) is not None


OPTIONS: dict[str, dict[str, Any]] = {
    "stopped": {"on": ConnectionError},
    "unknown": {},
    "given up": {"on": Exception, "attempts": 3},
    "no delays": {"on": Exception, "attempts": 4},
    "no time": {"on": Exception, "give_up_after": 2},
    "wrapped": {"on": Exception, "attempts": 3, "wrap": True},
    "busy": {"on": Exception, "attempts": 3, "timeout": 99},
    "observed": {"on": Exception, "attempts": 3, "on_failure": id, "on_give_up": id},
    "rule": {"on": always(True), "attempts": 3},
    "nested": {"on": Exception, "attempts": 3, "nested": "stop"},
}


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("kind", [Mute, Closed, Locked, Untraced, Noted])
@pytest.mark.parametrize("colour", ["sync", "asyncio", "trio"])
def test_errors_that_cannot_be_inspected_are_raised_unchanged(
    colour: str, kind: type[Exception], options: str
) -> None:
    """Whether a stamp and a note can be added or not, and whether they are retried or not."""
    error = kind()
    policy = Retry(backoff=[1, 2], clock=Virtual(), **OPTIONS[options])
    operation = failing(error)

    async def aoperation() -> object:
        return operation()

    def blocking() -> None:
        for shape in SHAPES.values():
            try:
                shape(policy, operation)
            except Exception as caught:
                seen.append(caught.__cause__ if policy.wrap else caught)

    async def waiting() -> None:
        for shape in ASYNC_SHAPES.values():
            try:
                await shape(policy, aoperation)
            except Exception as caught:
                seen.append(caught.__cause__ if policy.wrap else caught)

    seen: list[BaseException | None] = []
    in_colour(colour, blocking, waiting)
    assert [one is error for one in seen] == [True] * 4


@pytest.mark.parametrize(
    "error",
    [
        OSError({"a": 1}, "x"),  # the errno is not hashable
        errors.Rejected("closed", retry_after=inf),
        errors.Rejected("closed", retry_after=nan),
        errors.Rejected("closed", retry_after=-1),
    ],
    ids=repr,
)
def test_malformed_contents_do_not_replace_the_error(error: Exception) -> None:
    """With the default policy, which reads these attributes."""
    with pytest.raises(type(error)) as caught:
        Retry(clock=Virtual()).call(failing(error))
    assert caught.value is error
    assert report(error) is not None


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("kind", [Mute, Closed, Locked, Untraced, Noted])
def test_causes_and_members_that_cannot_be_inspected_change_nothing(
    kind: type[Exception], options: str
) -> None:
    """As the cause, or as members of a group."""
    chained, grouped = ValueError(), ExceptionGroup("several", [kind(), ValueError()])
    chained.__cause__ = kind()
    for error in (chained, grouped):
        outcome = Retry(backoff=[1, 2], clock=Virtual(), **OPTIONS[options]).run(failing(error))
        assert outcome.error is not None
        assert error in (outcome.error, outcome.error.__cause__)
