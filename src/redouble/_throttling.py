"""RetryThrottling: how gRPC keeps retries from becoming most of the load.

Tokens go with failures and come with successes; while no more than half of them are there, nobody retries.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from redouble._failures.verdict import Kind
from redouble._grant import Grant
from redouble._internal.locks import Locked
from redouble._internal.validation import instance, number
from redouble._telemetry.registry import register

__all__ = ["RetryThrottling"]

FREE = Grant(0.0)  # a retry itself costs nothing: its failure will


class RetryThrottling(Locked):
    """Allow retries while more than half of the tokens are there: made by `TokenBucket.grpc`.

    A failure that would be retried takes a token, whether it is or not; a success brings ``ratio`` tokens.
    """

    _may_wait = False
    _only_retried = True  # failures that no rule would retry say nothing about the other side

    def __init__(self, tokens: float, ratio: float, *, name: str | None = None) -> None:
        super().__init__()
        wanted = "a number from 1 to 1000, such as 10"
        self.capacity = number(tokens, "TokenBucket.grpc tokens", 1, 1000, wanted)
        self.ratio = number(ratio, "TokenBucket.grpc ratio", 0.001, 1000, "a number above 0, such as 0.1")
        instance(name, "TokenBucket.grpc name", str | None, "a text, or None")
        self.name = name
        register(self, "budgets")
        self._tokens = self.capacity

    def start(self, now: float | None = None, /) -> None:
        """Note that a call begins: it costs nothing."""

    def failed(self, kind: Kind = Kind.unknown, now: float | None = None, /) -> None:  # noqa: ARG002
        """Note that an attempt failed, by an error that is worth a retry: a token goes."""
        with self._lock:
            # No max(): there must be no call between looking and taking, or a signal could come in between.
            self._tokens = self._tokens - 1 if self._tokens > 1 else 0.0

    def spend(self, kind: Kind = Kind.unknown, now: float | None = None, /) -> Grant | None:  # noqa: ARG002
        """Allow a retry while more than half of the tokens are there."""
        return FREE if self._tokens > self.capacity / 2 else None

    def credit(self, grant: Grant | None = None, now: float | None = None, /) -> None:  # noqa: ARG002
        """Note that a call succeeded: a part of a token comes back."""
        with self._lock:
            tokens = self._tokens + self.ratio
            self._tokens = min(self.capacity, tokens)

    def refund(self, grant: Grant, now: float | None = None, /) -> None:
        """Take back a grant whose retry never started: it cost nothing."""

    def snapshot(self, now: float | None = None, /) -> Mapping[str, float]:  # noqa: ARG002  time brings nothing
        """Tell how many ``tokens`` there are, and from how many on retries are allowed (``above``)."""
        return {"tokens": self._tokens, "capacity": self.capacity, "above": self.capacity / 2}

    def can_reconfigure(self, other: Self, /) -> bool:  # noqa: ARG002
        """Return True: all settings can change."""
        return True

    def reconfigure(self, other: Self, /) -> None:
        """Take over the settings of another one; the same share of the tokens is there, as in gRPC."""
        with self._lock:
            # No call in between, as above.
            self._tokens = self._tokens / self.capacity * other.capacity
            self.capacity, self.ratio = other.capacity, other.ratio

    def __repr__(self) -> str:
        named = "" if self.name is None else f", name={self.name!r}"
        return f"TokenBucket.grpc(tokens={self.capacity:g}, ratio={self.ratio:g}{named})"
