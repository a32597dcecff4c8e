"""Every exception class of every library has been decided about."""

from __future__ import annotations

import pytest

from redouble._failures.known_errors import TABLE
from tests.libraries.decisions import FOLDER, LIBRARIES, classes, decisions, written

# Not on the machine, or not in this version: they are looked up, but cannot be compared.
ELSEWHERE = {
    "MySQLdb._exceptions.MySQLError",  # needs a compiler and MySQL's own library
    "sqlalchemy.dialects.postgresql.asyncpg.AsyncAdapt_asyncpg_dbapi.Error",  # hidden inside its dialect
    "aiokafka.errors.NetworkExceptionError",  # kafka-python's alone
    "aiokafka.errors.ThrottlingQuotaExceededError",
}
STANDARD = (
    "asyncio",
    "ftplib",
    "http",
    "imaplib",
    "smtplib",
    "socket",
    "sqlite3",
    "ssl",
    "subprocess",
    "urllib",
)


@pytest.mark.parametrize("library", LIBRARIES)
def test_every_class_is_decided(library: str) -> None:
    """A class that is new or gone fails here: decide its verdict, then rewrite the file."""
    assert list(decisions(library)) == written(library)


def test_no_other_files() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(LIBRARIES)


def test_every_entry_is_of_a_class_that_exists() -> None:
    real = {name for library in LIBRARIES for name in classes(library)}
    ours = {name for name in TABLE if name.partition(".")[0] not in STANDARD}
    assert ours - real == ELSEWHERE
