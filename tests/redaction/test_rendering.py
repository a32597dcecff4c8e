"""Texts of others are bounded: in words, with a mark that tells their length."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redouble._redaction.rendering import (
    MAX_LENGTH,
    described,
    place_of,
    shortened,
    shown,
    shown_end,
    shown_repr,
    text_of,
)


def test_a_short_text_is_kept() -> None:
    text = "x" * MAX_LENGTH
    assert shortened(text) is text


def test_a_long_text_ends_with_its_length() -> None:
    text = shortened("x" * 1_000_000)
    assert text == "x" * (MAX_LENGTH - 40) + " ... [1000000 characters]"
    assert shortened(text, 256) == "x" * 216 + " ... [1000000 characters]"


def test_a_long_text_is_cut_at_a_blank() -> None:
    """Half a token may look like none."""
    text = shortened("a " * 2000 + "sk-" + "b" * 90 + "c" * 5000)
    assert text.endswith("a a ... [9093 characters]")


@given(st.text(min_size=1), st.integers(64, 5000), st.integers(1, 300))
def test_a_shortened_text_fits(text: str, length: int, times: int) -> None:
    short = shortened(text * times, length)
    assert len(short) <= length
    assert shortened(short, length) == short
    assert len(shortened(short, 64)) <= 64


def test_an_error_without_a_text() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise ValueError

        __repr__ = __str__

    assert text_of(Mute()) == "<no text: __str__ failed>"
    assert described(Mute()) == "Mute"
    assert described(ValueError()) == "ValueError"
    assert described(ValueError("no\npassword=x")) == "ValueError: no\\npassword=REDACTED"
    assert shown_repr(Mute()) == f"<{Mute.__qualname__}>"


def test_the_end_of_a_long_traceback_is_shown() -> None:
    text = "Traceback\n" + "  line\n" * 5000 + "ValueError: password=abc"
    assert shown_end(text).endswith("  line\\nValueError: password=REDACTED")
    assert len(shown_end(text)) < 2 * MAX_LENGTH
    assert shown_end("a\nb") == "a\\nb"


def test_the_place_of_an_error() -> None:
    def one() -> None:
        raise ValueError

    with pytest.raises(ValueError) as caught:  # noqa: PT011  it is raised above
        one()
    assert place_of(caught.value).startswith(f"{__file__}:")
    assert "<locals>.one < " in place_of(caught.value)
    assert place_of(ValueError()) == "in redouble"


def test_a_shown_text_is_one_line() -> None:
    assert shown("a\nb\x1b[2J\ud800") == "a\\nb\\x1b[2J\\ud800"
