"""Redaction of URLs and texts: no secret is left, it is idempotent, and any length takes linear time."""

from __future__ import annotations

from time import process_time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from redouble._redaction.rules import NAMES as NAMES_RULE
from redouble._redaction.rules import RULES as ALL_RULES
from redouble._redaction.text import _pass, redacted
from redouble._redaction.url import redact_url

pytestmark = pytest.mark.one_python

SECRET = "hunter2"  # noqa: S105  not a real one
NAMES = st.text("abc_-.[]%", min_size=1, max_size=5)
WORDS = st.text("abcxyz0189-._~%", max_size=6)
SIGNS = st.sampled_from(
    [*"/\\?#&;=@:'\"`([{<>)]}., \t\nab1", "://", "https://", "//", "Bearer ", "Basic ", "Authorization: "]
)
FIELDS = st.sampled_from(
    [
        "password",
        "Passwd",
        "PWD",
        "pass",
        "db_password",
        "secret",
        "clientSecret",
        "client_secret",
        "token",
        "authToken",
        "X-Auth-Token",
        "api_key",
        "apiKey",
        "API-Key",
        "AccountKey",
        "SharedAccessKey",
        "aws_secret_access_key",
        "private_key",
        "passphrase",
        "refresh_token",
        "signature",
        "sessionid",
        "sasl.password",
        "SMTP_PASS",
        "credentials",
        "jwt",
    ]
)
PLAIN = [
    "{}={}",
    "{}: {}",
    "{} = {}",
    "{}:{}",
    "{}={};x=1",
    "?a=1&{}={}&b=2",
    "--{} {}",
    "--{}={}",
    "<{0}>{1}</{0}>",
]
QUOTED = [
    "{}='{}'",
    '{}="{}"',
    '"{}": "{}"',
    "'{}': '{}'",
    '"{}":"{}"',
    "('{}', '{}')",
    "{} '{}'",
    "['--{}', '{}']",
]
ESCAPED = ['{{\\"{}\\": \\"{}\\"}}', "'{}' => '{}'", "[{}]='{}'", '["{}"] = "{}"', "{}={{{}}};", "{}: b'{}'"]
SHAPES = st.sampled_from([*PLAIN, *QUOTED, *ESCAPED])
RULES = [
    "password=",
    "PWD=",
    ";",
    "token:",
    "token:'",
    '"secret":"',
    "api_key=",
    "AUTH",
    "PASS",
    "VALUES(",
    "[SQL:",
    "LINE",
    "1:",
    "[parameters:",
    "near",
    "'",
    "Key",
    "(",
    ")=(",
    "Duplicate",
    "entry",
    "'",
    "input_value=",
    ",input_type=",
    "-----BEGIN",
    "PRIVATE",
    "KEY-----",
    "-----END",
    "sk-",
    "eyJ",
    "a:b@",
    "-u",
    "--token",
    "&x=",
    ",x=",
    "\\",
    "\\'",
    "with",
    "args",
    "beginning",
    "with:",
    "Command",
    "#",
    "1",
    "(",
    "REDACTED",
    "'",
    "(",
    "{",
    "[",
    "</",
]
TEXTS = (
    st.text()
    | st.lists(st.sampled_from(RULES) | SIGNS, max_size=12).map(" ".join)
    | st.lists(SIGNS, max_size=16).map("".join)
)


@st.composite
def urls(draw: st.DrawFn) -> str:
    """Draw a URL with the secret in each possible position."""
    user = draw(st.sampled_from(["", f"{SECRET}@", f"u:{SECRET}@", f"{SECRET}:{SECRET}@", f"a@{SECRET}@"]))
    host = draw(st.sampled_from(["h", "example.test", "example.test:8443", "[::1]", "[2001:db8::1]:80"]))
    path = "".join(f"/{part}" for part in draw(st.lists(WORDS, max_size=3)))
    values = [f"{name}={SECRET}" for name in draw(st.lists(NAMES, max_size=3))]
    query = draw(st.sampled_from("&;")).join(draw(st.permutations([*values, SECRET])))
    fragment = draw(st.sampled_from(["", "#top", f"#access_token={SECRET}", f"#a&b={SECRET}"]))
    return f"{draw(st.sampled_from(['http', 'https', 'ws+x']))}://{user}{host}{path}?{query}{fragment}"


