"""Addresses without their secrets, for whatever is logged, noted or reported.

Rule 1: rather too much is hidden than too little; an address that no client could use is no exception.
Rule 2: any text is taken, nothing raises, and no text takes longer than its length.
"""

from __future__ import annotations

import re

from redouble._internal.public import public

__all__ = ["redact", "redacted"]


_HIDDEN = "REDACTED"

_QUERY = re.compile(r"[?#]")
_SLASHES = re.compile(r"((?:^|:)[/\\]{2})")
_HOST = re.compile(r"(?:\[[^\[\]]*\]|[^:\[\]\\]+)(?::[0-9]*)?(?:\\.*)?", re.DOTALL)
_PIECE = re.compile(r"[^&;?#]+")


@public("redouble.http")
def redact(url: object) -> str:
    """Return an address without user and password, and with REDACTED for the values after ``?`` and ``#``."""
    try:
        text = url.decode("utf-8", "replace") if isinstance(url, bytes) else str(url)
    except Exception:
        return _HIDDEN
    return _redact(text)


def _redact(url: str) -> str:
    mark = _QUERY.search(url)
    if mark is None:
        return _places(url)
    place, rest = url[: mark.start()], url[mark.start() :]
    query, hash_, fragment = rest.partition("#")
    if not _plain(fragment):
        fragment = _PIECE.sub(_piece, fragment)
    return _places(place) + _PIECE.sub(_piece, query) + hash_ + fragment


def _plain(fragment: str) -> bool:
    """Tell whether it only names a place on the page."""
    return not any(sign in fragment for sign in "=?@")


def _piece(found: re.Match[str]) -> str:
    name, equals, value = found[0].partition("=")
    padded = equals and not value.strip("=") and value  # base64, and not a name
    return _HIDDEN if not equals or padded or "@" in name else f"{name}={_HIDDEN}"


def _places(text: str) -> str:
    """Take user and password out of every place, as an address may hold another."""
    first, *parts = _SLASHES.split(text)
    parts[1::2] = [_place(part) for part in parts[1::2]]
    return first + "".join(parts)


def _place(text: str) -> str:
    """Take them out of what follows the slashes.

    A host that cannot be one may be half of a password with a slash in it: then all before the last ``@``
    goes, and what is no port is hidden.
    """
    host, slash, path = text.partition("/")
    host = host[host.rfind("@") + 1 :]
    if not _HOST.fullmatch(host):
        host, slash, path = (host + slash + path).rpartition("@")[2].partition("/")
        if not _HOST.fullmatch(host) and ":" in host:
            host = f"{host.partition(':')[0]}:{_HIDDEN}"
    return host + slash + path


# ---------------------------------------------------------------------- inside a text

_WORD = re.compile(r"\S+")
_START = re.compile(r"://|\?")
_TAIL = ".,:;!?)]}>'\"`"
_QUOTES = "'\"`"
_QUOTED = re.compile(f"[{_QUOTES}]")
_CLOSING = {quote: re.compile(rf"(?<!\\){quote}(?!\w)") for quote in _QUOTES}

# What arrived, or was to be sent: errors of parsers quote it.
_BYTES = re.compile(
    r"""\b(?:b|BadStatusLine\()(?P<quote>\\*['"])(?:(?!(?P=quote)).)*(?:(?P=quote)|$)""", re.DOTALL
)

_CREDENTIALS = re.compile(
    r"""
    (?: (?: proxy- )? authorization | (?: x- )? api-key | (?: set- )? cookie )
    (?: ['"] \s* [:=,] \s* b? (?P<quote> ['"] ) (?P<quoted> (?: (?! (?P=quote) ) . )+ )
      | [ \t]* : [^\S\r\n]* (?P<line> \S (?: [^\r\n]* \S )? )
      | [ \t]* = (?P<value> [^\S\r\n]* \S (?: [^\r\n]* \S )? ) )
    |
    \b (?: (?-i: [Bb]earer | BEARER | Basic | BASIC ) [ \t]+ )+ ['"]?
    (?! realm= | (?: auth (?: entication )? | credentials? | headers? | is | of | or | schemes? | tokens? )
                 [.,:;!?)'"]* (?: \s | $ ) )
    (?P<word> \S+ )
    """,
    re.VERBOSE | re.IGNORECASE,
)


def redacted(text: str) -> str:
    """Return a text in which addresses, and what is sent to prove who one is, are without their secrets.

    Quoted bytes are hidden too.
    """
    text = _BYTES.sub(_quoted, _unproven(text))
    return _WORD.sub(_word, text) if _START.search(text) else text


def _quoted(found: re.Match[str]) -> str:
    """Hide what stands between the quotes."""
    quote = found["quote"]
    return f"{found[0].partition(quote)[0]}{quote}{_HIDDEN}{quote}"


def _unproven(text: str) -> str:
    """Hide what follows ``Authorization:`` and its like, ``Bearer`` and ``Basic``."""
    parts: list[str] = []
    done = 0
    while found := _CREDENTIALS.search(text, done):
        begin, end = found.span(found.lastgroup or 0)
        if found.lastgroup == "word":
            end = begin + _length(found["word"])
        parts += [text[done:begin], _HIDDEN if begin < end else ""]
        done = end
    return "".join(parts) + text[done:] if parts else text


def _length(word: str) -> int:
    """Tell how much of a word is the proof: up to a quote, or all of it where an address may be inside."""
    word = word.rstrip(_TAIL)
    if not _START.search(word):
        word = _QUOTED.split(word, 1)[0]
    return len(word)


def _word(found: re.Match[str]) -> str:
    """Redact the addresses in what stands between blanks, up to the quote that closes them if one opens."""
    word, done = found[0], 0
    parts: list[str] = []
    last_value = word.rfind("=")
    while start := _START.search(word, done):
        at, end = start.span()
        if start[0] == "?" and at > last_value and "/" not in word[done:at]:
            parts.append(word[done:end])  # a question
            done = end
            continue
        quote = max(word.rfind(quote, done, at) for quote in _QUOTES)
        closing = None if quote < 0 else _CLOSING[word[quote]].search(word, end)
        begin = max(done, quote + 1)
        end = max(begin, len(word.rstrip(_TAIL)) if closing is None else closing.start())
        parts += [word[done:begin], _redact(word[begin:end])]
        done = end
        if closing is None:
            break
    return "".join(parts) + word[done:]
