"""Throttled calls through an adaptive rate limit."""

from __future__ import annotations

from redouble import AdaptiveRate


class Throttled(Exception):
    """The error of a service that rejects calls because of their rate."""


def throttled(gate: AdaptiveRate, error: BaseException | None = None) -> None:
    """Make a call that ends with this error, or with `Throttled`."""
    try:
        with gate:
            raise error or Throttled
    except BaseException:  # noqa: S110  any error
        pass
