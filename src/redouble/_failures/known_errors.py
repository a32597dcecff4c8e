"""The table of all retryable errors, of Python and of other libraries, by qualified name.

The entry of the nearest class in the MRO decides: a verdict, a reader from `error_readers`, or None, which
excludes a class whose parent has an entry. No library is imported. The page docs/reference/transient.md shows
this table, and a test compares the two; tests/libraries compares it with the libraries.
"""

from __future__ import annotations

from redouble._failures import error_readers as read
from redouble._failures.builtin_errors import BUILTIN, BUSY, NETWORK, TIMEOUT, UNSENT, Entry, by_name
from redouble._failures.codes import ANSWERED, CONFLICT, RATE_LIMIT, UNSENT_BUSY, UNSENT_TIMEOUT
from redouble._failures.verdict import Kind, Verdict

READ_TIMEOUT = Verdict.retry(kind=Kind.timeout, reason="timeout_read")
WRITE_TIMEOUT = Verdict.retry(kind=Kind.timeout, reason="timeout_write")
POOL_TIMEOUT = Verdict.retry(kind=Kind.timeout, sent=False, reason="timeout_pool")
POOL_FULL = Verdict.retry(kind=Kind.throttled, sent=False, reason="pool_full")
LIMITED_HERE = Verdict.retry(kind=Kind.throttled, sent=False, reason="rate_limit")
ASKED_FOR = Verdict.retry(kind=Kind.unknown, reason="retryable")

