"""Rows with time limits: rules about timeouts, and blocking code on workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from redouble import Worker, errors
from tests.conformance.flows import WORKERS, Flow, limited
from tests.support.scripted import Step

CUT, OVER = errors.AttemptTimeout, errors.DeadlineExceeded
MS = 0.001
STUCK = Step("late", stops="never")


def timeouts(answer: Any) -> Callable[[Exception], Any]:
    """Return a rule for attempts that exceeded their limit."""
    return lambda error: answer if isinstance(error, CUT) else None


STOP: dict[str, Any] = {"rules": [timeouts(False)]}
AGAIN: dict[str, Any] = {"rules": [timeouts(True)]}


def worked(fact: str, *script: Step, grace: float = 0.1, expected: dict[str, Any], **options: Any) -> Flow:
    return limited(fact, *script, worker=Worker(grace=grace), expected=expected, colours=WORKERS, **options)
