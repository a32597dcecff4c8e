"""Readers of the errors of databases: where each driver keeps its code, and the texts for a lost connection.

They follow the rules of `error_readers`. The codes are in `codes`.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from redouble._failures import codes
from redouble._failures.builtin_errors import BUSY, NETWORK, TIMEOUT, UNSENT, Ask, combined
from redouble._failures.error_readers import as_mapping, resolver_verdict
from redouble._failures.verdict import Kind, Verdict
from redouble._internal.logger import log


def by_sqlstate(error: Any, _: Ask) -> Verdict | None:
    """Judge by the SQLSTATE."""
    return codes.POSTGRES.get(getattr(error, "sqlstate", None) or getattr(error, "pgcode", None) or "")


def by_sqlstate_or_text(error: Any, ask: Ask) -> Verdict | None:
    """Judge by the SQLSTATE; without one, by libpq's text, then as `by_closed_connection`."""
    if getattr(error, "sqlstate", None) or getattr(error, "pgcode", None):
        return by_sqlstate(error, ask)
    text = str(error).lower()
    for part, verdict in codes.POSTGRES_TEXTS.items():
        if part in text:
            return verdict
    return by_closed_connection(error, ask)


# The texts of drivers for a connection that was closed before: asyncpg and psycopg, psycopg2, asyncmy and
# pymysql, oracledb.
_CLOSED = re.compile(
    r"connection is closed|connection already closed|connection has been released back to the pool"
    r"|^[(]0, '|^DPY-1001"
)
# asyncpg's; a connection of its pool that was lost counts as released to every other operation.
_ENDED_TRANSACTION = re.compile(
    r"cannot call Transaction\.(__aexit__|commit|rollback)\(\): the underlying connection is closed"
)


def by_closed_connection(error: Any, ask: Ask) -> Verdict | None:
    """Judge an error about a closed connection by the loss that was being handled, if there was one.

    The end of a `with` block rolls back, which fails if the connection was lost inside the block, and this
    failure hides the loss. A connection that the program has closed, or a loss of something else, is no
    reason to retry: so the loss must be an error of the same driver.
    """
    text = str(error)
    if not _CLOSED.search(text):
        return None
    before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    same_driver = _package(before) == _package(error)
    verdict = ask(before)
    if _ENDED_TRANSACTION.match(text):
        # It began on an open connection and ended on a closed one: so the connection was lost.
        hides_nothing = before is None or (same_driver and _CLOSED.search(str(before)) is not None)
        return verdict or (NETWORK if hides_nothing else None)
    return verdict if same_driver and verdict is not None and verdict.kind is Kind.network else None


def _package(error: object) -> str:
    return type(error).__module__.partition(".")[0]


def by_mysql_code(error: Any, _: Ask) -> Verdict | None:
    """Judge by the error number, which is the first argument."""
    return codes.MYSQL.get(error.args[0])


def by_oracle_code(error: Any, ask: Ask) -> Verdict | None:
    """Judge by the full code, by the listener's code in the text, or by the driver's ``isrecoverable``."""
    details = error.args[0]
    code: str = details.full_code
    if code == "DPY-6005":  # cannot connect
        return ask(error.__cause__)
    if code == "DPY-1001":  # not connected
        return by_closed_connection(error, ask)
    if match := re.search(r"[(]Similar to (ORA-[0-9]{5})[)]", details.message):
        code = match[1]
    return codes.ORACLE.get(code) or (NETWORK if details.isrecoverable is True else None)


def by_mongo_code(error: Any, _: Ask) -> Verdict | None:
    """Judge by the code, or by the labels with which the server and the driver ask for a retry."""
    verdict = codes.MONGO.get(error.code)
    if verdict is None and error.has_error_label("TransientTransactionError"):
        return codes.CONFLICT
    return verdict or (codes.ANSWERED if error.has_error_label("RetryableWriteError") else None)


def by_hosts(error: Any, ask: Ask) -> Verdict | None:
    """Judge by the errors of all hosts; if none was asked, because all are down, the request is unsent."""
    if error.errors == {}:
        return UNSENT
    return combined([ask(each) for each in as_mapping(error.errors).values()])


def by_orig(error: Any, ask: Ask) -> Verdict | None:
    """Judge the driver's error; without a verdict, retry if SQLAlchemy has invalidated the connection."""
    verdict = ask(error.orig)
    return NETWORK if verdict is None and getattr(error, "connection_invalidated", None) is True else verdict


def by_sqlite_name(error: Any, _: Ask) -> Verdict | None:
    """Retry if another connection holds a lock."""
    return BUSY if error.sqlite_errorname.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")) else None


def by_redis_text(error: Any, ask: Ask) -> Verdict | None:
    """Judge by the error number in a text "Error ... connecting to"; any other text is a network error."""
    _warn_of_own_retries(error)
    match = re.match(r"Error (-?[0-9]{1,5}) connecting to ", str(error))
    if match is None:
        return codes.UNSENT_FULL if str(error) == "max number of clients reached" else NETWORK
    number = int(match[1])  # the numbers of name lookups are negative
    return ask(OSError(number, "")) if number > 0 else resolver_verdict(number)


def by_redis_code(error: Any, _: Ask) -> Verdict | None:
    """Judge by the first word; a pipeline writes the command in front of it."""
    return codes.REDIS.get(str(error).rpartition(" of pipeline caused error: ")[2].partition(" ")[0])


def by_redis_timeout(error: Any, _: Ask) -> Verdict | None:
    """Retry as unsent if the text contains "connecting"."""
    _warn_of_own_retries(error)
    return codes.UNSENT_TIMEOUT if "connecting" in str(error) else TIMEOUT


_REDIS_RETRY = ("redis.retry", "redis.asyncio.retry")


def _warn_of_own_retries(error: BaseException) -> None:
    """Log once if redis-py has retried before this error, which only the traceback shows."""
    traceback = error.__traceback__
    while traceback is not None:
        frame, traceback = traceback.tb_frame, traceback.tb_next
        if frame.f_code.co_name == "call_with_retry" and frame.f_globals.get("__name__") in _REDIS_RETRY:
            tries = frame.f_locals.get("failures")
            if isinstance(tries, int) and tries > 1:
                return _warn_of_tries(tries)
    return None


@cache
def _warn_of_tries(tries: int) -> None:
    log(
        "redis-py tried %d times by itself before this error, so the attempts of a Retry around it multiply: "
        "write Redis(retry=redis.retry.Retry(redis.backoff.NoBackoff(), 0))",
        tries,
    )
