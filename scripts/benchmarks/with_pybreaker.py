"""pybreaker: its lock is held during the call. Its async form is Tornado's, so it has none here."""

from __future__ import annotations

from pybreaker import CircuitBreaker

from benchmarks.workloads import HOUR, Guards, broken, tripped, work

GUARDS = Guards(
    breaker=CircuitBreaker(fail_max=5, reset_timeout=30)(work),
    abreaker=None,
    ratio=None,
    opened=tripped(CircuitBreaker(fail_max=1, reset_timeout=HOUR)(broken)),
    bulkhead=None,
    abulkhead=None,
    contended=None,
    pipeline=None,
)
