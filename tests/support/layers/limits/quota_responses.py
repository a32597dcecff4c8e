"""Responses and errors with quota headers, in the forms of several HTTP clients."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Response:
    """A response with the attributes of httpx and requests."""

    headers: Any
    status_code: object = 200


@dataclass
class Answer:
    """A response with the attributes of aiohttp and urllib."""

    headers: Any
    status: object = 200


@dataclass(eq=False)
class Failure(Exception):
    """An error with a response."""

    response: object = None


@dataclass(eq=False)
class OwnFailure(Exception):
    """An error with the attributes of a response."""

    headers: Any = field(default_factory=dict[str, str])
    status: object = 429
