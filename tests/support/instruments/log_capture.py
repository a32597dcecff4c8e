"""A private logger whose records are kept, and an error with a secret in an address."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager
from itertools import count

NUMBERS = count(1)
BARE = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime"})


class Kept(logging.Handler):
    """A handler that stores the records."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        record.getMessage()
        self.records.append(record)

    def said(self) -> list[str]:
        """Return each level and message."""
        return [f"{record.levelname} {record.getMessage()}" for record in self.records]

    def fields(self) -> list[dict[str, object]]:
        """Return the fields of each record that not every record has."""
        return [{key: value for key, value in vars(r).items() if key not in BARE} for r in self.records]


@contextmanager
def logger(level: int = logging.DEBUG) -> Generator[tuple[logging.Logger, Kept]]:
    """Yield a private logger, and the list of its records."""
    made, kept = logging.getLogger(f"redouble.test{next(NUMBERS)}"), Kept()
    made.setLevel(level)
    made.propagate = False
    made.addHandler(kept)
    try:
        yield made, kept
    finally:
        made.removeHandler(kept)
        made.setLevel(logging.NOTSET)
