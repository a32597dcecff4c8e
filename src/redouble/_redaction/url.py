"""Redaction of secrets in URLs, alone and inside a text.

Rule 1: when in doubt, hide; malformed URLs that no client could use are redacted too.
Rule 2: any text is accepted, nothing raises, and the time is linear in the length of the text.
"""

from __future__ import annotations

import re

from redouble._internal.public import public

HIDDEN = "REDACTED"

_QUERY = re.compile(r"[?#]")
_SLASHES = re.compile(r"((?:^|:)[/\\]{2})")
_HOST = re.compile(r"(?:\[[^\[\]]*\]|[^:\[\]\\]+)(?::[0-9]*)?(?:\\.*)?", re.DOTALL)
_PARAMETER = re.compile(r"[^&;?#]+")


@public("redouble.http")
def redact_url(url: object) -> str:
    """Return a URL without user and password, and with REDACTED for the values after ``?`` and ``#``."""
    try:
        text = url.decode("utf-8", "replace") if isinstance(url, bytes) else str(url)
    except Exception:
        return HIDDEN
    return _redact(text)


def _redact(url: str) -> str:
    start = _QUERY.search(url)
    if start is None:
        return _without_userinfo(url)
    location, parameters = url[: start.start()], url[start.start() :]
    query, hash_, fragment = parameters.partition("#")
    if any(sign in fragment for sign in "=?@"):  # else it only names a position in the page
        fragment = _PARAMETER.sub(_parameter, fragment)
    return _without_userinfo(location) + _PARAMETER.sub(_parameter, query) + hash_ + fragment


def _parameter(match: re.Match[str]) -> str:
    name, equals, value = match[0].partition("=")
    padded = equals and not value.strip("=") and value  # base64 padding: the name is a value itself
    return HIDDEN if not equals or padded or "@" in name else f"{name}={HIDDEN}"


def _without_userinfo(text: str) -> str:
    """Remove user and password after every ``//``: a URL may contain another one."""
    first, *parts = _SLASHES.split(text)
    parts[1::2] = [_authority(part) for part in parts[1::2]]
    return first + "".join(parts)


def _authority(text: str) -> str:
    """Remove user and password from what follows the slashes.

    A malformed host may be half of a password that contains a slash: then everything before the last ``@`` is
    removed, and a malformed port is hidden.
    """
    host, slash, path = text.partition("/")
    host = host[host.rfind("@") + 1 :]
    if not _HOST.fullmatch(host):
        host, slash, path = (host + slash + path).rpartition("@")[2].partition("/")
        if not _HOST.fullmatch(host) and ":" in host:
            host = f"{host.partition(':')[0]}:{HIDDEN}"
    return host + slash + path


# ---------------------------------------------------------------------- inside a text

_WORD = re.compile(r"\S+")
_START = re.compile(r"://|\?")
_QUOTES = "'\"`"
_CLOSING = {quote: re.compile(rf"(?<!\\){quote}(?!\w)") for quote in _QUOTES}
TAIL = ".,:;!?)]}>'\"`"  # what may follow a value or a URL in a sentence


def has_url(text: str) -> bool:
    """Return True if the text may contain a URL."""
    return _START.search(text) is not None


def without_url_secrets(text: str) -> str:
    """Return a text without the secrets of the URLs in it."""
    return _WORD.sub(_word, text) if has_url(text) else text


def _word(match: re.Match[str]) -> str:
    """Redact the URLs in a word between blanks; a URL after an opening quote ends at the closing one."""
    word, done = match[0], 0
    parts: list[str] = []
    last_value = word.rfind("=")
    while start := _START.search(word, done):
        at, end = start.span()
        if start[0] == "?" and at > last_value and "/" not in word[done:at]:
            parts.append(word[done:end])  # a question mark, not a query
            done = end
            continue
        quote = max(word.rfind(quote, done, at) for quote in _QUOTES)
        closing = None if quote < 0 else _CLOSING[word[quote]].search(word, end)
        begin = max(done, quote + 1)
        end = max(begin, len(word.rstrip(TAIL)) if closing is None else closing.start())
        parts += [word[done:begin], _redact(word[begin:end])]
        done = end
        if closing is None:
            break
    return "".join(parts) + word[done:]