@given(urls())
def test_no_secret_is_left_in_an_address(url: str) -> None:
    assert SECRET not in redact_url(url)
    assert redact_url(url).split("?")[0].split("://")[0] == url.split("://", maxsplit=1)[0]


@given(urls(), st.sampled_from(["{}", "'{}'", '"{}",', "<{}>", "({}).", "url={}", "url='{}', x", "a {}\nb"]))
def test_no_secret_is_left_in_a_text(url: str, around: str) -> None:
    relative = "/" + url.partition("://")[2].partition("/")[2]
    for secret in (url, relative):
        shown = redacted(around.format(secret))
        assert SECRET not in shown
        assert shown.startswith(around.partition("{}")[0])
        assert shown.endswith(around.partition("{}")[2])


@given(FIELDS, SHAPES, st.sampled_from(["", " and more", ", more", ". More", "\nmore", ")", "; b", "]}"]))
def test_no_value_of_a_secret_name_is_left(name: str, shape: str, rest: str) -> None:
    for around in ("{}", "x: {}", "({})", "'{}'", "{!r}"):
        text = around.format(f"failed {shape.format(name, SECRET)}{rest}")
        assert SECRET not in redacted(text)
        assert name in redacted(text)
        assert redacted(redacted(text)) == redacted(text)


@given(TEXTS)
@settings(max_examples=1000)
def test_redaction_is_idempotent(text: str) -> None:
    assert redact_url(redact_url(text)) == redact_url(text)
    assert redacted(redacted(text)) == redacted(text)


@given(st.text(st.characters(exclude_characters="?#@:"), max_size=50))
def test_a_text_without_secrets_is_unchanged(text: str) -> None:
    assert redact_url(text) == text


@given(st.binary())
@example(b"\xff://\xff@\xff")
def test_any_bytes_are_accepted(raw: bytes) -> None:
    assert isinstance(redact_url(raw), str)


LONG = [*"?@#&;=/:'\" [a\\.)", "://", "?a", "a&", "@/", ":/", "//", "'a://", "'a://'", "?a/", "a?'", "://a:"]
LONG_WORDS = [
    "https://u:p@h/?a=b&",
    "Bearer ",
    "Bearer a",
    "Bearer auth.",
    "authorization",
    "authorization' ",
    *(
        "password",
        "password ",
        "password=",
        "password:'",
        'token: "',
        "token\\",
        "token=(",
        "tokens: 1,",
        "secret>x",
    ),
    *(
        "key-----BEGIN ",
        "-----BEGIN PRIVATE KEY-----",
        "[parameters: ",
        "VALUES (",
        "near '",
        "Key (",
        "Key (a)=(",
    ),
    *(
        "Duplicate entry '",
        "input_value=",
        "LINE 1: '",
        "AUTH ",
        "\nPASS ",
        "--a-token ",
        "-token",
        "-u a:",
        "eyJaaaaaaaa.",
    ),
    *(
        "sk-",
        "xoxb-",
        "a:b@",
        "a/b@c/",
        "password=a;",
        "token &a=",
        "token=a&a",
        "token=,a",
        "password hash ",
        "basic_auth(",
    ),
    *(
        "Command # 1 (A ",
        "query argument $1: ",
        "host 'a",
        "host a@",
        "1:AA",
        "invalid input value for a ",
        "docker ",
        "docker -p",
        "$2a$a",
        ".-",
        "--a.",
        "redis-cli -a ",
        "token:{",
        "password for a: ",
        "token a/",
    ),
]


