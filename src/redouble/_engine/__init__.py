"""The decisions about one logical call, without I/O.

The methods of a `Run` receive how an attempt ended and when, and return a delay or None. A run never sleeps,
reads no clock and never touches the wrapped function. `Options`, options that are functions of the arguments
of a call (`PerCall`), `Backoff`, `Report`, the detection of nested retries, and the retry budgets (`budgets`)
belong here.
"""
