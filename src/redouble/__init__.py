"""Redouble: retries that keep their promises.

>>> import redouble
>>> @redouble.retry(on=ConnectionError, attempts=5, give_up_after=10)
... def fetch(url): ...
"""

TYPE_CHECKING = False  # type checkers take it for `typing.TYPE_CHECKING`, which costs an import
if TYPE_CHECKING:
    from redouble import errors
    from redouble._drivers.blocks import Attempt
    from redouble._drivers.current_call import current
    from redouble._engine.backoff import Backoff
    from redouble._engine.budgets.budget_protocol import Grant
    from redouble._engine.budgets.retry_budget import RetryBudget
    from redouble._engine.budgets.token_bucket import TokenBucket
    from redouble._engine.options import Hints
    from redouble._engine.report import AttemptRecord, Outcome, Report, report
    from redouble._engine.worker import Worker
    from redouble._failures.transient import transient
    from redouble._failures.verdict import Kind, Verdict
    from redouble._layers.breaker.circuit_breaker import CircuitBreaker
    from redouble._layers.chaos import Chaos
    from redouble._layers.gate import Gate
    from redouble._layers.hedge.hedge import Hedge
    from redouble._layers.keyed import Keyed
    from redouble._layers.layer import Layer, Pipeline, policy_of
    from redouble._layers.limits.adaptive_concurrency import AdaptiveConcurrency
    from redouble._layers.limits.bulkhead import Bulkhead
    from redouble._layers.limits.rate.adaptive_rate import AdaptiveRate
    from redouble._layers.limits.rate.rate_limit import RateLimit
    from redouble._layers.limits.throttle import Throttle
    from redouble._layers.results.coalesce import Coalesce
    from redouble._layers.results.fallback import Fallback
    from redouble._layers.retry.decorator import retry, variant
    from redouble._layers.retry.retry import Retry
    from redouble._layers.timeout.timeout import Timeout
    from redouble._redaction.text import redact
    from redouble._runtime.clock import SYSTEM, Clock
    from redouble._runtime.deadline import cancelled, deadline, remaining
    from redouble._runtime.priority import priority
    from redouble._telemetry.bound_fields import bind
    from redouble._telemetry.hide import hide
    from redouble._telemetry.observers import observe
    from redouble._telemetry.stats import stats
    from redouble.config._reload import policies
    from redouble.errors import Reason

__all__ = [
    "SYSTEM",
    "AdaptiveConcurrency",
    "AdaptiveRate",
    "Attempt",
    "AttemptRecord",
    "Backoff",
    "Bulkhead",
    "Chaos",
    "CircuitBreaker",
    "Clock",
    "Coalesce",
    "Fallback",
    "Gate",
    "Grant",
    "Hedge",
    "Hints",
    "Keyed",
    "Kind",
    "Layer",
    "Outcome",
    "Pipeline",
    "RateLimit",
    "Reason",
    "Report",
    "Retry",
    "RetryBudget",
    "Throttle",
    "Timeout",
    "TokenBucket",
    "Verdict",
    "Worker",
    "bind",
    "cancelled",
    "current",
    "deadline",
    "errors",
    "hide",
    "observe",
    "policies",
    "policy_of",
    "priority",
    "redact",
    "remaining",
    "report",
    "retry",
    "stats",
    "transient",
    "variant",
]

# Imported on first access, so that a program loads only what it uses: the names of these modules, ...
_LAZY = {
    name: f"redouble.{module}"
    for module, names in {
        "_drivers.blocks": "Attempt",
        "_engine.backoff": "Backoff",
        "_engine.budgets.budget_protocol": "Grant",
        "_engine.options": "Hints",
        "_engine.report": "AttemptRecord Outcome Report report",
        "_engine.budgets.retry_budget": "RetryBudget",
        "_engine.budgets.token_bucket": "TokenBucket",
        "_engine.worker": "Worker",
        "_failures.transient": "transient",
        "_failures.verdict": "Kind Verdict",
        "_layers.breaker.circuit_breaker": "CircuitBreaker",
        "_layers.chaos": "Chaos",
        "_layers.results.coalesce": "Coalesce",
        "_layers.results.fallback": "Fallback",
        "_layers.gate": "Gate",
        "_layers.hedge.hedge": "Hedge",
        "_layers.keyed": "Keyed",
        "_layers.layer": "Layer Pipeline policy_of",
        "_layers.limits.adaptive_concurrency": "AdaptiveConcurrency",
        "_layers.limits.rate.adaptive_rate": "AdaptiveRate",
        "_layers.limits.bulkhead": "Bulkhead",
        "_layers.limits.rate.rate_limit": "RateLimit",
        "_layers.limits.throttle": "Throttle",
        "_layers.retry.decorator": "retry variant",
        "_layers.retry.retry": "Retry",
        "_layers.timeout.timeout": "Timeout",
        "_redaction.text": "redact",
        "_runtime.clock": "SYSTEM Clock",
        "_drivers.current_call": "current",
        "_runtime.deadline": "cancelled deadline remaining",
        "_runtime.priority": "priority",
        "_telemetry.bound_fields": "bind",
        "_telemetry.hide": "hide",
        "_telemetry.observers": "observe",
        "_telemetry.stats": "stats",
        "config._reload": "policies",
        "errors": "Reason",
    }.items()
    for name in names.split()
}
# ... and these modules.
_MODULES = ("config", "errors", "http", "instruments", "llm", "presets", "testing", "types")
_CLIENTS = ("aiohttp", "grpc", "httpx", "httpx2", "requests")  # import the library of the same name


def __getattr__(name: str) -> object:
    if name not in _LAZY and name not in _MODULES:
        fix = f": write `import {__name__}.{name}`" if name in _CLIENTS else ""
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{fix}")
    module = __import__(_LAZY.get(name, f"{__name__}.{name}"), fromlist=[name])
    if name in _MODULES:
        return module
    globals()[name] = value = getattr(module, name)
    return value


def __dir__() -> list[str]:
    return [*__all__, *(name for name in globals() if name.startswith("_"))]
