"""The options ``shares`` and ``priority``, the same in every gate: classes of calls and their shares.

``shares={"interactive": 0.6, "batch": 0.1}`` names the classes in the order of their rank, highest first. A
class is guaranteed its share of the limit, and may borrow what others leave idle. The rest is common. A call
without a class, and one whose class has no share, is guaranteed nothing and ranks below all others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import ceil, fsum
from types import MappingProxyType
from typing import Any, TypeAlias, cast

from redouble._engine.per_call import PerCall, argument_function
from redouble._internal.callables import UsageError, display_name
from redouble._internal.validation import number
from redouble._runtime.priority import PRIORITY

PriorityOption: TypeAlias = "str | Callable[..., str | None] | None"

TOLERANCE = 1e-9  # by which a sum of shares, or a share of a limit, may be off
EXAMPLE = '{"interactive": 0.6, "batch": 0.1}'


class Shares:
    """The validated options ``shares`` and ``priority`` of a gate.

    shares: by class, in the order of rank, highest first.
    priority: the option as it was given.
    default: the class of a call that has none; None: it ranks below all classes.
    per_call: the evaluation of ``priority``, if it is a function of the arguments of a call.
    """

    def __init__(self, shares: Mapping[str, float], priority: PriorityOption, layer: str) -> None:
        self.shares: Mapping[str, float] = MappingProxyType(_checked(shares, f"{layer} shares"))
        self.priority = priority
        self.default = priority if isinstance(priority, str) else None
        self.per_call: PerCall | None = None
        if self.default is not None and self.default not in self.shares:
            names = " or ".join(map(repr, self.shares))
            raise ValueError(f"{layer} priority={self.default!r} is not in shares: write {names}")
        if priority is not None and self.default is None:
            option = f"{layer} priority"
            example = 'the name of a class, or a function such as lambda request: "batch"'
            function = argument_function(priority, option, example)
            self._option = option
            self.per_call = PerCall({option: function}, self.class_of, function)

    def current(self) -> str | None:
        """Return the class of this context, or the default; None without one."""
        name = PRIORITY.get()
        return self.default if name is None else name

    def class_of(self, *args: Any, **kwargs: Any) -> str | None:
        """Return the class of a call by its arguments; if the function has none, that of the context.

        What the function raises comes out, before anything is admitted.
        """
        return self.class_by(cast("Callable[..., object]", self.priority)(*args, **kwargs))

    def checked(self, name: object) -> str:
        """Return the name that the function has returned; raise if it is none."""
        if isinstance(name, str):
            return name
        given = f"{self._option}={display_name(self.priority)} returned a value of type {type(name).__name__}"
        raise UsageError(f"{given}: return the name of a class, or None for that of the context")

    def class_by(self, returned: object) -> str | None:
        """Return the class of a call, given what the function of its arguments has returned."""
        return self.checked(returned) if returned else self.current()

    def of(self, name: str | None) -> float:
        """Return the guaranteed share of a class."""
        return self.shares.get(cast("str", name), 0.0)

    def __repr__(self) -> str:
        return repr(dict(self.shares))


def shares_option(shares: object, priority: PriorityOption, layer: str) -> Shares | None:
    """Return the validated options of a gate; None without them."""
    if shares is None:
        if priority is not None:
            raise TypeError(f"{layer} priority={_shown(priority)} needs shares, such as shares={EXAMPLE}")
        return None
    return Shares(cast("Mapping[str, float]", shares), priority, layer)


def allotment(shares: Mapping[str, float], admitted: float, demand: Mapping[str | None, int]) -> list[float]:
    """Return how many of ``admitted`` calls each class gets, in the order of ``demand``: highest rank first.

    Each class gets its share, or what it needs if that is less. What is left goes to the highest class that
    needs more.
    """
    allotted = [min(needed, shares.get(name or "", 0.0) * admitted) for name, needed in demand.items()]
    left = admitted - fsum(allotted)
    for place, needed in enumerate(demand.values()):
        more = max(0.0, min(needed - allotted[place], left))
        allotted[place] += more
        left -= more
    return allotted


def same_function(one: Shares | None, other: Shares | None) -> bool:
    """Return True if both have the same function as ``priority``, or none: then wrappers need not change."""
    functions = [None if each is None or each.per_call is None else each.priority for each in (one, other)]
    return functions[0] is functions[1]


def describe_shares(shares: Shares) -> str:
    """Return the guaranteed shares for `Pipeline.explain`, highest rank first."""
    described = ", ".join(f"{100 * share:.3g}% for {name}" for name, share in shares.shares.items())
    return described if shares.per_call is None else f"{described} by {display_name(shares.priority)}()"


def lint_shares(shares: Shares | None, limit: int, layer: str) -> Iterator[str]:
    """Yield the problem of shares that are more slots than there are, because a part of one counts as one."""
    slots = 0 if shares is None else sum(ceil(share * limit - TOLERANCE) for share in shares.shares.values())
    if slots > limit:
        yield (
            f"{layer}({limit}) shares={shares!r}: a part of a slot counts as one, so {slots} slots are "
            f"guaranteed and there are {limit}; write a higher limit, or give fewer classes a share"
        )


def _checked(shares: object, option: str) -> dict[str, float]:
    if not isinstance(shares, Mapping):
        raise TypeError(f"{option}={shares!r}: write a dict of shares by class, such as {EXAMPLE}")
    if not shares:
        raise ValueError(f"{option}={{}} is empty: write shares by class, such as {EXAMPLE}, or None")
    checked = dict[str, float]()
    for name, share in cast("Mapping[object, object]", shares).items():
        if not isinstance(name, str):
            raise TypeError(f"{option}: the class {name!r} is no text: write a name such as 'batch'")
        if not name:
            raise ValueError(f"{option}: the class '' has no name: write one such as 'batch'")
        checked[name] = number(share, f"{option}[{name!r}]", 0, 1, "a share from 0 to 1, such as 0.1")
    total = fsum(checked.values())
    if total > 1 + TOLERANCE:
        raise ValueError(f"{option}= add up to {total:g}: guarantee 1.0 or less")
    return checked


def _shown(priority: PriorityOption) -> str:
    return repr(priority) if isinstance(priority, str) else display_name(priority)
