"""Seeded random numbers, one generator per call: concurrent calls do not affect each other's draws."""

from __future__ import annotations

from contextvars import ContextVar
from random import Random

# Rules, observers and ``random`` run in the thread and the task of the call. So a context variable identifies
# the call.
current_call: ContextVar[str] = ContextVar("current_call", default="")


class RandomPerCall:
    """A value for the option ``random``: a seeded generator per call."""

    def __init__(self) -> None:
        self._generators: dict[str, Random] = {}

    def random(self) -> float:
        """Return the next number of the current call."""
        call = current_call.get()
        return self._generators.setdefault(call, Random(call)).random()  # noqa: S311  chance, not secrets
