"""`redact` and `redacted`: addresses without their secrets, alone and inside a text."""

from __future__ import annotations

import pytest

from redouble._redaction.text import redacted
from redouble._redaction.url import redact_url

HOST = "https://example.test"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        (f"{HOST}/path", f"{HOST}/path"),
        ("https://user:pass@example.test:8443/p", f"{HOST}:8443/p"),
        ("https://u:p@[2001:db8::1]:8443/p", "https://[2001:db8::1]:8443/p"),
        (f"{HOST}/p?page=2&api_key=abc", f"{HOST}/p?page=REDACTED&api_key=REDACTED"),
        (f"{HOST}/p#access_token=t", f"{HOST}/p#access_token=REDACTED"),
        (f"{HOST}/p#section-3", f"{HOST}/p#section-3"),
        ("not-a-url", "not-a-url"),
        ("", ""),
        ("/p", "/p"),
        (HOST, HOST),
        ("https://[2001:db8::1]", "https://[2001:db8::1]"),
        ("https://example.test:/p", "https://example.test:/p"),
        ("HTTPS://USER@EXAMPLE.TEST", "HTTPS://EXAMPLE.TEST"),
    ],
)
def test_an_address_is_redacted(url: str, expected: str) -> None:
    assert redact_url(url) == expected
    assert redact_url(url.encode()) == expected
    assert redact_url(expected) == expected


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("//user@host", "//host"),
        ("//user:pass@host/p", "//host/p"),
        ("https://user@host", "https://host"),
        ("https://user:@host", "https://host"),
        ("https://:pass@host", "https://host"),
        ("https://@host", "https://host"),
        ("https://a@b@c@host/p", "https://host/p"),
        ("https://u:p%40ss@host/p", "https://host/p"),
        ("https://u:p@host?x", "https://host?REDACTED"),
        ("https://u:p@host#top", "https://host#top"),
        ("https://host/@user", "https://host/@user"),
        ("https://host/a:b@c/d", "https://host/a:b@c/d"),
        ("https://host:80/a@b", "https://host:80/a@b"),
        ("https://u:p\\@host/p", "https://host/p"),
        ("https:\\\\u:p@host\\p", "https:\\\\host\\p"),
        ("https://host:80\\p", "https://host:80\\p"),
        ("https://proxy/https://u:p@host/p", "https://proxy/https://host/p"),
        ("svn+ssh://u@host/p", "svn+ssh://host/p"),
        ("https://u:p@", "https://"),
        ("https://", "https://"),
    ],
)
def test_user_and_password_are_removed(url: str, expected: str) -> None:
    assert redact_url(url) == expected
    assert redact_url(expected) == expected


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://u:se/cret@host/p", "https://host/p"),
        ("https://u:se?cret@host/p", "https://u:REDACTED?REDACTED"),
        ("https://u:se#cret@host/p", "https://u:REDACTED#REDACTED"),
        ("https://u:secret", "https://u:REDACTED"),
        ("https://u:12/secret@x:y@host/p", "https://u:12/secret@x:y@host/p"),  # could be a path
        ("https:///u:secret@host/p", "https://host/p"),
        ("https://u:secret/x@[::1", "https://[:REDACTED"),
    ],
)
def test_invalid_addresses_are_redacted_too(url: str, expected: str) -> None:
    """With a slash in it, half a password looks like a port."""
    assert redact_url(url) == expected
    assert redact_url(expected) == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("?a=1", "?a=REDACTED"),
        ("?a=1&b=2", "?a=REDACTED&b=REDACTED"),
        ("?a=1;b=2", "?a=REDACTED;b=REDACTED"),
        ("?a=", "?a=REDACTED"),
        ("?a=1=2", "?a=REDACTED"),
        ("?=1", "?=REDACTED"),
        ("?flag", "?REDACTED"),
        ("?flag&a=1", "?REDACTED&a=REDACTED"),
        ("?c2VjcmV0==", "?REDACTED"),
        ("?a=1?b=2", "?a=REDACTED?b=REDACTED"),
        ("?secret?b=2", "?REDACTED?b=REDACTED"),
        ("?next=https://u:p@host/?x=1", "?next=REDACTED?x=REDACTED"),
        ("?u:p@host=1", "?REDACTED"),
        ("?filter[name]=1", "?filter[name]=REDACTED"),
        ("?a=1#top", "?a=REDACTED#top"),
        ("?a=1#b=2&c", "?a=REDACTED#b=REDACTED&REDACTED"),
        ("?", "?"),
        ("?&&", "?&&"),
        ("#", "#"),
        ("#?secret", "#?REDACTED"),
        ("#/page?token=t", "#REDACTED?token=REDACTED"),
        ("#a=1?b", "#a=REDACTED?REDACTED"),
        ("#x#token=t", "#REDACTED#token=REDACTED"),
        ("?a=\n1", "?a=REDACTED"),
    ],
)
def test_query_values_are_redacted_and_names_kept(query: str, expected: str) -> None:
    assert redact_url(f"{HOST}/p{query}") == f"{HOST}/p{expected}"
    assert redact_url(f"/p{query}") == f"/p{expected}"
    assert redact_url(f"/p{expected}") == f"/p{expected}"


class Url:
    """An object whose text contains secrets, like the errors of HTTP clients."""

    def __str__(self) -> str:
        return "https://u:p@host/?token=t"