@pytest.mark.parametrize("sign", [*LONG, *LONG_WORDS])
def test_the_work_grows_with_the_length_alone(sign: str) -> None:
    """Quadratic work would take a thousand times as long here, and minutes in the test below."""

    def took(length: int) -> float:
        text = sign * (length // len(sign))
        started = process_time()
        redacted(text)
        return process_time() - started

    assert min(took(32_000) for _ in range(3)) < 150 * (min(took(1_000) for _ in range(5)) + 0.001)


# What the rules look for, and what may stand before, between and after it.
FRAGMENTS = sorted(
    {sign for rule in (*ALL_RULES, NAMES_RULE) for sign in rule.signs}
    | set(" .,-_/\\'\"`:;=<>()[]{}@#$&?!*+%~\nabAZ019\xe9")
    | {
        "Bearer ",
        "Authorization: ",
        "://",
        "--",
        " for ",
        " is ",
        '{"value":',
        "value: ",
        "password",
        "token ",
        "\\'",
    }
    | {
        "expected token ",
        "AUTH ",
        "\nPASS ",
        "Key (",
        ")=(",
        "redis-cli -a",
        "docker -p",
        "a:1@",
        "projects/",
    }
)


@pytest.mark.quiet
@given(
    st.sampled_from(
        ["", "token=", "token '", "Bearer ", "--", "https://", "params=[", "docker ", "redis-cli "]
    ),
    st.lists(st.sampled_from(FRAGMENTS), min_size=1, max_size=3).map("".join),
    st.sampled_from(["", " pwd", "!key", "'", '"', "@", ")", "\n", "token=", " 1"]),
)
@example("", ".-", " pwd")
@example("", "--a.", " pwd")
@example("", ".--x", " pwd")
@example("", "...---...", "")
@settings(max_examples=500, deadline=None)
def test_a_repeated_fragment_takes_no_time(start: str, fragment: str, end: str) -> None:
    """It takes milliseconds; quadratic work takes seconds."""
    text = (start + fragment * 8192)[:8192] + end
    started = process_time()
    redacted(text)
    assert process_time() - started < 1


@pytest.mark.parametrize("sign", [*LONG, *LONG_WORDS])
def test_long_texts_are_redacted(sign: str) -> None:
    long = sign * (50_000 // len(sign))
    for text in (
        long,
        f"https://u:p@h/p?x={long}",
        f"https://u:p{long}",
        f"Bearer {long}",
        f"Authorization:{long}",
    ):
        assert isinstance(redact_url(text), str)
        assert isinstance(redacted(text), str)


@pytest.mark.parametrize("sign", ["?", "@", "://", "&a"])
def test_a_megabyte_is_redacted(sign: str) -> None:
    long = sign * (1_000_000 // len(sign))
    assert redact_url(f"https://{SECRET}@h/?x={SECRET}{long}").startswith("https://h/?x=REDACTED")
    assert redacted(f"'https://{SECRET}@h/?x={SECRET}{long}").startswith("'https://h/?x=REDACTED")


PLAIN_WORDS = [
    "bearer",
    "basic",
    "password",
    "hunter2",
    "PASS",
    "AUTH",
    "requirepass",
    "token",
    "abcd1234efgh5678",
    "secret",
    "api",
    "key",
    "jwt",
    "near",
    "LINE",
    "1",
    "AKIAIOSFODNN7EXAMPLE",
    "eyJhbGciOiJIUzI1NiJ9",
    "dapi0123456789abcdef0123456789abcdef",
    "row",
    "VALUES",
    "at",
    "[1,",
    "2]",
    "session",
    "id",
    "input",
    "signature",
    "client",
    "assertion",
    "code",
    "verifier",
    "saml",
    "response",
    "mot",
    "de",
    "passe",
    "otp",
    "sig",
    "kennwort",
    "senha",
    "contrasena",
]


@given(st.lists(st.sampled_from(PLAIN_WORDS), max_size=6).map(" ".join))
@settings(max_examples=1000)
def test_the_short_cut_of_texts_without_punctuation_changes_nothing(text: str) -> None:
    shown = redacted(text)
    for _ in range(8):
        text = _pass(text)
    assert shown == text
