"""Idempotency keys: the option, its validation, and the keys made."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any
from uuid import UUID

import pytest

from redouble._clients.idempotency_key import as_idempotency, new_key
from redouble.http import Idempotency


def test_by_default_a_key_is_recognised_and_none_is_made() -> None:
    found = as_idempotency(None)
    assert (found.header, found.auto) == ("Idempotency-Key", False)


def test_auto_makes_a_key() -> None:
    assert as_idempotency("auto") == Idempotency()
    assert (Idempotency().header, Idempotency().auto) == ("Idempotency-Key", True)


def test_an_idempotency_object_is_used_as_it_is() -> None:
    written = Idempotency(header="X-Request-Id", auto=False, make=lambda: "k")
    assert as_idempotency(written) is written


def test_generated_keys_are_unique_uuids() -> None:
    keys = [Idempotency().make() for _ in range(1000)]
    assert len({*keys}) == 1000
    assert all(str(UUID(key)) == key and UUID(key).version == 4 for key in keys)


def test_idempotency_is_frozen_and_compared_by_value() -> None:
    assert {Idempotency(), Idempotency(make=new_key)} == {Idempotency()}
    with pytest.raises(FrozenInstanceError):
        Idempotency().auto = False  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("keys", [True, False, "Auto", "", "Idempotency-Key", 1, {}, Idempotency, new_key])
def test_a_wrong_idempotency_option_raises(keys: Any) -> None:
    with pytest.raises(TypeError, match=r"^idempotency=.*: write 'auto', None, or redouble.http.Idempotency"):
        as_idempotency(keys)


@pytest.mark.parametrize(
    "header", ["", "a b", "a:b", "a\r\nb", "a\x00", "ä", "(a)", None, 5, b"Key", ["Key"]]
)
def test_a_wrong_header_name_raises(header: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"^Idempotency header=.*: write a header's name"):
        Idempotency(header=header)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"auto": 1}, "Idempotency auto=1: write True or False"),
        ({"auto": None}, "Idempotency auto=None: write True or False"),
        ({"make": "key"}, "Idempotency make='key': write a function that returns a key"),
        ({"make": None}, "Idempotency make=None: write a function"),
    ],
)
def test_wrong_values_of_auto_and_make_raise(options: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        Idempotency(**options)
