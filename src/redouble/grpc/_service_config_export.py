"""The export of a policy as a gRPC service config, the document that configures gRPC's own retries.

The values are those that come nearest to the attempts, delays, codes and budget of the policy. Each part of
the policy that the document cannot express gets a sentence in ``lost``.
"""

from __future__ import annotations

import random as chance
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from json import dumps, loads
from math import inf, isclose
from typing import Any, NamedTuple, cast

import grpc

from redouble._clients.plan import is_named, layers_of
from redouble._engine.backoff import Backoff, _make
from redouble._engine.options import HOOKS
from redouble._engine.token_bucket import RetryThrottling
from redouble._failures.verdict import Ended, Verdict, judge
from redouble._internal.callables import display_name
from redouble._internal.public import public
from redouble._internal.validation import format_seconds, nearest
from redouble._layers.layer import Layer
from redouble._layers.retry.analysis import LARGEST_DRAW, ConstantRandom
from redouble._layers.retry.retry import Retry
from redouble._layers.timeout import Timeout
from redouble._runtime.clock import SYSTEM
from redouble.grpc._channel_policy import layer_of

__all__ = ["CODES", "ServiceConfig", "service_config"]

NAME = re.compile(r"[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)?")
NAME_FORMATS = "'package.Service' or 'package.Service/Method'"
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


@public("redouble.grpc")
@dataclass(frozen=True)
class ServiceConfig:
    """The result of `service_config`: a document for gRPC, and the parts of the policy that it lacks.

    json: the document.
    lost: a sentence for each part of the policy that gRPC will not apply.
    """

    json: str
    lost: tuple[str, ...] = ()

    @property
    def mapping(self) -> dict[str, Any]:
        """The document as a dictionary: a new one each time, free to change and to merge."""
        return cast("dict[str, Any]", loads(self.json))

    @property
    def options(self) -> list[tuple[str, object]]:
        """Options for a channel: ``grpc.insecure_channel(target, options=config.options)``.

        A ``timeout`` is left out: grpcio would end the calls up to two seconds before it.
        """
        # https://github.com/grpc/grpc/issues/34547, since 2023: grpcio reads the start of a call from one
        # clock and the current time from another, so a timeout below one second ends before the call begins.
        config = self.mapping
        for method in config.get("methodConfig", ()):
            method.pop("timeout", None)
        return [("grpc.service_config", dumps(config)), ("grpc.enable_retries", 1)]


@public("redouble.grpc")
def service_config(
    policy: Layer | None = None,
    *,
    methods: Sequence[str] | None = None,
    codes: Iterable[str | grpc.StatusCode] | None = None,
) -> ServiceConfig:
    """Export a policy as a service config, for channels that use gRPC's own retries, not interceptors.

    policy: a `Retry`, or a pipeline with one; `presets.grpc()` unless given.
    methods: the methods it applies to: ``"package.Service"``, ``"package.Service/Method"``; by default all.
    codes: the status codes to retry, or their names. Unless given, those that the rules of the policy retry,
        each judged by an error with this code and without details.

    The document holds attempts, growing delays, the time limit of the whole call (``timeout``, or a `Timeout`
    around the `Retry`) and `TokenBucket.grpc`. ``lost`` names the rest.
    """
    layers = tuple(_flat(layer_of(policy)))
    index = next((index for index, layer in enumerate(layers) if isinstance(layer, Retry)), None)
    if index is None:
        raise TypeError(f"policy={policy!r} has no Retry to export: write Retry(...), or a pipeline with one")
    outer, retry, inner = layers[:index], cast("Retry", layers[index]), layers[index + 1 :]
    lost: list[str] = []
    retried = _retry_policy(retry, None if codes is None else _codes(codes), lost)
    method: dict[str, object] = {"name": [{}] if methods is None else _names(methods)}
    config: dict[str, object] = {"methodConfig": [method]}
    limits = [retry._total]
    if retried is None:  # then the limits of an attempt limit the call
        outer, inner = (*outer, *inner), ()
        limits += [retry._attempt_limit, retry._work_limit]
    else:
        method["retryPolicy"] = retried
        if (tokens := _throttling(retry, lost)) is not None:
            config["retryThrottling"] = tokens
        lost += _lost_retry_options(retry)
    limit = min([*limits, *(layer.traits().time_limit for layer in outer if isinstance(layer, Timeout))])
    if limit < inf:
        method["timeout"] = _duration(limit)
        option = f"timeout={limit:g}"
        lost.append(
            f"{option}: grpcio ends calls up to 2 s early, so `options` leaves it out; pass {option} "
            "with each call"
        )
    lost += _lost_call_options(retry)
    lost += [_lost_layer(layer) for layer in outer if not isinstance(layer, Timeout)]
    lost += [_lost_layer(layer) for layer in inner]
    return ServiceConfig(dumps(config), tuple(lost))


