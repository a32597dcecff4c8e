"""What a call comes to at worst: how often your function is called, how long it takes, how much is waiting.

And what that says about a policy: whether its limits, its delays and its attempts go together.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from math import inf
from typing import NamedTuple, cast

from redouble._backoff import Backoff
from redouble._check import in_seconds
from redouble._options import Options

__all__ = ["Worst", "objections_to_retry", "told_of_retry", "worst_of_retry"]

FEW = 4  # attempts: more of them call for a budget
MOST_DRAWN = 10_000  # attempts whose delays are added up; a policy of more is limited by time
ALMOST = 1 - 2**-53  # the most that chance can draw


class Worst(NamedTuple):
    """The most it can come to. ``seconds`` is infinite where nothing limits the function itself."""

    calls: float = 1
    seconds: float = inf
    waiting: float = 0.0

    def within(self, limit: float) -> Worst:
        """Return the same under a limit."""
        return Worst(self.calls, min(self.seconds, limit), min(self.waiting, limit))

    def after(self, wait: float) -> Worst:
        """Return the same after a wait."""
        return Worst(self.calls, self.seconds + wait, self.waiting + wait)


class _Always:
    """A chance that never changes."""

    def __init__(self, draw: float) -> None:
        self._draw = draw

    def random(self) -> float:
        return self._draw


def _recipes(policy: Options) -> list[Backoff]:
    recipe = policy._recipe
    return [recipe] if isinstance(recipe, Backoff) else list(recipe.values())


def _longest_delays(policy: Options) -> list[float] | None:
    """Draw the delays of a call at their longest, as the backoff gives them; None if there is no end."""
    if policy.attempts is None or policy.attempts > MOST_DRAWN:
        return None
    most = policy.attempts - 1
    # Each kind of failure has delays of its own, and a call may meet them in any order.
    drawn = [delay for recipe in _recipes(policy) for delay in islice(recipe.delays(_Always(ALMOST)), most)]
    return sorted(drawn)[-most:] if most else []


def _jittered(policy: Options) -> bool:
    """Say whether chance has a part in every backoff of the policy."""
    few = 5 if policy.attempts is None else min(policy.attempts - 1, 5)

    def drawn(recipe: Backoff, draw: float) -> list[float]:
        return list(islice(recipe.delays(_Always(draw)), few))

    return all(
        drawn(recipe, 0.25) != drawn(recipe, 0.75) for recipe in _recipes(policy) if drawn(recipe, 0.5)
    )


def _asked(policy: Options, delay: float) -> float:
    """Say how long a delay becomes if the other side, or the budget, asks for the longest it may."""
    hints = policy.hints
    if getattr(policy.budget, "_may_wait", policy.budget is not None):
        return inf
    if hints.mode == "ignore":
        return delay
    return max(delay, min(hints._ceiling * (1 + hints.spread), delay + hints._most_over))


def worst_of_retry(policy: Options, inner: Worst) -> Worst:
    """Say what it comes to with retries, if the other side asks for the longest waits it may."""
    grace = 0.0 if policy.worker is None else cast("float", policy.worker.grace)
    each = inner.within(policy._attempt_limit + grace)
    # No attempt begins after `give_up_after`, but the last one may begin just before.
    soft = inf if policy.give_up_after is None else cast("float", policy.give_up_after)
    drawn = _longest_delays(policy)
    delays = None if drawn is None else [_asked(policy, delay) for delay in drawn]
    calls, seconds, waiting = _all_attempts(policy, each, delays)
    worst = Worst(calls, min(seconds, soft + each.seconds), min(waiting, soft + each.waiting))
    return worst.within(policy._total + grace)


def _all_attempts(policy: Options, each: Worst, delays: list[float] | None) -> Worst:
    if delays is None:
        return Worst(inf if policy.attempts is None else policy.attempts * each.calls, inf, inf)
    attempts, waiting = len(delays) + 1, sum(delays)
    worked = min(attempts * each.seconds, policy._work_limit)
    return Worst(attempts * each.calls, worked + waiting, attempts * each.waiting + waiting)


def told_of_retry(policy: Options) -> str:
    """Say in a few words what a policy does."""
    delays = sum(_longest_delays(policy) or [])
    attempts = "1 attempt" if policy.attempts == 1 else f"up to {policy.attempts} attempts"
    attempts = "any number of attempts" if policy.attempts is None else attempts
    waits = f", delays of {in_seconds(delays)} in all" if delays else ""
    each = "" if policy.attempt_timeout is None else f", {in_seconds(policy._attempt_limit)} each"
    total = "" if policy._limit == inf else f", within {in_seconds(policy._limit)}"
    budget = "" if policy.budget is None else ", by a budget"
    return attempts + each + waits + total + budget


def objections_to_retry(policy: Options, limit: float, worst: Worst) -> Iterator[str]:
    """Say what is known to hurt, under the shortest limit around it and given what is inside comes to."""
    if policy.attempts == 1:
        return
    total = min(limit, policy._total)
    if total <= policy._attempt_limit < inf:
        yield (
            f"attempt_timeout={policy._attempt_limit:g} is not below the {in_seconds(total)} of the whole "
            "call: an attempt that is cut leaves no time for another"
        )
    if not _jittered(policy):
        yield (
            "Retry without jitter: clients that failed together come back together; write "
            "backoff=Backoff.exponential(0.2).maximum(2).full_jitter(), for instance"
        )
    delays = _longest_delays(policy)
    whole = _all_attempts(policy, worst.within(policy._attempt_limit), delays)
    needed = whole.waiting if whole.seconds == inf else whole.seconds
    allowed = min(limit, policy._limit)
    if delays is not None and allowed < needed < inf:  # a gate that may wait for ever says nothing here
        yield (
            f"Retry(attempts={policy.attempts}) may need {in_seconds(needed)} and has {in_seconds(allowed)}: "
            "the last attempts are not made when they would be needed"
        )
    if policy.budget is None and policy.until is None and (policy.attempts is None or policy.attempts > FEW):
        attempts = "no limit of attempts" if policy.attempts is None else f"{policy.attempts} attempts"
        yield (
            f"Retry with {attempts} and no budget: when the service is down, all of them add to its load; "
            "pass budget=RetryBudget(), shared by all policies that call it"
        )
