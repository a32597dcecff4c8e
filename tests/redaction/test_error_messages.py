"""Messages of real libraries: their secrets are hidden, and what explains the failure stays."""

from __future__ import annotations

import re

import pytest

import redouble
from tests.support.error_messages import MESSAGES, Message

every_message = pytest.mark.parametrize("said", MESSAGES.values(), ids=MESSAGES)


def left(said: Message, shown: str) -> list[str]:
    """Return the parts of the secrets that are still there."""
    parts = [part for secret in said.secrets for part in re.split(r"[\W_]+", secret)]
    around = said.text
    for secret in said.secrets:
        around = around.replace(secret, "")
    return [part for part in parts if len(part) > 2 and part in shown and part not in around]


@every_message
def test_the_secrets_of_a_message_are_hidden(said: Message) -> None:
    shown = redouble.redact(said.text)
    assert left(said, shown) == []
    assert said.kept in shown


@every_message
def test_a_redacted_message_stays_as_it_is(said: Message) -> None:
    shown = redouble.redact(said.text)
    assert redouble.redact(shown) == shown
    assert (shown == said.text) == (not said.secrets)


@every_message
@pytest.mark.parametrize("around", ["ValueError({!r})", '{{"error": "{}"}}', "a: {}\nb", "  {}  ", "\t({})."])
def test_a_message_inside_another_text_is_redacted_too(said: Message, around: str) -> None:
    """As errors quote others: in a repr, in JSON, in a sentence."""
    shown = redouble.redact(around.format(said.text))
    assert left(said, shown) == []
    assert redouble.redact(shown) == shown


@every_message
def test_a_message_may_be_cut_at_any_place(said: Message) -> None:
    """Half a secret shows at most the few characters that are too short to be one."""
    for end in range(0, len(said.text), 3):
        assert isinstance(redouble.redact(said.text[:end]), str)
