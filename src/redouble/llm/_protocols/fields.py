"""How to read what a provider has said: a field, an error, the tokens it took.

It may be a dict of parsed JSON or an object of an SDK, or anything at all: what cannot be read is not there.
Which events there are, and what they mean, is not known here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from redouble._failures.codes import LLM, LLM_STATUSES, QUOTA
from redouble.llm._errors import ErrorEvent
from redouble.llm._spend.usage import Usage

__all__ = ["DICT", "error_in", "get_field", "get_list", "get_text", "has_field", "more", "usage_of"]


LONGEST = 500  # characters of a message; all of it is in `said`
MOST = 1 << 53  # tokens: more is a mistake

# Parsed JSON has anything in it, and these say so: type checkers would know no more than that it is a dict.
DICT = cast("type[object]", dict)
_get = cast("Callable[[object, str], object]", dict[object, object].get)
ALONE = frozenset({"error", "type", "object", "id", "request_id", "code", "status"})  # with nothing else
NOT_ERRORS = ("response.", "message_", "content_block_")  # these have words of their own for what is wrong


def get_field(thing: object, name: str) -> object:
    """Return the field of a dict or object, or None."""
    try:
        if isinstance(thing, DICT):
            return _get(thing, name)
        found: object = getattr(thing, name, None)
    except Exception:  # it does not let itself be looked at
        return None
    return found


def has_field(thing: object, name: str) -> bool:
    """Say whether there is such a field, and be it empty."""
    return name in cast("dict[object, object]", thing) if isinstance(thing, DICT) else hasattr(thing, name)


def get_text(thing: object, name: str) -> str:
    """Return a field that is a text, or else an empty one."""
    found = get_field(thing, name)
    return found if isinstance(found, str) else ""


def get_list(thing: object, name: str) -> list[object]:
    """Return what is in a field that is a list."""
    found = get_field(thing, name)
    return cast("list[object]", found) if isinstance(found, list) else []


# ----------------------------------------------------------------------------------- tokens


def usage_of(result: object) -> Usage | None:
    """Tell how many tokens an answer took, if it says so: an object of an SDK, or a dict.

    >>> usage_of({"usage": {"prompt_tokens": 12, "completion_tokens": 3}})
    Usage(input=12, output=3)
    """
    said = get_field(result, "usage")
    return None if said is None else _tokens(said)


def _tokens(said: object) -> Usage | None:
    """Read a count by any of the names in use."""
    asked = _count(said, "prompt_tokens")
    if asked is None:  # where a cache has its own counts, they are not in the first
        names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
        asked = _sum([_count(said, name) for name in names])
    answered = _count(said, "completion_tokens")
    if answered is None:
        answered = _count(said, "output_tokens")
    return None if asked is None and answered is None else Usage(asked or 0, answered or 0)


def more(before: Usage | None, now: Usage | None) -> Usage | None:
    """Return what is known after another report: each counts from the start, and may leave something out."""
    if before is None or now is None:
        return before or now
    return Usage(max(before.input, now.input), max(before.output, now.output))


def _count(said: object, name: str) -> int | None:
    found = get_field(said, name)
    if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found < MOST:
        return None
    return int(found)


def _sum(counts: list[int | None]) -> int | None:
    told = [count for count in counts if count is not None]
    return sum(told) if told else None


# ----------------------------------------------------------------------------------- errors


def error_in(thing: object, word: str, *, sure: bool) -> ErrorEvent | None:
    """Return the error that an event is, by its ``word``, or brings.

    ``sure``: it comes from a provider. Otherwise only what looks like nothing else is taken for an error.
    """
    if word == "response.failed":
        return _error(thing, get_field(get_field(thing, "response"), "error"), word)
    if word.startswith(NOT_ERRORS):
        return None
    found = get_field(thing, "error")
    if found is None and word != "error":
        return None
    nested = isinstance(found, DICT) or get_text(found, "message") != ""
    details = found if nested else thing
    if word == "error":
        wrong = sure or get_text(details, "message") != ""
    elif isinstance(thing, DICT) and sure:
        wrong = isinstance(found, dict | list | str | int | float) and bool(cast("object", found))
    else:
        wrong = get_text(found, "message") != "" and (sure or _is_nothing_else(thing))
    return _error(thing, details, found if isinstance(found, str) else "") if wrong else None


def _is_nothing_else(thing: object) -> bool:
    """Say whether a dict of nobody we know says that something went wrong, and nothing besides."""
    return isinstance(thing, DICT) and ALONE.issuperset(cast("dict[object, object]", thing))


def _error(thing: object, details: object, otherwise: str) -> ErrorEvent:
    kind, message = _kind(details), get_text(details, "message") or otherwise
    told = ": ".join(part for part in (kind, message) if part) or "something went wrong"
    told = told if len(told) <= LONGEST else told[: LONGEST - 3] + "..."
    return ErrorEvent(f"the stream said: {told}", type=kind, said=thing)


def _kind(details: object) -> str | None:
    """Find the word for an error: one that we know, or else the most specific."""
    names = ("code", "type", "error_type", "status")
    words = [word for name in names if (word := get_text(details, name)) not in ("", "error")]
    known = [word for word in words if word in QUOTA] or [word for word in words if word in LLM]
    return next(iter(known or _by_status(get_field(details, "code")) or words), None)


def _by_status(code: object) -> list[str]:
    """Find the word for an error whose code is an HTTP status, as those of gateways are."""
    if isinstance(code, str) and code.isdecimal() and len(code) == 3:
        code = int(code)
    if isinstance(code, bool) or not isinstance(code, int) or not 100 <= code <= 599:
        return []
    verdict = LLM_STATUSES.get(code, LLM["api_error"] if code >= 500 else None)
    return [word for word, meant in LLM.items() if meant == verdict] or [str(code)]
