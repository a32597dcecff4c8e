"""circuitbreaker: it has no lock, and counts consecutive failures only."""

from __future__ import annotations

from circuitbreaker import CircuitBreaker  # type: ignore[import-untyped]  # it has no types

from benchmarks.workloads import HOUR, Guards, awork, broken, tripped, work

GUARDS = Guards(
    breaker=CircuitBreaker(failure_threshold=5, recovery_timeout=30)(work),
    abreaker=CircuitBreaker(failure_threshold=5, recovery_timeout=30)(awork),
    ratio=None,
    opened=tripped(CircuitBreaker(failure_threshold=1, recovery_timeout=HOUR)(broken)),
    bulkhead=None,
    abulkhead=None,
    contended=None,
    pipeline=None,
)
