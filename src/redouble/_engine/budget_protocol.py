"""The protocol of a retry budget, which many calls share, and the base class of our own budgets.

The engine calls it at fixed points of a call and passes the time; a budget never sleeps. Any object with
these methods is a budget. An attribute ``traits`` may say what it ignores, so that calls can skip it.

A budget only accounts, so an exception that it raises never replaces the result of a call: it is logged once
for each class and method. A ``spend`` that raises is refused; what another method raises is ignored.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from redouble._failures.verdict import Kind
from redouble._internal.locks import ForkSafe
from redouble._internal.public import public
from redouble._internal.validation import instance, number
from redouble._telemetry.registry import register


@public("redouble")
class Grant(NamedTuple):
    """Permission to retry once. ``cost`` was taken; the delay must be at least ``wait`` seconds."""

    cost: float
    wait: float = 0.0


@public("redouble.types")
class BudgetTraits(NamedTuple):
    """What calls may assume of a budget: its attribute ``traits``. The defaults assume nothing.

    counts_starts: False if ``start`` does nothing. Calls then skip it.
    counts_stops: False if ``failed`` is only for failures that a rule would retry, and that no gate caused.
    may_wait: False if no grant has a ``wait``. ``explain()`` then knows the longest delay.
    """

    counts_starts: bool = True
    counts_stops: bool = True
    may_wait: bool = True


@public("redouble.types")
class Budget(Protocol):
    """A retry budget. It may have an attribute ``traits``, of the type `BudgetTraits`."""

    def start(self, now: float, /) -> None:
        """Record that a call begins. If this raises, the call begins all the same."""
        ...

    def failed(self, kind: Kind, now: float, /) -> None:
        """Record that an attempt failed. What this raises is ignored."""
        ...

    def spend(self, kind: Kind, now: float, /) -> Grant | None:
        """Return the grant for one retry, or None to refuse it. If this raises, the retry is refused."""
        ...

    def credit(self, grant: Grant | None, now: float, /) -> None:
        """Record a success; ``grant`` is the grant that its last retry used, None without retries.

        What this raises is ignored: the caller gets the result.
        """
        ...

    def refund(self, grant: Grant, now: float, /) -> None:
        """Take back a grant whose retry never started. What this raises is ignored."""
        ...

    def snapshot(self) -> Mapping[str, float]:
        """Return the remaining allowance, for people and metrics."""
        ...


def traits_of(budget: Budget) -> BudgetTraits:
    """Return the traits of a budget, or the defaults if it has none."""
    traits: BudgetTraits = getattr(budget, "traits", DEFAULT_TRAITS)
    return traits


DEFAULT_TRAITS = BudgetTraits()


class SharedBudget(ForkSafe):
    """A budget with a name and an entry in the registry. By default it ignores starts and failures.

    A subclass calls ``__init__`` last: other threads see the budget in the registry from then on.
    """

    def __init__(self, kind: str, name: str | None) -> None:
        super().__init__()
        instance(name, f"{kind} name", str | None, "a text, or None")
        self.name = name
        register(self, "budgets")

    def start(self, now: float | None = None, /) -> None:
        """Ignore the start of a call: it costs nothing."""

    def failed(self, kind: Kind = Kind.unknown, now: float | None = None, /) -> None:
        """Ignore a failed attempt: only a retry costs something."""

    def can_reconfigure(self, other: Any, /) -> bool:  # noqa: ARG002
        """Return True: all settings can change."""
        return True

    def _described(self, kind: str, **options: object) -> str:
        """Return the repr of a budget with these options, and with its name if it has one."""
        named = options if self.name is None else {**options, "name": self.name}
        shown = (
            f"{name}={f'{value:g}' if isinstance(value, float) else repr(value)}"
            for name, value in named.items()
        )
        return f"{kind}({', '.join(shown)})"


def amount(value: object, option: str, most: float, example: str) -> float:
    """Validate a number from 0 to ``most``."""
    return number(value, option, 0, most, f"a finite number, 0 or more, such as {example}")
