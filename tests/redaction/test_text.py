"""Sentences that look like secrets stay legible, and secrets in unusual forms are hidden."""

from __future__ import annotations

import pytest

from redouble import redact

pytestmark = pytest.mark.one_python

SECRET = "hunter2xyz"  # noqa: S105  not a real one


@pytest.mark.parametrize(
    "text",
    [
        'SyntaxError: Unexpected token "identifier"',
        'unexpected token "identifier" near line 3',
        "expected token 'end of statement block', got 'set'",
        'expected tokens "name" or "number"',
        "the token 2024-05-01T10:00:00.000Z is invalid",
        "token 2024-05-01 10:00:00.000 expired",
        "Basic usage: foo",
        "Basic plan required, see Basic Usage.",
        "the BASIC plan (BASIC well-known) of Basic Auth",
        "ratio 3:4@home",
        "at 10:00:00@UTC, 2024-05-01T10:00:00.123Z@host",
        "image:tag@sha1 repo:v1@sha256:0123ab tree:a@md5",
        "OTP: 3 attempts left",
        "OTP: wrong code",
        "sig: SIGTERM, sig=9",
        "secret projects/p-1/secrets/foo not found",
        "secret projects/p-1/secrets/DB_PASSWORD/versions/1 not found.",
        "Secret default/my-app-secret-1 not found",
        "invalid password for user bob: access denied",
        "token for 'bob': 401 Unauthorized",
        "secret for app: https://host1.test/v1/token refused",
        "the password is: too short",
        "token: value: must be longer",
        '{"password": {"code": "short", "message": "must be longer"}}',
        "redis-cli -n 3 get -all",
    ],
)
def test_a_text_that_only_looks_like_one_with_a_secret_stays(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "password is: {}",
        "the password was = '{}'",
        '{{"token":{{"value":"{}"}}}}',
        "{{'token': {{'type': 'a', 'value': '{}'}}}}",
        '{{\\"secret\\":{{\\"value\\":\\"{}\\"}}}}',
        "token:\n  value: {}",
        "Token(value='{}')",
        "password for 'bob': '{}'",
        'password for user "bob" = "{}"',
        "Password for bob@db.test: {}",
        "redis-cli -h cache -a {} ping",
        "['valkey-cli', '-a', '{}', 'ping']",
        "mysql --db.password {}",
        # What a sentence of the table above may not spare.
        "expected token={}",
        "unexpected token '{}abcdef0'",
        "token 2024-05-01-{}",
        "secret aB3/{}/Q4",
        "Basic {}",
        "bob:{}@db",
        "3:{}@home",
        "bob:{}@sha1.test",
        "bob:{}@md1prod",
        "bob:{}@sha1:6379",
        "OTP: {}",
        "sig: SIGTERM{}",
    ],
)
def test_a_secret_in_an_unusual_form_is_hidden(text: str) -> None:
    shown = redact(text.format(SECRET))
    assert SECRET not in shown
    assert redact(shown) == shown


@pytest.mark.parametrize("text", ["root:123456@db", "root:1234@db.test:80", "otp=123456", "(Basic dTpw==)"])
def test_a_short_secret_is_hidden_too(text: str) -> None:
    assert "REDACTED" in redact(text)
