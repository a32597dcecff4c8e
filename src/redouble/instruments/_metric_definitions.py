"""The schema of all metrics: back-ends derive the exported names from it, and dashboards rely on those.

Rule 1: names, labels and units are stable; a new one may be added, an old one never changes its meaning.
Rule 2: no label ever holds an attempt number, an argument, an address or a key: each label has a small set of
        values that is known when the program is written.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from redouble._internal.public import public


@public("redouble.instruments")
class Metric(NamedTuple):
    """The definition of one metric."""

    name: str
    kind: Literal["counter", "histogram", "gauge"]
    labels: tuple[str, ...]
    unit: str
    help: str


# fmt: off
CALLS: Final = Metric("calls", "counter", ("name", "ok"), "call",
    "Calls that ended, each counted once, whatever the number of its attempts.")
ATTEMPTS: Final = Metric("attempts", "counter", ("name", "kind", "result"), "attempt",
    "Attempts that ended, by result (ok, failed) and by kind of failure (none, if it did not fail).")
RETRIES: Final = Metric("retries", "counter", ("name", "reason"), "retry",
    "Retries, by the cause of the failure: rate_limit, http_5xx, timeout_connect, timeout_read, network, ...")
ERRORS: Final = Metric("errors", "counter", ("name", "code"), "error",
    "Calls that failed, by the status, the code or the type of the error that was raised.")
GIVEN_UP: Final = Metric("given_up", "counter", ("name", "reason"), "call",
    "Calls that were given up, by reason: attempts, timeout, budget, stopped, ...")
REJECTED: Final = Metric("rejected", "counter", ("name", "by"), "call",
    "Calls that a gate rejected, by the name and the type of the gate.")
TIMEOUTS: Final = Metric("timeouts", "counter", ("name",), "call",
    "Calls that a Timeout ended, by the name of the function; a policy inside it does not count them.")
TOKENS: Final = Metric("tokens", "counter", ("name", "type"), "token",
    "Tokens of language models, by type: input, output, and cached, which is a part of input.")
COST: Final = Metric("cost", "counter", ("name",), "currency",
    "The cost of calls of language models whose price is given, in the currency of the price.")
HEDGES: Final = Metric("hedges", "counter", ("name",), "attempt",
    "Extra attempts that a Hedge started.")
HEDGES_WON: Final = Metric("hedges_won", "counter", ("name",), "attempt",
    "Extra attempts of a Hedge whose outcome was that of the call.")
FALLBACKS: Final = Metric("fallbacks", "counter", ("name", "code"), "call",
    "Calls whose outcome a Fallback replaced, by the status, the code or the type of the error.")
COALESCED: Final = Metric("coalesced", "counter", ("name",), "call",
    "Calls that got the outcome of an identical call in flight.")
CALL_DURATION: Final = Metric("call_duration", "histogram", ("name",), "s",
    "The duration of calls, with all attempts and delays.")
ATTEMPT_DURATION: Final = Metric("attempt_duration", "histogram", ("name",), "s",
    "The duration of attempts.")
DELAY: Final = Metric("delay", "histogram", ("name",), "s",
    "The delays before retries.")
FIRST_ITEM: Final = Metric("time_to_first_item", "histogram", ("name",), "s",
    "The time until the first item of a stream, including retries.")
GATE_WAIT: Final = Metric("gate_wait", "histogram", ("name", "by"), "s",
    "The time that calls waited before a gate admitted them; calls that did not wait are not in it.")
BUDGET_TOKENS: Final = Metric("budget_tokens", "gauge", ("name",), "retry",
    "The tokens left in a TokenBucket, or the retries left in a RetryBudget.")
BUDGET_IN_FLIGHT: Final = Metric("budget_in_flight", "gauge", ("name",), "retry",
    "Retries in flight, of a RetryBudget that limits them.")
BREAKER_STATE: Final = Metric("breaker_state", "gauge", ("name", "state"), "breaker",
    "The number of breakers with this name in each state: 1 or 0 if only one has the name.")
BULKHEAD_IN_USE: Final = Metric("bulkhead_in_use", "gauge", ("name",), "call",
    "Calls in flight in a bulkhead.")
BULKHEAD_QUEUED: Final = Metric("bulkhead_queued", "gauge", ("name",), "call",
    "Calls that wait for a slot of a bulkhead.")
GATE_LIMIT: Final = Metric("gate_limit", "gauge", ("name", "by"), "call",
    "The current limit of the calls in flight in a gate or on a worker, by its name and its type.")
GATE_IN_USE: Final = Metric("gate_in_use", "gauge", ("name", "by"), "call",
    "Calls in flight in a gate, or on a worker, that limits them.")
GATE_QUEUED: Final = Metric("gate_queued", "gauge", ("name", "by"), "call",
    "Calls that wait until a gate admits them, or for a worker.")
GATE_CLASS_IN_USE: Final = Metric("gate_class_in_use", "gauge", ("name", "by", "priority"), "call",
    "Calls in flight in a gate with shares, by their class.")
GATE_CLASS_QUEUED: Final = Metric("gate_class_queued", "gauge", ("name", "by", "priority"), "call",
    "Calls that wait until a gate with shares admits them, by their class.")
GATE_RATE: Final = Metric("gate_rate", "gauge", ("name", "by"), "call/s",
    "The current limit of the calls that a gate admits in a second; without a limit it is not exported.")
WORKER_ABANDONED: Final = Metric("worker_abandoned", "gauge", ("name",), "attempt",
    "Attempts that were given up, and whose threads still hold a place of a Worker with a limit.")
THROTTLE_REQUESTS: Final = Metric("throttle_requests", "gauge", ("name",), "call",
    "The calls in the window of a Throttle, with those that it rejected.")
THROTTLE_ACCEPTS: Final = Metric("throttle_accepts", "gauge", ("name",), "call",
    "The calls in the window of a Throttle that the service accepted.")
# fmt: on

METRICS: Final = tuple(metric for metric in tuple(vars().values()) if isinstance(metric, Metric))
GAUGES: Final = tuple(metric for metric in METRICS if metric.kind == "gauge")

# In seconds: from calls of a local cache to slow calls of language models.
BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
STATES: Final = ("closed", "half_open", "open", "isolated", "disabled", "metrics_only")
