"""`transient`: errors of databases without an SQLSTATE, by fake classes of the same name.

The real ones are tested in tests/libraries.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from redouble import Kind, Verdict, transient
from redouble._failures import database_readers
from tests.support.failures.library_errors import class_named, error_named

UNSENT = Verdict.retry(kind=Kind.network, sent=False, reason="network")
NETWORK = Verdict.retry(kind=Kind.network, reason="network")
TIMEOUT = Verdict.retry(kind=Kind.timeout, reason="timeout")
TIMED_OUT = Verdict.retry(kind=Kind.timeout, sent=True, reason="timeout")
POOL_TIMEOUT = Verdict.retry(kind=Kind.timeout, sent=False, reason="timeout_pool")
POOL_FULL = Verdict.retry(kind=Kind.throttled, sent=False, reason="pool_full")
ANSWERED = Verdict.retry(kind=Kind.server, sent=True, reason="busy")
UNSENT_BUSY = Verdict.retry(kind=Kind.server, sent=False, reason="busy")
OVERLOADED = Verdict.retry(kind=Kind.throttled, sent=True, reason="overloaded")
CONFLICT = Verdict.retry(kind=Kind.server, sent=True, reason="conflict")
LOCKED = Verdict.retry(kind=Kind.server, sent=True, reason="locked")
FULL = Verdict.retry(kind=Kind.throttled, sent=False, reason="too_many_connections")


class Thing:
    """An object with these attributes."""

    def __init__(self, **attributes: object) -> None:
        self.__dict__.update(attributes)


# ------------------------------------------------------------------ closed connections

ASYNCPG = "asyncpg.exceptions._base"
EXIT = "cannot call Transaction.__aexit__(): the underlying connection is closed"
CLOSED = "connection is closed"
RELEASED = "cannot call Connection.execute(): connection has been released back to the pool"


def interface_error(text: str, library: str = ASYNCPG) -> Exception:
    return class_named(f"{library}.InterfaceError")(text)


def lost(library: str) -> Exception:
    """Return the error of a driver for a connection that broke."""
    if library == ASYNCPG:
        base = class_named(f"{ASYNCPG}.PostgresError")
        return error_named("asyncpg.exceptions.ConnectionDoesNotExistError", base=base, sqlstate="08003")
    if library == "psycopg2":
        return error_named("psycopg2.OperationalError", "server closed the connection unexpectedly")
    base = class_named(f"{library}.MySQLError")
    return error_named(f"{library}.OperationalError", 2013, "Lost connection", base=base)


def deadlock(library: str) -> Exception:
    if library == "psycopg2":
        return error_named(
            "psycopg2.errors.DeadlockDetected", base=class_named("psycopg2.Error"), pgcode="40P01"
        )
    return error_named(f"{ASYNCPG}.PostgresError", sqlstate="40P01")


def during(error: Exception, handled: Exception | None) -> Exception:
    """Raise an error while another one is handled."""
    if handled is None:
        return error
    try:
        try:
            raise handled
        except Exception:
            raise error  # noqa: B904  the context is under test
    except Exception as raised:
        return raised


TEXTS = {
    ASYNCPG: CLOSED,
    "psycopg2": "connection already closed",
    "pymysql.err": "(0, '')",
    "asyncmy.errors": "(0, 'Not connected')",
}


@pytest.mark.parametrize("library", TEXTS)
def test_a_closed_connection_is_judged_by_the_loss_that_it_hides(library: str) -> None:
    error = during(interface_error(TEXTS[library], library), lost(library))
    assert transient(error) == NETWORK
    again = during(interface_error(TEXTS[library], library), error)  # in nested blocks
    assert transient(again) == NETWORK
    explicit = interface_error(TEXTS[library], library)
    explicit.__cause__ = lost(library)
    assert transient(explicit) == NETWORK


@pytest.mark.parametrize("library", TEXTS)
@pytest.mark.parametrize(
    "handled",
    [None, ValueError("bad"), ConnectionResetError(), TimeoutError(), error_named("httpx.ReadError")],
)
def test_a_connection_that_the_program_closed_is_final(library: str, handled: Exception | None) -> None:
    """The loss of something else is unrelated to it."""
    assert transient(during(interface_error(TEXTS[library], library), handled)) is None


@pytest.mark.parametrize("library", [ASYNCPG, "psycopg2"])
def test_a_conflict_is_no_reason_for_a_closed_connection(library: str) -> None:
    assert transient(deadlock(library)) == CONFLICT
    assert transient(during(interface_error(TEXTS[library], library), deadlock(library))) is None


@pytest.mark.parametrize(
    "text",
    [
        "cannot perform operation: another operation is in progress",
        "the server expects 2 arguments for this query, 1 was passed",
        "cannot call Transaction.start(): the transaction is already started",
        "cursor already closed",
        "",
    ],
)
@pytest.mark.parametrize("library", [ASYNCPG, "psycopg2"])
def test_other_mistakes_are_final_even_while_a_loss_is_handled(library: str, text: str) -> None:
    assert transient(during(interface_error(text, library), lost(library))) is None


def test_a_connection_that_the_program_has_released_is_final() -> None:
    assert transient(interface_error(RELEASED)) is None
    assert transient(during(interface_error(RELEASED), ConnectionResetError())) is None
    assert transient(during(interface_error(RELEASED), lost(ASYNCPG))) == NETWORK
    in_block = EXIT.replace("is closed", "has been released back to the pool")
    assert transient(interface_error(in_block)) is None
    assert transient(during(interface_error(in_block), interface_error(RELEASED))) is None


def test_a_hidden_context_is_not_judged() -> None:
    error = during(interface_error(CLOSED), lost(ASYNCPG))
    error.__suppress_context__ = True
    assert transient(error) is None


@pytest.mark.parametrize(
    ("handled", "expected"),
    [
        (lost(ASYNCPG), NETWORK),
        (ConnectionResetError(), NETWORK),
        (TimeoutError(), TIMEOUT),
        (deadlock(ASYNCPG), CONFLICT),
        (None, NETWORK),  # lost between two statements, or before the commit
        (interface_error(CLOSED), NETWORK),  # lost between two statements
        (during(interface_error(EXIT), interface_error(CLOSED)), NETWORK),  # the same, in a nested block
        (lost("psycopg2"), NETWORK),
        (interface_error(RELEASED), NETWORK),  # the same, with a connection of a pool
        (ValueError("bad"), None),
        (interface_error("cannot perform operation: another operation is in progress"), None),
    ],
    ids=repr,
)
@pytest.mark.parametrize("method", ["__aexit__", "commit", "rollback"])
def test_the_end_of_a_transaction_of_asyncpg(
    handled: Exception | None, expected: Verdict | None, method: str
) -> None:
    """It began on an open connection; so the connection was lost, and the error of the block decides."""
    error = interface_error(EXIT.replace("__aexit__", method))
    assert transient(during(error, handled)) == expected
    start = interface_error(EXIT.replace("__aexit__", "start"))
    if expected is not NETWORK:
        assert transient(during(start, handled)) is None


def test_a_value_with_the_same_text_is_final() -> None:
    base = class_named(f"{ASYNCPG}.InterfaceError")
    assert transient(class_named(f"{ASYNCPG}.DataError", base)(EXIT)) is None


def test_psycopg_3_while_a_loss_is_handled() -> None:
    shutdown = error_named(
        "psycopg.errors.AdminShutdown", base=class_named("psycopg.OperationalError"), sqlstate="57P01"
    )
    assert transient(error_named("psycopg.OperationalError", "the connection is closed")) is None
    assert (
        transient(during(class_named("psycopg.OperationalError")("the connection is closed"), shutdown))
        == NETWORK
    )


def test_sqlalchemy_is_judged_by_the_drivers_error() -> None:
    orig = during(interface_error(TEXTS["psycopg2"], "psycopg2"), lost("psycopg2"))
    assert transient(error_named("sqlalchemy.exc.StatementError", orig=orig)) == NETWORK
    assert transient(error_named("sqlalchemy.exc.StatementError", orig=interface_error(CLOSED))) is None


# -------------------------------------------------------------------------- Oracle


def oracle(code: str, message: str = "", *, isrecoverable: bool = False) -> Exception:
    details = Thing(full_code=code, message=message, isrecoverable=isrecoverable)
    return error_named(
        "oracledb.exceptions.DatabaseError", details, base=class_named("oracledb.exceptions.Error")
    )


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (oracle("DPY-4011"), NETWORK),
        (oracle("DPY-4024"), TIMEOUT),
        (oracle("DPY-4005"), POOL_TIMEOUT),
        (oracle("ORA-00060"), CONFLICT),
        (oracle("ORA-00054"), LOCKED),
        (oracle("ORA-12541"), UNSENT),
        (oracle("ORA-12519"), FULL),
        (oracle("ORA-01033"), UNSENT_BUSY),
        (oracle("DPY-6000", "DPY-6000: Listener refused connection. (Similar to ORA-12520)"), FULL),
        (oracle("DPY-6001", 'DPY-6001: Service "x" is not registered. (Similar to ORA-12514)'), None),
        (oracle("ORA-00942"), None),
        (oracle("ORA-01017"), None),
        (oracle("ORA-03999", isrecoverable=True), NETWORK),
        (oracle("DPY-1001"), None),
        (error_named("oracledb.exceptions.Error"), None),
    ],
)
def test_oracle(error: Exception, expected: Verdict | None) -> None:
    assert transient(error) == expected


def test_a_failed_connection_of_oracle_is_judged_by_its_cause() -> None:
    refused, inside = oracle("DPY-6005"), oracle("DPY-6005")
    refused.__cause__ = ConnectionRefusedError()
    assert transient(refused) == UNSENT
    inside.__cause__ = oracle("DPY-6000", "refused (Similar to ORA-12528)")
    assert transient(inside) == UNSENT_BUSY
    assert transient(oracle("DPY-6005")) is None


def test_a_connection_of_oracle_that_was_closed_before() -> None:
    closed = class_named("oracledb.exceptions.InterfaceError", class_named("oracledb.exceptions.Error"))
    details = Thing(full_code="DPY-1001", message="", isrecoverable=False)
    details.__class__.__str__ = lambda self: "DPY-1001: not connected to database"  # type: ignore[method-assign]
    assert transient(during(closed(details), oracle("DPY-4011"))) == NETWORK
    assert transient(during(closed(details), ValueError())) is None


# ------------------------------------------------------------------------- MongoDB


def mongo(name: str, *parents: str, code: int | None = None, labels: str = "") -> Exception:
    kind: type = Exception
    for parent in (*parents, name):
        kind = class_named(f"pymongo.errors.{parent}", kind)
    error: Exception = kind("so it is")
    error.__dict__ = {"code": code, "has_error_label": labels.split().__contains__}
    return error


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (mongo("AutoReconnect", "ConnectionFailure"), NETWORK),
        (mongo("NetworkTimeout", "ConnectionFailure", "AutoReconnect"), TIMEOUT),
        (mongo("NotPrimaryError", "ConnectionFailure", "AutoReconnect"), ANSWERED),
        (
            mongo("ServerSelectionTimeoutError", "ConnectionFailure", "AutoReconnect"),
            Verdict.retry(kind=Kind.timeout, sent=False, reason="timeout_connect"),
        ),
        (mongo("WaitQueueTimeoutError", "ConnectionFailure"), POOL_TIMEOUT),
        (mongo("OperationFailure", code=112), CONFLICT),
        (mongo("OperationFailure", code=112, labels="TransientTransactionError"), CONFLICT),
        (mongo("OperationFailure", code=189), ANSWERED),
        (mongo("OperationFailure", code=24), LOCKED),
        (mongo("OperationFailure", code=462), OVERLOADED),
        (mongo("OperationFailure", code=262), TIMED_OUT),
        (mongo("OperationFailure", code=89), NETWORK),
        (mongo("OperationFailure", code=251, labels="TransientTransactionError"), CONFLICT),
        (mongo("OperationFailure", code=9, labels="RetryableWriteError"), ANSWERED),
        (mongo("OperationFailure", code=18), None),
        (mongo("OperationFailure"), None),
        (mongo("ExecutionTimeout", "OperationFailure", code=50), None),
        (mongo("DuplicateKeyError", "OperationFailure", "WriteError", code=11000), None),
        (mongo("WTimeoutError", "OperationFailure", "WriteConcernError", code=64), None),
        (mongo("BulkWriteError", "OperationFailure", code=65, labels="RetryableWriteError"), None),
        (mongo("ConfigurationError"), None),
    ],
)
def test_mongo(error: Exception, expected: Verdict | None) -> None:
    assert transient(error) == expected


# ------------------------------------------------------------------------ Cassandra


def no_hosts(errors: object) -> Exception:
    return error_named("cassandra.cluster.NoHostAvailable", "no host", errors, errors=errors)


def cassandra(name: str, parent: str = "") -> Exception:
    return error_named(f"cassandra.{name}", base=class_named(f"cassandra.{parent}") if parent else Exception)


REFUSED: Mapping[str, Exception] = {"a": ConnectionRefusedError(), "b": ConnectionRefusedError()}


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (cassandra("OperationTimedOut"), TIMEOUT),
        (cassandra("ReadTimeout", "Timeout"), TIMED_OUT),
        (cassandra("WriteTimeout", "Timeout"), TIMED_OUT),
        (cassandra("Unavailable"), ANSWERED),
        (cassandra("UnresolvableContactPoints"), UNSENT),
        (cassandra("ReadFailure"), None),
        (cassandra("AuthenticationFailed"), None),
        (cassandra("InvalidRequest"), None),
        (cassandra("connection.ConnectionShutdown", "connection.ConnectionException"), NETWORK),
        (cassandra("connection.ProtocolVersionUnsupported", "connection.ConnectionException"), None),
        (cassandra("connection.ConnectionBusy"), POOL_FULL),
        (cassandra("pool.NoConnectionsAvailable"), POOL_FULL),
        (cassandra("protocol.OverloadedErrorMessage"), OVERLOADED),
        (cassandra("protocol.IsBootstrappingErrorMessage"), ANSWERED),
        (no_hosts(REFUSED), Verdict.retry(kind=Kind.network, sent=False, reason="group")),
        (
            no_hosts({"a": ConnectionRefusedError(), "b": cassandra("OperationTimedOut")}),
            Verdict.retry(kind=Kind.unknown, reason="group"),
        ),
        (no_hosts({"a": ConnectionRefusedError(), "b": cassandra("AuthenticationFailed")}), None),
        (no_hosts({"a": "who knows"}), None),
        (no_hosts({}), UNSENT),
        (no_hosts(["10.0.0.1"]), None),
    ],
)
def test_cassandra(error: Exception, expected: Verdict | None) -> None:
    assert transient(error) == expected


# ---------------------------------------------------------------------------- Redis


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("NOREPLICAS Not enough good replicas to write.", ANSWERED),
        ("BUSY Redis is busy running a script. You can only call SCRIPT KILL", ANSWERED),
        ("READONLY You can't write against a read only replica.", ANSWERED),
        ("LOADING Redis is loading the dataset in memory", ANSWERED),
        ("MASTERDOWN Link with MASTER is down", ANSWERED),
        ("Command # 2 (SET k v) of pipeline caused error: NOREPLICAS Not enough good replicas", ANSWERED),
        ("Command # 1 (SET BUSY x) of pipeline caused error: WRONGTYPE Operation against", None),
        ("BUSYGROUP Consumer Group name already exists", None),
        ("BUSYKEY Target key name already exists.", None),
        ("WRONGTYPE Operation against a key", None),
        ("unknown command 'BUSY'", None),
        ("", None),
    ],
)
def test_redis_errors_by_their_first_word(text: str, expected: Verdict | None) -> None:
    assert transient(error_named("redis.exceptions.ResponseError", text)) == expected


def test_redis_errors_with_a_class_of_their_own() -> None:
    response = class_named("redis.exceptions.ResponseError")
    readonly = class_named("redis.exceptions.ReadOnlyError", response)
    assert transient(readonly("You can't write against a read only replica.")) == ANSWERED
    down = class_named(
        "redis.exceptions.MasterDownError", class_named("redis.exceptions.ClusterDownError", response)
    )
    assert transient(down("Link with MASTER is down")) == ANSWERED
    assert (
        transient(class_named("redis.exceptions.OutOfMemoryError", response)("command not allowed")) is None
    )


def redis_error(kind: str, tries: object, module: str = "redis.retry") -> Exception:
    """Raise an error of redis-py from a function of the same name as in redis-py, after so many tries."""
    code = "def call_with_retry(error, failures):\n    raise error"
    namespace: dict[str, Any] = {"__name__": module}
    exec(code, namespace)  # noqa: S102  the module of the function is under test
    try:
        namespace["call_with_retry"](error_named(f"redis.exceptions.{kind}", "so it is"), tries)
    except Exception as error:
        return error
    raise AssertionError("it was to raise")


@pytest.mark.parametrize("kind", ["ConnectionError", "TimeoutError"])
@pytest.mark.parametrize("module", ["redis.retry", "redis.asyncio.retry"])
def test_retries_of_redis_py_itself_are_logged_once(
    kind: str, module: str, caplog: pytest.LogCaptureFixture
) -> None:
    database_readers._warn_of_tries.cache_clear()
    for _ in range(3):
        assert transient(redis_error(kind, 11, module)) is not None
    (record,) = caplog.records
    assert record.name == "redouble"
    assert "redis-py tried 11 times by itself" in record.message


@pytest.mark.parametrize(
    ("tries", "module"), [(1, "redis.retry"), ("many", "redis.retry"), (11, "some.other.retry")]
)
def test_a_single_try_of_redis_py_is_not_logged(
    tries: object, module: str, caplog: pytest.LogCaptureFixture
) -> None:
    database_readers._warn_of_tries.cache_clear()
    assert transient(redis_error("ConnectionError", tries, module)) == NETWORK
    assert caplog.records == []
