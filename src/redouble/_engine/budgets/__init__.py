"""Retry budgets: allowances for retries that many calls share.

The protocol that the engine calls, `RetryBudget` with its cap on retries in flight, and budgets in tokens.
"""
