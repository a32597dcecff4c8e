"""The tables of gates, other layers and pipelines: every option that a document can say, written once.

What each means is told at length by its class; here it is said in a line, for editors.
"""

from __future__ import annotations

import random as chance
from dataclasses import dataclass
from math import inf
from typing import Any

from redouble._adaptive import AdaptiveRate
from redouble._breaker import CircuitBreaker
from redouble._bulkhead import Bulkhead
from redouble._concurrency import AdaptiveConcurrency
from redouble._hedge import Hedge
from redouble._layer import Layer, Pipeline
from redouble._ratelimit import RateLimit
from redouble._throttle import Throttle
from redouble._timeout import Timeout
from redouble.config._names import Names
from redouble.config._numbers import Number, Whole
from redouble.config._policies import NAMED, RETRY, SPAN, WAIT, WORKER, Budget
from redouble.config._table import Later, Option, Reference, Several, Table
from redouble.config._tagged import Nested, Tagged, known
from redouble.config._values import Choice, Flag, Listed, Unlimited, Value
from redouble.config._wrong import Place, shown

__all__ = ["GATES", "LAYERS", "PIPELINE"]


def _ours(random: object) -> object:
    return chance if random is chance.random else random


def _slow(gate: Any) -> object:
    return None if gate._terms.slow == inf else gate._terms.slow


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
                "on": Option(Names(), "What counts as a failure.", "_failures.on"),
                "failures": Option(Whole(1), "Open after so many in a row.", "_terms.failures"),
                "ratio": Option(
                    Unlimited(Number(high=1)),
                    "Open when this share of the calls in the window failed.",
                    "_terms.ratio",
                ),
                "window": Option(SPAN, "How long calls count for.", "_terms.window"),
                "minimum": Option(Whole(1), "How many calls there must be for the ratio.", "_terms.minimum"),
                "slow": Option(WAIT, "A call that takes this long counts as failed.", _slow),
                "cooldown": Option(SPAN, "How long to stay open.", "_terms.cooldown"),
                "probes": Option(Whole(1), "How many calls are let through after that.", "_terms.probes"),
                "reopening": Option(
                    Unlimited(Listed(Number(high=1))),
                    "Shares of the calls to let through first, rising.",
                    lambda gate: gate._terms.reopening or None,
                ),
                "name": NAMED,
            },
            in_code={
                "on_change": "_on_change",
                "clock": "",
                "random": lambda gate: _ours(gate._circuit._chance),
            },
        ),
        "rate_limit": Table(
            RateLimit,
            "So many calls in so much time.",
            {
                "rate": Option(Number(1e-9, 1e9), "How many calls may begin in the time.", needed=True),
                "per": Option(SPAN, "The time that the rate is for."),
                "burst": Option(Whole(1), "How many may begin at once after a rest."),
                "wait": Option(WAIT, "How long others wait for their turn; 0 is not at all."),
                "following": Option(
                    Flag(), "Heed what answers say about the other side's limit.", "_following"
                ),
                "name": NAMED,
            },
        ),
        "adaptive_rate": Table(
            AdaptiveRate,
            "As fast as the other side lets us, found out by being throttled.",
            {
                "on": Option(Names(), "What counts as throttling.", "_throttles.on"),
                "wait": Option(WAIT, "How long calls wait for their turn; 0 is not at all."),
                "least": Option(Number(1e-9, 1e9), "The lowest rate, in calls a second.", "_tide._least"),
                "name": NAMED,
            },
        ),
        "adaptive_concurrency": Table(
            AdaptiveConcurrency,
            "As many calls at once as the service can take, found out by how long they take.",
            {
                "initial": Option(Whole(1), "Where the limit begins.", lambda gate: gate._said["initial"]),
                "least": Option(Whole(1), "The lowest limit.", "_windowed._least"),
                "most": Option(Whole(1), "The highest limit.", "_windowed._most"),
                "by": Option(Choice(("gradient", "vegas", "aimd")), "How the limit is found.", "_by"),
                "window": Option(SPAN, "The time of calls for one change.", "_windowed._window"),
                "on": Option(Names(), "Which errors are signs of overload.", "_drops.on"),
                "slow": Option(
                    SPAN,
                    "For aimd: calls that take longer lower the limit too.",
                    lambda gate: gate._said["slow"],
                ),
                "relearn": Option(SPAN, "How often to find out anew.", "_windowed._relearn"),
                "name": NAMED,
            },
            in_code={"random": lambda gate: _ours(gate._windowed._random)},
        ),
        "throttle": Table(
            Throttle,
            "Turn away as many calls as the service would turn away.",
            {
                "k": Option(Number(1, 1e9), "How many calls to send for one accepted.", "_k"),
                "window": Option(SPAN, "How long calls count for.", "_window"),
                "most": Option(Number(high=1), "The largest share to refuse.", "_most"),
                "minimum": Option(Whole(), "Refuse nothing while there were fewer calls.", "_minimum"),
                "on": Option(Names(), "What the service does not accept.", "_failures.on"),
                "name": NAMED,
            },
            in_code={"random": "_random"},
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
                "delay": Option(WAIT, "How long a call may take before it is late; else learned.", "_fixed"),
                "max_extra_load": Option(
                    Unlimited(Number(1e-6)), "How many extra calls there may be, as a share of all.", "_share"
                ),
                "hedges": Option(Whole(1), "How many extra calls one call may lead to.", "_hedges"),
                "on": Option(Names(), "Errors that do not end the race.", "_stakes._failures.on"),
                "budget": Option(Unlimited(Budget()), "What each extra call takes from.", "_stakes._budget"),
                "name": NAMED,
            },
            in_code={"until": "_stakes._until", "different": "_stakes.different"},
        ),
        "retry": RETRY,
    }
)


@dataclass(frozen=True)
class Layers(Value):
    """Layers, outermost first: names such as ``gates.db``, or tables with a type."""

    def read(self, value: object, place: Place) -> Several:
        wanted = "a list such as ['gates.db', 'policies.payments', { type = 'timeout', seconds = 2 }]"
        items = place.items(value, wanted)
        read = tuple(self._one(item, place.under(str(index))) for index, item in enumerate(items))
        for index, layer in enumerate(read):
            if isinstance(layer, Reference) and layer in read[:index]:
                raise place.under(str(index)).wrong(
                    f"{layer.section}.{layer.name} is in it twice: each call would pass through it twice, or "
                    "wait for itself"
                )
        return Several(read)

    def write(self, value: object, place: Place) -> object:
        layers = place.items(value, "layers")
        return [
            place.names.get(id(layer)) or LAYERS.write(layer, place.under(str(index)))
            for index, layer in enumerate(layers)
        ]

    def schema(self) -> dict[str, object]:
        name = {"type": "string", "pattern": "^(gates|policies)\\."}
        return {"type": "array", "items": {"anyOf": [name, {"$ref": "#/$defs/layer"}]}}

    def _one(self, value: object, place: Place) -> Later:
        if not isinstance(value, str):
            return LAYERS.read(value, place)
        section, _, name = value.partition(".")
        if section == "pipelines":
            raise place.wrong(f"{shown(value)}: a pipeline holds no other one; write its layers here")
        if section not in ("gates", "policies"):
            raise place.wrong(f"{shown(value)}: write 'gates.' or 'policies.' and a name, or a table")
        return known(name, section, place)


def _pipeline(layers: tuple[Layer, ...]) -> Pipeline:
    return Pipeline(*layers)


PIPELINE = Table(
    _pipeline,
    "Layers in order, outermost first.",
    {"layers": Option(Layers(), "The layers, outermost first.", needed=True)},
)
