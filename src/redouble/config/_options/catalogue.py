"""The tables of budgets, policies, gates, other layers and pipelines: every option, declared once.

Each option has a description of one line, which the JSON Schema shows in editors. The docstring of the class
that the table builds explains its options in full.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from redouble._engine.budgets.budget_protocol import Budget, SharedBudget, SpendOnly
from redouble._engine.budgets.retry_budget import RetryBudget
from redouble._engine.budgets.token_bucket import TokenBucket
from redouble._engine.options import Hints
from redouble._engine.worker import Worker
from redouble._layers.breaker.circuit_breaker import CircuitBreaker
from redouble._layers.hedge.hedge import Hedge
from redouble._layers.layer import Layer, Pipeline
from redouble._layers.limits.adaptive_concurrency import AdaptiveConcurrency
from redouble._layers.limits.bulkhead import Bulkhead
from redouble._layers.limits.rate.adaptive_rate import AdaptiveRate
from redouble._layers.limits.rate.rate_limit import RateLimit
from redouble._layers.limits.throttle import Throttle
from redouble._layers.results.coalesce import Coalesce
from redouble._layers.results.fallback import Fallback
from redouble._layers.results.stale_fallback import StaleFallback
from redouble._layers.retry.retry import Retry
from redouble._layers.timeout.timeout import Timeout
from redouble.config._document_path import DocPath, short_repr
from redouble.config._options.backoff import KINDS, SPAN, BackoffValue, CooldownValue
from redouble.config._options.error_names import ErrorNames, ResultRuleName
from redouble.config._options.option_table import Blueprint, Option, Reference, Table, Tagged, refer
from redouble.config._options.values import (
    AnyValue,
    Choice,
    DurationValue,
    Flag,
    Listed,
    Number,
    TableOf,
    Text,
    Unlimited,
    Value,
    Whole,
)

WAIT, LIMIT = Unlimited(SPAN), Unlimited(DurationValue(zero=False))
SHARE, TOKENS, RATE, LOAD = Number(high=1), Number(high=1e15), Number(1e-9, 1e9), Unlimited(Number(1e-6))
ERRORS = ErrorNames()
RESULTS = Option(
    ResultRuleName(), "The rule for results: http, or a registered name; what it refuses failed."
)
COSTS = TableOf(TOKENS, "a table such as { throttled = 10, others = 5 }", KINDS)
LABELS = TableOf(Text(), 'a table of texts, such as { team = "payments" }')


class ClassName(Text):
    """The name of a class of calls; a function of the arguments of a call can only be set in code."""

    def write(self, value: object, place: DocPath) -> object:
        if not isinstance(value, str):
            raise place.error(f"{short_repr(value)} cannot be written to a document: set it in code")
        return value


CLASSES = Option(
    TableOf(SHARE, "a table such as { interactive = 0.6, batch = 0.1 }"),
    "Guaranteed shares of the limit by class of call, the highest class first.",
)
DEFAULT_CLASS = Option(ClassName(), "The class of calls that have none.")
ORDER = Option(
    Choice("fifo", "lifo", "adaptive"), "Which waiter is admitted first, the oldest or the newest."
)


class CostValue(Number):
    """What a call costs: a number, or in code a function."""

    def write(self, value: Any, place: DocPath) -> object:
        if callable(value):
            raise place.error(f"{short_repr(value)} is a function: set it in code, or write a number")
        return super().write(value, place)


# ------------------------------------------------------------------------- budgets

BUDGETS = Tagged(
    "retry_budget",
    retry_budget=Table(
        RetryBudget,
        "A budget that grants retries as a share of recent successes or requests.",
        ratio=Option(
            Unlimited(Number(high=1e9)),
            "How many retries each credit adds; unlimited: only max_in_flight limits them.",
        ),
        per_second=Option(Number(high=1e9), "How many retries per second are granted in any case."),
        window=Option(SPAN, "How long credits and grants count."),
        credit=Option(Choice("success", "request"), "What adds a credit: each success, or each request."),
        max_in_flight=Option(Unlimited(SHARE), "The retries in flight, as a share of the calls in flight."),
        minimum=Option(Whole(), "How many retries may be in flight in any case."),
    ),
    token_bucket=Table(
        TokenBucket,
        "A budget in tokens: retries take them, and successes return them.",
        capacity=Option(TOKENS, "The number of tokens at first, and at most."),
        costs=Option(COSTS, "The tokens that a retry costs, by kind of failure; others: all other kinds."),
        success_increment=Option(TOKENS, "The tokens that a success without retries adds."),
        refill_per_second=Option(TOKENS, "The tokens that each second adds."),
        when_empty=Option(Choice("refuse", "wait"), "What to do with a retry when too few tokens are left."),
    ),
)


def _view(without_credit: SharedBudget) -> Budget:
    return without_credit.without_credit()


class BudgetName(Text):
    """The name of a shared budget in the document."""

    def parse(self, value: object, place: DocPath) -> Any:
        return refer(super().parse(value, place), "budgets", place)


VIEW = Table(
    _view,
    "A view of a shared budget for outer policies: their retries spend, their successes add nothing.",
    without_credit=Option(BudgetName(), "A name in [budgets]."),
)


class BudgetValue(Value):
    """A budget: the name of a shared one, a view of it, or the table of a budget used only here."""

    def parse(self, value: object, place: DocPath) -> object:
        if isinstance(value, str):
            return refer(value, "budgets", place)
        table = VIEW if "without_credit" in place.table(value) else BUDGETS
        return table.blueprint(value, place)

    def write(self, value: object, place: DocPath) -> object:
        if isinstance(value, SpendOnly) and id(value.budget) in place.names:
            return {"without_credit": place.names[id(value.budget)]}
        return place.names.get(id(value)) or BUDGETS.write(value, place)

    def schema(self) -> dict[str, object]:
        return {"anyOf": [{"type": "string"}, VIEW.schema(), {"$ref": "#/$defs/budget"}]}


# ------------------------------------------------------------------------ policies

HINT_MODES = Choice("at_least", "instead", "ignore")
HINTS = Table(
    Hints,
    "How to treat a delay that the server requests: the hint.",
    mode=Option(HINT_MODES, "Wait for the longer of backoff and hint, or for one of them."),
    longest=Option(WAIT, "Give up at once if the hint is longer than this."),
    over=Option(WAIT, "Let a hint add at most this to the backoff."),
    spread=Option(SHARE, "Add up to this share of the hint at random."),
)
WORKER = Table(
    Worker,
    "Where the attempts of a blocking function run, so that they can be limited.",
    kind=Option(Choice("thread", "process"), "A thread, or a process."),
    grace=Option(SPAN, "How long to wait for a thread that was asked to stop."),
    overlap=Option(Flag(), "True if another attempt may begin beside a thread that did not stop."),
    start=Option(Choice("spawn", "forkserver"), "How processes are started."),
    limit=Option(Unlimited(Whole(1)), "How many attempts may run at once, abandoned threads included."),
    wait=Option(WAIT, "How long other attempts wait for a worker; 0: not at all."),
)
WORKER_OPTION = Option(Unlimited(WORKER), WORKER.about)
ATTEMPTS = Unlimited(Whole(1, "write a whole number, 1 for no retries (the first attempt counts)"))
NESTED = Choice("warn", "stop", "allow")
RETRY = Table(
    Retry,
    "A retry policy.",
    "defaults",
    on=Option(ERRORS, "What is retried: names of exceptions and rules; the first with an opinion decides."),
    until=RESULTS,
    attempts=Option(ATTEMPTS, "How many attempts in total, the first included."),
    backoff=Option(BackoffValue(), "How long to wait before each retry."),
    give_up_after=Option(LIMIT, "Begin no attempt and no delay that could not start within this time."),
    timeout=Option(LIMIT, "The limit of the whole call; without a worker it interrupts no blocking attempt."),
    attempt_timeout=Option(LIMIT, "The limit of each attempt; blocking functions need a worker."),
    work_timeout=Option(LIMIT, "The limit of the time spent inside attempts."),
    hints=Option(HINTS, HINTS.about),
    budget=Option(Unlimited(BudgetValue()), "An allowance for retries: a name in [budgets], or a table."),
    worker=WORKER_OPTION,
    nested=Option(NESTED, "What to do when an inner policy already gave up on an error."),
    wrap=Option(Flag(), "Raise a RetryError instead of the error itself."),
    labels=Option(LABELS, "Texts for events, reports and metrics."),
)
DEFAULTS = RETRY.without("name")

# --------------------------------------------------------------------------- gates

SHARES = Unlimited(Listed(SHARE, least=1))
GATES = Tagged(
    bulkhead=Table(
        Bulkhead,
        "A limit on concurrent calls.",
        limit=Option(Whole(1), "How many calls may be in flight at once."),
        wait=Option(WAIT, "How long other calls wait for a slot; 0: not at all."),
        queue=Option(Unlimited(Whole()), "How many calls may wait at once."),
        order=ORDER,
        shares=CLASSES,
        priority=DEFAULT_CLASS,
    ),
    circuit_breaker=Table(
        CircuitBreaker,
        "Reject calls to a service that fails, until it has recovered.",
        on=Option(ERRORS, "What counts as a failure."),
        until=RESULTS,
        failures=Option(Whole(1), "Open after this many failures in a row."),
        ratio=Option(Unlimited(SHARE), "Open when this share of the calls in the window failed."),
        window=Option(SPAN, "How long a call counts."),
        calls=Option(Unlimited(Whole(1)), "Count the last so many calls instead of those of the window."),
        minimum=Option(Whole(1), "How many calls must be in the window for the ratios."),
        slow=Option(WAIT, "A call that takes this long counts as failed."),
        slow_ratio=Option(
            Unlimited(SHARE), "Slow calls do not count as failed; open when this share of the calls was slow."
        ),
        cooldown=Option(
            CooldownValue(by_kind=False), "How long to stay open; a backoff: longer each time it opens again."
        ),
        probes=Option(Whole(1), "How many calls are admitted as probes after the cooldown."),
        probe_ratio=Option(Unlimited(SHARE), "Open again only if this share of the probes fails."),
        state=Option(
            Choice("closed", "isolated", "disabled", "metrics_only"), "The first state; a reload changes it."
        ),
        reopening=Option(
            SHARES, "Rising shares of the calls to admit after the probes, one after the other."
        ),
    ),
    rate_limit=Table(
        RateLimit,
        "A limit on the calls that begin in a period.",
        rate=Option(RATE, "How many calls may begin in the period."),
        per=Option(SPAN, "The period of the rate."),
        burst=Option(Whole(1), "How many calls may begin at once after a pause."),
        wait=Option(WAIT, "How long other calls wait for a permit; 0: not at all."),
        window=Option(Choice("sliding", "fixed"), "Count the calls of a window instead of spacing them."),
        cost=Option(CostValue(), "How many of these calls one call counts as; 0: it is free."),
        following=Option(Flag(), "Apply the server's own limits, as responses and errors state them."),
        shares=CLASSES,
        priority=DEFAULT_CLASS,
    ),
    adaptive_rate=Table(
        AdaptiveRate,
        "A rate limit that adapts when the server throttles.",
        on=Option(ERRORS, "What counts as throttling."),
        until=RESULTS,
        wait=Option(WAIT, "How long calls wait for a permit; 0: not at all."),
        least=Option(RATE, "The lowest rate, in calls a second."),
    ),
    adaptive_concurrency=Table(
        AdaptiveConcurrency,
        "A limit on concurrent calls that adapts to their latency.",
        initial=Option(Whole(1), "The first limit."),
        least=Option(Whole(1), "The lowest limit."),
        most=Option(Whole(1), "The highest limit."),
        by=Option(Choice("gradient", "vegas", "aimd"), "The algorithm that computes the limit."),
        window=Option(SPAN, "The time of the calls that each change of the limit is based on."),
        on=Option(ERRORS, "Which errors are signs of overload."),
        until=RESULTS,
        queue=Option(Whole(), "How many calls may wait for a slot; 0: none."),
        wait=Option(WAIT, "How long a call waits for a slot, if there is a queue."),
        order=ORDER,
        shares=CLASSES,
        priority=DEFAULT_CLASS,
        slow=Option(SPAN, "For aimd: calls that take longer lower the limit too."),
        relearn=Option(SPAN, "The time between measurements of the latency with few calls in flight."),
    ),
    throttle=Table(
        Throttle,
        "Reject as many calls as the service would reject.",
        k=Option(Number(1, 1e9), "How many calls to send for each accepted one."),
        window=Option(SPAN, "How long a call counts."),
        most=Option(SHARE, "The largest share of calls to reject."),
        minimum=Option(Whole(), "Reject nothing while there are fewer calls in the window."),
        on=Option(ERRORS, "Which errors mean that the service did not accept a call."),
        until=RESULTS,
        shares=CLASSES,
        priority=DEFAULT_CLASS,
    ),
)

# ---------------------------------------------------------------- layers and pipelines


@dataclass(frozen=True)
class OneOrList(Value):
    """A value, or a list of such values, one for each extra call; in code also a function."""

    one: Value
    several: Value

    def parse(self, value: object, place: DocPath) -> object:
        return self._kind(value).parse(value, place)

    def text(self, text: str) -> object:
        return self.several.text(text) if "," in text else self.one.text(text)

    def write(self, value: Any, place: DocPath) -> object:
        is_list = isinstance(value, list | tuple)
        items = tuple(cast("Sequence[object]", value if is_list else (value,)))
        for item in filter(callable, items):
            raise place.error(f"{short_repr(item)} cannot be written to a document: set it in code")
        return self.several.write(items, place) if is_list else self.one.write(value, place)

    def _kind(self, value: object) -> Value:
        return self.several if isinstance(value, list | tuple) else self.one

    def schema(self) -> dict[str, object]:
        return {"anyOf": [self.one.schema(), self.several.schema()]}


DELAYS = OneOrList(WAIT, Listed(SPAN, least=1))
ARGUMENTS = TableOf(AnyValue(), "a table of arguments, such as { region = 'eu' }")
OTHER_ARGUMENTS = OneOrList(ARGUMENTS, Listed(ARGUMENTS, least=1))


LAYERS = Tagged(
    **GATES.tables,
    timeout=Table(
        Timeout,
        "A time limit for each call of the layers inside it.",
        seconds=Option(SPAN, "How long a call may take; the longest limit, if it is learned."),
        worker=WORKER_OPTION,
        multiple=Option(Number(1, 1e6), "Learn the limit: this many times what most recent calls take."),
        quantile=Option(Number(0.5, 0.9999), "The share of the recent calls that is most of them."),
        least=Option(SPAN, "The shortest limit that is learned."),
        initial=Option(SPAN, "The limit before there were enough calls; the longest one unless given."),
        minimum=Option(Whole(1), "How many calls are enough."),
    ),
    hedge=Table(
        Hedge,
        "Repeat a slow call beside the first; the first acceptable outcome wins.",
        delay=Option(
            DELAYS,
            "How long a call may take before an extra call starts, or a list with a delay for each one; "
            "measured unless given.",
        ),
        max_extra_load=Option(LOAD, "How many extra calls there may be, as a share of all."),
        hedges=Option(Whole(1), "How many extra calls one call may lead to."),
        failover=Option(Flag(), "True to start the next extra call at once when a call fails."),
        different=Option(
            OTHER_ARGUMENTS,
            "The arguments of an extra call that differ, by name, or a list with a table for each one.",
        ),
        minimum=Option(Unlimited(Whole(1)), "From how many calls on the measured delay is used."),
        shortest=Option(SPAN, "The lower bound of the measured delay."),
        longest=Option(WAIT, "The upper bound of the measured delay."),
        worker=WORKER_OPTION,
        on=Option(ERRORS, "Errors that do not end the race."),
        until=RESULTS,
        budget=Option(Unlimited(BudgetValue()), "The budget from which each extra call takes."),
    ),
    fallback=Table(
        Fallback,
        "Return a value instead of an error.",
        value=Option(AnyValue(), "What to return instead: a text, a number, a list, a table."),
        on=Option(ERRORS, "The errors to replace."),
        until=RESULTS,
    ),
    stale_fallback=Table(
        StaleFallback,
        "Return the last good result of the same call instead of an error.",
        max_age=Option(SPAN, "How old a result may be."),
        most=Option(Whole(1), "How many results to keep."),
        on=Option(ERRORS, "The errors to replace."),
        until=RESULTS,
    ),
    coalesce=Table(Coalesce, "Concurrent calls with the same arguments share one; for calls that read only."),
    retry=RETRY,
)


class LayerValue(Value):
    """A layer: a name such as ``gates.db``, or a table with a ``type``."""

    def parse(self, value: object, place: DocPath) -> Blueprint | Reference:
        if not isinstance(value, str):
            return LAYERS.blueprint(value, place)
        section, _, name = value.partition(".")
        if section == "pipelines":
            raise place.error(f"{short_repr(value)}: a pipeline holds no other one; write its layers here")
        if section not in ("gates", "policies"):
            raise place.error(f"{short_repr(value)}: write 'gates.' or 'policies.' and a name, or a table")
        return refer(name, section, place)

    def write(self, value: object, place: DocPath) -> object:
        return place.names.get(id(value)) or LAYERS.write(value, place)

    def schema(self) -> dict[str, object]:
        return {"anyOf": [{"type": "string", "pattern": "^(gates|policies)\\."}, {"$ref": "#/$defs/layer"}]}


class LayersValue(Listed):
    """A list of layers, outermost first, in which each name stands once."""

    def parse(self, value: object, place: DocPath) -> tuple[Any, ...]:
        layers = super().parse(value, place)
        for index, layer in enumerate(layers):
            if isinstance(layer, Reference) and layer in layers[:index]:
                raise place.under(str(index)).error(
                    f"{layer.section}.{layer.name} is in it twice: each call would pass through it twice, or "
                    "wait for itself"
                )
        return layers


PIPELINE_LAYERS = LayersValue(
    LayerValue(), "a list such as ['gates.db', 'policies.payments', { type = 'timeout', seconds = 2 }]"
)


def _pipeline(layers: tuple[Layer, ...]) -> Pipeline:
    return Pipeline(*layers)


PIPELINE = Table(
    _pipeline,
    "Layers in order, outermost first.",
    layers=Option(PIPELINE_LAYERS, "The layers, outermost first."),
)

TABLES: dict[str, Table | Tagged] = {
    "budgets": BUDGETS,
    "gates": GATES,
    "policies": RETRY,
    "pipelines": PIPELINE,
}
"""The tables of each section, in the order in which the objects are built."""
