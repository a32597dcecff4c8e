"""The language of the scripts: steps separated by commas, ``NAME[*TIMES][~option[=value]]...``.

The k-th request plays the k-th step; the last step repeats. Values are percent-decoded, so that a comma can
be written ``%2C`` (see `value`). An invalid script raises a `ValueError` with the reason.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from math import isfinite
from typing import Any
from urllib.parse import quote, unquote_to_bytes

ANSWERS = ("sse", "openai", "anthropic", "responses")
SILENT = ("rst", "close", "stall", "garbage")
FAULTS = ("cut", "rst", "stall", "badchunk")  # after this many bytes, or events, of the body
HIDDEN_FAULTS = ("end", "error")  # the same, in a response that is valid HTTP
HEAD_FAULTS = {"cuthead": "cut", "rsthead": "rst", "stallhead": "stall"}  # after this many bytes of the head
MOST = 10_000

_WORDS = ", ".join((*ANSWERS, *SILENT, *HEAD_FAULTS))
_FLAGS = ("chunked", "gzip", "early", "close", "stream", "late")
_COUNTS = ("size", "piece", "events", *FAULTS, *HIDDEN_FAULTS, *HEAD_FAULTS)
_SECONDS = ("drip", "driphead")
_HEADERS = {"ra": "Retry-After", "rams": "retry-after-ms", "loc": "Location"}
_ANY = {"date", "early", "close", *FAULTS, *HEAD_FAULTS, *_SECONDS, *_HEADERS}
_ALLOWED = {
    "status": _ANY | {"body", "size", "chunked", "piece", "gzip"},
    "sse": _ANY | {"events", "piece", "error_type", *HIDDEN_FAULTS},
    **dict.fromkeys(ANSWERS[1:], _ANY | {"body", "stream", "piece", "error_type", *HIDDEN_FAULTS}),
    "rst": {"late"},
    "close": {"late"},
    "stall": set[str](),
    "garbage": set[str](),
}
_NAME = re.compile(r"(?P<name>[a-z0-9-]+)(?:=(?P<count>[^*]*))?(?:\*(?P<times>.*))?", re.ASCII)
_HEADER_NAME = re.compile(r"[!#$%&'+.^_`|0-9A-Za-z-]+")


@dataclass(frozen=True)
class Fault:
    """The fault of a response, and the number of bytes or events before it.

    The response breaks off: ``cut`` (a FIN), ``rst``, ``stall`` or ``badchunk``. Or it is valid HTTP: ``end``
    is a proper end, and ``error`` is one after an error event.
    """

    how: str
    after: int

    @property
    def breaks(self) -> bool:
        """True if the response breaks off."""
        return self.how in FAULTS


@dataclass(frozen=True)
class Step:
    """The response to one request."""

    text: str
    kind: str  # a key of _ALLOWED
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    date: str | None = None  # None: now
    body: bytes | None = None
    size: int | None = None
    piece: int | None = None
    events: int = 3
    chunked: bool = False
    gzip: bool = False
    stream: bool = False
    early: bool = False
    late: bool = False
    close: bool = False
    error_type: str | None = None  # the type of the error event
    fault: Fault | None = None
    head_fault: Fault | None = None
    drip: float | None = None
    driphead: float | None = None

    @property
    def reads_body(self) -> bool:
        """True if the body of the request is read before the response."""
        return self.late if self.kind in {"rst", "close"} else not self.early


def value(text: str) -> str:
    """Quote a text as the value of an option."""
    return quote(text, safe="").replace("~", "%7E")


@lru_cache(maxsize=4096)
def parse(script: str) -> tuple[Step, ...]:
    """Parse a script."""
    steps = [step for text in script.split(",") for step in _repeated(text)]
    if len(steps) > MOST:
        raise ValueError(f"a script of more than {MOST} steps")
    return tuple(steps)


def _repeated(text: str) -> tuple[Step, ...]:
    try:
        first, *options = text.split("~")
        match = _NAME.fullmatch(first)
        if match is None:
            raise ValueError("a step begins with its name: a status, or a word in small letters")
        name, count, times = match["name"], match["count"], match["times"]
        many = 1 if times is None else _count("*", times)
        if not 1 <= many <= MOST:
            raise ValueError(f"a step is played once at least, and {MOST} times at most")
        if name in HEAD_FAULTS:
            options, name, count = [f"{name}={count or 0}", *options], "200", None
        if count is not None:
            raise ValueError(f"{name} takes no number")
        return (_step(text, name, options),) * many
    except ValueError as error:
        raise ValueError(f"cannot read step {text!r}: {error}") from None


def _step(text: str, name: str, options: list[str]) -> Step:
    if name in ANSWERS or name in SILENT:
        fields: dict[str, Any] = {"kind": name}
    elif name.isdecimal() and len(name) == 3 and name >= "200":
        fields = {"kind": "status", "status": int(name)}
    else:
        raise ValueError(f"there is no step {name!r}, only 200 to 999, {_WORDS}")
    headers = list[tuple[str, str]]()
    for option in options:
        word, equals, quoted = option.partition("=")
        if not word.startswith("h.") and word not in _ALLOWED[fields["kind"]]:
            raise ValueError(f"{name} has no option {word!r}")
        if bool(equals) is (word in _FLAGS):
            raise ValueError(f"{word} takes {'no' if equals else 'a'} value")
        if "*" in quoted:
            raise ValueError("how many times is said after the name; in a value, * is %2A")
        decoded = unquote_to_bytes(quoted)
        if word.startswith("h.") or word in _HEADERS:
            headers.append((_HEADERS.get(word, word.removeprefix("h.")), _text(decoded)))
            continue
        word, read = _read(word, decoded)
        if word in fields:
            raise ValueError(f"{word} is said twice")
        fields[word] = read
    if fields["kind"] in SILENT and headers:
        raise ValueError(f"{name} sends no headers")
    _check(headers, fields)
    return Step(text, headers=tuple(headers), **fields)


def _read(word: str, decoded: bytes) -> tuple[str, object]:
    """Return the field of a `Step` and its value for an option."""
    text = _text(decoded) if word != "body" else ""
    if word in _FLAGS:
        return word, True
    if word in (*FAULTS, *HIDDEN_FAULTS):
        return "fault", Fault(word, _count(word, text))
    if word in HEAD_FAULTS:
        return "head_fault", Fault(HEAD_FAULTS[word], _count(word, text))
    if word in _COUNTS:
        return word, _count(word, text)
    if word in _SECONDS:
        return word, _seconds(word, text)
    return word, decoded if word == "body" else text


def _check(headers: list[tuple[str, str]], fields: dict[str, Any]) -> None:
    for name, _ in headers:
        if _HEADER_NAME.fullmatch(name) is None:
            raise ValueError(f"{name!r} cannot be the name of a header")
    if "body" in fields and "size" in fields:
        raise ValueError("either body or size")
    if fields.get("piece") == 0:
        raise ValueError("a piece has one byte at least")
    if "error_type" in fields and getattr(fields.get("fault"), "how", None) != "error":
        raise ValueError("error_type needs the fault error")


def _text(decoded: bytes) -> str:
    text = decoded.decode("latin-1")
    if "\r" in text or "\n" in text:
        raise ValueError("no header holds a line break")
    return text


def _count(word: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise ValueError(f"{word} needs a whole number, not {text!r}")
    return int(text)


def _seconds(word: str, text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not (isfinite(seconds) and seconds >= 0):
        raise ValueError(f"{word} needs seconds, not {text!r}")
    return seconds
