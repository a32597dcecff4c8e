"""The table of retryable errors of the standard library and of other libraries, by qualified name.

The entry of the nearest class in the MRO decides: a verdict, a reader from `error_readers`, or None, which
excludes a class whose parent has an entry. No library is imported. The page docs/reference/transient.md shows
this table, and a test compares the two; tests/libraries compares it with the libraries.
"""

from __future__ import annotations

from redouble._failures import error_readers as read
from redouble._failures.builtin_errors import BUSY, NETWORK, TIMEOUT, UNSENT, Entry
from redouble._failures.codes import ANSWERED, CONFLICT, RATE_LIMIT, UNSENT_BUSY, UNSENT_TIMEOUT
from redouble._failures.verdict import Kind, Verdict

__all__ = ["TABLE"]


READ_TIMEOUT = Verdict.retry(kind=Kind.timeout, reason="timeout_read")
WRITE_TIMEOUT = Verdict.retry(kind=Kind.timeout, reason="timeout_write")
POOL_TIMEOUT = Verdict.retry(kind=Kind.timeout, sent=False, reason="timeout_pool")
POOL_FULL = Verdict.retry(kind=Kind.throttled, sent=False, reason="pool_full")
LIMITED_HERE = Verdict.retry(kind=Kind.throttled, sent=False, reason="rate_limit")
ASKED_FOR = Verdict.retry(kind=Kind.unknown, reason="retryable")

STANDARD: dict[str, Entry] = {
    "asyncio.exceptions.IncompleteReadError": NETWORK,
    "ftplib.error_temp": BUSY,
    "http.client.IncompleteRead": NETWORK,
    "imaplib.IMAP4.abort": NETWORK,
    "smtplib.SMTPServerDisconnected": NETWORK,
    "socket.gaierror": read.by_lookup,
    "socket.herror": read.by_host_lookup,
    "sqlite3.OperationalError": read.by_sqlite_name,
    "ssl.SSLError": read.by_tls_reason,
    "ssl.SSLEOFError": NETWORK,
    "ssl.SSLSyscallError": NETWORK,
    "ssl.SSLZeroReturnError": NETWORK,
    "subprocess.TimeoutExpired": TIMEOUT,
    "urllib.error.HTTPError": read.by_urllib_status,
    "urllib.error.URLError": read.by_cause,
}

HTTPX: dict[str, Entry] = {
    "ConnectError": read.by_connect_error,
    "ConnectTimeout": UNSENT_TIMEOUT,
    "HTTPStatusError": read.by_status,
    "NetworkError": NETWORK,
    "PoolTimeout": POOL_TIMEOUT,
    "ReadTimeout": READ_TIMEOUT,
    "RemoteProtocolError": NETWORK,
    "TimeoutException": TIMEOUT,
    "WriteTimeout": WRITE_TIMEOUT,
}

REQUESTS: dict[str, Entry] = {
    "ChunkedEncodingError": NETWORK,
    "ConnectTimeout": UNSENT_TIMEOUT,
    "ConnectionError": read.by_cause_or_network,
    "HTTPError": read.by_status,
    "ReadTimeout": READ_TIMEOUT,
    "RequestException": None,
    "SSLError": read.by_cause,
    "Timeout": TIMEOUT,
}

URLLIB3: dict[str, Entry] = {
    "ConnectTimeoutError": UNSENT_TIMEOUT,
    "EmptyPoolError": POOL_TIMEOUT,
    "MaxRetryError": read.by_cause,
    "NewConnectionError": read.by_connect_error,
    "ProtocolError": NETWORK,
    "ProxyError": read.by_cause,
    "ReadTimeoutError": READ_TIMEOUT,
    "ResponseNotChunked": None,
    "SSLError": read.by_cause,
    "TimeoutError": TIMEOUT,
}

AIOHTTP: dict[str, Entry] = {
    "ClientConnectionError": NETWORK,
    "ClientConnectorCertificateError": None,
    "ClientConnectorError": read.by_connect_error,
    "ClientHttpProxyError": read.by_proxy_status,
    "ClientOSError": read.by_errno_or_network,
    "ClientPayloadError": read.by_payload,
    "ClientResponseError": read.by_status,
    "ConnectionTimeoutError": UNSENT_TIMEOUT,
    "ServerFingerprintMismatch": None,
    "ServerTimeoutError": TIMEOUT,
    "SocketTimeoutError": READ_TIMEOUT,
}

GRPC: dict[str, Entry] = {"FutureTimeoutError": TIMEOUT, "RpcError": read.by_grpc_code}

