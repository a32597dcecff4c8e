"""The logger `redouble`.

A record is one line without secrets: texts are redacted, and of an exception it has type, text and place. A
traceback would show the whole chain, with the text of the operation's error. `logging` is imported when the
first message is logged. An exception in a log filter or handler does not fail the call.
"""

from __future__ import annotations

import sys

ABANDONED = "a stream that was abandoned could not be closed"


def log(message: str, *args: object, error: bool = False, traced: bool = True, info: bool = False) -> None:
    """Log at WARNING; at ERROR if ``error``, with its exception if ``traced``; at INFO if ``info``."""
    try:
        import logging  # noqa: PLC0415  not needed while calls succeed

        from redouble._redaction.rendering import described, one_line, place_of, shown  # noqa: PLC0415  neither

        logger = logging.getLogger("redouble")
        level = logging.ERROR if error else logging.INFO if info else logging.WARNING
        escaped = [one_line(shown(arg)) if isinstance(arg, str) else arg for arg in args]
        caught = sys.exception() if error and traced else None
        if caught is not None:
            message += ": %s (%s)"
            escaped += [one_line(described(caught)), one_line(place_of(caught))]
        logger.log(level, message, *escaped)
    except Exception:  # noqa: S110  there is nowhere else to report it
        pass
