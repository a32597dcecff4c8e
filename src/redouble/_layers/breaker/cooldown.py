"""The cooldown of a circuit: how long it stays open, which may depend on how often it has opened again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias, cast

from redouble._engine.backoff import Backoff, reiterable
from redouble._internal.callables import display_name, lazy_kind
from redouble._internal.validation import (
    Duration,
    format_seconds,
    seconds,
    signature_mismatch,
    timedelta,
)
from redouble._runtime.clock import Chance

CooldownOption: TypeAlias = Duration | Iterable[Duration] | Callable[[int], Duration]
CheckedCooldown: TypeAlias = float | Iterable[float] | Callable[[int], Duration]

OPTION = "CircuitBreaker cooldown"
USUAL = 30.0  # seconds, if the first answer of a function is unusable
LISTED = 4  # delays of a list in a description


def check_cooldown(given: object) -> CheckedCooldown:
    """Validate the option ``cooldown``."""
    if callable(given):
        return _check_function(given)
    if isinstance(given, str | bytes | timedelta) or not isinstance(given, Iterable):
        return seconds(given, OPTION)
    delays = reiterable(cast("object", given), OPTION)
    finite = isinstance(delays, tuple | Backoff)
    if finite and next(iter(delays), None) is None:
        raise ValueError(f"{OPTION}={given!r} has no delay: write at least one")
    return delays


def _check_function(given: Callable[..., object]) -> Callable[[int], Duration]:
    if (kind := lazy_kind(given)) is not None:
        raise TypeError(
            f"{OPTION}={display_name(given)} is {kind}: write a plain function, also in async code"
        )
    if (signature := signature_mismatch(given, 1)) is not None:
        raise TypeError(
            f"{OPTION}={display_name(given)} takes {signature}: write a function of how often the circuit "
            "has opened again, which returns seconds"
        )
    return cast("Callable[[int], Duration]", given)


def describe_cooldown(given: CheckedCooldown) -> str:
    """Return a text such as ``30 s``, or ``5 s, then 30 s``, for descriptions."""
    if isinstance(given, float):
        return format_seconds(given)
    if isinstance(given, tuple):
        delays = cast("tuple[float, ...]", given)
        more = [", ..."] if len(delays) > LISTED else []
        return ", ".join(map(format_seconds, delays[:LISTED])).replace(", ", ", then ", 1) + "".join(more)
    if callable(given):
        return f"as long as {display_name(given)}() returns"
    return repr(given)


def cooldown_repr(given: CheckedCooldown) -> str:
    """Return the value of the option in a repr."""
    if isinstance(given, float):
        return f"{given:g}"
    return display_name(given) if callable(given) else repr(given)


class Cooldown:
    """The cooldowns of one circuit, one after the other.

    error: what the function or iterable of the user raised at last; None once it is logged. ``seconds`` stays
        as it was then.
    """

    def __init__(self, given: CheckedCooldown, random: Chance) -> None:
        self._given, self._random = given, random
        self._delays: Iterator[float] = iter(())
        self._next = 0  # the number of the next delay; the iteration begins when one is asked for
        self.seconds = given if isinstance(given, float) else USUAL
        self.error: Exception | None = None

    def after(self, reopened: int) -> float:
        """Return how long to stay open after the circuit has opened again so many times."""
        given = self._given
        try:
            if callable(given):
                self.seconds = seconds(given(reopened), OPTION)
            elif not isinstance(given, int | float):
                self._advance(given, reopened)
        except Exception as error:
            self.error = error
        return self.seconds

    def _advance(self, given: Iterable[float], to: int) -> None:
        """Set the delay of a number; after the last delay it stays that."""
        if to < self._next or not self._next:
            self._delays = given.delays(self._random) if isinstance(given, Backoff) else iter(given)
            self._next = 0
        while self._next <= to:
            self.seconds = seconds(next(self._delays, self.seconds), OPTION)
            self._next += 1
