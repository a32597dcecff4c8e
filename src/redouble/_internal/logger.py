"""The logger `redouble`.

`logging` is imported when the first message is logged. An exception in a log filter or handler does not fail
the call.
"""

from __future__ import annotations

__all__ = ["ABANDONED", "log", "one_line"]


MAX_LENGTH = 500  # characters of a text in a message
ABANDONED = "a stream that was abandoned could not be closed"


def log(message: str, *args: object, trouble: bool = False, traced: bool = True, news: bool = False) -> None:
    """Log a warning; with ``trouble`` an error, with its traceback if ``traced``; with ``news`` an info."""
    try:
        import logging  # noqa: PLC0415  not needed while calls succeed

        logger = logging.getLogger("redouble")
        level = logging.ERROR if trouble else logging.INFO if news else logging.WARNING
        escaped = [one_line(arg) if isinstance(arg, str) else arg for arg in args]
        logger.log(level, message, *escaped, exc_info=trouble and traced)
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
