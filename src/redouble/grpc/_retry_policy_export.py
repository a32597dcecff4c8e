"""gRPC's own retries: the service-config values that come nearest to a policy's attempts, backoff and budget.

Each function returns the values that a service config can express, and adds a sentence to ``lost`` for each
option that it cannot.
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
from redouble._internal.validation import format_seconds
from redouble._layers.retry.analysis import LARGEST_DRAW
from redouble._layers.retry.retry import Retry

__all__ = ["CODES", "format_duration", "retry_policy", "throttling"]


CODES = tuple(code.name for code in grpc.StatusCode if code is not grpc.StatusCode.OK)
MAX_ATTEMPTS = 5  # attempts: every client reduces a higher number to this one
JITTER = 0.2  # of each delay: gRPC's jitter, in both directions, applied after all limits

# The C core, which Python uses, counts in whole milliseconds, and a call whose delay is rounded to zero hangs
# until its deadline: 0.8 ms, the jittered delay of 1 ms, is one. A deadline of zero milliseconds is ignored.
MIN_DELAY = 0.002
MIN_DURATION = 0.001
MAX_DURATION = 315_576_000_000.0  # ten thousand years: gRPC rejects more
MIN_FACTOR = 0.01  # gRPC requires a factor above 0; it is written with six decimals
MAX_FACTOR = MAX_DURATION / MIN_DELAY  # a greater factor makes no difference

JITTERS = ("full_jitter", "equal_jitter", "jitter")


class FixedRandom(NamedTuple):
    """A random source that always returns the same number."""

    draw: float

    def random(self) -> float:
        """Return ``draw``."""
        return self.draw


class Growth(NamedTuple):
    """The parameters of gRPC's exponential backoff."""

    initial: float
    longest: float
    factor: float

    def delays(self, count: int) -> list[float]:
        """Return the delays before jitter."""
        return [min(self.initial * self.factor**step, self.longest) for step in range(count)]


def format_duration(seconds: float) -> str:
    """Format a duration for a service config."""
    return f"{min(max(seconds, MIN_DURATION), MAX_DURATION):.9f}".rstrip("0").rstrip(".") + "s"


def retry_policy(policy: Retry, codes: Sequence[str] | None, lost: list[str]) -> dict[str, object] | None:
    """Return the ``retryPolicy`` of a service config; None if the policy never retries."""
    backoff, remarks = _single_backoff(policy)
    limit = MAX_ATTEMPTS if policy.attempts is None else min(policy.attempts - 1, MAX_ATTEMPTS)
    given = len(_delays(backoff, 0.5, limit))
    if not given:
        return None
    codes = _retried_codes(policy, lost) if codes is None else codes
    if not codes:
        return None
    if given == MAX_ATTEMPTS:
        lost.append(f"attempts={policy.attempts}: gRPC makes at most {MAX_ATTEMPTS}")
    lost.extend(remarks)
    count = min(given, MAX_ATTEMPTS - 1)
    growth = _fit_growth(backoff, count)
    _compare_delays(backoff, growth, count, lost)
    factor = round(growth.factor, 6)
    return {
        "maxAttempts": count + 1,
        "initialBackoff": format_duration(growth.initial),
        "maxBackoff": format_duration(growth.longest),
        "backoffMultiplier": int(factor) if factor.is_integer() else factor,
        "retryableStatusCodes": list(codes),
    }


# ------------------------------------------------------------------------------ delays


def _single_backoff(policy: Retry) -> tuple[Backoff, list[str]]:
    """Return the one backoff to export, and sentences for what it leaves out."""
    backoff, remarks = policy._recipe, list[str]()
    if not isinstance(backoff, Backoff):
        kind = None if None in backoff else next(iter(backoff))
        chosen = backoff[kind]
        if any(other != chosen for other in backoff.values()):
            exported = "all others" if kind is None else kind
            remarks.append(
                f"backoff: each kind of failure has its own; gRPC has one for all, that of {exported}"
            )
        backoff = chosen
    source = backoff._source
    if source is not None and not isinstance(source, tuple):
        backoff = _make("of", source=tuple(islice(source, MAX_ATTEMPTS)), stages=backoff._stages)
        remarks.append("backoff: it is an iterable of your own; gRPC has the delays of one iteration")
    return backoff, remarks


