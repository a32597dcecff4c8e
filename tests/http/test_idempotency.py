"""Idempotency keys: the option, its validation, and the keys made."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any
from uuid import UUID

import pytest

from redouble._clients.idempotency import as_idempotency, new_key
from redouble.http import Idempotency


def test_unless_said_keys_are_looked_for_and_none_is_made() -> None:
    found = as_idempotency(None)
    assert (found.header, found.auto) == ("Idempotency-Key", False)


def test_auto_makes_one() -> None:
    assert as_idempotency("auto") == Idempotency()
    assert (Idempotency().header, Idempotency().auto) == ("Idempotency-Key", True)


def test_what_is_written_out_is_taken_as_it_is() -> None:
    written = Idempotency(header="X-Request-Id", auto=False, make=lambda: "k")
    assert as_idempotency(written) is written


def test_keys_differ() -> None:
    keys = [Idempotency().make() for _ in range(1000)]
    assert len({*keys}) == 1000
    assert all(str(UUID(key)) == key and UUID(key).version == 4 for key in keys)


def test_it_is_a_value() -> None:
    assert {Idempotency(), Idempotency(make=new_key)} == {Idempotency()}
    with pytest.raises(FrozenInstanceError):
        Idempotency().auto = False  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("keys", [True, False, "Auto", "", "Idempotency-Key", 1, {}, Idempotency, new_key])
def test_what_idempotency_cannot_be(keys: Any) -> None:
    with pytest.raises(TypeError, match=r"^idempotency=.*: write 'auto', None, or redouble.http.Idempotency"):
        as_idempotency(keys)


@pytest.mark.parametrize(
    "header", ["", "a b", "a:b", "a\r\nb", "a\x00", "ä", "(a)", None, 5, b"Key", ["Key"]]
)
def test_what_is_no_name_of_a_header(header: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"^Idempotency header=.*: write a header's name"):
        Idempotency(header=header)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"auto": 1}, "Idempotency auto=1: write True or False"),
        ({"auto": None}, "Idempotency auto=None: write True or False"),
        ({"make": "key"}, "Idempotency make='key': write a function that returns a key"),
        ({"make": None}, "Idempotency make=None: write a function"),
    ],
)
def test_what_else_is_wrong(options: Any, says: str) -> None:
    with pytest.raises(TypeError, match=says):
        Idempotency(**options)