DATABASES: dict[str, Entry] = {
    "psycopg.Error": read.by_sqlstate,
    "psycopg.OperationalError": read.by_sqlstate_or_text,
    "psycopg.errors.CancellationTimeout": None,
    "psycopg.errors.ConnectionTimeout": UNSENT_TIMEOUT,
    "psycopg_pool.PoolClosed": None,
    "psycopg_pool.PoolTimeout": POOL_TIMEOUT,
    "psycopg_pool.TooManyRequests": POOL_FULL,
    "psycopg2.Error": read.by_sqlstate,
    "psycopg2.OperationalError": read.by_sqlstate_or_text,
    "asyncpg.exceptions._base.PostgresError": read.by_sqlstate,
    "pymysql.err.MySQLError": read.by_mysql_code,
    "MySQLdb._exceptions.MySQLError": read.by_mysql_code,
    "sqlalchemy.exc.DisconnectionError": NETWORK,
    "sqlalchemy.exc.EmulatedDBAPIException": read.by_orig,
    "sqlalchemy.exc.StatementError": read.by_orig,
    "sqlalchemy.exc.TimeoutError": POOL_TIMEOUT,
    # Before SQLAlchemy 2.1 this class has neither the common parent nor an `orig`.
    "sqlalchemy.dialects.postgresql.asyncpg.AsyncAdapt_asyncpg_dbapi.Error": read.by_sqlstate,
}

REDIS: dict[str, Entry] = {
    "redis.asyncio.sentinel.MasterNotFoundError": UNSENT,
    "redis.asyncio.sentinel.SlaveNotFoundError": UNSENT,
    "redis.exceptions.AuthenticationError": None,
    "redis.exceptions.AuthorizationError": None,
    "redis.exceptions.BusyLoadingError": ANSWERED,
    "redis.exceptions.ClusterDownError": ANSWERED,
    "redis.exceptions.ConnectionError": read.by_redis_text,
    "redis.exceptions.ExternalAuthProviderError": None,
    "redis.exceptions.MaxConnectionsError": POOL_FULL,
    "redis.exceptions.SlotNotCoveredError": UNSENT_BUSY,
    "redis.exceptions.TimeoutError": read.by_redis_timeout,
    "redis.exceptions.TryAgainError": ANSWERED,
    "redis.exceptions.WatchError": CONFLICT,
    "redis.multidb.exception.TemporaryUnavailableException": UNSENT_BUSY,
    "redis.sentinel.MasterNotFoundError": UNSENT,
    "redis.sentinel.SlaveNotFoundError": UNSENT,
}

BOTOCORE: dict[str, Entry] = {
    "CapacityNotAvailableError": LIMITED_HERE,
    "ClientError": read.by_aws_code,
    "ConnectTimeoutError": UNSENT_TIMEOUT,
    "ConnectionClosedError": NETWORK,
    "ConnectionError": NETWORK,
    "EndpointConnectionError": read.by_connect_error,
    "HTTPClientError": read.by_cause,
    "IncompleteReadError": NETWORK,
    "ProxyConnectionError": read.by_cause,
    "ReadTimeoutError": READ_TIMEOUT,
    "ResponseStreamingError": NETWORK,
    "SSLError": read.by_cause,
}

KAFKA: dict[str, Entry] = {
    "Cancelled": None,
    "KafkaConnectionError": NETWORK,
    "KafkaError": read.by_retriable,
    "KafkaTimeoutError": TIMEOUT,
    "NetworkExceptionError": NETWORK,
    "RequestTimedOutError": TIMEOUT,
    "ThrottlingQuotaExceededError": RATE_LIMIT,
}

LLM: dict[str, Entry] = {
    "APIConnectionError": read.by_cause_or_network,
    "APIError": read.by_llm_error,
    "APIResponseValidationError": None,
    "APITimeoutError": read.by_cause_or_timeout,
}

ANTHROPIC: dict[str, Entry] = {
    "APIWebhookValidationError": None,
    "EnforcedSpendLimitReachedError": None,
    "RetryableError": ASKED_FOR,
}

TABLE: dict[str, Entry] = {
    **STANDARD,
    **DATABASES,
    **REDIS,
    "cimpl.KafkaException": read.by_kafka_name,  # confluent_kafka's
    **{
        f"{module}.{name}": entry
        for module, entries in (
            ("httpx", HTTPX),
            ("httpx2", HTTPX),
            ("requests.exceptions", REQUESTS),
            ("urllib3.exceptions", URLLIB3),
            ("aiohttp.client_exceptions", AIOHTTP),
            ("grpc", GRPC),
            ("botocore.exceptions", BOTOCORE),
            ("kafka.errors", KAFKA),
            ("aiokafka.errors", KAFKA),
            ("openai", LLM),
            ("anthropic", {**LLM, **ANTHROPIC}),
        )
        for name, entry in entries.items()
    },
}
