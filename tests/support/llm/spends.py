"""Functions that use or read a `Spend`."""

from __future__ import annotations

from typing import Any

import pytest

from redouble.llm import Spend, SpendRefused

WIDTH = 1 / 128  # of a window: the length of one slice


def refusal(spend: Spend, **amounts: Any) -> SpendRefused:
    """Reserve an amount that is rejected, and return the error."""
    with pytest.raises(SpendRefused) as caught:
        spend.reserve(**amounts)
    return caught.value


def spent(spend: Spend, tokens: int, **more: Any) -> None:
    """Reserve some tokens, and commit them all."""
    spend.reserve(tokens=tokens, **more).commit()


def tokens(spend: Spend) -> tuple[float, float, float, float]:
    """Return the tokens spent, reserved, left and overdrawn."""
    seen = spend.snapshot()
    return seen["tokens"], seen["tokens_reserved"], seen["tokens_left"], seen["overdrawn_tokens"]
