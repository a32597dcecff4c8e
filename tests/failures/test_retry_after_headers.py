"""`retry_after`: headers of any type are accepted, and other objects are ignored."""

from __future__ import annotations

from collections.abc import Iterator
from email.message import Message
from http.client import HTTPMessage
from itertools import count, repeat
from typing import Any

import pytest

from redouble._failures.retry_after import response_wish, retry_after


class Joined(dict[str, str]):
    """Headers like those of httpx: repeated ones are joined, except in ``multi_items``."""

    def __init__(self, *pairs: tuple[str, str]) -> None:
        super().__init__()
        self.pairs = pairs
        for name, text in pairs:
            self[name] = f"{self[name]}, {text}" if name in self else text

    def multi_items(self) -> list[tuple[str, str]]:
        return list(self.pairs)


class Listed(dict[str, str]):
    """Headers like those of Tornado."""

    def get_list(self, name: str) -> list[str]:
        return self[name].split(",")


class Many:
    """Headers like those of multidict: pairs in order, with repeated names."""

    def __init__(self, *pairs: tuple[str, str]) -> None:
        self.pairs = pairs

    def items(self) -> Iterator[tuple[str, str]]:
        return iter(self.pairs)


def message(kind: type[Message]) -> Message:
    made = kind()
    made["Retry-After"] = "3"
    made["retry-after"] = "4"
    return made


@pytest.mark.parametrize(
    "headers",
    [
        {"RETRY-after": "3", "retry-after": "4"},
        {b"Retry-After": b"3"},
        [("Retry-After", "3"), ("retry-after", "4")],
        ((name, text) for name, text in [(b"retry-after", b"3"), (b"retry-after", b"4")]),
        Joined(("Retry-After", "3"), ("Retry-After", "4")),
        Listed({"Retry-After": "3,4"}),
        Many(("Retry-After", "3"), ("retry-after", "4")),
        message(Message),
        message(HTTPMessage),
        [
            None,
            "x",
            7,
            ("retry-after",),
            ("a", "b", "c"),
            (None, "4"),
            ("retry-after", None),
            ["retry-after", 3],
        ],
    ],
    ids=lambda headers: type(headers).__name__,
)
def test_any_type_of_headers_is_accepted_and_the_first_of_a_name_counts(headers: object) -> None:
    assert retry_after(headers) == 3


class Broken:
    """An object that raises in every operation."""

    def __getattr__(self, name: str) -> Any:
        raise OSError(name)

    def __iter__(self) -> Iterator[object]:
        raise OSError("no")


def breaking() -> Iterator[tuple[str, str]]:
    yield "retry-after", "3"
    raise OSError("cut")


@pytest.mark.parametrize(
    "headers",
    [
        None,
        7,
        "retry-after: 3",
        b"retry-after: 3",
        object(),
        dict,
        Broken(),
        [Broken()],
        count(),
        repeat(("a", "b")),
    ],
    ids=lambda headers: type(headers).__name__,
)
def test_objects_that_are_no_headers_have_no_hint(headers: object) -> None:
    """Also if their iteration never ends."""
    assert retry_after(headers) is None
    assert response_wish(headers, 503)[0] is None


def test_headers_read_before_an_error_count() -> None:
    assert retry_after(breaking()) == 3


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("true", True),
        ("false", False),
        (" TRUE\t", True),
        ("False", False),
        (b"true", True),
        (["false", "true"], False),
        ("yes", None),
        ("1", None),
        (True, True),
        ("", None),
        (None, None),
    ],
)
def test_x_should_retry(text: object, expected: bool | None) -> None:
    assert response_wish({"X-Should-Retry": text}, 503)[0] is expected
    assert response_wish({}, 503)[0] is None
