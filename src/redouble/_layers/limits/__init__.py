"""Limits of rate and of concurrency, fixed and adaptive, and the client-side throttle.

Each gate stands beside its arithmetic: a bulkhead and its slots, an adaptive concurrency limit and its
algorithms, and in ``rate`` a rate limit with its pacer and its wait queue, and an adaptive rate with its
CUBIC curve.
"""
