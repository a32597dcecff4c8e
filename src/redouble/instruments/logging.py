"""Logging by the standard library: WARNING when a call is given up, INFO for a retry, DEBUG for an attempt.

What may happen in every call of an outage (a fallback, a new adaptive limit) is logged once in ten seconds.

>>> from redouble.instruments import logging
>>> handle = logging.instrument()
>>> handle.remove()
"""

from __future__ import annotations

import logging
from functools import partial

from redouble._internal.validation import instance
from redouble._telemetry.events import Event
from redouble._telemetry.observers import Observation
from redouble.instruments._messages import RECORD_ATTRIBUTES, level_of, line, log_events

__all__ = ["instrument"]


def instrument(logger: str | logging.Logger = "redouble") -> Observation:
    """Log the events of all calls to this logger, from now on.

    Each record has fields of its own (``extra``): ``policy attempt delay reason kind http_status decision
    error elapsed labels``, and the values bound by `redouble.bind`. No field has an argument or a result.
    """
    instance(logger, "logger", str | logging.Logger, "a logger, or the name of one")
    target = logging.getLogger(logger) if isinstance(logger, str) else logger
    return log_events(partial(_log, target), partial(target.isEnabledFor, logging.DEBUG))


def _log(logger: logging.Logger, event: Event, *, skipped: int) -> None:
    level = level_of(event)
    if logger.isEnabledFor(level):
        if event.what == "circuit_closed" and event.rejected and logger.name == "redouble":
            return  # the breaker logs it itself
        message, fields = line(event, RECORD_ATTRIBUTES, skipped)
        logger.log(level, "%s", message, extra=fields)
