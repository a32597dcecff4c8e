"""The logger `redouble`: what the library says by itself, which is little.

`logging` is imported only when there is something to say. A filter or handler that fails is no reason
to fail a call.
"""

from __future__ import annotations

__all__ = ["ABANDONED", "log", "one_line"]


LONGEST = 500  # characters of a text in a line
ABANDONED = "a stream that was abandoned could not be closed"


def log(message: str, *args: object, trouble: bool = False, traced: bool = True, news: bool = False) -> None:
    """Log a warning; or for ``trouble`` an error, ``traced`` if that helps anybody; or mere ``news``."""
    try:
        import logging  # noqa: PLC0415  nobody pays for it while all goes well

        logger = logging.getLogger("redouble")
        level = logging.ERROR if trouble else logging.INFO if news else logging.WARNING
        said = [one_line(arg) if isinstance(arg, str) else arg for arg in args]
        logger.log(level, message, *said, exc_info=trouble and traced)
    except Exception:  # noqa: S110  there is nowhere left to say it
        pass


def one_line(text: str) -> str:
    """Make a text fit for a line: nothing in it begins another one, hides, or reads backwards."""
    cut = text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."
    if cut.isprintable():
        return cut
    return "".join(letter if letter.isprintable() else _spelled(letter) for letter in cut)


def _spelled(letter: str) -> str:
    return letter.encode("unicode_escape", "surrogatepass").decode()
