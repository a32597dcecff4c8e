"""The decisions about one logical call, without I/O.

A `Run` is told how an attempt ended and when, and answers with a delay or None. It never sleeps, reads no
clock and never touches the wrapped function. `Options`, `Backoff`, the budget protocol and both budgets,
`Report`, and the detection of nested retries belong here.
"""
