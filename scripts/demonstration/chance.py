"""Seeded chance, for each call its own: calls that run at the same time do not take each other's draws."""

from __future__ import annotations

from contextvars import ContextVar
from random import Random

# Rules, observers and chance are asked where the call is made, in its thread and its task. So a context
# variable tells calls apart that run at the same time.
current_call: ContextVar[str] = ContextVar("current_call", default="")


class ChancePerCall:
    """What the option ``random`` takes: something with ``random()``."""

    def __init__(self) -> None:
        self._dice: dict[str, Random] = {}

    def random(self) -> float:
        """Draw for the current call."""
        call = current_call.get()
        return self._dice.setdefault(call, Random(call)).random()  # noqa: S311  chance, not secrets
