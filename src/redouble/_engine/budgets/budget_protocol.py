"""The protocol of a retry budget, which many calls share, and the base class of our own budgets.

The engine calls it at fixed points of a call and passes the time; a budget never sleeps. Any object with
these methods is a budget. An attribute ``traits`` may say what it ignores, so that calls can skip it.

A budget only accounts, so an exception that it raises never replaces the result of a call: it is logged once
for each class and method. A ``spend`` that raises is refused; what another method raises is ignored.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, cast

from redouble._engine.budgets.retries_in_flight import RetriesInFlight
from redouble._failures.verdict import Kind
from redouble._internal.locks import ForkSafe, SharedByIdentity
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
    credits: False if ``credit`` does nothing. A call around it or inside it then credits the budget.
    in_flight: a `RetriesInFlight` if the budget limits the retries in flight. Calls then report to it when
        they begin and end, and ask it before they spend.
    """

    counts_starts: bool = True
    counts_stops: bool = True
    may_wait: bool = True
    credits: bool = True
    in_flight: RetriesInFlight | None = None


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

    def without_credit(self) -> Budget:
        """Return a view of the budget for outer policies: their retries spend, their successes add nothing.

        The policies inside report starts, failures and successes. Views of one budget are equal.
        """
        return SpendOnly(cast("Budget", self))

    def _described(self, kind: str, **options: object) -> str:
        """Return the repr of a budget with these options, and with its name if it has one."""
        named = options if self.name is None else {**options, "name": self.name}
        shown = (
            f"{name}={f'{value:g}' if isinstance(value, float) else repr(value)}"
            for name, value in named.items()
        )
        return f"{kind}({', '.join(shown)})"


class SpendOnly(SharedByIdentity):
    """A budget as an outer policy sees it that spends and never credits."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget

    @property
    def name(self) -> str | None:
        """The name of the budget."""
        name: str | None = getattr(self.budget, "name", None)
        return name

    @property
    def traits(self) -> BudgetTraits:
        """The traits of the budget, of which only grants concern the policy."""
        return traits_of(self.budget)._replace(counts_starts=False, counts_stops=False, credits=False)

    def start(self, now: float, /) -> None:
        """Ignore the start of a call: those inside it count."""

    def failed(self, kind: Kind, now: float, /) -> None:
        """Ignore a failed attempt: those inside it count."""

    def spend(self, kind: Kind, now: float, /) -> Grant | None:
        """Return the budget's grant for one retry, or None."""
        return self.budget.spend(kind, now)

    def credit(self, grant: Grant | None, now: float, /) -> None:
        """Ignore a success: those inside it count."""

    def refund(self, grant: Grant, now: float, /) -> None:
        """Take back a grant whose retry never started."""
        self.budget.refund(grant, now)

    def snapshot(self) -> Mapping[str, float]:
        """Return the remaining allowance of the budget."""
        return self.budget.snapshot()

    def can_reconfigure(self, other: object, /) -> bool:  # noqa: ARG002
        """Return False: its budget is reconfigured."""
        return False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SpendOnly) and self.budget is other.budget

    def __hash__(self) -> int:
        return hash(id(self.budget))

    def __repr__(self) -> str:
        return f"{self.budget!r}.without_credit()"


def shared_budget(budget: object) -> object:
    """Return the budget that a policy shares: of a view, the budget behind it."""
    return budget.budget if isinstance(budget, SpendOnly) else budget


def amount(value: object, option: str, most: float, example: str) -> float:
    """Validate a number from 0 to ``most``."""
    return number(value, option, 0, most, f"a finite number, 0 or more, such as {example}")
