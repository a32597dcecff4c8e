"""Logging by structlog: the events of `redouble.instruments.logging`, as fields instead of sentences.

>>> from redouble.instruments import structlog
>>> handle = structlog.instrument()
>>> handle.remove()
"""

from __future__ import annotations

import logging as stdlib
from functools import partial
from typing import Any

from redouble._internal.extras import missing_extra
from redouble._internal.validation import methods
from redouble._telemetry.events import Event
from redouble._telemetry.observers import Observation
from redouble.instruments._messages import RECORD_ATTRIBUTES, level_of, line, log_events

try:
    import structlog
except ModuleNotFoundError as error:
    raise missing_extra("structlog", error, "instruments.structlog") from None

__all__ = ["instrument"]

# Field names that structlog and its processors use.
OWN = "event level timestamp logger exc_info stack_info exception stack positional_args log_level logger_name"
RESERVED = frozenset(
    {*OWN.split(), "summary", "self", "method_name", "_record", "_from_structlog", *RECORD_ATTRIBUTES}
)


def instrument(logger: Any = None) -> Observation:
    """Log the events of all calls, from now on, as ``redouble.retry``, ``redouble.give_up``, ...

    logger: a logger of structlog; by default ``structlog.get_logger("redouble")``. The fields are those of
        `redouble.instruments.logging`, and ``summary``, which is the log line there.
    """
    target = structlog.get_logger("redouble") if logger is None else logger
    methods(target, "logger", ("log",))
    if isinstance(target, stdlib.Logger):
        raise TypeError(
            f"logger={target!r} is a logger of the logging module: use redouble.instruments.logging"
        )
    return log_events(partial(_log, target), partial(_debug_enabled, target))


def _debug_enabled(logger: Any) -> bool:
    """Return True if DEBUG is enabled, or if the logger has no method that returns it."""
    # Of structlog's loggers, and of those that wrap a logging.Logger.
    for name in ("is_enabled_for", "isEnabledFor"):
        try:
            return bool(getattr(logger, name)(stdlib.DEBUG))
        except Exception:  # noqa: S112  the logger lacks the method, or has another signature
            continue
    return True


def _log(logger: Any, event: Event, *, skipped: int) -> None:
    (message, fields), event_name = line(event, RESERVED, skipped), f"redouble.{event.what}"
    logger.log(level_of(event), event_name, summary=message, **fields)
