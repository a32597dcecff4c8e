"""From looking to taking there is no call: where idle gates count without a lock, nobody comes in between.

CPython lets other threads, signals and the collector in at calls and at jumps backwards only. So it is enough
to look at the code that was compiled for the wrappers.
"""

from __future__ import annotations

import dis
from collections.abc import Callable
from typing import Any

import pytest

from redouble import AdaptiveConcurrency, AdaptiveRate, Layer, RateLimit, Throttle

BREAKS = ("CALL", "JUMP_BACKWARD", "RESUME", "SEND", "YIELD", "FOR_ITER", "BUILD")


def work(x: int) -> int:
    """Stand for anything."""
    return x


async def awork(x: int) -> int:
    """Stand for anything, in async code."""
    return x


def breaks(wrapper: Callable[..., Any], attribute: str, looks: int = 1, refusal: str = "") -> list[str]:
    """Find what could let somebody in between the looks at an attribute and the first change of it.

    Calling the refusal does no harm: it raises.
    """
    steps = list(dis.get_instructions(wrapper))
    changed = next(
        place for place, s in enumerate(steps) if (s.opname, s.argval) == ("STORE_ATTR", attribute)
    )
    looked = [p for p, s in enumerate(steps[:changed]) if (s.opname, s.argval) == ("LOAD_ATTR", attribute)]
    between = steps[looked[-looks] : changed]
    names = [str(step.argval) for step in between]
    if refusal in names:  # from there to the end of its statement
        start = names.index(refusal)
        end = next(place for place, step in enumerate(between) if place > start and step.opname == "POP_TOP")
        between = between[:start] + between[end:]
    return [step.opname for step in between if any(word in step.opname for word in BREAKS)]


PLACES = [
    (RateLimit(10), "quick", 1, ""),
    (AdaptiveConcurrency(), "inside", 2, "redouble_refuse"),
    (AdaptiveRate(), "count", 1, ""),
    (Throttle(), "count", 1, ""),
]


@pytest.mark.parametrize("fn", [work, awork])
@pytest.mark.parametrize(
    ("gate", "attribute", "looks", "refusal"), PLACES, ids=["rate", "concurrency", "adaptive", "throttle"]
)
def test_nobody_comes_in_between(
    gate: Layer, attribute: str, looks: int, refusal: str, fn: Callable[..., Any]
) -> None:
    assert breaks(gate(fn), attribute, looks, refusal) == []


def test_a_call_in_between_is_seen() -> None:
    def counted(gate: Any) -> None:
        gate.count = max(gate.count + 1, 0)

    assert breaks(counted, "count")


def test_a_loop_in_between_is_seen() -> None:
    def counted(gate: Any) -> None:
        number = gate.count
        while number < 10:
            number += 1
        gate.count = number

    assert breaks(counted, "count")
