"""What gRPC does by itself, and what of a policy comes nearest: attempts, delays, codes and throttling.

Each function returns what a service config can say, and adds to ``lost`` what it cannot. Pipelines, limits of
time and the document itself are not known here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import islice
from math import isclose
from typing import NamedTuple

import grpc

from redouble._engine.backoff import Backoff, Step, _make
from redouble._engine.token_bucket import RetryThrottling
from redouble._failures.verdict import Ended, Verdict, judge
from redouble._internal.validation import in_seconds
from redouble._layers.retry.analysis import ALMOST
from redouble._layers.retry.retry import Retry

__all__ = ["CODES", "retry_policy", "span", "throttling"]


CODES = tuple(code.name for code in grpc.StatusCode if code is not grpc.StatusCode.OK)
MOST = 5  # attempts: every client treats a higher number as this one
SHARE = 0.2  # of each delay: it is made shorter or longer by at most so much, after all limits

# The C core, which Python uses, counts in whole milliseconds, and a call whose delay becomes none hangs until
# its deadline: 0.8 ms, of 1 ms, is such a delay. A deadline of no milliseconds counts for nothing.
SHORTEST_DELAY = 0.002
SHORTEST = 0.001
LONGEST = 315_576_000_000.0  # ten thousand years: more is refused
FLATTEST = 0.01  # a factor has to be above 0, and is written with six decimals
STEEPEST = LONGEST / SHORTEST_DELAY  # a factor beyond which nothing grows

JITTERS = ("full_jitter", "equal_jitter", "jitter")


class FixedRandom(NamedTuple):
    """A chance that never changes."""

    draw: float

    def random(self) -> float:
        """Return it."""
        return self.draw


class Growth(NamedTuple):
    """gRPC's own backoff."""

    initial: float
    longest: float
    factor: float

    def delays(self, count: int) -> list[float]:
        """Return the delays, without what chance does to them."""
        return [min(self.initial * self.factor**step, self.longest) for step in range(count)]


def span(seconds: float) -> str:
    """Write a duration as a service config does."""
    return f"{min(max(seconds, SHORTEST), LONGEST):.9f}".rstrip("0").rstrip(".") + "s"


def retry_policy(policy: Retry, codes: Sequence[str] | None, lost: list[str]) -> dict[str, object] | None:
    """Write attempts, delays and codes; None if nothing is ever retried."""
    recipe, words = _one_for_all(policy)
    most = MOST if policy.attempts is None else min(policy.attempts - 1, MOST)
    given = len(_drawn(recipe, 0.5, most))
    if not given:
        return None
    codes = _judged(policy, lost) if codes is None else codes
    if not codes:
        return None
    if given == MOST:
        lost.append(f"attempts={policy.attempts}: gRPC makes at most {MOST}")
    lost.extend(words)
    count = min(given, MOST - 1)
    growth = _fitted(recipe, count)
    _compared(recipe, growth, count, lost)
    factor = round(growth.factor, 6)
    return {
        "maxAttempts": count + 1,
        "initialBackoff": span(growth.initial),
        "maxBackoff": span(growth.longest),
        "backoffMultiplier": int(factor) if factor.is_integer() else factor,
        "retryableStatusCodes": list(codes),
    }


# ------------------------------------------------------------------------------ delays


def _one_for_all(policy: Retry) -> tuple[Backoff, list[str]]:
    """Choose the backoff that is written, and say what that leaves out."""
    recipe, words = policy._recipe, list[str]()
    if not isinstance(recipe, Backoff):
        kind = None if None in recipe else next(iter(recipe))
        chosen = recipe[kind]
        if any(other != chosen for other in recipe.values()):
            whose = "all others" if kind is None else kind
            words.append(f"backoff: each kind of failure has its own; gRPC has one, here that of {whose}")
        recipe = chosen
    source = recipe._source
    if source is not None and not isinstance(source, tuple):
        recipe = _make("of", source=tuple(islice(source, MOST)), stages=recipe._stages)
        words.append("backoff: it is an iterable of your own; here are the delays that it gave once")
    return recipe, words


