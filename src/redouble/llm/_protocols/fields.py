"""Readers for the data of a provider: a field, an error, the usage.

The input may be a dict of parsed JSON, an object of an SDK, or anything else: a field that cannot be read
counts as absent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from redouble._failures.codes import LLM, LLM_STATUSES, QUOTA
from redouble.llm._errors import ErrorEvent
from redouble.llm._spend.usage import Usage

__all__ = ["DICT", "error_in", "get_field", "get_list", "get_text", "has_field", "merge_usage", "usage_of"]


MAX_MESSAGE = 500  # characters of a message; ErrorEvent.said has all of it
MAX_TOKENS = 1 << 53  # more is a mistake

# For type checkers: `isinstance(x, dict)` would narrow to a dict of unknown types.
DICT = cast("type[object]", dict)
_get = cast("Callable[[object, str], object]", dict[object, object].get)
# The fields of an event that is an error and nothing else.
ERROR_ONLY_FIELDS = frozenset({"error", "type", "object", "id", "request_id", "code", "status"})
NON_ERROR_PREFIXES = ("response.", "message_", "content_block_")  # their errors have event types of their own


def get_field(thing: object, name: str) -> object:
    """Return the field of a dict or object, or None."""
    try:
        if isinstance(thing, DICT):
            return _get(thing, name)
        value: object = getattr(thing, name, None)
    except Exception:  # the attribute cannot be read
        return None
    return value


def has_field(thing: object, name: str) -> bool:
    """Return True if the field exists, even if it is empty."""
    return name in cast("dict[object, object]", thing) if isinstance(thing, DICT) else hasattr(thing, name)


def get_text(thing: object, name: str) -> str:
    """Return a field that is a text, or else an empty text."""
    value = get_field(thing, name)
    return value if isinstance(value, str) else ""


def get_list(thing: object, name: str) -> list[object]:
    """Return a field that is a list, or else an empty list."""
    value = get_field(thing, name)
    return cast("list[object]", value) if isinstance(value, list) else []


# ----------------------------------------------------------------------------------- tokens


def usage_of(result: object) -> Usage | None:
    """Return the tokens that an answer reports, or None: an object of an SDK, or a dict.

    >>> usage_of({"usage": {"prompt_tokens": 12, "completion_tokens": 3}})
    Usage(input=12, output=3)
    """
    usage = get_field(result, "usage")
    return None if usage is None else _tokens(usage)


def _tokens(usage: object) -> Usage | None:
    """Read the counts under any of the names that providers use."""
    prompt = _count(usage, "prompt_tokens")
    if prompt is None:  # input_tokens does not include the counts of the cache
        names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
        prompt = _sum([_count(usage, name) for name in names])
    completion = _count(usage, "completion_tokens")
    if completion is None:
        completion = _count(usage, "output_tokens")
    return None if prompt is None and completion is None else Usage(prompt or 0, completion or 0)


def merge_usage(before: Usage | None, now: Usage | None) -> Usage | None:
    """Merge two reports: each counts from the start of the stream, and may omit a count."""
    if before is None or now is None:
        return before or now
    return Usage(max(before.input, now.input), max(before.output, now.output))


def _count(usage: object, name: str) -> int | None:
    value = get_field(usage, name)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < MAX_TOKENS:
        return None
    return int(value)


def _sum(counts: list[int | None]) -> int | None:
    present = [count for count in counts if count is not None]
    return sum(present) if present else None


# ----------------------------------------------------------------------------------- errors


def error_in(event: object, event_type: str, *, from_provider: bool) -> ErrorEvent | None:
    """Return the error that an event is, by its type, or contains.

    ``from_provider``: the event is known to come from a provider. Otherwise only an event that cannot be
    anything else counts as an error.
    """
    if event_type == "response.failed":
        return _make_error(event, get_field(get_field(event, "response"), "error"), event_type)
    if event_type.startswith(NON_ERROR_PREFIXES):
        return None
    value = get_field(event, "error")
    if value is None and event_type != "error":
        return None
    nested = isinstance(value, DICT) or get_text(value, "message") != ""
    details = value if nested else event
    if event_type == "error":
        is_error = from_provider or get_text(details, "message") != ""
    elif isinstance(event, DICT) and from_provider:
        is_error = isinstance(value, dict | list | str | int | float) and bool(cast("object", value))
    else:
        is_error = get_text(value, "message") != "" and (from_provider or _has_only_error_fields(event))
    return _make_error(event, details, value if isinstance(value, str) else "") if is_error else None


def _has_only_error_fields(event: object) -> bool:
    """Return True if a dict of unknown origin has the fields of an error and no others."""
    return isinstance(event, DICT) and ERROR_ONLY_FIELDS.issuperset(cast("dict[object, object]", event))


def _make_error(event: object, details: object, fallback: str) -> ErrorEvent:
    error_type, message = _error_type(details), get_text(details, "message") or fallback
    text = ": ".join(part for part in (error_type, message) if part) or "no details"
    text = text if len(text) <= MAX_MESSAGE else text[: MAX_MESSAGE - 3] + "..."
    return ErrorEvent(f"the stream reported an error: {text}", type=error_type, said=event)


def _error_type(details: object) -> str | None:
    """Return the type of an error: a known one, or else the most specific."""
    names = ("code", "type", "error_type", "status")
    types = [type_ for name in names if (type_ := get_text(details, name)) not in ("", "error")]
    known = [type_ for type_ in types if type_ in QUOTA] or [type_ for type_ in types if type_ in LLM]
    return next(iter(known or _error_types_of_status(get_field(details, "code")) or types), None)


def _error_types_of_status(code: object) -> list[str]:
    """Return the types of an error whose code is an HTTP status, as gateways send it."""
    if isinstance(code, str) and code.isdecimal() and len(code) == 3:
        code = int(code)
    if isinstance(code, bool) or not isinstance(code, int) or not 100 <= code <= 599:
        return []
    verdict = LLM_STATUSES.get(code, LLM["api_error"] if code >= 500 else None)
    return [type_ for type_, known in LLM.items() if known == verdict] or [str(code)]