# ------------------------------------------------------------------------- the retry policy


def _duration(seconds: float) -> str:
    """Format a duration for a service config."""
    return f"{min(max(seconds, MIN_DURATION), MAX_DURATION):.9f}".rstrip("0").rstrip(".") + "s"


def _retry_policy(policy: Retry, codes: Sequence[str] | None, lost: list[str]) -> dict[str, object] | None:
    """Return the ``retryPolicy`` of a service config; None if the policy never retries."""
    backoff, remarks = _single_backoff(policy)
    limit = MAX_ATTEMPTS if policy.attempts is None else min(policy.attempts - 1, MAX_ATTEMPTS)
    given = len(_delays(backoff, 0.5, limit))
    codes = _retried_codes(policy, lost) if given and codes is None else codes
    if not (given and codes):
        return None
    if given == MAX_ATTEMPTS:
        lost.append(f"attempts={policy.attempts}: gRPC makes at most {MAX_ATTEMPTS}")
    lost.extend(remarks)
    count = min(given, MAX_ATTEMPTS - 1)
    growth = _fit_growth(backoff, count)
    ours = list(zip(_delays(backoff, 0.0, count), _delays(backoff, LARGEST_DRAW, count), strict=True))
    theirs = [(delay * (1 - JITTER), delay * (1 + JITTER)) for delay in growth.delays(count)]
    if not all(map(_close, chain(*ours), chain(*theirs))):
        lost.append(f"backoff: the delays are {_ranges(ours)} here, and {_ranges(theirs)} in gRPC")
    factor = round(growth.factor, 6)
    return {
        "maxAttempts": count + 1,
        "initialBackoff": _duration(growth.initial),
        "maxBackoff": _duration(growth.longest),
        "backoffMultiplier": int(factor) if factor.is_integer() else factor,
        "retryableStatusCodes": list(codes),
    }


# ------------------------------------------------------------------------------ delays


class Growth(NamedTuple):
    """The parameters of gRPC's exponential backoff."""

    initial: float
    longest: float
    factor: float

    def delays(self, count: int) -> list[float]:
        """Return the delays before jitter."""
        return [min(self.initial * self.factor**step, self.longest) for step in range(count)]


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
    stages = tuple(step for step in backoff._stages if "jitter" not in step[0])
    plain = _delays(_make(name, *args, source=backoff._source, stages=stages), 0.5, max(count, 2))
    delays = [min(max(delay, MIN_DELAY), MAX_DURATION) for delay in plain]
    first, longest = delays[0], max(delays[:count])
    factor = min(args[1], MAX_FACTOR) if name == "exponential" else delays[min(1, len(delays) - 1)] / first
    # A maximum that the policy sets is exported even if no delay reaches it.
    maximum = min([bound for stage, (bound, _) in stages if stage == "maximum"], default=longest)
    for bound in (min(max(maximum, longest), MAX_DURATION), longest):
        growth = Growth(first, bound, max(factor, MIN_FACTOR))
        if all(map(_close, growth.delays(count), delays)):
            return growth
    return Growth(first, longest, max(1.0, (delays[count - 1] / first) ** (1 / max(1, count - 1))))


def _delays(backoff: Backoff, draw: float, count: int) -> list[float]:
    return list(islice(backoff.delays(ConstantRandom(draw)), count))


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


def _throttling(policy: Retry, lost: list[str]) -> dict[str, object] | None:
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


# ------------------------------------------------------------------------- lost options

LOST_LIMITS = {
    "give_up_after": "gRPC starts attempts until the call times out",
    "attempt_timeout": "gRPC limits the whole call, not each attempt",
    "work_timeout": "gRPC's limit includes the delays; write timeout=",
}
LOST_HINTS = {
    "longest": "gRPC waits as long as the server asks",
    "over": "gRPC obeys every requested delay",
    "spread": "gRPC adds nothing to a requested delay",
}


