"""`redact` and `hide`: patterns and names of the program's own are hidden wherever Redouble writes a text."""

from __future__ import annotations

import re
from typing import Any

import pytest

import redouble
from redouble import Retry, hide, redact
from redouble._redaction.rules import added


@pytest.fixture(autouse=True)
def nothing_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(added, "rules", ())


def test_a_pattern_is_hidden_until_its_handle_is_removed() -> None:
    handle = hide(r"acme_[0-9a-f]{4,}", re.compile("card ([0-9]+)"))
    assert redact("acme_0123 and card 4711") == "REDACTED and card REDACTED"
    handle.remove()
    handle.remove()
    assert redact("acme_0123 and card 4711") == "acme_0123 and card 4711"
    assert added.rules == ()


def test_names_are_hidden_in_every_form() -> None:
    with hide(names=["pin", "konto.nr #1"]):
        assert redact("pin=1, CARD_PIN: 2, {'pin': '3'}, Konto.Nr #1 = x") == (
            "pin=REDACTED, CARD_PIN: REDACTED, {'pin': 'REDACTED'}, Konto.Nr #1 = REDACTED"
        )
        assert redact("kontoXnr #1 = x, spin is 3") == "kontoXnr #1 = x, spin is 3"


def test_two_handles_are_independent() -> None:
    with hide("aa+"):
        with hide("aa+"):
            assert redact("aaa b") == "REDACTED b"
        assert redact("aaa b") == "REDACTED b"
    assert redact("aaa b") == "aaa b"


def test_reports_and_messages_hide_them() -> None:
    def work() -> None:
        raise ValueError("customer-4711 refused")

    with hide(r"customer-\d+"):
        outcome = Retry(on=ValueError, attempts=2, backoff=[0], wrap=True).run(work)
        assert outcome.report.history[0].error_text == "REDACTED refused"
    assert str(outcome.error).endswith("ValueError: REDACTED refused")


@pytest.mark.parametrize(
    ("args", "names", "message"),
    [
        ((), (), r"hide\(\) hides nothing: write patterns, or names="),
        (("a*",), (), "matches an empty text, so it would hide nothing"),
        (("(",), (), "this is no regular expression: missing"),
        ((3,), (), "write a regular expression for texts"),
        ((re.compile(b"a"),), (), "write a regular expression for texts"),
        ((), "pin", r"hide names='pin': write a list of names"),
        ((), 3, "write a list of names"),
        ((), [""], "write the name of a field"),
        ((), [3], "write the name of a field"),
    ],
)
def test_mistakes_are_refused(args: tuple[Any, ...], names: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        hide(*args, names=names)
    assert added.rules == ()


class Mute(Exception):
    def __str__(self) -> str:
        raise ZeroDivisionError


class Text(str):
    """A text whose methods cannot be trusted."""

    __slots__ = ()

    def __str__(self) -> str:
        raise ZeroDivisionError

    def lower(self) -> str:
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (ValueError("password=abc"), "password=REDACTED"),
        (Text("password=abc"), "password=REDACTED"),
        (None, "None"),
        ("", ""),
        (Mute(), "REDACTED"),
    ],
    ids=["error", "subclass", "None", "empty", "mute"],
)
def test_anything_may_be_redacted(given: object, shown: str) -> None:
    assert redact(given) == shown


def test_a_clean_text_is_returned_as_it_is() -> None:
    text = "Connection refused: 7 of 9 nodes are down"
    assert redact(text) is text


def test_a_text_that_never_settles_is_hidden_as_a_whole() -> None:
    """A pattern of the program's own may match the mark itself."""
    with hide("D$"):
        assert redact("ABD") == "REDACTED"
        assert redouble.redact("REDACTED") == "REDACTED"
