"""The decisions about one logical call, without I/O.

The methods of a `Run` receive how an attempt ended and when, and return a delay or None. A run never sleeps,
reads no clock and never touches the wrapped function. `Options`, `Backoff`, the budget protocol and both
budgets, `Report`, and the detection of nested retries belong here.
"""