def _fit_growth(backoff: Backoff, count: int) -> Growth:
    """Return the equal growth, or the nearest: the same first delay, and no delay longer than ours."""
    name, args = backoff._series
    stages: tuple[Step, ...] = tuple(step for step in backoff._stages if step[0] not in JITTERS)
    plain = _delays(_make(name, *args, source=backoff._source, stages=stages), 0.5, max(count, 2))
    delays = [min(max(delay, MIN_DELAY), MAX_DURATION) for delay in plain]
    first, second, last = delays[0], delays[min(1, len(delays) - 1)], delays[count - 1]
    factor = min(args[1], MAX_FACTOR) if name == "exponential" else max(second / first, MIN_FACTOR)
    longest = max(delays[:count])
    maximum = min([bound for stage, (bound, _) in stages if stage == "maximum"], default=longest)
    nearest = Growth(first, longest, max(1.0, (last / first) ** (1 / max(1, count - 1))))
    # A maximum that the policy sets is exported even if no delay reaches it.
    for growth in (
        Growth(first, min(max(maximum, longest), MAX_DURATION), factor),
        Growth(first, longest, factor),
    ):
        if all(map(_close, growth.delays(count), delays)):
            return growth
    return nearest


def _compare_delays(backoff: Backoff, growth: Growth, count: int, lost: list[str]) -> None:
    ours = list(zip(_delays(backoff, 0.0, count), _delays(backoff, LARGEST_DRAW, count), strict=False))
    theirs = [(delay * (1 - JITTER), delay * (1 + JITTER)) for delay in growth.delays(count)]
    if not all(_close(*ends) for pair in zip(ours, theirs, strict=False) for ends in zip(*pair, strict=True)):
        lost.append(f"backoff: the delays are {_ranges(ours)} here, and {_ranges(theirs)} in gRPC")


def _delays(backoff: Backoff, draw: float, count: int) -> list[float]:
    return list(islice(backoff.delays(FixedRandom(draw)), count))


def _close(one: float, other: float) -> bool:
    return isclose(one, other, rel_tol=1e-6, abs_tol=1e-6)


def _ranges(pairs: Iterable[tuple[float, float]]) -> str:
    texts = [(format_seconds(low), format_seconds(high)) for low, high in pairs]
    return ", ".join(high if low == high else f"{low[:-2]} to {high}" for low, high in texts)


# -------------------------------------------------------------------------------- codes


def _retried_codes(policy: Retry, lost: list[str]) -> list[str]:
    """Return the codes that the rules of a policy retry; add to ``lost`` where a rule depends on more."""
    retried: list[str] = []
    remarks: defaultdict[str, list[str]] = defaultdict(list)
    for name in CODES:
        try:
            first, *later = _verdicts(policy, name)
        except Exception as failure:  # a rule may read an attribute that this error lacks
            remarks[f"the rule raised {type(failure).__name__}, so gRPC does not retry it"].append(name)
            continue
        if first.action == "accept":
            remarks["the rule accepts it as a success; gRPC fails the call"].append(name)
        if first.action != "retry":
            continue
        retried.append(name)
        if first.after is not None:
            remarks["the rule returns a delay; gRPC obeys only delays of the server"].append(name)
        if any(each.action != "retry" for each in later):
            remarks["the rule's answer depends on the attempt; gRPC retries it each time"].append(name)
    lost.extend(f"on, about {', '.join(names)}: {sentence}" for sentence, names in remarks.items())
    if not retried:
        lost.append("on: it retries none of gRPC's status codes; write those to retry: codes=[...]")
    return retried


def _verdicts(policy: Retry, name: str) -> list[Verdict]:
    """Return the verdicts on an error with this code: one per attempt if a rule has ``judge``, else one."""
    nothing = grpc.aio.Metadata()
    error = grpc.aio.AioRpcError(grpc.StatusCode[name], nothing, nothing, "")
    judges = any(step == "judge" for step, _ in policy._rules)
    answers = [
        judge(policy._rules, error, lambda failure: Ended(attempt, failure, labels=policy.labels))  # noqa: B023
        for attempt in range(1, MAX_ATTEMPTS if judges else 2)
    ]
    return [answer or Verdict.stop() for answer in answers]


# --------------------------------------------------------------------------- throttling


def throttling(policy: Retry, lost: list[str]) -> dict[str, object] | None:
    """Return the ``retryThrottling`` of a service config, if the budget is gRPC's."""
    budget: object = policy.budget
    if budget is None:
        return None
    if not isinstance(budget, RetryThrottling):
        lost.append(f"budget={budget!r}: gRPC has one kind of budget, TokenBucket.grpc(tokens=10, ratio=0.1)")
        return None
    tokens, ratio = round(budget.capacity), round(budget.ratio, 3)
    if (tokens, ratio) != (budget.capacity, budget.ratio):
        lost.append(f"budget={budget!r}: gRPC takes whole tokens and a ratio in thousandths")
    # A float, for its decimal point: the C core parses a ratio of 1 as 0.001.
    return {"maxTokens": tokens, "tokenRatio": float(ratio)}
