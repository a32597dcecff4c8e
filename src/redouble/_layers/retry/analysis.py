"""The analysis of a `Retry`: its description, its worst case, and which of its options do not fit together.

`Retry` imports it when `Pipeline.explain` or `Pipeline.check` is called.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import nlargest
from itertools import chain, islice
from math import ceil, inf
from typing import cast

from redouble._engine.backoff import Backoff
from redouble._engine.budgets.budget_protocol import traits_of
from redouble._engine.options import Options
from redouble._engine.worker import describe_worker
from redouble._failures.codes import IDEMPOTENT
from redouble._internal.validation import format_seconds
from redouble._layers.analysis import (
    BlockingWorstCase,
    NoBlockingCode,
    WorstCase,
    combined_traits,
    combined_worst_case,
    interrupts_blocking_code,
)
from redouble._layers.layer import Layers

MAX_WITHOUT_BUDGET = 4  # attempts: more of them need a budget
MAX_SUMMED_ATTEMPTS = 10_000  # a policy with more attempts is limited by time
LARGEST_DRAW = 1 - 2**-53  # the largest float that `random()` returns


class ConstantRandom:
    """A random source that always returns the same number."""

    def __init__(self, draw: float) -> None:
        self._draw = draw

    def random(self) -> float:
        return self._draw


def _draws(policy: Options, draw: float, most: int) -> list[list[float]]:
    """Return the first delays of each backoff of the policy, all drawn with the same number."""
    recipe = policy._recipe
    recipes = [recipe] if isinstance(recipe, Backoff) else recipe.values()
    return [list(islice(backoff.delays(ConstantRandom(draw)), most)) for backoff in recipes]


def _longest_delays(policy: Options) -> list[float] | None:
    """Return the longest delays that the backoff can draw for one call; None for too many attempts."""
    if policy.attempts is None or policy.attempts > MAX_SUMMED_ATTEMPTS:
        return None
    most = policy.attempts - 1
    # Each kind of failure has its own delays, and a call may fail with the kinds in any order.
    drawn = chain.from_iterable(_draws(policy, LARGEST_DRAW, most))
    return nlargest(most, drawn)


def _jittered(policy: Options) -> bool:
    """Return True if every backoff of the policy draws at random."""
    few = 5 if policy.attempts is None else min(policy.attempts - 1, 5)
    draws = zip(_draws(policy, 0.25, few), _draws(policy, 0.75, few), strict=True)
    return all(low != high for low, high in draws if low)


def _longest_wait(policy: Options, delay: float) -> float:
    """Return the longest wait that a delay can become through a hint of the server or through the budget."""
    hints = policy.hints
    if policy.budget is not None and traits_of(policy.budget).may_wait:
        return inf
    if hints.mode == "ignore":
        return delay
    return max(delay, min(hints._ceiling * (1 + hints.spread), delay + hints._over_limit))


def resent_methods(policy: Options) -> frozenset[str]:
    """Return the request methods that a policy sends again although they are not idempotent."""
    if policy.attempts == 1:
        return frozenset()
    methods = set[str]()
    for rule in (policy.until, *(rule for _, rule in policy._rules)):
        named: object = getattr(rule, "methods", None)
        if isinstance(named, frozenset):  # of a rule for HTTP
            methods |= cast("frozenset[str]", named)
    return frozenset(methods - IDEMPOTENT)


def worst_case(policy: Options, inner: WorstCase) -> WorstCase:
    """Return the worst case with retries, if the server requests the longest waits that the hints allow."""
    # On a worker the limits interrupt blocking code too.
    grace = wait = 0.0
    if policy.worker is not None:
        grace, wait, inner = policy.worker._grace, policy.worker._longest_wait, WorstCase(*inner)
    limit = policy._attempt_limit + grace
    counts = policy.worker is None or policy.worker.kind == "thread"  # the wait, as time of the attempt
    each = inner.after(wait).within(limit) if counts else inner.within(limit).after(wait)
    interrupted = not isinstance(each, BlockingWorstCase)
    # No attempt starts after a limit that interrupts nothing, but the last one may start just before.
    soft = inf if interrupted else policy._total
    if policy.give_up_after is not None:
        soft = min(soft, cast("float", policy.give_up_after))
    drawn = _longest_delays(policy)
    delays = None if drawn is None else [_longest_wait(policy, delay) for delay in drawn]
    calls, seconds, waiting = _all_attempts(policy, each, delays)
    # Gates inside, like delays, never wait past the limits that they can ask for.
    last = each.within(policy._work_limit)
    waiting = min(waiting, soft + last.waiting, policy._stated_limit)
    worst = WorstCase(calls, min(seconds, soft + (last if interrupted else each).seconds), waiting)
    if interrupted:
        return worst.within(policy._total + grace)
    return worst if policy.attempt_timeout is None else NoBlockingCode(*worst)


def _all_attempts(policy: Options, each: WorstCase, delays: list[float] | None) -> WorstCase:
    if delays is None:
        return WorstCase(inf if policy.attempts is None else policy.attempts * each.calls, inf, inf)
    attempts, waiting = len(delays) + 1, sum(delays)
    # The last attempt, if no limit interrupts it.
    late = each.seconds if isinstance(each, BlockingWorstCase) else 0.0
    worked = min(attempts * each.seconds, policy._work_limit + late)
    waited = min(attempts * each.waiting, policy._work_limit)
    return WorstCase(attempts * each.calls, worked + waiting, waited + waiting)


def describe(policy: Options) -> str:
    """Return a few words about a policy, for `explain`."""
    delays = sum(_longest_delays(policy) or [])
    attempts = "1 attempt" if policy.attempts == 1 else f"up to {policy.attempts} attempts"
    attempts = "any number of attempts" if policy.attempts is None else attempts
    waits = f", delays of {format_seconds(delays)} in all" if delays else ""
    each = "" if policy.attempt_timeout is None else f", {format_seconds(policy._attempt_limit)} each"
    total = "" if policy._limit == inf else f", within {format_seconds(policy._limit)}"
    budget = "" if policy.budget is None else ", limited by a budget"
    if (in_flight := policy._in_flight) is not None:
        budget += f" (in flight: {in_flight.share:g} of the calls, or {in_flight.minimum})"
    workers = "" if policy.worker is None else describe_worker(policy.worker)
    return attempts + each + waits + total + workers + budget


def lint(policy: Options, outer: Layers, inner: Layers, worst: WorstCase) -> Iterator[str]:
    """Yield the known problems of a policy, each with its reason."""
    limits = [name for name in ("timeout", "work_timeout") if getattr(policy, name) is not None]
    around = (*outer, *inner)
    blocking = not isinstance(combined_worst_case(around, BlockingWorstCase()), NoBlockingCode)
    if limits and policy.worker is None and blocking and any(map(interrupts_blocking_code, around)):
        option = f"{limits[0]}={getattr(policy, limits[0]):g}"
        yield (
            f"Retry({option}) without a worker, beside a layer that has one: in blocking code the limit "
            "interrupts no attempt, and only prevents those that would start too late; write worker=Worker()"
        )
    if policy.attempts == 1:
        return
    if policy.worker is not None:  # for blocking code
        outer = tuple(filter(interrupts_blocking_code, outer))
    limit = combined_traits(outer).time_limit
    total = min(limit, policy._total)
    if total <= policy._attempt_limit < inf:
        yield (
            f"attempt_timeout={policy._attempt_limit:g} is not below the {format_seconds(total)} of the "
            "whole call: an attempt that is cut leaves no time for another"
        )
    if not _jittered(policy):
        yield (
            "Retry without jitter: clients that failed together retry together; write "
            "backoff=Backoff.exponential(0.2).maximum(2).full_jitter(), for instance"
        )
    delays = _longest_delays(policy)
    whole = _all_attempts(policy, worst.within(policy._attempt_limit), delays)
    needed = whole.waiting if whole.seconds == inf else whole.seconds
    allowed = min(limit, policy._limit)
    if delays is not None and allowed < needed < inf:  # unknown if a gate inside may wait without limit
        yield (
            f"Retry(attempts={policy.attempts}) may need {format_seconds(needed)} and has "
            f"{format_seconds(allowed)}: at worst, there is no time for the last attempts"
        )
    if (
        policy.budget is None
        and policy.until is None
        and (policy.attempts is None or policy.attempts > MAX_WITHOUT_BUDGET)
    ):
        attempts = "no limit of attempts" if policy.attempts is None else f"{policy.attempts} attempts"
        yield (
            f"Retry with {attempts} and no budget: when the service is down, every attempt adds to its load; "
            "pass budget=RetryBudget(), shared by all policies that call it"
        )
    in_flight = policy._in_flight
    if in_flight is not None and not in_flight.minimum and in_flight.share < 1:
        few = f"while fewer than {ceil(1 / in_flight.share)} calls are in flight " if in_flight.share else ""
        yield (
            f"RetryBudget(max_in_flight={in_flight.share:g}, minimum=0): {few}it grants no retry; write "
            "minimum=1 or more"
        )
    if combined_traits(inner).retries:
        yield "Retry inside Retry: their attempts multiply; retry in one place"