def _fitted(recipe: Backoff, count: int) -> Growth:
    """Find what is the same, or else what comes nearest: the same first delay, and none longer than ours."""
    name, args = recipe._series
    stages: tuple[Step, ...] = tuple(step for step in recipe._stages if step[0] not in JITTERS)
    plain = _drawn(_make(name, *args, source=recipe._source, stages=stages), 0.5, max(count, 2))
    delays = [min(max(delay, SHORTEST_DELAY), LONGEST) for delay in plain]
    first, second, last = delays[0], delays[min(1, len(delays) - 1)], delays[count - 1]
    factor = min(args[1], STEEPEST) if name == "exponential" else max(second / first, FLATTEST)
    tallest = max(delays[:count])
    said = min([bound for stage, (bound, _) in stages if stage == "maximum"], default=tallest)
    nearest = Growth(first, tallest, max(1.0, (last / first) ** (1 / max(1, count - 1))))
    # A maximum that was said is repeated, also if it is not reached.
    for growth in (Growth(first, min(max(said, tallest), LONGEST), factor), Growth(first, tallest, factor)):
        if all(map(_close, growth.delays(count), delays)):
            return growth
    return nearest


def _compared(recipe: Backoff, growth: Growth, count: int, lost: list[str]) -> None:
    ours = list(zip(_drawn(recipe, 0.0, count), _drawn(recipe, ALMOST, count), strict=False))
    theirs = [(delay * (1 - SHARE), delay * (1 + SHARE)) for delay in growth.delays(count)]
    if not all(_close(*ends) for pair in zip(ours, theirs, strict=False) for ends in zip(*pair, strict=True)):
        lost.append(f"backoff: the delays are {_ranges(ours)} here, and {_ranges(theirs)} in gRPC")


def _drawn(recipe: Backoff, draw: float, count: int) -> list[float]:
    return list(islice(recipe.delays(FixedRandom(draw)), count))


def _close(one: float, other: float) -> bool:
    return isclose(one, other, rel_tol=1e-6, abs_tol=1e-6)


def _ranges(pairs: Iterable[tuple[float, float]]) -> str:
    told = [(in_seconds(low), in_seconds(high)) for low, high in pairs]
    return ", ".join(high if low == high else f"{low[:-2]} to {high}" for low, high in told)


# -------------------------------------------------------------------------------- codes


def _judged(policy: Retry, lost: list[str]) -> list[str]:
    """Ask the rules of a policy about each code; say where they know more than a code can."""
    retried: list[str] = []
    said: defaultdict[str, list[str]] = defaultdict(list)
    for name in CODES:
        try:
            first, *later = _verdicts(policy, name)
        except Exception as failure:  # a rule may look for what this error does not have
            said[f"the rule raised {type(failure).__name__}, so gRPC does not retry it"].append(name)
            continue
        if first.action == "accept":
            said["the rule takes it for a success; gRPC never does"].append(name)
        if first.action != "retry":
            continue
        retried.append(name)
        if first.after is not None:
            said["the rule asks for a delay of its own; gRPC takes none but a server's"].append(name)
        if any(each.action != "retry" for each in later):
            said["the rule answers by the attempt; gRPC retries it each time"].append(name)
    lost.extend(f"on, about {', '.join(names)}: {sentence}" for sentence, names in said.items())
    if not retried:
        lost.append("on: it retries none of gRPC's status codes; name those that are worth it: codes=[...]")
    return retried


def _verdicts(policy: Retry, name: str) -> list[Verdict]:
    """Ask about an error with this code; an object with ``judge`` once for each attempt."""
    nothing = grpc.aio.Metadata()
    error = grpc.aio.AioRpcError(grpc.StatusCode[name], nothing, nothing, "")
    judges = any(step == "judge" for step, _ in policy._rules)
    answers = [
        judge(policy._rules, error, lambda shown: Ended(attempt, shown, labels=policy.labels))  # noqa: B023
        for attempt in range(1, MOST if judges else 2)
    ]
    return [answer or Verdict.stop() for answer in answers]


# --------------------------------------------------------------------------- throttling


def throttling(policy: Retry, lost: list[str]) -> dict[str, object] | None:
    """Write the budget, if it is gRPC's."""
    budget: object = policy.budget
    if budget is None:
        return None
    if not isinstance(budget, RetryThrottling):
        lost.append(f"budget={budget!r}: gRPC has one kind of budget, TokenBucket.grpc(tokens=10, ratio=0.1)")
        return None
    tokens, ratio = round(budget.capacity), round(budget.ratio, 3)
    if (tokens, ratio) != (budget.capacity, budget.ratio):
        lost.append(f"budget={budget!r}: gRPC takes whole tokens and a ratio in thousandths")
    # With its decimal point: the C core reads a ratio of 1 as a thousandth of that.
    return {"maxTokens": tokens, "tokenRatio": float(ratio)}
