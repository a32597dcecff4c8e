"""Limits of rate and of concurrency, fixed and adaptive, and the client-side throttle.

Each gate stands beside its arithmetic: a bulkhead and its slots, a rate limit with its pacer and its wait
queue, an adaptive rate and its CUBIC curve, an adaptive concurrency limit and its algorithms.
"""
