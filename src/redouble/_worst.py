"""Values that the hooks of layers exchange, for `Pipeline.explain` and `Pipeline.check`."""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from redouble._failures.verdict import On
from redouble._internal.public import public

__all__ = ["Traits", "WorstCase"]


@public("redouble.types")
class Traits(NamedTuple):
    """Properties of a layer that other layers ask about: what `Layer.traits` returns.

    retries: True if the layer may call the inner function more than once; `Pipeline.check` calls every such
        layer a Retry.
    concurrent: True if several calls of the inner function may run at once.
    time_limit: seconds after which the layer ends the whole call; infinite for no limit.
    each_call_limit: seconds after which the layer ends one call of the inner function; infinite for no limit.
    handles: the errors that the layer acts on or counts, as in ``Retry(on=...)``; None if it does not depend
        on errors.
    shared: objects with state, such as a budget, that `Pipeline.check` reports if they occur twice in one
        pipeline.
    """

    retries: bool = False
    concurrent: bool = False
    time_limit: float = inf
    each_call_limit: float = inf
    handles: On | None = None
    shared: tuple[object, ...] = ()


@public("redouble.types")
class WorstCase(NamedTuple):
    """The most that one call can cost: what `Layer.worst_case` is given, and returns.

    calls: how often the function is called; infinite if only time limits it.
    seconds: how long the call takes; infinite if nothing limits the function.
    waiting: how many of these seconds are delays and waits for admission.
    """

    calls: float = 1
    seconds: float = inf
    waiting: float = 0.0

    def within(self, limit: float) -> WorstCase:
        """Return this worst case under a time limit."""
        return WorstCase(self.calls, min(self.seconds, limit), min(self.waiting, limit))

    def after(self, wait: float) -> WorstCase:
        """Return this worst case with a wait before it."""
        return WorstCase(self.calls, self.seconds + wait, self.waiting + wait)
