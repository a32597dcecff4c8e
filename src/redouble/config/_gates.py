"""The tables of gates, other layers and pipelines: every option that a document can say, written once.

What each means is told at length by its class; here it is said in a line, for editors.
"""

from __future__ import annotations

from dataclasses import dataclass

from redouble._layers.breaker.circuit_breaker import CircuitBreaker
from redouble._layers.hedge.hedge import Hedge
from redouble._layers.layer import Layer, Pipeline
from redouble._layers.limits.adaptive_concurrency import AdaptiveConcurrency
from redouble._layers.limits.adaptive_rate import AdaptiveRate
from redouble._layers.limits.bulkhead import Bulkhead
from redouble._layers.limits.rate_limit import RateLimit
from redouble._layers.limits.throttle import Throttle
from redouble._layers.timeout import Timeout
from redouble.config._names import Names
from redouble.config._numbers import Number, Whole
from redouble.config._policies import NAMED, RETRY, SPAN, WAIT, WORKER, Budget
from redouble.config._table import Later, Option, Reference, Several, Table
from redouble.config._tagged import Nested, Tagged, known
from redouble.config._values import Choice, Flag, Listed, Unlimited, Value
from redouble.config._wrong import Place, shown

__all__ = ["GATES", "LAYERS", "PIPELINE"]


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
                "on": Option(Names(), "What counts as a failure."),
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
                "on": Option(Names(), "What counts as throttling."),
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
                "on": Option(Names(), "Which errors are signs of overload."),
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
                "on": Option(Names(), "What the service does not accept."),
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
                "on": Option(Names(), "Errors that do not end the race."),
                "budget": Option(Unlimited(Budget()), "What each extra call takes from."),
                "name": NAMED,
            },
            in_code=("until", "different"),
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
