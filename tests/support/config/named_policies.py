"""Configuration documents with one policy, and an operation that counts its attempts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.support.fakes import Boom


def policy_document(attempts: int, **more: Any) -> dict[str, Any]:
    """Return a document with the policy ``payments``, and with more sections."""
    policy = {"on": "Exception", "attempts": attempts, "backoff": [0] * 9}
    return {"policies": {"payments": policy}, **more}


def pipeline_document(attempts: int) -> dict[str, Any]:
    """Return a document with the policy ``payments``, and with the pipeline ``all`` that consists of it."""
    return policy_document(attempts, pipelines={"all": {"layers": ["policies.payments"]}})


class Failing:
    """An operation that always fails, and counts its attempts."""

    def __init__(self) -> None:
        self.attempts = 0

    def fail(self) -> None:
        self.attempts += 1
        raise Boom

    def attempts_of(self, use: Callable[[], object]) -> int:
        """Return how many attempts a call made."""
        self.attempts = 0
        with pytest.raises(Boom):
            use()
        return self.attempts

    async def aattempts_of(self, use: Callable[[], Awaitable[object]]) -> int:
        """Return how many attempts an async call made."""
        self.attempts = 0
        with pytest.raises(Boom):
            await use()
        return self.attempts
