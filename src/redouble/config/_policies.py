"""The tables of policies and budgets: every option that a document can say, written once.

What each means is told at length by its class; here it is said in a line, for editors.
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
from redouble._layers.retry.retry import Retry
from redouble.config._delays import KINDS, OTHERS, Delays
from redouble.config._names import Names
from redouble.config._numbers import Duration, Number, Whole
from redouble.config._table import Option, Table
from redouble.config._tagged import Nested, Tagged, known
from redouble.config._values import Choice, Flag, Labels, Text, Unlimited, Value
from redouble.config._wrong import Place

__all__ = ["BUDGETS", "DEFAULTS", "NAMED", "RETRY", "SPAN", "WAIT", "WORKER", "Budget"]

SPAN, LIMIT = Duration(), Unlimited(Duration(zero=False))
WAIT = Unlimited(SPAN)
TOKENS = Number(high=1e15)
NAMED = Option(Text(), "What it is called in errors, events and metrics: the key of its table, unless said.")


@dataclass(frozen=True)
class Costs(Value):
    """What a retry costs, by kind of failure."""

    of: Number = TOKENS

    def read(self, value: object, place: Place) -> dict[Kind | None, float]:
        found: dict[Kind | None, float] = {}
        for key, cost in place.table(value, "a table such as { throttled = 10, others = 5 }").items():
            if key not in KINDS:
                raise place.unknown(key, cost, KINDS)
            found[None if key == OTHERS else Kind(key)] = self.of.read(cost, place.under(key))
        return found

    def write(self, value: object, place: Place) -> object:
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
class Budget(Value):
    """A budget: the name of a shared one, or one of its own."""

    def read(self, value: object, place: Place) -> object:
        return known(value, "budgets", place) if isinstance(value, str) else BUDGETS.read(value, place)

    def write(self, value: object, place: Place) -> object:
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
        "on": Option(Names(), "What is retried: names, of which the first with an opinion decides."),
        "attempts": Option(
            Unlimited(Whole(1, "write a whole number, 1 for no retries (the first attempt counts)")),
            "How many attempts in total, the first included.",
        ),
        "backoff": Option(Delays(), "How long to wait before each retry."),
        "give_up_after": Option(LIMIT, "Begin no attempt and no delay that could not start within this."),
        "timeout": Option(LIMIT, "The limit of the whole call."),
        "attempt_timeout": Option(LIMIT, "The limit of each attempt."),
        "work_timeout": Option(LIMIT, "The limit of the time spent inside attempts."),
        "hints": Option(Nested(HINTS), HINTS.about),
        "budget": Option(Unlimited(Budget()), "An allowance for retries: a name in [budgets], or its own."),
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
