"""Redouble: retries that keep their promises.

>>> import redouble
>>> @redouble.retry(on=ConnectionError, attempts=5, give_up_after=10)
... def fetch(url): ...
"""

from redouble import errors
from redouble._backoff import Backoff
from redouble._block import Attempt
from redouble._budget import Grant
from redouble._decorate import retry, variant
from redouble._events import observe
from redouble._gate import Gate
from redouble._layer import Layer, Pipeline, policy_of
from redouble._options import Hints
from redouble._report import AttemptRecord, Outcome, Report, report
from redouble._retry import Retry
from redouble._time import SYSTEM, Clock
from redouble._transient import transient
from redouble._verdict import Kind, Verdict
from redouble.errors import Reason

__all__ = [
    "SYSTEM",
    "Attempt",
    "AttemptRecord",
    "Backoff",
    "Clock",
    "Gate",
    "Grant",
    "Hints",
    "Kind",
    "Layer",
    "Outcome",
    "Pipeline",
    "Reason",
    "Report",
    "Retry",
    "Verdict",
    "errors",
    "observe",
    "policy_of",
    "report",
    "retry",
    "transient",
    "variant",
]
