"""Every exception class of every library has a decided verdict."""

from __future__ import annotations

import pytest

from redouble._failures.known_errors import TABLE
from tests.libraries.decisions import FOLDER, LIBRARIES, classes, decisions, written

# Not installed, or not in this version: `transient` knows them, but they cannot be checked.
ELSEWHERE = {
    "MySQLdb._exceptions.MySQLError",  # needs a compiler and MySQL's own library
    "sqlalchemy.dialects.postgresql.asyncpg.AsyncAdapt_asyncpg_dbapi.Error",  # hidden inside its dialect
    "litellm.types.router.RouterRateLimitError",  # needs another major version of openai
    "litellm.types.router.RouterRateLimitErrorBasic",
    "aiokafka.errors.NetworkExceptionError",  # in kafka-python only
    "aiokafka.errors.ThrottlingQuotaExceededError",
}
STANDARD = (
    "asyncio",
    "builtins",
    "ftplib",
    "http",
    "imaplib",
    "redouble",
    "smtplib",
    "socket",
    "sqlite3",
    "ssl",
    "subprocess",
    "urllib",
)


@pytest.mark.parametrize("library", LIBRARIES)
def test_every_class_is_decided(library: str) -> None:
    """A new or removed class fails this test: decide its verdict, then rewrite the file."""
    assert list(decisions(library)) == written(library)


def test_every_file_belongs_to_a_library() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(LIBRARIES)


def test_every_entry_of_transient_names_an_existing_class() -> None:
    real = {name for library in LIBRARIES for name in classes(library)}
    ours = {name for name in TABLE if name.partition(".")[0] not in STANDARD}
    assert ours - real == ELSEWHERE
