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
from functools import partial
from itertools import chain, islice
from json import dumps, loads
from math import inf, isclose
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias, cast

import grpc

from redouble._clients.plan import layers_of
from redouble._clients.policy_binding import is_named
from redouble._engine.backoff import Backoff, _make
from redouble._engine.budgets.token_bucket import RetryThrottling
from redouble._engine.options import HOOKS
from redouble._failures.verdict import Ended, Kind, Verdict, judge
from redouble._internal.public import public
from redouble._internal.validation import format_seconds, instance, nearest
from redouble._layers.layer import Layer
from redouble._layers.retry.analysis import LARGEST_DRAW, ConstantRandom
from redouble._layers.retry.retry import Retry
from redouble._layers.timeout.timeout import Timeout
from redouble._runtime.clock import SYSTEM
from redouble.grpc._channel_policy import layer_of

NAME = re.compile(r"[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)?")
NAMES = "'package.Service' or 'package.Service/Method'"
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
    retry = next((layer for layer in layers if isinstance(layer, Retry)), None)
    if retry is None:
        raise TypeError(f"policy={policy!r} has no Retry to export: write Retry(...), or a pipeline with one")
    index = layers.index(retry)
    outer, inner = layers[:index], layers[index + 1 :]
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
        lost += _lost_options(retry, LOST_RETRY_OPTIONS)
        lost += _lost_options(retry, LOST_HINTS if retry.hints.mode != "ignore" else ())
    limit = min([*limits, *(layer.traits().time_limit for layer in outer if isinstance(layer, Timeout))])
    if limit < inf:
        method["timeout"] = _duration(limit)
        option = f"timeout={limit:g}"
        lost.append(
            f"{option}: grpcio ends calls up to 2 s early, so `options` leaves it out; pass {option} "
            "with each call"
        )
    lost += _lost_options(retry, LOST_CALL_OPTIONS)
    lost += [_lost_layer(layer) for layer in outer if not isinstance(layer, Timeout)]
    lost += [_lost_layer(layer) for layer in inner]
    return ServiceConfig(dumps(config), tuple(dict.fromkeys(lost)))


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
    recipe, remarks = policy._recipe, list[str]()
    recipes: Mapping[Kind | None, Backoff] = {None: recipe} if isinstance(recipe, Backoff) else recipe
    kind = None if None in recipes else next(iter(recipes))
    backoff = recipes[kind]
    if any(other != backoff for other in recipes.values()):
        own = "backoff: each kind of failure has its own; gRPC has one for all, that of"
        remarks.append(f"{own} {kind or 'all others'}")
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
    """Return the verdicts on an error with this code, one for each attempt."""
    nothing = grpc.aio.Metadata()
    error = grpc.aio.AioRpcError(grpc.StatusCode[name], nothing, nothing, "")
    ends = [partial(Ended, attempt, labels=policy.labels) for attempt in range(1, MAX_ATTEMPTS)]
    return [judge(policy._rules, error, make_ended) or Verdict.stop() for make_ended in ends]


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

# Options of a `Retry`: the name, the value that loses nothing, and a sentence for all other values.
LostOptions: TypeAlias = Sequence[tuple[str, object, str]]

UNSEEN = "name, labels: gRPC's retries appear in no event, metric or report of redouble"
LOST_RETRY_OPTIONS: LostOptions = (
    ("give_up_after", None, "give_up_after={:g}: gRPC starts attempts until the call times out"),
    ("attempt_timeout", None, "attempt_timeout={:g}: gRPC limits the whole call, not each attempt"),
    ("work_timeout", None, "work_timeout={:g}: gRPC's limit includes the delays; write timeout="),
    ("random", chance, "random: gRPC has its own random source"),
    (
        "hints.mode",
        "instead",
        "hints: mode={!r}; gRPC waits as long as the server asks, instead of its own delay",
    ),
)
LOST_HINTS: LostOptions = (
    ("hints.longest", None, "hints: longest={:g}; gRPC waits as long as the server asks"),
    ("hints.over", None, "hints: over={:g}; gRPC obeys every requested delay"),
    ("hints.spread", 0, "hints: spread={:g}; gRPC adds nothing to a requested delay"),
)
LOST_CALL_OPTIONS: LostOptions = (  # whether calls are retried or not
    ("until", None, "until: gRPC does not inspect results"),
    *((hook, None, f"{hook}: gRPC calls no observers") for hook in HOOKS),
    ("wrap", False, "wrap=True: gRPC raises the RpcError itself"),
    ("name", None, UNSEEN),
    ("labels", {}, UNSEEN),
    ("clock", SYSTEM, "clock: gRPC uses the system clock"),
)


def _lost_options(policy: Retry, options: LostOptions) -> Iterator[str]:
    """Yield a sentence for each lost option."""
    for option, harmless, sentence in options:
        value = attrgetter(option)(policy)
        if value != harmless:
            yield sentence.format(value)


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
    names = _texts(methods, "methods", NAMES, "it would apply to no method: write None for all methods")
    for name in names:
        if not NAME.fullmatch(name):
            bare = name.strip("/")
            wanted = repr(bare) if NAME.fullmatch(bare) else NAMES
            raise ValueError(f"methods: {name!r} is not the name of a service or method: write {wanted}")
    return [dict(zip(("service", "method"), name.split("/"), strict=False)) for name in names]


def _codes(codes: object) -> list[str]:
    """Parse the names of status codes without duplicates."""
    empty = "nothing would be retried: write Retry(attempts=1) for that"
    chosen = _texts(codes, "codes", "names, such as 'UNAVAILABLE'", empty)
    for code in chosen:
        if code == "OK":
            raise ValueError("codes: 'OK' is a success: write the codes of failures, such as 'UNAVAILABLE'")
        if code not in CODES:
            raise ValueError(f"codes: {code!r} is no status code; {nearest(code.upper(), CODES)}")
    return chosen


def _texts(items: Any, option: str, wanted: str, empty: str) -> list[str]:
    """Validate that an option is a list of texts and not a single one; return them without duplicates."""
    if isinstance(items, str | bytes | Mapping) or not hasattr(items, "__iter__"):
        raise TypeError(f"{option}={items!r}: write a list of texts: {wanted}")
    texts: list[Any] = [item.name if isinstance(item, grpc.StatusCode) else item for item in items]
    for text in texts:
        instance(text, f"{option}: item", str, wanted)
    if not texts:
        raise ValueError(f"{option}=[] is empty, so {empty}")
    return list(dict.fromkeys(texts))
