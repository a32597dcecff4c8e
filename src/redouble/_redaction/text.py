"""Redaction of the secrets in a text, such as the message of an error.

Rule 1: when in doubt, hide; a text whose redaction does not settle is hidden as a whole.
Rule 2: any text is accepted, nothing raises, and the time is linear in the length of the text.
Rule 3: redaction is idempotent: a pass is repeated until it changes nothing.
"""

from __future__ import annotations

import re

from redouble._internal.public import public
from redouble._redaction.rules import NAMES, RULES, STATEMENT, Rule, added
from redouble._redaction.url import HIDDEN, TAIL, has_url, without_url_secrets

MAX_PASSES = 8

# Most texts consist of words alone. Of the rules, those that match such a text have one of these words.
_PLAIN = re.compile(r"[A-Za-z0-9 ,\[\]]*")
_PLAIN_SIGN = re.compile(
    "bearer|basic|pass|pwd|pw|wort|woord|senha|contrase|auth|token|secret|key|cred|jwt|session|sig|assertion|"
    "verifier|response|otp|login|eyj|akia|asia|dapi"
)

_QUOTED = re.compile("['\"`]")

# Received or sent bytes, which errors of parsers quote.
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
    \b (?: (?-i: [Bb]earer | BEARER
               | (?: Basic | BASIC )
                 (?! [ \t]+ [A-Z]?+ [a-z]{2,14}+ (?: - [a-z]++ )*+ [.,:;!?)\]}'"]*+ (?: \s | $ ) ) )
           [ \t]+ )+ ['"]?
    (?! realm= | (?: auth (?: entication )? | credentials? | headers? | is | of | or | schemes? | tokens? )
                 [.,:;!?)'"]* (?: \s | $ ) )
    (?P<word> \S+ )
    """,
    re.VERBOSE | re.IGNORECASE,
)
_CREDENTIAL_SIGNS = ("authorization", "api-key", "cookie", "bearer", "basic")


@public("redouble")
def redact(text: object, /) -> str:
    """Return a text, or the text of an error, without the secrets in it: as Redouble writes it itself.

    >>> redact("cannot connect: host=db.example user=ann password=hunter2")
    'cannot connect: host=db.example user=ann password=REDACTED'

    What `hide` has added is hidden too. `redouble.http.redact_url` is stricter, and for a URL alone.
    """
    try:
        return redacted(str.__str__(text) if isinstance(text, str) else str(text))
    except Exception:
        return HIDDEN


def redacted(text: str) -> str:
    """Return a text without passwords, tokens, keys, the secrets of URLs, SQL values and quoted bytes."""
    if _PLAIN.fullmatch(text) and not added.rules and not _PLAIN_SIGN.search(text.lower()):
        return text
    for _ in range(MAX_PASSES):
        before, text = text, _pass(text)
        if text == before:
            return before
    return HIDDEN


def _pass(text: str) -> str:
    """Apply every rule once."""
    for rule in added.rules:
        text = _apply(rule, text)
    lower = text.lower()
    if _contains(lower, _CREDENTIAL_SIGNS):
        text = _without_credentials(text)
    if "'" in text or '"' in text:
        text = _BYTES.sub(_quoted, text)
    for rule in (*RULES, NAMES):
        if _contains(lower, rule.signs):
            text = _apply(rule, text)
    if "LINE " in text or "[SQL:" in text:
        text = STATEMENT.sub(_without_literals, text)
    if "@" in text:
        text = _PIECE.sub(_without_user, text)
    return without_url_secrets(text)


def _contains(lower: str, signs: tuple[str, ...]) -> bool:
    for sign in signs:  # noqa: SIM110  `any` of a generator takes three times as long
        if sign in lower:
            return True
    return False


def _apply(rule: Rule, text: str) -> str:
    return rule.pattern.sub(_hide, text)


def _hide(match: re.Match[str]) -> str:
    """Hide the last group of a match, or else all of it; of a word not what ends a sentence."""
    begin, end = match.span(match.lastindex or 0)
    if match.lastgroup in ("word", "token"):
        end = begin + len(match[match.lastgroup].rstrip(TAIL))
    if begin == end:
        return match[0]
    start = match.start()
    return match[0][: begin - start] + HIDDEN + match[0][end - start :]


def _quoted(match: re.Match[str]) -> str:
    """Hide the text between the quotes."""
    quote = match["quote"]
    return f"{match[0].partition(quote)[0]}{quote}{HIDDEN}{quote}"


def _without_literals(match: re.Match[str]) -> str:
    """Hide the string literals of a statement."""
    parts = match[0].split("'")
    parts[1::2] = [HIDDEN if part else part for part in parts[1::2]]
    return "'".join(parts)


# ------------------------------------------------------------------------ headers


def _without_credentials(text: str) -> str:
    """Hide what follows ``Authorization:`` and similar headers, ``Bearer`` and ``Basic``."""
    parts: list[str] = []
    done = 0
    while match := _CREDENTIALS.search(text, done):
        begin, end = match.span(match.lastgroup or 0)
        if match.lastgroup == "word":
            end = begin + _credential_length(match["word"])
        parts += [text[done:begin], HIDDEN if begin < end else ""]
        done = end
    return "".join(parts) + text[done:] if parts else text


def _credential_length(word: str) -> int:
    """Return the length of the credential: up to a quote, or the whole word if it may contain a URL."""
    word = word.rstrip(TAIL)
    if not has_url(word):
        word = _QUOTED.split(word, 1)[0]
    return len(word)


# --------------------------------------------------- user:password@host without a scheme

_PIECE = re.compile(r"""[^\s'"`<>]++""")
_NO_USERS = ("mailto", "sip", "sips", "xmpp", "acct", "email", "e-mail", "from", "to", "cc", "bcc")
_DIGEST = re.compile(
    r"(?:sha(?:1|256|384|512)|md5)(?![.\w-]|:[0-9]{1,5}(?![0-9a-f]))"
)  # image:tag@sha256:0a1b
_NUMBERS = re.compile(  # a ratio or a time
    r"(?:[0-9]{4}-[0-9]{2}-[0-9]{2}T)?[0-9]{1,3}(?::[0-9]{1,3})+(?:[.,][0-9]{1,9})?Z?"
)
_HOST_FOLLOWS = re.compile(r"[\w\[(-]")
_SERVICE_FOLLOWS = re.compile(r"(?://)?[\w.-]++(?::[0-9]|/)")


def _without_user(match: re.Match[str]) -> str:
    """Hide user and password before the last ``@`` of a word, also in user/password@host:1521/name."""
    piece = match[0]
    at = piece.rfind("@")
    if at < 1 or "://" in piece or _DIGEST.match(piece, at + 1):
        return piece
    colon = piece.find(":", 0, at)
    if 0 <= colon < at - 1 and not piece.startswith("//", colon + 1) and _HOST_FOLLOWS.match(piece, at + 1):
        begin = 1 + max(piece.rfind(sign, 0, colon) for sign in "=(,;[{|/")
        if piece[begin:colon].lower() not in _NO_USERS and not _NUMBERS.fullmatch(piece, begin, at):
            return f"{piece[:begin]}{HIDDEN}{piece[at:]}"
    begin = 1 + max(piece.rfind(sign, 0, at) for sign in "=(,;[{|")
    if "/" in piece[begin + 1 : at] and _SERVICE_FOLLOWS.match(piece, at + 1):
        return f"{piece[:begin]}{HIDDEN}{piece[at:]}"
    return piece
