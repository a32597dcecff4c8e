"""The table of all retryable errors, of Python and of other libraries, by qualified name.

The entry of the nearest class in the MRO decides: a verdict, a reader, or None, which
excludes a class whose parent has an entry. No library is imported. The page docs/reference/transient.md shows
this table, and a test compares the two; tests/libraries compares it with the libraries.
"""

from __future__ import annotations

from redouble._failures import database_readers as database
from redouble._failures import error_readers as read
from redouble._failures.builtin_errors import BUILTIN, BUSY, NETWORK, TIMEOUT, UNSENT, Entry, by_name
from redouble._failures.codes import (
    ANSWERED,
    CONFLICT,
    LIMITED_HERE,
    OVERLOADED,
    POOL_TIMEOUT,
    RATE_LIMIT,
    TIMED_OUT,
    UNSENT_BUSY,
    UNSENT_TIMEOUT,
)
from redouble._failures.verdict import Kind, Verdict

READ_TIMEOUT = Verdict.retry(kind=Kind.timeout, reason="timeout_read")
WRITE_TIMEOUT = Verdict.retry(kind=Kind.timeout, reason="timeout_write")
POOL_FULL = Verdict.retry(kind=Kind.throttled, sent=False, reason="pool_full")
ASKED_FOR = Verdict.retry(kind=Kind.unknown, reason="retryable")

