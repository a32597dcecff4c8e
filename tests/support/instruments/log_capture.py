"""A private logger whose records are kept, and an error with a secret in an address."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager
from itertools import count

NUMBERS = count(1)
STANDARD_FIELDS = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime"})


class RecordingHandler(logging.Handler):
    """A handler that stores the records."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        record.getMessage()
        self.records.append(record)

    def messages(self) -> list[str]:
        """Return each level and message."""
        return [f"{record.levelname} {record.getMessage()}" for record in self.records]

    def fields(self) -> list[dict[str, object]]:
        """Return the fields of each record that not every record has."""
        return [
            {key: value for key, value in vars(r).items() if key not in STANDARD_FIELDS} for r in self.records
        ]


@contextmanager
def logger(level: int = logging.DEBUG) -> Generator[tuple[logging.Logger, RecordingHandler]]:
    """Yield a private logger, and the list of its records."""
    made, handler = logging.getLogger(f"redouble.test{next(NUMBERS)}"), RecordingHandler()
    made.setLevel(level)
    made.propagate = False
    made.addHandler(handler)
    try:
        yield made, handler
    finally:
        made.removeHandler(handler)
        made.setLevel(logging.NOTSET)
