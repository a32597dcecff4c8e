"""The lines that every call behind a circuit breaker goes through.

While it is closed and all goes well, that is a look at two attributes: nobody is asked, nothing is locked,
and no clock is read.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from redouble._internal.codegen import Template, shaped
from redouble._runtime.backend import cancelling

if TYPE_CHECKING:
    from redouble._breaker import CircuitBreaker

__all__ = ["guarded", "seen_in_task"]

GUARDED = Template(
    "circuit breaker",
    """\
{async_}def guarded({parameters}):
    redouble_ticket = redouble_breaker._passing or redouble_breaker.admit(redouble_now())
    redouble_good = False
    try:
        redouble_result = {await_}redouble_fn({arguments})
        redouble_good = True
    finally:
        if redouble_ticket.noting or not redouble_good:
            redouble_breaker.ended(
                redouble_ticket, None if redouble_good else redouble_exception(), redouble_now()
            )
{check}    return redouble_result
""",
)

CANCELLED = GeneratorExit()  # stands for it: nobody learns from this


def guarded(breaker: CircuitBreaker, fn: Callable[..., Any], *, is_async: bool) -> Callable[..., Any]:
    """Return ``fn`` behind the breaker, with its own signature."""
    seen = seen_in_task if is_async else sys.exception
    return shaped(fn, GUARDED, is_async=is_async, breaker=breaker, now=breaker.clock.now, exception=seen)


def seen_in_task() -> BaseException | None:
    """Return how a call failed; what is made of a cancellation says nothing about the service either."""
    error = sys.exception()
    return CANCELLED if isinstance(error, Exception) and cancelling(error) else error
