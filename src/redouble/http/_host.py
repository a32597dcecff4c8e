"""Which host a request goes to, for layers that go by host."""

from __future__ import annotations

from collections.abc import Hashable

from redouble._internal.public import public
from redouble.http._permit import Permit

__all__ = ["host"]


@public("redouble.http")
def host(call: object, /) -> Hashable:
    """Return the host that a client of ours is about to call: a key for `Keyed` in the policy of a client.

    >>> from redouble import CircuitBreaker, Keyed, Retry
    >>> policy = Retry() | Keyed(host, CircuitBreaker)
    """
    if not isinstance(call, Permit):
        raise TypeError(f"redouble.http.host is for the policy of an HTTP client, and was given {call!r}")
    return call.host
