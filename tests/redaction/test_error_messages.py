"""Messages of real libraries: their secrets are hidden, and what explains the failure stays."""

from __future__ import annotations

import pytest

import redouble
from tests.support.error_messages import MESSAGES, Message

every_message = pytest.mark.parametrize("said", MESSAGES.values(), ids=MESSAGES)


@every_message
def test_the_secrets_of_a_message_are_hidden(said: Message) -> None:
    shown = redouble.redact(said.text)
    assert [secret for secret in said.secrets if secret in shown] == []
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
    assert [secret for secret in said.secrets if secret in shown] == []
    assert redouble.redact(shown) == shown


@every_message
def test_a_message_may_be_cut_at_any_place(said: Message) -> None:
    """Half a secret shows at most the few characters that are too short to be one."""
    for end in range(0, len(said.text), 3):
        assert isinstance(redouble.redact(said.text[:end]), str)
