"""The call and the attempt that the running code is part of."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import NamedTuple

from redouble._internal.public import public
from redouble._runtime.deadline import enclosing_calls, remaining


@public("redouble.types")
class CurrentCall(NamedTuple):
    """The innermost call of a policy that the running code is part of: what `redouble.current` returns.

    attempt: the number of the running attempt, counted from 1.
    attempts: the most attempts of the call; None for no limit but time.
    remaining: the seconds left, as `redouble.remaining` returns them: of all limits around the code.
    name: the name of the call in events and reports: that of the policy, or of the function.
    labels: the labels of the policy.
    """

    attempt: int
    attempts: int | None
    remaining: float | None
    name: str
    labels: Mapping[str, str]


@public("redouble")
def current() -> CurrentCall | None:
    """Return the call of a `Retry` that the running code is part of, and its attempt; None outside.

    >>> import redouble
    >>> @redouble.retry(attempts=3, name="fetch")
    ... def fetch() -> str:
    ...     call = redouble.current()
    ...     return f"attempt {call.attempt} of {call.attempts}" if call else "not retried"
    >>> fetch()
    'attempt 1 of 3'
    """
    for call in enclosing_calls(sys._getframe(1)):
        if call.attempt:
            return CurrentCall(call.attempt, call.attempts, remaining(), call.name, dict(call.labels))
    return None