class Broken:
    def __str__(self) -> str:
        raise ValueError("u:p")


@pytest.mark.parametrize(
    ("thing", "expected"),
    [
        (Url(), "https://host/?token=REDACTED"),
        (b"https://u:p@host/\xff?t", "https://host/\ufffd?REDACTED"),
        (None, "None"),
        (7, "7"),
        (Broken(), "REDACTED"),
        ("\ud800?\ud800", "\ud800?REDACTED"),
    ],
    ids=lambda thing: type(thing).__name__,
)
def test_any_object_may_be_an_address(thing: object, expected: str) -> None:
    assert redact_url(thing) == expected


# ------------------------------------------------------------------------ inside a text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "Pool(host='h', port=1): Max retries exceeded with url: /p?token=SECRET (Caused by E('no'))",
            "Pool(host='h', port=1): Max retries exceeded with url: /p?token=REDACTED (Caused by E('no'))",
        ),
        (
            "Server error '503 Unavailable' for url 'https://u:p@h/p?api_key=abc'\nFor more: https://m.test/503",
            "Server error '503 Unavailable' for url 'https://h/p?api_key=REDACTED'\nFor more: https://m.test/503",
        ),
        (
            "503, message='Service Unavailable', url='http://h/p?token=x'",
            "503, message='Service Unavailable', url='http://h/p?token=REDACTED'",
        ),
        ('{"url":"https://u:p@h/?t=x","status":503}', '{"url":"https://h/?t=REDACTED","status":503}'),
        ("['https://u:p@a/?t','https://u:p@b/']", "['https://a/?REDACTED','https://b/']"),
        ("see (https://h/p?x=1).", "see (https://h/p?x=REDACTED)."),
        ("<https://u:p@h/>, no", "<https://h/>, no"),
        ("https://h/?q=it's", "https://h/?q=REDACTED"),
        ("url='/p?q=it's'!", "url='/p?q=REDACTED'!"),
        (r"url='/p?q=it\'s'", "url='/p?q=REDACTED'"),
        ("GET h.test/p?secret", "GET h.test/p?REDACTED"),
        ("what?key=secret", "what?key=REDACTED"),
        ("what?no 'what?no/p?secret'", "what?no 'what?no/p?REDACTED'"),
        ("url '//u:p@h/p?x'", "url '//h/p?REDACTED'"),
        ("tab\thttps://u:p@h\r\n  https://u:p@h", "tab\thttps://h\r\n  https://h"),
    ],
)
def test_addresses_in_a_text_are_redacted(text: str, expected: str) -> None:
    assert redacted(text) == expected
    assert redacted(expected) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Authorization: Bearer xyz", "Authorization: REDACTED"),
        ("authorization:xyz\r\naccept: all", "authorization:REDACTED\r\naccept: all"),
        ('Proxy-Authorization = Digest username="u", response="r"', "Proxy-Authorization =REDACTED"),
        (
            "{'Authorization': 'Bearer xyz', 'Accept': 'all'}",
            "{'Authorization': 'REDACTED', 'Accept': 'all'}",
        ),
        ('{"authorization":"it\'s"}', '{"authorization":"REDACTED"}'),
        (
            "[(b'authorization', b'xyz'), (b'a', b'b')]",
            "[(b'REDACTED', b'REDACTED'), (b'REDACTED', b'REDACTED')]",
        ),
        ("got Bearer xyz, and Basic dTpw.", "got Bearer REDACTED, and Basic REDACTED."),
        ("bearer\ta.b-c_d~e+f/g==", "bearer\tREDACTED"),
        ("Bearer a$b (Basic dTpw==)", "Bearer REDACTED (Basic REDACTED)"),
        ("/p?Bearer xyz", "/p?REDACTED REDACTED"),
        ("Bearer https://u:p@h/", "Bearer REDACTED"),
        ("Bearer auth.xyz", "Bearer REDACTED"),
        ("Bearer Bearer xyz", "Bearer Bearer REDACTED"),
        ("Bearer 'xyz', 'Basic x' no", "Bearer 'REDACTED', 'Basic REDACTED' no"),
        ('{"a":"Bearer xyz","authorization":"x y"}', '{"a":"Bearer REDACTED","authorization":"REDACTED"}'),
        ("Bearer x?y='z' no", "Bearer REDACTED' no"),
        ("?x/Authorization=\t.", "?x/Authorization=REDACTED"),
    ],
)
def test_credentials_in_a_text_are_redacted(text: str, expected: str) -> None:
    assert redacted(text) == expected
    assert redacted(expected) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "what? no",
        "And/or? 'Really?' (Why?) /tmp? Is it /a/b?",
        "what?no",
        "a = b ? c : d",
        "user@example.test wrote: 50 / 3",
        "Basic auth. Basic authentication failed, the Bearer token is missing. Bearer of bad news",
        'WWW-Authenticate: Basic realm="x"',
        "a basic question",
        "Basic 'auth'. Bearer ... Basic",
        "Authorization failed",
        "Authorization:",
        "[Errno 111] Connection refused",
        "https://example.test/path#top is down",
    ],
)
def test_other_text_is_unchanged(text: str) -> None:
    assert redacted(text) == text


def test_a_text_without_addresses_is_not_copied() -> None:
    text = "Connection refused: 7 of " + "8" * 1000
    assert redacted(text) is text
