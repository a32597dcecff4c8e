"""The tables of budgets, policies, gates, other layers and pipelines: every option, declared once.

Each option has a description of one line, which the JSON Schema shows in editors. The docstring of the class
that the table builds explains its options in full.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from redouble._engine.options import Hints
from redouble._engine.retry_budget import RetryBudget
from redouble._engine.token_bucket import TokenBucket
from redouble._engine.worker import Worker
from redouble._failures.verdict import Kind
from redouble._layers.breaker.circuit_breaker import CircuitBreaker
from redouble._layers.hedge.hedge import Hedge
from redouble._layers.layer import Layer, Pipeline
from redouble._layers.limits.adaptive_concurrency import AdaptiveConcurrency
from redouble._layers.limits.adaptive_rate import AdaptiveRate
from redouble._layers.limits.bulkhead import Bulkhead
from redouble._layers.limits.rate_limit import RateLimit
from redouble._layers.limits.throttle import Throttle
from redouble._layers.retry.retry import Retry
from redouble._layers.timeout import Timeout
from redouble.config._errors import DocPath, short_repr
from redouble.config._options.backoff import KINDS, OTHERS, BackoffValue
from redouble.config._options.error_names import ErrorNames
from redouble.config._options.option_table import (
    Deferred,
    DeferredList,
    Nested,
    Option,
    Reference,
    Table,
    Tagged,
    known,
)
from redouble.config._options.values import (
    Choice,
    DurationValue,
    Flag,
    Labels,
    Listed,
    Number,
    Text,
    Unlimited,
    Value,
    Whole,
)

__all__ = [
    "BUDGETS",
    "DEFAULTS",
    "GATES",
    "LAYERS",
    "NAMED",
    "PIPELINE",
    "RETRY",
    "SPAN",
    "WAIT",
    "WORKER",
    "BudgetValue",
]


SPAN, LIMIT = DurationValue(), Unlimited(DurationValue(zero=False))
WAIT = Unlimited(SPAN)
TOKENS = Number(high=1e15)
NAMED = Option(Text(), "What it is called in errors, events and metrics: the key of its table, unless said.")


@dataclass(frozen=True)
class Costs(Value):
    """A table of the tokens that a retry costs, by kind of failure."""

    of: Number = TOKENS

    def read(self, value: object, place: DocPath) -> dict[Kind | None, float]:
        found: dict[Kind | None, float] = {}
        for key, cost in place.table(value, "a table such as { throttled = 10, others = 5 }").items():
            if key not in KINDS:
                raise place.unknown_key(key, cost, KINDS)
            found[None if key == OTHERS else Kind(key)] = self.of.read(cost, place.under(key))
        return found

    def write(self, value: object, place: DocPath) -> object:
        costs = cast("Mapping[Kind | None, float]", value)
        return {str(kind or OTHERS): self.of.write(cost, place) for kind, cost in costs.items()}

    def schema(self) -> dict[str, object]:
        costs = {key: self.of.schema() for key in KINDS}
        return {"type": "object", "properties": costs, "additionalProperties": False}

    def keys(self) -> Mapping[str, Value]:
        return dict.fromkeys(KINDS, self.of)


# ------------------------------------------------------------------------- budgets

BUDGETS = Tagged(
    {
        "retry_budget": Table(
            RetryBudget,
            "Retries as a share of what goes well.",
            {
                "ratio": Option(Number(high=1e9), "How many retries each credit earns."),
                "per_second": Option(Number(high=1e9), "How many are granted whatever happens."),
                "window": Option(SPAN, "How long credits and grants count for."),
                "credit": Option(Choice(("success", "request")), "What earns retries."),
                "name": NAMED,
            },
        ),
        "token_bucket": Table(
            TokenBucket,
            "Retries paid for in tokens, which successes bring back.",
            {
                "capacity": Option(TOKENS, "How many tokens there are at first, and at most."),
                "costs": Option(Costs(), "What a retry costs, by kind of failure, and for all others."),
                "success_increment": Option(TOKENS, "What a success without retries brings."),
                "refill_per_second": Option(TOKENS, "What time brings."),
                "when_empty": Option(Choice(("refuse", "wait")), "What to do when no tokens are left."),
                "name": NAMED,
            },
        ),
    },
    usual="retry_budget",
)


@dataclass(frozen=True)
class BudgetValue(Value):
    """A budget: the name of a shared budget in the document, or the table of a budget used only here."""

    def read(self, value: object, place: DocPath) -> object:
        return known(value, "budgets", place) if isinstance(value, str) else BUDGETS.read(value, place)

    def write(self, value: object, place: DocPath) -> object:
        return place.names.get(id(value)) or BUDGETS.write(value, place)

    def schema(self) -> dict[str, object]:
        return {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/budget"}]}

    def keys(self) -> Mapping[str, Value]:
        return BUDGETS.every()


# ------------------------------------------------------------------------ policies

HINTS = Table(
    Hints,
    "How to treat a delay asked for by the other side.",
    {
        "mode": Option(
            Choice(("at_least", "instead", "ignore")), "Wait for the longer of backoff and hint, or for one."
        ),
        "longest": Option(WAIT, "Give up at once when asked to wait longer."),
        "over": Option(WAIT, "Let a hint add at most this to the backoff."),
        "spread": Option(Number(high=1), "Add up to this share of the hint by chance."),
    },
)
WORKER = Table(
    Worker,
    "Where the attempts of a blocking function run, so that they can be limited.",
    {
        "kind": Option(Choice(("thread", "process")), "A thread, or a process."),
        "grace": Option(SPAN, "How long to wait for a thread that was told to stop."),
        "overlap": Option(Flag(), "Whether another attempt may begin beside a thread that did not."),
        "start": Option(Choice(("spawn", "forkserver")), "How processes are started."),
    },
)
RETRY = Table(
    Retry,
    "A retry policy.",
    {
        "on": Option(ErrorNames(), "What is retried: names, of which the first with an opinion decides."),
        "attempts": Option(
            Unlimited(Whole(1, "write a whole number, 1 for no retries (the first attempt counts)")),
            "How many attempts in total, the first included.",
        ),
        "backoff": Option(BackoffValue(), "How long to wait before each retry."),
        "give_up_after": Option(LIMIT, "Begin no attempt and no delay that could not start within this."),
        "timeout": Option(LIMIT, "The limit of the whole call."),
        "attempt_timeout": Option(LIMIT, "The limit of each attempt."),
        "work_timeout": Option(LIMIT, "The limit of the time spent inside attempts."),
        "hints": Option(Nested(HINTS), HINTS.about),
        "budget": Option(
            Unlimited(BudgetValue()), "An allowance for retries: a name in [budgets], or its own."
        ),
        "worker": Option(Unlimited(Nested(WORKER)), WORKER.about),
        "nested": Option(
            Choice(("warn", "stop", "allow")), "What to do when an inner policy already gave up on an error."
        ),
        "wrap": Option(Flag(), "Raise a RetryError instead of the error itself."),
        "name": NAMED,
        "labels": Option(Labels(), "Texts for events, reports and metrics."),
    },
    in_code=(
        *("until", "clock", "random"),
        *("before_attempt", "on_success", "on_failure", "on_retry", "on_give_up"),
    ),
)
DEFAULTS = RETRY.without("name")


GATES = Tagged(
    {
        "bulkhead": Table(
            Bulkhead,
            "So many calls at once and no more.",
            {
                "limit": Option(Whole(1), "How many calls may be inside at once.", needed=True),
                "wait": Option(WAIT, "How long others wait for a place; 0 is not at all."),
                "queue": Option(Unlimited(Whole()), "How many may wait at once."),
                "name": NAMED,
            },
        ),
        "circuit_breaker": Table(
            CircuitBreaker,
            "Leave a service alone while it is down.",
            {
                "on": Option(ErrorNames(), "What counts as a failure."),
                "failures": Option(Whole(1), "Open after so many in a row."),
                "ratio": Option(
                    Unlimited(Number(high=1)),
                    "Open when this share of the calls in the window failed.",
                ),
                "window": Option(SPAN, "How long calls count for."),
                "minimum": Option(Whole(1), "How many calls there must be for the ratio."),
                "slow": Option(WAIT, "A call that takes this long counts as failed."),
                "cooldown": Option(SPAN, "How long to stay open."),
                "probes": Option(Whole(1), "How many calls are let through after that."),
                "reopening": Option(
                    Unlimited(Listed(Number(high=1))), "Shares of the calls to let through first, rising."
                ),
                "name": NAMED,
            },
            in_code=("on_change", "clock", "random"),
        ),
        "rate_limit": Table(
            RateLimit,
            "So many calls in so much time.",
            {
                "rate": Option(Number(1e-9, 1e9), "How many calls may begin in the time.", needed=True),
                "per": Option(SPAN, "The time that the rate is for."),
                "burst": Option(Whole(1), "How many may begin at once after a rest."),
                "wait": Option(WAIT, "How long others wait for their turn; 0 is not at all."),
                "following": Option(Flag(), "Heed what answers say about the other side's limit."),
                "name": NAMED,
            },
        ),
        "adaptive_rate": Table(
            AdaptiveRate,
            "As fast as the other side lets us, found out by being throttled.",
            {
                "on": Option(ErrorNames(), "What counts as throttling."),
                "wait": Option(WAIT, "How long calls wait for their turn; 0 is not at all."),
                "least": Option(Number(1e-9, 1e9), "The lowest rate, in calls a second."),
                "name": NAMED,
            },
        ),
        "adaptive_concurrency": Table(
            AdaptiveConcurrency,
            "As many calls at once as the service can take, found out by how long they take.",
            {
                "initial": Option(Whole(1), "Where the limit begins."),
                "least": Option(Whole(1), "The lowest limit."),
                "most": Option(Whole(1), "The highest limit."),
                "by": Option(Choice(("gradient", "vegas", "aimd")), "How the limit is found."),
                "window": Option(SPAN, "The time of calls for one change."),
                "on": Option(ErrorNames(), "Which errors are signs of overload."),
                "slow": Option(SPAN, "For aimd: calls that take longer lower the limit too."),
                "relearn": Option(SPAN, "How often to find out anew."),
                "name": NAMED,
            },
            in_code=("random",),
        ),
        "throttle": Table(
            Throttle,
            "Turn away as many calls as the service would turn away.",
            {
                "k": Option(Number(1, 1e9), "How many calls to send for one accepted."),
                "window": Option(SPAN, "How long calls count for."),
                "most": Option(Number(high=1), "The largest share to refuse."),
                "minimum": Option(Whole(), "Refuse nothing while there were fewer calls."),
                "on": Option(ErrorNames(), "What the service does not accept."),
                "name": NAMED,
            },
            in_code=("random",),
        ),
    }
)


# ---------------------------------------------------------------- layers and pipelines

LAYERS = Tagged(
    {
        **GATES.tables,
        "timeout": Table(
            Timeout,
            "A limit for what is inside it.",
            {
                "seconds": Option(SPAN, "How long a call may take.", needed=True),
                "worker": Option(Unlimited(Nested(WORKER)), WORKER.about),
            },
        ),
        "hedge": Table(
            Hedge,
            "Make a late call a second time, beside the first.",
            {
                "delay": Option(WAIT, "How long a call may take before it is late; else learned."),
                "max_extra_load": Option(
                    Unlimited(Number(1e-6)), "How many extra calls there may be, as a share of all."
                ),
                "hedges": Option(Whole(1), "How many extra calls one call may lead to."),
                "on": Option(ErrorNames(), "Errors that do not end the race."),
                "budget": Option(Unlimited(BudgetValue()), "What each extra call takes from."),
                "name": NAMED,
            },
            in_code=("until", "different"),
        ),
        "retry": RETRY,
    }
)


@dataclass(frozen=True)
class LayersValue(Value):
    """A list of layers, outermost first: each a name such as ``gates.db`` or a table with a ``type``."""

    def read(self, value: object, place: DocPath) -> DeferredList:
        wanted = "a list such as ['gates.db', 'policies.payments', { type = 'timeout', seconds = 2 }]"
        items = place.items(value, wanted)
        read = tuple(self._one(item, place.under(str(index))) for index, item in enumerate(items))
        for index, layer in enumerate(read):
            if isinstance(layer, Reference) and layer in read[:index]:
                raise place.under(str(index)).error(
                    f"{layer.section}.{layer.name} is in it twice: each call would pass through it twice, or "
                    "wait for itself"
                )
        return DeferredList(read)

    def write(self, value: object, place: DocPath) -> object:
        layers = place.items(value, "layers")
        return [
            place.names.get(id(layer)) or LAYERS.write(layer, place.under(str(index)))
            for index, layer in enumerate(layers)
        ]

    def schema(self) -> dict[str, object]:
        name = {"type": "string", "pattern": "^(gates|policies)\\."}
        return {"type": "array", "items": {"anyOf": [name, {"$ref": "#/$defs/layer"}]}}

    def _one(self, value: object, place: DocPath) -> Deferred:
        if not isinstance(value, str):
            return LAYERS.read(value, place)
        section, _, name = value.partition(".")
        if section == "pipelines":
            raise place.error(f"{short_repr(value)}: a pipeline holds no other one; write its layers here")
        if section not in ("gates", "policies"):
            raise place.error(f"{short_repr(value)}: write 'gates.' or 'policies.' and a name, or a table")
        return known(name, section, place)


def _pipeline(layers: tuple[Layer, ...]) -> Pipeline:
    return Pipeline(*layers)


PIPELINE = Table(
    _pipeline,
    "Layers in order, outermost first.",
    {"layers": Option(LayersValue(), "The layers, outermost first.", needed=True)},
)