def _lost_retry_options(policy: Retry) -> Iterator[str]:
    """Yield a sentence for each lost option about retries."""
    hints = policy.hints
    for option, sentence in LOST_LIMITS.items():
        if (value := getattr(policy, option)) is not None:
            yield f"{option}={value:g}: {sentence}"
    if hints.mode != "instead":
        yield f"hints: mode={hints.mode!r}; gRPC waits as long as the server asks, instead of its own delay"
    for option, sentence in LOST_HINTS.items() if hints.mode != "ignore" else ():
        if (value := getattr(hints, option)) is not None and (value or option != "spread"):
            yield f"hints: {option}={value:g}; {sentence}"
    if policy.random is not chance:
        yield "random: gRPC has its own random source"


def _lost_call_options(policy: Retry) -> Iterator[str]:
    """Yield a sentence for each lost option about calls, retried or not."""
    if policy.until is not None:
        yield f"until={display_name(policy.until)}: gRPC does not inspect results"
    for hook in HOOKS:
        if getattr(policy, hook) is not None:
            yield f"{hook}: gRPC calls no observers"
    if policy.wrap:
        yield "wrap=True: gRPC raises the RpcError itself"
    if policy.name is not None or policy.labels:
        yield "name, labels: gRPC's retries appear in no event, metric or report of redouble"
    if policy.clock is not SYSTEM:
        yield "clock: gRPC uses the system clock"


def _lost_layer(layer: Layer) -> str:
    description = f" ({words})" if (words := layer.describe()) else ""
    label = f"{type(layer).__name__}{description}"
    if isinstance(layer, Retry):
        return f"{label} inside a Retry: the outer one is exported"
    if isinstance(layer, Timeout):
        return f"{label} for each attempt: gRPC limits the whole call, not each attempt"
    return f"{label}: a service config has no such layer"


# ------------------------------------------------------------------------------ validation


def _flat(policy: Layer) -> Iterator[Layer]:
    """Yield the layers of a policy; a policy given by name yields its current ones."""
    for layer in layers_of(policy):
        if is_named(layer):
            yield from _flat(cast("Any", layer).current)
        else:
            yield layer


def _names(methods: object) -> list[dict[str, str]]:
    """Parse method names without duplicates, because gRPC rejects a document that repeats one."""
    empty = "it would apply to no method: write None for all methods"
    names = _texts(methods, "methods", NAME_FORMATS, empty)
    for name in names:
        if name.startswith("/"):
            raise ValueError(f"methods: {name!r} begins with a slash: write {name.strip('/')!r}")
        if not NAME.fullmatch(name):
            raise ValueError(
                f"methods: {name!r} is not the name of a service or method: write {NAME_FORMATS}"
            )
    return [dict(zip(("service", "method"), name.split("/"), strict=False)) for name in names]


def _codes(codes: object) -> list[str]:
    empty = "nothing would be retried: write Retry(attempts=1) for that"
    chosen = _texts(codes, "codes", "names, such as 'UNAVAILABLE'", empty)
    for code in chosen:
        if code == "OK":
            raise ValueError("codes: 'OK' is a success: write the codes of failures, such as 'UNAVAILABLE'")
        if code not in CODES:
            raise ValueError(f"codes: {code!r} is no status code; {nearest(code.upper(), CODES)}")
    return chosen


def _texts(items: object, option: str, wanted: str, empty: str) -> list[str]:
    """Validate that an option is a list of texts and not a single one; return them without duplicates."""
    if isinstance(items, str | bytes):
        raise TypeError(f"{option}={items!r}: write a list, such as [{items!r}]")
    if not isinstance(items, Iterable) or isinstance(items, Mapping):
        raise TypeError(f"{option}={items!r}: write a list of texts")
    texts: list[str] = []
    for item in cast("Iterable[object]", items):
        text = item.name if isinstance(item, grpc.StatusCode) else item
        if not isinstance(text, str):
            raise TypeError(f"{option}: {text!r} is no text: write {wanted}")
        texts.append(text)
    if not texts:
        raise ValueError(f"{option}=[] is empty, so {empty}")
    return list(dict.fromkeys(texts))
