"""The schema of all metrics: back-ends derive the exported names from it, and dashboards rely on those.

Rule 1: names, labels and units are stable; a new one may be added, an old one never changes its meaning.
Rule 2: no label ever holds an attempt number, an argument, an address or a key: each label has a small set of
        values that is known when the program is written.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from redouble._internal.public import public

__all__ = ["METRICS", "Metric"]


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
    "Calls that ended: each once, however many attempts it took.")
ATTEMPTS: Final = Metric("attempts", "counter", ("name", "kind", "result"), "attempt",
    "Attempts that ended, by result (ok, failed) and by kind of failure (none, if it did not fail).")
RETRIES: Final = Metric("retries", "counter", ("name", "reason"), "retry",
    "Retries, by why: rate_limit, http_5xx, timeout_connect, timeout_read, network, ...")
ERRORS: Final = Metric("errors", "counter", ("name", "code"), "error",
    "Calls that failed, by the status, the code or the type of the error that came out.")
GIVEN_UP: Final = Metric("given_up", "counter", ("name", "reason"), "call",
    "Calls that were given up, by reason: attempts, timeout, budget, stopped, ...")
REJECTED: Final = Metric("rejected", "counter", ("name", "by"), "call",
    "Calls that a gate did not let in, by its name and its sort.")
TIMEOUTS: Final = Metric("timeouts", "counter", ("name",), "call",
    "Calls that a Timeout cut, by the function's name; a policy inside it counts them nowhere.")
CALL_DURATION: Final = Metric("call_duration", "histogram", ("name",), "s",
    "How long calls took: attempts, delays and all.")
ATTEMPT_DURATION: Final = Metric("attempt_duration", "histogram", ("name",), "s",
    "How long attempts took.")
DELAY: Final = Metric("delay", "histogram", ("name",), "s",
    "How long was waited before retries.")
FIRST_ITEM: Final = Metric("time_to_first_item", "histogram", ("name",), "s",
    "How long streams took to their first item, retries included.")
BUDGET_TOKENS: Final = Metric("budget_tokens", "gauge", ("name",), "retry",
    "What is left in a budget.")
BREAKER_STATE: Final = Metric("breaker_state", "gauge", ("name", "state"), "breaker",
    "How many breakers of this name are in each state; with one of them, 1 or 0.")
BULKHEAD_IN_USE: Final = Metric("bulkhead_in_use", "gauge", ("name",), "call",
    "Calls inside a bulkhead.")
BULKHEAD_QUEUED: Final = Metric("bulkhead_queued", "gauge", ("name",), "call",
    "Calls that wait in front of a bulkhead.")
# fmt: on

METRICS: Final = (
    CALLS,
    ATTEMPTS,
    RETRIES,
    ERRORS,
    GIVEN_UP,
    REJECTED,
    TIMEOUTS,
    CALL_DURATION,
    ATTEMPT_DURATION,
    DELAY,
    FIRST_ITEM,
    BUDGET_TOKENS,
    BREAKER_STATE,
    BULKHEAD_IN_USE,
    BULKHEAD_QUEUED,
)

# In seconds: from calls of a local cache to slow calls of language models.
BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
STATES: Final = ("closed", "half_open", "open", "isolated")
