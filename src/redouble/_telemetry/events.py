"""Events: an immutable note about one step of one call, which never holds the call's arguments.

Who is told of them is known to `_watch`, and what they are made of to `_telling`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeAlias, get_args

from redouble._failures.verdict import Kind, Verdict
from redouble._internal.public import public
from redouble._telemetry.binding import Value
from redouble.errors import Limit, Reason

__all__ = ["WHATS", "Event", "Observer", "What"]


What: TypeAlias = Literal[
    "before_attempt",
    "success",
    "failure",
    "retry",
    "give_up",
    "rejected",
    "timeout",
    "circuit_opened",
    "circuit_half_open",
    "circuit_closed",
    "circuit_isolated",
    "circuit_rejected",
]
WHATS: tuple[What, ...] = get_args(What)


@public("redouble.types")
class Event(NamedTuple):
    """One step of one call. ``what`` says which; fields that do not apply are None.

    ``attempt`` counts from 1; ``delay`` is the wait before the next attempt; ``hint`` is what the
    other side asked for; ``elapsed`` counts from the start of the call; ``limit`` is the one that cut the
    attempt, or ended the call. ``first_item`` is how long a stream took to its first item; ``bound`` is what
    `redouble.bind` has bound. ``again`` is true if the call had succeeded before and goes on, since the body
    of its answer broke: its first attempt was told of then.

    ``rejected`` is a gate that let nobody in: ``by`` says which sort, ``name`` which one. ``timeout`` is a
    `Timeout` that was reached. Neither is a step of a policy, so ``attempt`` is 0.

    Those of a circuit breaker begin with ``circuit_``: ``elapsed`` is how long the state before lasted
    (of ``circuit_rejected``: how long this one has), ``hint`` when to come back, ``rejected`` how many calls
    have been turned away since it opened.
    """

    what: What
    name: str
    attempt: int
    elapsed: float
    attempt_elapsed: float | None
    error: Exception | None
    value: object
    verdict: Verdict | None
    kind: Kind | None
    delay: float | None
    hint: float | None
    reason: Reason | None
    limit: Limit | None
    labels: Mapping[str, str]
    rejected: int | None = None
    first_item: float | None = None
    by: str | None = None
    bound: Mapping[str, Value] = MappingProxyType({})
    again: bool = False

    def __repr__(self) -> str:
        # Without the value: it is the caller's data, and events end up in logs.
        # Of the error only its text: what else its repr tells, of an HTTP client say, is full of secrets.
        shown = self._asdict() | {"error": None if self.error is None else _Shown(self.error)}
        shown |= {"bound": dict(self.bound) or None, "again": self.again or None}
        said = [f"{k}={v!r}" for k, v in shown.items() if v is not None and k not in ("value", "labels")]
        from redouble._telemetry.redact import redacted  # noqa: PLC0415  for those who look

        return redacted(f"Event({', '.join(said)})")

    def __reduce__(self) -> tuple[type[Event], tuple[object, ...]]:
        # Views of labels, and of what is bound, cannot be pickled.
        plain = self._replace(labels=dict(self.labels), bound=dict(self.bound))
        return (Event, tuple(plain))


class _Shown:
    """An error as it is shown."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __repr__(self) -> str:
        try:
            from redouble._telemetry.redact import redacted  # noqa: PLC0415  for those who look

            return f"{type(self._error).__name__}({redacted(str(self._error))!r})"
        except Exception:
            return f"{type(self._error).__name__}(<no text>)"


Observer: TypeAlias = Callable[[Event], object]
