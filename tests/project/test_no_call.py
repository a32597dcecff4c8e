"""Lock-free counters of idle gates: no call lies between reading a counter and writing it.

CPython runs other threads, signal handlers and the garbage collector at calls and backward jumps only, so it
is enough to inspect the bytecode of the compiled wrappers.
"""

from __future__ import annotations

import dis
from collections.abc import Callable
from typing import Any

import pytest

from redouble import AdaptiveConcurrency, AdaptiveRate, Layer, RateLimit, Throttle

BREAKS = ("CALL", "JUMP_BACKWARD", "RESUME", "SEND", "YIELD", "FOR_ITER", "BUILD")


def work(x: int) -> int:
    """Return the argument."""
    return x


async def awork(x: int) -> int:
    """Return the argument, in async code."""
    return x


def breaks(
    wrapper: Callable[..., Any], attribute: str, looks: int = 1, refusal: str = "", write: int = 0
) -> list[str]:
    """Return the instructions that allow other threads between reads of an attribute and one of its writes.

    looks: the number of reads before the write that belong to it.
    refusal: a function whose call is allowed, because it raises.
    """
    steps = list(dis.get_instructions(wrapper))
    changed = [place for place, s in enumerate(steps) if (s.opname, s.argval) == ("STORE_ATTR", attribute)][
        write
    ]
    looked = [p for p, s in enumerate(steps[:changed]) if (s.opname, s.argval) == ("LOAD_ATTR", attribute)]
    between = steps[looked[-looks] : changed]
    names = [str(step.argval) for step in between]
    if refusal in names:  # skip it, to the end of its statement
        start = names.index(refusal)
        end = next(place for place, step in enumerate(between) if place > start and step.opname == "POP_TOP")
        between = between[:start] + between[end:]
    return [step.opname for step in between if any(word in step.opname for word in BREAKS)]


COUNTERS = [
    (RateLimit(10), "fast_arrival_time", ""),
    (AdaptiveConcurrency(), "count", "redouble_reject"),
    (AdaptiveRate(), "count", ""),
    (Throttle(), "count", ""),
]


@pytest.mark.parametrize("fn", [work, awork])
@pytest.mark.parametrize(
    ("gate", "attribute", "refusal"), COUNTERS, ids=["rate", "concurrency", "adaptive", "throttle"]
)
def test_no_instruction_allows_a_thread_switch(
    gate: Layer, attribute: str, refusal: str, fn: Callable[..., Any]
) -> None:
    assert breaks(gate(fn), attribute, refusal=refusal) == []


@pytest.mark.parametrize("fn", [work, awork])
def test_no_instruction_allows_a_thread_switch_inside_a_burst(fn: Callable[..., Any]) -> None:
    """It is the second write of a rate limit; two comparisons and the addition read the attribute."""
    assert breaks(RateLimit(10)(fn), "fast_arrival_time", looks=3, write=1) == []


def test_a_call_between_read_and_write_is_found() -> None:
    def counted(gate: Any) -> None:
        gate.count = max(gate.count + 1, 0)

    assert breaks(counted, "count")


def test_a_loop_between_read_and_write_is_found() -> None:
    def counted(gate: Any) -> None:
        number = gate.count
        while number < 10:
            number += 1
        gate.count = number

    assert breaks(counted, "count")
