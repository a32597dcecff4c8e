"""A function that fails on demand and else returns its arguments, and a policy for it."""

from __future__ import annotations

from redouble import Retry
from tests.support.fakes import Boom, Virtual

CLOCK = Virtual()
policy = Retry(on=Boom, backoff=[1] * 9, give_up_after=None, clock=CLOCK)
flaky: list[Exception] = []


def answer(*args: object, **kwargs: object) -> object:
    """Raise the next prepared error, or return the arguments."""
    if flaky:
        raise flaky.pop(0)
    return args, kwargs
