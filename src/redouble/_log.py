"""The logger `redouble`: what the library says by itself, which is little.

`logging` is imported only when there is something to say. A filter or handler that fails is no reason
to fail a call.
"""

from __future__ import annotations

__all__ = ["ABANDONED", "log"]

ABANDONED = "a stream that was abandoned could not be closed"


def log(message: str, *args: object, trouble: bool = False, news: bool = False) -> None:
    """Log a warning; or for ``trouble`` an error, with the traceback of what is handled; or mere ``news``."""
    try:
        import logging  # noqa: PLC0415  nobody pays for it while all goes well

        logger = logging.getLogger("redouble")
        level = logging.ERROR if trouble else logging.INFO if news else logging.WARNING
        logger.log(level, message, *args, exc_info=trouble)
    except Exception:  # noqa: S110  there is nowhere left to say it
        pass
