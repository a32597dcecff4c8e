"""The calls in flight of an adaptive concurrency limit, and the wrappers that count and time them.

If there is a GIL, a wrapper counts without a lock: between reading and writing the count there must be no
call, because another thread or a signal handler could run there.
"""

from __future__ import annotations

from textwrap import indent

from redouble._internal.codegen import Template, gil_variants
from redouble._layers.limits.slot_gate import RANKED_ACQUIRE, RANKED_LEASE, RANKED_RELEASE, ranked_templates
from redouble._runtime.slots import Lease


class InFlight:
    """The calls in flight and their limit. A forked child has a new one, without the parent's calls.

    skip: the number of calls that begin before the next timed one: ``timing_interval`` while fewer than half
        of the limit are in flight, else 0.
    """

    __slots__ = ("count", "limit", "skip", "timing_interval")  # faster than a dict, in each call

    def __init__(self, limit: int) -> None:
        self.limit, self.count, self.skip, self.timing_interval = limit, 0, 0, 1


class QueuedCall:
    """The ticket of a call that has a lease; ``started``: None until it is admitted."""

    __slots__ = ("concurrent", "lease", "started")

    def __init__(self, lease: Lease) -> None:
        self.lease, self.concurrent = lease, 0
        self.started: float | None = None


class InFlightCall:
    """The ticket of a call; ``counted``: True while it is among the calls in flight."""

    __slots__ = ("concurrent", "counted", "in_flight", "started")

    def __init__(self, in_flight: InFlight, started: float) -> None:
        self.in_flight, self.started = in_flight, started
        self.concurrent, self.counted = 0, False


# Between reading and writing `count` there is no call, so that no other thread and no signal handler can run.
COUNT_IN = """\
    redouble_concurrent = redouble_in_flight.count
    if redouble_concurrent >= redouble_in_flight.limit:
        redouble_reject()
    redouble_in_flight.count = redouble_concurrent + 1
"""
COUNT_OUT = """\
        redouble_in_flight.count -= 1
"""
TIMED_CALL = """\
{margin}redouble_start = None
{margin}try:
{margin}    redouble_in_flight.skip -= 1
{margin}    if redouble_in_flight.skip <= 0:
{margin}        redouble_start = redouble_system() if redouble_ambient else redouble_now()
{margin}    redouble_result = {{await_}}redouble_fn({{arguments}})
{margin}    {{check}}
{margin}except redouble_BaseException:
{margin}    redouble_record_failure(redouble_exception(), redouble_concurrent + 1, redouble_system())
{margin}    raise
"""
RECORD_SUCCESS = """\
    if redouble_start is not None:
        redouble_moment = redouble_system() if redouble_ambient else redouble_now()
        redouble_record_success(redouble_start, redouble_concurrent + 1, redouble_moment)
    return redouble_result
"""
LIMIT_WRAPPER = gil_variants(
    "adaptive concurrency",
    f"""\
{{async_}}def limited({{parameters}}):
    redouble_in_flight = redouble_owner._in_flight
{COUNT_IN}\
{TIMED_CALL.format(margin="    ")}\
    finally:
{COUNT_OUT}\
{RECORD_SUCCESS}""",
    COUNT_IN,
    COUNT_OUT,
)
RANKED_WRAPPER = ranked_templates(
    "adaptive concurrency",
    f"""\
{{async_}}def limited({{parameters}}):
    redouble_in_flight = redouble_owner._in_flight
{RANKED_LEASE}\
    try:
{RANKED_ACQUIRE}\
        redouble_concurrent = redouble_len(redouble_leases) - 1
{TIMED_CALL.format(margin="        ")}\
    finally:
{RANKED_RELEASE}\
{RECORD_SUCCESS}""",
)


def judging(template: Template) -> Template:
    """Return a template for ``until``: a result that it refuses is recorded as a failure."""
    check = next(line for line in template.source.splitlines(keepends=True) if line.strip() == "{check}")
    margin = check.removesuffix("{check}\n")
    lines = """\
{check}
redouble_answer = redouble_accepts(redouble_result)
if redouble_answer is not True:
    redouble_refused = redouble_answered(redouble_answer, redouble_result)
    if redouble_refused is not None:
        redouble_start = None
        redouble_record_failure(redouble_refused, redouble_concurrent + 1, redouble_system())
"""
    return template.derive(template.title, (check, indent(lines, margin)))


JUDGING_LIMIT = {key: judging(template) for key, template in LIMIT_WRAPPER.items()}
JUDGING_RANKED = {key: judging(template) for key, template in RANKED_WRAPPER.items()}
