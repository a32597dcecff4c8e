"""Validation of options: each error names the option, the value, and what to write instead.

Wrong types raise TypeError, wrong values ValueError, always at construction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from enum import Enum
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from redouble._internal.callables import display_name, lazy_kind

if TYPE_CHECKING:
    from datetime import timedelta as timedelta  # noqa: PLC0414  for the importing modules
else:
    try:
        from _datetime import timedelta  # without the classes in Python that `datetime` of 3.11 makes first
    except ImportError:  # pragma: no cover  not CPython
        from datetime import timedelta

Duration: TypeAlias = float | timedelta

BILLION = 1e9
SHORTEST = 0.001  # second: the shortest duration that may not be zero
MAX_LENGTH = 80  # characters of a word that is compared with the known ones
MAX_NAMES = 30  # names listed in a message


class Unset(Enum):
    """The default of an option for which None is a value. Its repr is shown in signatures."""

    UNSET = "..."

    def __repr__(self) -> str:
        return self.value


UNSET: Final = Unset.UNSET


def seconds(value: object, option: str) -> float:
    """Validate a duration and return it in seconds."""
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        fix = " (a text such as '250ms' is for configuration files)" if isinstance(value, str) else ""
        raise TypeError(f"{option}={value!r}: write seconds as a number, or a timedelta{fix}")
    try:
        result = float(value)
    except OverflowError:
        raise ValueError(f"{option} is too large for a float: write a number of seconds") from None
    if not isfinite(result) or result < 0:
        raise ValueError(f"{option}={value!r}: write a finite number of seconds, 0 or more")
    return result


def positive_seconds(value: object, option: str, example: str) -> float:
    """Validate a duration of a millisecond or more and return it in seconds."""
    result = seconds(value, option)
    if result < SHORTEST:
        raise ValueError(f"{option}={value!r}: write more seconds, such as {example}")
    return result


def format_seconds(value: float) -> str:
    """Format a duration for messages, without an exponent below 10^9 seconds."""
    return f"{value:.3f}".rstrip("0").rstrip(".") + " s" if value < BILLION else f"{value:.3g} s"


def number(value: object, option: str, low: float, high: float, wanted: str) -> float:
    """Validate a number from ``low`` to ``high``."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{option}={value!r}: write {wanted}")
    if low <= value <= high:
        with suppress(OverflowError):  # an integer may be too large for a float
            return float(value)
    raise ValueError(f"{option}={_shown(value)}: write {wanted}")


def integer(value: object, option: str, least: int, wanted: str) -> int:
    """Validate an integer, ``least`` or more."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{option}={value!r}: write {wanted}")
    if value < least:
        raise ValueError(f"{option}={_shown(value)}: write {wanted}")
    return value


def _shown(value: float) -> str:
    try:
        return repr(value)
    except ValueError:  # Python does not format integers of thousands of digits
        return "a huge integer"


def instance(value: object, option: str, kind: Any, wanted: str) -> None:
    """Validate an instance of ``kind``; the class itself is rejected."""
    if not isinstance(value, kind):
        raise TypeError(f"{option}={value!r}: write {wanted}")


def choice(value: object, option: str, *allowed: str) -> None:
    """Validate one of these texts."""
    if value not in allowed:
        *others, last = map(repr, allowed)
        raise ValueError(f"{option}={value!r}: write {', '.join(others)} or {last}")


def methods(value: object, option: str, names: tuple[str, ...]) -> None:
    """Validate an object that has these methods."""
    if isinstance(value, type):
        raise TypeError(f"{option}={value.__name__} is a class: write {value.__name__}(...)")
    for name in names:
        if not callable(getattr(value, name, None)):
            raise TypeError(f"{option}={value!r} cannot be a {option}: it has no method {name}()")


def nearest(word: str, words: Iterable[str]) -> str:
    """Return a hint for a message: the most similar of the words, or else a list of them."""
    from difflib import get_close_matches  # noqa: PLC0415  needed only for errors

    known = sorted(words)
    if close := get_close_matches(word[:MAX_LENGTH], known, 1):
        return f"did you mean {close[0]!r}?"
    more = "..." if len(known) > MAX_NAMES else ""
    return f"write one of {', '.join(known[:MAX_NAMES])}{more}" if known else "none is defined"


def hook(value: object, option: str) -> None:
    """Validate an observer: a plain function of one event."""
    if not callable(value):
        raise TypeError(f"{option}={value!r}: write a function of one event")
    name = display_name(value)
    if (kind := lazy_kind(value)) is not None:
        raise TypeError(
            f"{option}={name} is {kind} and would never run: "
            "observers are plain functions, also in async code"
        )
    if (signature := signature_mismatch(value, 1)) is not None:
        raise TypeError(f"{option}={name} takes {signature}: write a function of one event")


def signature_mismatch(fn: Callable[..., object], count: int) -> str | None:
    """Return the signature of a function that cannot be called with ``count`` arguments, else None."""
    import inspect  # noqa: PLC0415  takes long to import

    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):
        return None  # some built-in functions have no signature
    try:
        signature.bind(*[None] * count)
    except TypeError:
        return str(signature)
    return None


def takes_more_than_one(fn: Callable[..., Any]) -> bool | None:
    """Return True if ``fn`` takes a first argument and others behind it; None if it does not take a first.

    A function that can be called with one argument takes others only if it declares ``*args`` behind a first
    parameter of its own.
    """
    import inspect  # noqa: PLC0415  takes long to import

    try:
        parameters = [*inspect.signature(fn).parameters.values()]
    except (TypeError, ValueError):  # a built-in without a signature
        return False
    kinds = inspect.Parameter
    first = next(iter(parameters), None)
    if first is None or first.kind not in (
        kinds.POSITIONAL_ONLY,
        kinds.POSITIONAL_OR_KEYWORD,
        kinds.VAR_POSITIONAL,
    ):
        return None
    if first.kind is kinds.VAR_POSITIONAL:
        needed = [one for one in parameters if one.kind is kinds.KEYWORD_ONLY and one.default is kinds.empty]
        return bool(needed)
    variadic = (kinds.VAR_POSITIONAL, kinds.VAR_KEYWORD)
    return any(
        one.kind is kinds.VAR_POSITIONAL or (one.kind not in variadic and one.default is kinds.empty)
        for one in parameters[1:]
    )
