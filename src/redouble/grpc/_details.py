"""What an attempt is called with: the caller's own details, the time that is left, and its number.

Nothing of the caller's is changed. Whether there may be an attempt is not known here.
"""

from __future__ import annotations

from math import inf
from typing import Any

import grpc

__all__ = ["PREVIOUS", "adetails_of", "details_of", "name_of"]

PREVIOUS = "grpc-previous-rpc-attempts"
FIELDS = ("method", "timeout", "metadata", "credentials", "wait_for_ready", "compression")


class Details(grpc.ClientCallDetails):
    """The details of one attempt. What the caller's do not have, these do not have either."""

    def __init__(self, said: object) -> None:
        for field in FIELDS:
            if hasattr(said, field):
                setattr(self, field, getattr(said, field))


def details_of(said: Any, rest: float, earlier: int) -> grpc.ClientCallDetails:
    """Say it anew, for an attempt that may take so long and has so many before it."""
    details = Details(said)
    if rest < inf:
        details.timeout = max(0.0, rest)
    if earlier:
        details.metadata = (*(getattr(said, "metadata", None) or ()), (PREVIOUS, str(earlier)))
    return details


def adetails_of(said: Any, rest: float, earlier: int) -> grpc.aio.ClientCallDetails:
    """Do the same for `grpc.aio`."""
    metadata = said.metadata
    if earlier:
        metadata = grpc.aio.Metadata(*(metadata or ()), (PREVIOUS, str(earlier)))
    return grpc.aio.ClientCallDetails(
        said.method,
        max(0.0, rest) if rest < inf else said.timeout,
        metadata,
        said.credentials,
        said.wait_for_ready,
    )


def name_of(method: str | bytes) -> str:
    """Return the name of a method, as in events: without the slash that it begins with."""
    text = method.decode("utf-8", "replace") if isinstance(method, bytes) else method
    return text.removeprefix("/")
