"""The event: an immutable record of one step of one call, which never contains the call's arguments.

`emit` creates events, and `observers` dispatches them.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeAlias, get_args

from redouble._failures.verdict import Kind, Verdict
from redouble._internal.public import public
from redouble._telemetry.bound_fields import Value
from redouble.errors import Limit, Reason

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
    "circuit_disabled",
    "circuit_metrics_only",
    "circuit_exceeded",
    "circuit_rejected",
    "waited",
    "limit_changed",
    "hedged",
    "hedge_won",
    "fallback",
    "coalesced",
]
EVENT_NAMES: tuple[What, ...] = get_args(What)
NO_USAGE: Mapping[str, float] = MappingProxyType({})


@public("redouble.types")
class Event(NamedTuple):
    """One step of one call, which ``what`` names; fields that do not apply are None.

    ``attempt`` counts from 1; ``delay`` is the wait before the next attempt, or in ``give_up``
    the one that a refused retry would have had; ``hint`` is the wait that the
    server asked for; ``elapsed`` counts from the start of the call; ``limit`` is the time limit that
    cancelled the attempt or ended the call. ``first_item`` is the time to the first item of a stream;
    ``bound`` are the fields of `redouble.bind`. ``again`` is True if the call and its first attempt were
    already emitted as a success, and the call continues because its response body failed. ``usage`` is what
    the call has used so far, by name: tokens and cost, if it is one of an `llm.Model`.

    ``rejected`` comes from a gate that rejects a call: ``by`` is its type, ``name`` its name. ``timeout``
    comes from a `Timeout` that was reached. Neither is a step of a policy, so ``attempt`` is 0.

    Events of other layers have ``by`` and ``name`` too, and an ``attempt`` only if they start one: ``waited``
    (a gate has admitted a call that had to wait: ``delay`` is how long), ``limit_changed`` (an adaptive limit
    has a new ``level``, in calls or in calls a second), ``hedged`` (an extra attempt starts: its number, and
    ``elapsed`` since the call began), ``hedge_won`` (the number of the extra attempt whose outcome counts),
    ``fallback`` (the ``error`` or the refused ``value`` that was replaced), ``coalesced`` (a call shares the
    outcome of one in flight, after ``elapsed`` seconds).

    Events of a circuit breaker begin with ``circuit_``: ``elapsed`` is how long the previous state lasted
    (in ``circuit_rejected``: how long the current one has), ``hint`` the seconds until a call may be
    admitted, ``rejected`` the number of calls rejected since the circuit opened.
    """

    what: What
    name: str
    attempt: int
    elapsed: float
    attempt_elapsed: float | None = None
    error: Exception | None = None
    value: object = None
    verdict: Verdict | None = None
    kind: Kind | None = None
    delay: float | None = None
    hint: float | None = None
    reason: Reason | None = None
    limit: Limit | None = None
    labels: Mapping[str, str] = MappingProxyType({})
    rejected: int | None = None
    first_item: float | None = None
    by: str | None = None
    bound: Mapping[str, Value] = MappingProxyType({})
    again: bool = False
    usage: Mapping[str, float] = NO_USAGE
    level: float | None = None

    def __repr__(self) -> str:
        # Without the value: it is the caller's data, and events end up in logs.
        fields = self._asdict() | {"value": None, "labels": None, "bound": dict(self.bound) or None}
        fields |= {"again": self.again or None, "usage": dict(self.usage) or None}
        shown = [f"{k}={_repr(v)}" for k, v in fields.items() if v is not None]
        return f"Event({', '.join(shown)})"

    def __reduce__(self) -> "tuple[type[Event], tuple[object, ...]]":
        # Mapping proxies cannot be pickled.
        plain = self._replace(labels=dict(self.labels), bound=dict(self.bound), usage=dict(self.usage))
        return (Event, tuple(plain))


def _repr(value: object) -> str:
    """Return the repr of a field; of an error its text only, because some reprs contain secrets."""
    from redouble._redaction.rendering import field_repr  # noqa: PLC0415  only for a repr

    return field_repr(value)


Observer: TypeAlias = Callable[[Event], object]
