"""`SampledCounter`, and the wrapper of gates that count successful calls and rarely limit any.

While a gate does not limit, a successful call costs one check of a flag and one increment, without a lock;
the clock is read about sixteen times in a slice of time, however many calls there are.
"""

from __future__ import annotations

from math import inf

from redouble._internal.codegen import gil_variants

CHECKS_PER_SLICE = 16  # reads of the clock in a slice of time
MAX_STEP = 256  # the most calls from one read of the clock to the next


class SampledCounter:
    """A counter of successful calls; the clock is read when ``count`` reaches ``next_check``.

    limiting: True if every call has to be admitted, and its end recorded.
    """

    def __init__(self) -> None:
        self.limiting = False
        self.count, self.next_check = 0, 1
        self.step = 1
        self.slice_start = self.slice_end = -inf  # the current slice of time; none at first

    def begin_slice(self, before: int, since: float, edge: float) -> None:
        """Begin a slice of time; ``before``: the number of calls in the previous one.

        With up to sixteen calls in a slice, each call reads the clock; with more, a few calls at the end of a
        slice are counted in the next one.
        """
        self.step = max(1, min(MAX_STEP, before // CHECKS_PER_SLICE))
        self.next_check, self.slice_start, self.slice_end = self.count + self.step, since, edge

    def drain(self) -> tuple[int, int]:
        """Reset the count; return the calls up to the last read of the clock, and those since."""
        count, dated = self.count, self.next_check - self.step
        self.count -= count
        return min(count, dated), max(0, count - dated)


# Between reading and writing the count there is no call, so that no other thread can run in between.
# ``redouble_owner`` has the lock of the counter.
COUNTING_WRAPPER = gil_variants(
    "gate",
    """\
{async_}def counted({parameters}):
    if redouble_counter.limiting:
        {await_}redouble_enter()
    redouble_good = False
    try:
        redouble_result = {await_}redouble_fn({arguments})
        {check}
        redouble_good = True
    finally:
        if redouble_good and not redouble_counter.limiting:
            redouble_counter.count += 1
            if redouble_counter.count >= redouble_counter.next_check:
                redouble_moment = redouble_system() if redouble_ambient else redouble_now()
                if redouble_counter.slice_start <= redouble_moment < redouble_counter.slice_end:
                    redouble_counter.next_check = redouble_counter.count + redouble_counter.step
                else:
                    redouble_advance_window()
        else:
            redouble_ended(None, None if redouble_good else redouble_exception(), redouble_system())
    return redouble_result
""",
    "            redouble_counter.count += 1\n",
)

# For the option ``until``: a result that it accepts costs one more call (`JudgingGate`).
JUDGING_WRAPPER = {
    enabled: template.derive(
        "gate",
        ("redouble_good = False\n", "redouble_good, redouble_refused = False, None\n"),
        (
            "        redouble_good = True\n",
            """\
        redouble_answer = redouble_accepts(redouble_result)
        if redouble_answer is not True:
            redouble_refused = redouble_answered(redouble_answer, redouble_result)
        redouble_good = redouble_refused is None
""",
        ),
        (
            "None if redouble_good else redouble_exception()",
            "None if redouble_good else redouble_refused or redouble_exception()",
        ),
    )
    for enabled, template in COUNTING_WRAPPER.items()
}