# The modules, and the names of the classes of each entry.
_BY_MODULE: dict[str, dict[Entry, str]] = {
    # The standard library.
    "asyncio.exceptions": {NETWORK: "IncompleteReadError"},
    "ftplib": {BUSY: "error_temp"},
    "http.client": {NETWORK: "BadStatusLine IncompleteRead"},
    "imaplib": {NETWORK: "IMAP4.abort"},
    "smtplib": {
        NETWORK: "SMTPServerDisconnected",
        read.by_recipients: "SMTPRecipientsRefused",
        read.by_smtp_code: "SMTPResponseException",
    },
    "socket": {read.by_lookup: "gaierror", read.by_host_lookup: "herror"},
    "sqlite3": {database.by_sqlite_name: "OperationalError"},
    "ssl": {read.by_tls_reason: "SSLError", NETWORK: "SSLEOFError SSLSyscallError SSLZeroReturnError"},
    "subprocess": {TIMEOUT: "TimeoutExpired"},
    "urllib.error": {read.by_status: "HTTPError", read.by_cause: "URLError"},
    # HTTP clients and gRPC.
    "httpcore httpcore2 httpx httpx2": {
        NETWORK: "NetworkError",
        POOL_TIMEOUT: "PoolTimeout",
        READ_TIMEOUT: "ReadTimeout",
        TIMEOUT: "TimeoutException",
        UNSENT_TIMEOUT: "ConnectTimeout",
        WRITE_TIMEOUT: "WriteTimeout",
        read.by_connect_error: "ConnectError",
        read.by_http2_event: "RemoteProtocolError",
    },
    "httpx httpx2": {read.by_status: "HTTPStatusError"},
    "h11._util": {NETWORK: "RemoteProtocolError"},
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
    "websockets.exceptions": {
        read.by_close_code: "ConnectionClosed",
        read.by_cut_handshake: "InvalidMessage",
        read.by_proxy_status: "InvalidProxyStatus",
        read.by_status: "InvalidStatus",
    },
    "websockets.legacy.exceptions": {read.by_status: "InvalidStatusCode"},
    # Streams of event loops.
    "anyio": {NETWORK: "IncompleteRead", read.by_connect_error: "ConnectionFailed"},
    "anyio trio": {read.by_broken_stream: "BrokenResourceError"},
    "trio": {TIMEOUT: "TooSlowError"},
    "grpc": {TIMEOUT: "FutureTimeoutError", read.by_grpc_code: "RpcError"},
    # Databases.
    "psycopg psycopg2": {database.by_sqlstate: "Error", database.by_sqlstate_or_text: "OperationalError"},
    "psycopg.errors": {None: "CancellationTimeout", UNSENT_TIMEOUT: "ConnectionTimeout"},
    "psycopg_pool": {None: "PoolClosed", POOL_TIMEOUT: "PoolTimeout", POOL_FULL: "TooManyRequests"},
    "asyncpg.exceptions._base": {
        None: "DataError",
        database.by_closed_connection: "InterfaceError",
        database.by_sqlstate: "PostgresError",
    },
    "psycopg2": {database.by_closed_connection: "InterfaceError"},
    "asyncmy.errors pymysql.err": {database.by_closed_connection: "InterfaceError"},
    "asyncmy.errors pymysql.err MySQLdb._exceptions": {database.by_mysql_code: "MySQLError"},
    "oracledb.exceptions": {database.by_oracle_code: "Error"},
    "sqlalchemy.exc": {
        NETWORK: "DisconnectionError",
        POOL_TIMEOUT: "TimeoutError",
        database.by_orig: "EmulatedDBAPIException StatementError",
    },
    # Before SQLAlchemy 2.1 this class has neither the common parent nor an `orig`.
    "sqlalchemy.dialects.postgresql.asyncpg": {database.by_sqlstate: "AsyncAdapt_asyncpg_dbapi.Error"},
    "redis.exceptions": {
        None: "AuthenticationError AuthorizationError ExternalAuthProviderError",
        ANSWERED: "BusyLoadingError ClusterDownError ReadOnlyError TryAgainError",
        CONFLICT: "WatchError",
        POOL_FULL: "MaxConnectionsError",
        UNSENT_BUSY: "SlotNotCoveredError",
        database.by_redis_code: "ResponseError",
        database.by_redis_text: "ConnectionError",
        database.by_redis_timeout: "TimeoutError",
    },
    "redis.multidb.exception": {UNSENT_BUSY: "TemporaryUnavailableException"},
    "redis.sentinel redis.asyncio.sentinel": {UNSENT: "MasterNotFoundError SlaveNotFoundError"},
    "pymongo.errors": {
        None: "BulkWriteError ClientBulkWriteException",
        ANSWERED: "NotPrimaryError",
        NETWORK: "ConnectionFailure",
        POOL_TIMEOUT: "WaitQueueTimeoutError",
        TIMEOUT: "NetworkTimeout",
        UNSENT_TIMEOUT: "ServerSelectionTimeoutError",
        database.by_mongo_code: "OperationFailure",
    },
    "cassandra": {
        ANSWERED: "Unavailable",
        TIMED_OUT: "Timeout",
        TIMEOUT: "OperationTimedOut",
        UNSENT: "UnresolvableContactPoints",
    },
    "cassandra.cluster": {database.by_hosts: "NoHostAvailable"},
    "cassandra.connection": {
        None: "ProtocolVersionUnsupported",
        NETWORK: "ConnectionException",
        POOL_FULL: "ConnectionBusy",
    },
    "cassandra.pool": {POOL_FULL: "NoConnectionsAvailable"},
    "cassandra.protocol": {ANSWERED: "IsBootstrappingErrorMessage", OVERLOADED: "OverloadedErrorMessage"},
    "elastic_transport": {
        read.by_cause: "TlsError",
        read.by_cause_or_network: "ConnectionError",
        read.by_cause_or_timeout: "ConnectionTimeout",
        read.by_status: "ApiError",
    },
    "opensearchpy.exceptions": {
        read.by_cause: "SSLError",
        read.by_cause_or_network: "ConnectionError",
        read.by_cause_or_timeout: "ConnectionTimeout",
        read.by_status: "TransportError",
    },
    # Clouds, brokers and LLM providers.
    "azure.core.exceptions": {
        None: "DecodeError",
        NETWORK: "IncompleteReadError",
        READ_TIMEOUT: "ServiceResponseTimeoutError",
        UNSENT_TIMEOUT: "ServiceRequestTimeoutError",
        read.by_azure_status: "HttpResponseError",
        read.by_cause_or_network: "ServiceRequestError ServiceResponseError",
    },
    "google.api_core.exceptions": {read.by_google_code: "GoogleAPICallError"},
    "google.auth.exceptions": {
        TIMEOUT: "TimeoutError",
        read.by_cause_or_network: "TransportError",
        read.by_retryable: "GoogleAuthError",
    },
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
    "pika.exceptions": {
        None: "AuthenticationError ConnectionClosedByClient ConnectionWrongStateError NoFreeChannels "
        "ProbableAccessDeniedError ProbableAuthenticationError",
        ANSWERED: "NackError",
        BUSY: "ConnectionBlockedTimeout",
        NETWORK: "AMQPHeartbeatTimeout StreamLostError",
        read.by_amqp_code: "ConnectionClosed",
        read.by_amqp_handshake: "IncompatibleProtocolError",
        read.by_cause_or_network: "AMQPConnectionError",
    },
    "pika.adapters.utils.connection_workflow": {
        UNSENT_TIMEOUT: "AMQPConnectorStackTimeout",
        read.by_cause: "AMQPConnectorPhaseErrorBase",
        read.by_last_attempt: "AMQPConnectionWorkflowFailed",
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
    "litellm.types.router": {
        LIMITED_HERE: "RouterRateLimitErrorBasic",
        read.by_cooldown: "RouterRateLimitError",
    },
}

TABLE = BUILTIN | {
    f"{module}.{name}": entry
    for modules, groups in _BY_MODULE.items()
    for module in modules.split()
    for name, entry in by_name(groups).items()
}