# The modules, and the names of the classes of each entry.
_BY_MODULE: dict[str, dict[Entry, str]] = {
    # The standard library.
    "asyncio.exceptions": {NETWORK: "IncompleteReadError"},
    "ftplib": {BUSY: "error_temp"},
    "http.client": {NETWORK: "IncompleteRead"},
    "imaplib": {NETWORK: "IMAP4.abort"},
    "smtplib": {NETWORK: "SMTPServerDisconnected"},
    "socket": {read.by_lookup: "gaierror", read.by_host_lookup: "herror"},
    "sqlite3": {read.by_sqlite_name: "OperationalError"},
    "ssl": {read.by_tls_reason: "SSLError", NETWORK: "SSLEOFError SSLSyscallError SSLZeroReturnError"},
    "subprocess": {TIMEOUT: "TimeoutExpired"},
    "urllib.error": {read.by_status: "HTTPError", read.by_cause: "URLError"},
    # HTTP clients and gRPC.
    "httpx httpx2": {
        NETWORK: "NetworkError",
        POOL_TIMEOUT: "PoolTimeout",
        READ_TIMEOUT: "ReadTimeout",
        TIMEOUT: "TimeoutException",
        UNSENT_TIMEOUT: "ConnectTimeout",
        WRITE_TIMEOUT: "WriteTimeout",
        read.by_connect_error: "ConnectError",
        read.by_http2_event: "RemoteProtocolError",
        read.by_status: "HTTPStatusError",
    },
    "requests.exceptions": {
        None: "RequestException",
        NETWORK: "ChunkedEncodingError",
        READ_TIMEOUT: "ReadTimeout",
        TIMEOUT: "Timeout",
        UNSENT_TIMEOUT: "ConnectTimeout",
        read.by_cause: "SSLError",
        read.by_cause_or_network: "ConnectionError",
        read.by_status: "HTTPError",
    },
    "urllib3.exceptions": {
        None: "ResponseNotChunked",
        NETWORK: "ProtocolError",
        POOL_TIMEOUT: "EmptyPoolError",
        READ_TIMEOUT: "ReadTimeoutError",
        TIMEOUT: "TimeoutError",
        UNSENT_TIMEOUT: "ConnectTimeoutError",
        read.by_cause: "MaxRetryError ProxyError SSLError",
        read.by_connect_error: "NewConnectionError",
    },
    "aiohttp.client_exceptions": {
        None: "ClientConnectorCertificateError ServerFingerprintMismatch",
        NETWORK: "ClientConnectionError",
        READ_TIMEOUT: "SocketTimeoutError",
        TIMEOUT: "ServerTimeoutError",
        UNSENT_TIMEOUT: "ConnectionTimeoutError",
        read.by_connect_error: "ClientConnectorError",
        read.by_errno_or_network: "ClientOSError",
        read.by_payload: "ClientPayloadError",
        read.by_proxy_status: "ClientHttpProxyError",
        read.by_status: "ClientResponseError",
    },
    "grpc": {TIMEOUT: "FutureTimeoutError", read.by_grpc_code: "RpcError"},
    # Databases.
    "psycopg psycopg2": {read.by_sqlstate: "Error", read.by_sqlstate_or_text: "OperationalError"},
    "psycopg.errors": {None: "CancellationTimeout", UNSENT_TIMEOUT: "ConnectionTimeout"},
    "psycopg_pool": {None: "PoolClosed", POOL_TIMEOUT: "PoolTimeout", POOL_FULL: "TooManyRequests"},
    "asyncpg.exceptions._base": {read.by_sqlstate: "PostgresError"},
    "pymysql.err MySQLdb._exceptions": {read.by_mysql_code: "MySQLError"},
    "sqlalchemy.exc": {
        NETWORK: "DisconnectionError",
        POOL_TIMEOUT: "TimeoutError",
        read.by_orig: "EmulatedDBAPIException StatementError",
    },
    # Before SQLAlchemy 2.1 this class has neither the common parent nor an `orig`.
    "sqlalchemy.dialects.postgresql.asyncpg": {read.by_sqlstate: "AsyncAdapt_asyncpg_dbapi.Error"},
    "redis.exceptions": {
        None: "AuthenticationError AuthorizationError ExternalAuthProviderError",
        ANSWERED: "BusyLoadingError ClusterDownError TryAgainError",
        CONFLICT: "WatchError",
        POOL_FULL: "MaxConnectionsError",
        UNSENT_BUSY: "SlotNotCoveredError",
        read.by_redis_text: "ConnectionError",
        read.by_redis_timeout: "TimeoutError",
    },
    "redis.multidb.exception": {UNSENT_BUSY: "TemporaryUnavailableException"},
    "redis.sentinel redis.asyncio.sentinel": {UNSENT: "MasterNotFoundError SlaveNotFoundError"},
    # AWS, Kafka and LLM providers.
    "botocore.exceptions": {
        LIMITED_HERE: "CapacityNotAvailableError",
        NETWORK: "ConnectionClosedError ConnectionError IncompleteReadError ResponseStreamingError",
        READ_TIMEOUT: "ReadTimeoutError",
        UNSENT_TIMEOUT: "ConnectTimeoutError",
        read.by_aws_code: "ClientError",
        read.by_cause: "HTTPClientError ProxyConnectionError SSLError",
        read.by_connect_error: "EndpointConnectionError",
    },
    "kafka.errors aiokafka.errors": {
        None: "Cancelled",
        NETWORK: "KafkaConnectionError NetworkExceptionError",
        RATE_LIMIT: "ThrottlingQuotaExceededError",
        TIMEOUT: "KafkaTimeoutError RequestTimedOutError",
        read.by_retriable: "KafkaError",
    },
    "cimpl": {read.by_kafka_name: "KafkaException"},  # confluent_kafka's
    "openai anthropic": {
        None: "APIResponseValidationError",
        read.by_cause_or_network: "APIConnectionError",
        read.by_cause_or_timeout: "APITimeoutError",
        read.by_llm_error: "APIError",
    },
    "anthropic": {
        None: "APIWebhookValidationError EnforcedSpendLimitReachedError",
        ASKED_FOR: "RetryableError",
    },
}

TABLE = BUILTIN | {
    f"{module}.{name}": entry
    for modules, groups in _BY_MODULE.items()
    for module in modules.split()
    for name, entry in by_name(groups).items()
}
