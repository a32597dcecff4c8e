"""The logger `redouble`.

A record is one line without secrets: texts are redacted, and of an exception it has type, text and place. A
traceback would show the whole chain, with the text of the operation's error. `logging` is imported when the
first message is logged. An exception in a log filter or handler does not fail the call.
"""

from __future__ import annotations

import sys
from typing import Any

ABANDONED = "a stream that was abandoned could not be closed"


MAX_LOGGED_HOOKS = 1000
_logged: set[str] = set()


def call_hook(owner: object, hook: str, *args: object) -> Any:
    """Call a method that only accounts; if it raises, log that once for its class and return None.

    What a method of our own raises is raised: only a signal handler can be the cause.
    """
    try:
        return getattr(owner, hook)(*args)
    except Exception:
        if is_own(owner):
            raise
        log_broken_hook(owner, hook)
    return None


def is_own(owner: object) -> bool:
    """Return True for an object of a class of this package."""
    return type(owner).__module__.partition(".")[0] == "redouble"


def log_broken_hook(owner: object, hook: str) -> None:
    """Log that a method of a user's object raised, once for each class and method."""
    kind = type(owner)
    name = f"{kind.__module__}.{kind.__qualname__}.{hook}"
    if name not in _logged and len(_logged) < MAX_LOGGED_HOOKS:
        _logged.add(name)
        log("%s() raised; the call goes on without it, and this is logged only once", name, error=True)


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
