"""`redact` and `redacted`: no secret is left, they are idempotent, and any length is accepted."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from redouble._telemetry.redact import redact, redacted

pytestmark = pytest.mark.one_python

SECRET = "hunter2"  # noqa: S105  not a real one
NAMES = st.text("abc_-.[]%", min_size=1, max_size=5)
WORDS = st.text("abcxyz0189-._~%", max_size=6)
SIGNS = st.sampled_from(
    [*"/\\?#&;=@:'\"`([{<>)]}., \t\nab1", "://", "https://", "//", "Bearer ", "Basic ", "Authorization: "]
)
TEXTS = st.text() | st.lists(SIGNS, max_size=16).map("".join)


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
    assert SECRET not in redact(url)
    assert redact(url).split("?")[0].split("://")[0] == url.split("://", maxsplit=1)[0]


@given(urls(), st.sampled_from(["{}", "'{}'", '"{}",', "<{}>", "({}).", "url={}", "url='{}', x", "a {}\nb"]))
def test_no_secret_is_left_in_a_text(url: str, around: str) -> None:
    relative = "/" + url.partition("://")[2].partition("/")[2]
    for secret in (url, relative):
        shown = redacted(around.format(secret))
        assert SECRET not in shown
        assert shown.startswith(around.partition("{}")[0])
        assert shown.endswith(around.partition("{}")[2])


@given(TEXTS)
@settings(max_examples=500)
def test_redaction_is_idempotent(text: str) -> None:
    assert redact(redact(text)) == redact(text)
    assert redacted(redacted(text)) == redacted(text)


@given(st.text(st.characters(exclude_characters="?#@:"), max_size=50))
def test_a_text_without_secrets_is_unchanged(text: str) -> None:
    assert redact(text) == text


@given(st.binary())
@example(b"\xff://\xff@\xff")
def test_any_bytes_are_accepted(raw: bytes) -> None:
    assert isinstance(redact(raw), str)


LONG = [*"?@#&;=/:'\" [a\\.)", "://", "?a", "a&", "@/", ":/", "//", "'a://", "'a://'", "?a/", "a?'", "://a:"]
LONG_WORDS = [
    "https://u:p@h/?a=b&",
    "Bearer ",
    "Bearer a",
    "Bearer auth.",
    "authorization",
    "authorization' ",
]


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
        assert isinstance(redact(text), str)
        assert isinstance(redacted(text), str)


@pytest.mark.parametrize("sign", ["?", "@", "://", "&a"])
def test_a_megabyte_is_redacted(sign: str) -> None:
    long = sign * (1_000_000 // len(sign))
    assert redact(f"https://{SECRET}@h/?x={SECRET}{long}").startswith("https://h/?x=REDACTED")
    assert redacted(f"'https://{SECRET}@h/?x={SECRET}{long}").startswith("'https://h/?x=REDACTED")
