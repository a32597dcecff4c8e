"""The logger `redouble`.

`logging` is imported when the first message is logged. An exception in a log filter or handler does not fail
the call.
"""

from __future__ import annotations

MAX_LENGTH = 500  # characters of a text in a message
ABANDONED = "a stream that was abandoned could not be closed"


def log(message: str, *args: object, error: bool = False, traced: bool = True, info: bool = False) -> None:
    """Log at WARNING; at ERROR if ``error``, with the traceback if ``traced``; at INFO if ``info``."""
    try:
        import logging  # noqa: PLC0415  not needed while calls succeed

        logger = logging.getLogger("redouble")
        level = logging.ERROR if error else logging.INFO if info else logging.WARNING
        escaped = [one_line(arg) if isinstance(arg, str) else arg for arg in args]
        logger.log(level, message, *escaped, exc_info=error and traced)
    except Exception:  # noqa: S110  there is nowhere else to report it
        pass


def one_line(text: str) -> str:
    """Truncate a text and escape unprintable characters: line breaks, invisible and bidirectional ones."""
    short = text if len(text) <= MAX_LENGTH else text[: MAX_LENGTH - 3] + "..."
    if short.isprintable():
        return short
    return "".join(char if char.isprintable() else _escape(char) for char in short)


def _escape(char: str) -> str:
    return char.encode("unicode_escape", "surrogatepass").decode()
