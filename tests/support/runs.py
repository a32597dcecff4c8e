"""Runs of the engine, without a driver."""

from __future__ import annotations

from typing import Any

from redouble import Hints, Retry
from redouble._engine.run import Run
from tests.support.fakes import options as defaults


def run_of(started: float = 0.0, **options: Any) -> Run:
    """Return a run of a policy that retries every error after one second."""
    arguments = defaults(on=Exception, backoff=[1] * 99, hints=Hints(spread=0))
    return Run(Retry(**arguments | options), started, "work", attempt=0)
