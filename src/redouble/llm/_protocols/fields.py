"""Readers for the data of a provider: a field, an error, the usage.

The input may be a dict of parsed JSON, an object of an SDK, or anything else: a field that cannot be read
counts as absent.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias, cast

from redouble._failures.codes import LLM, LLM_STATUSES, QUOTA
from redouble._redaction.rendering import shown
from redouble.llm._errors import ErrorEvent
from redouble.llm._spend.usage import Usage

MAX_MESSAGE = 500  # characters of a message; ErrorEvent.said has all of it
MAX_TOKENS = 1 << 53  # more is a mistake

# The fields of an event that is an error and nothing else.
ERROR_ONLY_FIELDS = frozenset({"error", "type", "object", "id", "request_id", "code", "status"})
NON_ERROR_PREFIXES = ("response.", "message_", "content_block_")  # their errors have event types of their own

# For type checkers: `isinstance(x, dict)` would narrow to a dict of unknown types.
DICT = cast("type[object]", dict)
Fields: TypeAlias = Callable[[str], object]  # returns the field of a dict or object, or None


def fields_of(thing: Any) -> Fields:
    """Return a function that reads the fields of a dict or object."""
    # By the type: reading `__class__` may raise.
    return thing.get if issubclass(type(thing), dict) else partial(_attribute, thing)


def _attribute(thing: object, name: str) -> object:
    try:
        return getattr(thing, name, None)
    except Exception:  # the attribute cannot be read
        return None


def has_field(thing: object, name: str) -> bool:
    """Return True if the field exists, even if it is empty."""
    return name in cast("dict[object, object]", thing) if isinstance(thing, DICT) else hasattr(thing, name)


def text_of(value: object) -> str:
    """Return a value that is a text, or else an empty text."""
    return value if isinstance(value, str) else ""


def list_of(value: object) -> list[object]:
    """Return a value that is a list, or else an empty list."""
    return cast("list[object]", value) if isinstance(value, list) else []


# ----------------------------------------------------------------------------------- tokens


def usage_of(result: object) -> Usage | None:
    """Return the tokens that an answer reports, or None: an object of an SDK, or a dict.

    >>> usage_of({"usage": {"prompt_tokens": 12, "completion_tokens": 3}})
    Usage(input=12, output=3)
    """
    return usage_in(fields_of(result))


def usage_in(get: Fields) -> Usage | None:
    """Return the tokens that these fields report, under any of the names that providers use."""
    usage = get("usage")
    if usage is None:
        return None
    get = fields_of(usage)
    prompt, completion = _counts(get, "prompt_tokens"), _counts(get, "completion_tokens")
    cached = _counts(get, "cache_read_input_tokens")
    if not prompt:  # Anthropic's input_tokens does not include the counts of the cache
        prompt = [*_counts(get, "input_tokens", "cache_creation_input_tokens"), *cached]
    if not completion:
        completion = _counts(get, "output_tokens")
    for details in ("prompt_tokens_details", "input_tokens_details"):  # of OpenAI, which does include it
        cached = cached or _counts(fields_of(get(details)), "cached_tokens")
    if not prompt and not completion:
        return None
    return Usage(sum(prompt), sum(completion), min(sum(cached), sum(prompt)))


def _counts(get: Fields, *names: str) -> list[int]:
    """Return the valid counts in these fields."""
    values = [get(name) for name in names]
    numbers = [int(value) for value in values if isinstance(value, int) and not isinstance(value, bool)]
    return [number for number in numbers if 0 <= number < MAX_TOKENS]


# ----------------------------------------------------------------------------------- errors


def error_in(event: object, get: Fields, event_type: str, *, from_provider: bool) -> ErrorEvent | None:
    """Return the error that an event is, by its type, or contains; ``get`` reads its fields.

    ``from_provider``: the event is known to come from a provider. Otherwise only an event that cannot be
    anything else counts as an error.
    """
    if event_type == "response.failed":
        return _make_error(event, fields_of(fields_of(get("response"))("error")), event_type)
    if event_type.startswith(NON_ERROR_PREFIXES):
        return None
    value = get("error")
    has_message = text_of(fields_of(value)("message")) != ""
    details = fields_of(value) if has_message or isinstance(value, DICT) else get
    if event_type == "error":
        is_error = from_provider or text_of(details("message")) != ""
    elif from_provider and isinstance(event, DICT):
        is_error = isinstance(value, dict | list | str | int | float) and bool(cast("object", value))
    else:  # a dict of unknown origin must have the fields of an error and no others
        is_error = has_message and (from_provider or _has_only_error_fields(event))
    return _make_error(event, details, text_of(get("error"))) if is_error else None


def _has_only_error_fields(event: object) -> bool:
    return isinstance(event, DICT) and ERROR_ONLY_FIELDS.issuperset(cast("dict[object, object]", event))


def _make_error(event: object, details: Fields, fallback: str) -> ErrorEvent:
    error_type, message = _error_type(details), text_of(details("message")) or fallback
    text = ": ".join(part for part in (error_type, message) if part) or "no details"
    text = shown(text)
    text = text if len(text) <= MAX_MESSAGE else text[: MAX_MESSAGE - 3] + "..."
    return ErrorEvent(f"the stream reported an error: {text}", type=error_type, said=event)


def _error_type(details: Fields) -> str | None:
    """Return the type of an error: a known one, or else the most specific."""
    names = ("code", "type", "error_type", "status")
    types = [type_ for name in names if (type_ := text_of(details(name))) not in ("", "error")]
    known = [type_ for type_ in types if type_ in QUOTA] or [type_ for type_ in types if type_ in LLM]
    return next(iter(known or _error_types_of_status(details("code")) or types), None)


def _error_types_of_status(code: object) -> list[str]:
    """Return the types of an error whose code is an HTTP status, as gateways send it."""
    if isinstance(code, str) and code.isdecimal() and len(code) == 3:
        code = int(code)
    if isinstance(code, bool) or not isinstance(code, int) or not 100 <= code <= 599:
        return []
    verdict = LLM_STATUSES.get(code, LLM["api_error"] if code >= 500 else None)
    return [type_ for type_, known in LLM.items() if known == verdict] or [str(code)]
