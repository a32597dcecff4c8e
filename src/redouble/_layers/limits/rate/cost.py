"""What a call costs: the option ``cost``, a number or a function of the arguments of a call."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeAlias

from redouble._engine.per_call import argument_function
from redouble._internal.callables import UsageError, display_name
from redouble._internal.validation import number

Cost: TypeAlias = "float | Callable[..., float]"

WANTED = "a number of permits, 0 or more: 1 is a usual call, 0 is free"


class CostError(UsageError, ValueError):
    """A call whose cost is no cost, or more than can ever be admitted: a mistake in the program."""


def cost_option(cost: object, option: str) -> Cost:
    """Return the validated option: a number, or a function of the arguments of a call."""
    if callable(cost):
        return argument_function(cost, option, "a number, or a function such as lambda request: request.size")
    return number(cost, option, 0, sys.float_info.max, f"{WANTED}; or a function of the arguments of a call")


def checked_cost(cost: object, option: str) -> float:
    """Return the cost of a call, or raise `CostError`."""
    try:
        return number(cost, option, 0, sys.float_info.max, WANTED)
    except (TypeError, ValueError) as error:
        raise CostError(str(error)) from None


def cost_function(function: Callable[..., Any], option: str) -> Callable[..., float]:
    """Return a function of the arguments of a call that returns its cost, or raises.

    What ``function`` raises comes out, before anything is taken.
    """
    called = f"{option}: {display_name(function)}(...)"

    def cost_of(*args: Any, **kwargs: Any) -> float:
        return checked_cost(function(*args, **kwargs), called)

    return cost_of
