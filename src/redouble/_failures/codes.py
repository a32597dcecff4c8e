"""Tables of retryable codes: HTTP statuses, SQLSTATEs, codes of MySQL, gRPC, AWS, LLM providers and Kafka.

Each is written by verdict: the codes that have it. A code that is not in its table is not retried. The
reasons for each choice are on the page docs/reference/transient.md, and a test compares the two.
"""

from __future__ import annotations

from redouble._failures.builtin_errors import BUSY, NETWORK, TIMEOUT, UNSENT, by_name
from redouble._failures.verdict import Kind, Verdict


def _answered(kind: Kind, reason: str) -> Verdict:
    """Return the verdict for a request that the server received and answered with an error."""
    return Verdict.retry(kind=kind, sent=True, reason=reason)


ANSWERED = _answered(Kind.server, "busy")  # the server asks for a retry and gives no reason
RATE_LIMIT = _answered(Kind.throttled, "rate_limit")
OVERLOADED = _answered(Kind.throttled, "overloaded")
HTTP_5XX = _answered(Kind.server, "http_5xx")
TIMED_OUT = _answered(Kind.timeout, "timeout")
CONFLICT = _answered(Kind.server, "conflict")
LOCKED = _answered(Kind.server, "locked")
UNSENT_BUSY = Verdict.retry(kind=Kind.server, sent=False, reason="busy")
UNSENT_FULL = Verdict.retry(kind=Kind.throttled, sent=False, reason="too_many_connections")
UNSENT_TIMEOUT = Verdict.retry(kind=Kind.timeout, sent=False, reason="timeout_connect")
POOL_TIMEOUT = Verdict.retry(kind=Kind.timeout, sent=False, reason="timeout_pool")
LIMITED_HERE = Verdict.retry(kind=Kind.throttled, sent=False, reason="rate_limit")


def _numbers(groups: dict[Verdict, str]) -> dict[int, Verdict]:
    return {int(code): verdict for code, verdict in by_name(groups).items()}


STATUSES = _numbers(
    {
        TIMED_OUT: "408",
        _answered(Kind.server, "too_early"): "425",
        RATE_LIMIT: "429",
        HTTP_5XX: "502 503 504 520 521 522 523 524",  # 52x: Cloudflare's variants of 502 and 504
        OVERLOADED: "529",
    }
)

# The idempotent methods of RFC 9110 except TRACE: a diagnostic request must not be repeated silently.
IDEMPOTENT = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE", "QUERY"})

# Elsewhere a 500 is most often a bug that recurs. These vendors document theirs as transient, and the LLM
# vendors document their 409 as a lock timeout.
AWS_STATUSES = {**STATUSES, 500: HTTP_5XX}
LLM_STATUSES = {**AWS_STATUSES, 409: CONFLICT}

# LLM errors inside a stream follow a status 200 and have only an error code or type.
LLM = by_name(
    {
        HTTP_5XX: "api_error server_error",
        OVERLOADED: "overloaded_error",
        RATE_LIMIT: "rate_limit_error rate_limit_exceeded",
        TIMED_OUT: "timeout_error",
    }
)

# Sent with 429 too, but a retry cannot help: the paid quota is used up.
QUOTA = frozenset({"billing_hard_limit_reached", "billing_error", "insufficient_quota"})

# botocore's lists, and the codes of server errors that arrive with a 4xx status or in event streams.
AWS = by_name(
    {
        RATE_LIMIT: """
            BandwidthLimitExceeded EC2ThrottledException LimitExceededException PriorRequestNotComplete
            ProvisionedThroughputExceededException RequestLimitExceeded RequestThrottled
            RequestThrottledException SlowDown ThrottledException Throttling ThrottlingException
            TooManyRequestsException TransactionInProgressException
        """,
        TIMED_OUT: "RequestTimeout RequestTimeoutException",
        HTTP_5XX: """
            InternalError InternalFailure InternalServerError InternalServerException
            ServiceUnavailable ServiceUnavailableException
        """,
    }
)

GRPC: dict[str, Verdict] = {
    "ABORTED": CONFLICT,
    "DEADLINE_EXCEEDED": TIMEOUT,
    "RESOURCE_EXHAUSTED": RATE_LIMIT,
    "UNAVAILABLE": Verdict.retry(kind=Kind.server, reason="unavailable"),
}

POSTGRES = by_name(
    {
        # connection_exception, connection_does_not_exist, connection_failure, transaction_resolution_unknown,
        # statement_completion_unknown, admin_shutdown, crash_shutdown, idle_session_timeout
        NETWORK: "08000 08003 08006 08007 40003 57P01 57P02 57P05",
        # sqlclient_unable_to_establish_sqlconnection, sqlserver_rejected_establishment_of_sqlconnection
        UNSENT: "08001 08004",
        CONFLICT: "40000 40001 40P01",  # transaction_rollback, serialization_failure, deadlock_detected
        ANSWERED: "53000 53200",  # insufficient_resources, out_of_memory
        UNSENT_FULL: "53300",  # too_many_connections
        LOCKED: "55006 55P03",  # object_in_use, lock_not_available
        UNSENT_BUSY: "57P03",  # cannot_connect_now
    }
)

# libpq has no SQLSTATE for failures without a response of the server, only a text. The first part that it
# contains decides. Final failures come first: with several hosts the text lists the failure of each.
POSTGRES_TEXTS = by_name(
    {
        None: "authentication failed, no password supplied, no pg_hba.conf entry, does not exist, "
        "certificate verify failed, name or service not known, not permitted to log in",
        UNSENT: "connection refused, accepting connections on that socket, no route to host, "
        "network is unreachable, temporary failure in name resolution",
        UNSENT_TIMEOUT: "timeout expired, connection timed out",
        UNSENT_FULL: "too many clients already, connection slots are reserved, too many connections for",
        UNSENT_BUSY: "the database system is",
        NETWORK: "server closed the connection unexpectedly, connection has been closed unexpectedly, "
        "connection reset by peer, could not receive data from server, could not send data to server, "
        "ssl syscall error, terminating connection due to, the connection is lost",
    },
    ", ",
)

MYSQL = _numbers(
    {
        UNSENT_FULL: "1040 1203",  # too many connections, of all users and of this one
        # shutdown; errors reading or writing packets; the server has gone away; lost connection; idle
        NETWORK: "1053 1158 1159 1160 1161 2006 2013 2055 4031",
        LOCKED: "1205 3572",  # lock wait timeout exceeded; NOWAIT, and the lock is held
        CONFLICT: "1213 3101",  # deadlock; rolled back by group replication
        UNSENT: "2002 2003",  # cannot connect through the socket, or to the host
    }
)

ORACLE = by_name(
    {
        NETWORK: "DPY-4011 DPY-4033 ORA-12571",  # connection closed, idle for too long, packet writer failure
        # no listener; the destination host is unreachable
        UNSENT: "ORA-12541 ORA-12543",
        UNSENT_TIMEOUT: "ORA-12170 ORA-12535",
        # sessions and processes of the server; no handler of the listener
        UNSENT_FULL: "ORA-00018 ORA-00020 ORA-12516 ORA-12518 ORA-12519 ORA-12520",
        # starting or stopping; the listener blocks new connections
        UNSENT_BUSY: "ORA-01033 ORA-01034 ORA-01090 ORA-12526 ORA-12527 ORA-12528",
        CONFLICT: "ORA-00060 ORA-08177",  # deadlock; cannot serialize
        LOCKED: "ORA-00054 ORA-04021 ORA-30006",  # NOWAIT or WAIT, and the lock is held
        POOL_TIMEOUT: "DPY-4005",
        TIMEOUT: "DPY-4024",  # call_timeout
    }
)

MONGO = _numbers(
    {
        NETWORK: "6 7 89 9001",  # between the servers: unreachable, not found, timeout, socket
        LOCKED: "24 46",
        # shutdown, read concern not available yet, stepped down or not primary, interrupted by these
        ANSWERED: "91 134 189 10058 10107 11600 11602 13435 13436",
        CONFLICT: "112",  # write conflict
        TIMED_OUT: "262",  # of the server, not the caller's maxTimeMS
        OVERLOADED: "462",
    }
)

# The first word of an error. The server has not executed the command.
REDIS = by_name({ANSWERED: "BUSY CLUSTERDOWN LOADING MASTERDOWN NOREPLICAS READONLY TRYAGAIN"})

# Replies for now: service not available, mailbox busy, error in processing, no storage, cannot authenticate.
SMTP = _numbers({ANSWERED: "421 450 451 452 454"})

# going away, abnormal closure, service restart, try again later, bad gateway
WEBSOCKET = _numbers({NETWORK: "1001 1006 1012", BUSY: "1013 1014"})

# Reasons in a 403 of Google's JSON APIs that mean a rate, not a permission.
GOOGLE_LIMITS = frozenset({"rateLimitExceeded", "userRateLimitExceeded"})

CONFLUENT = by_name(
    {
        NETWORK: "_ALL_BROKERS_DOWN _TRANSPORT NETWORK_EXCEPTION",
        UNSENT_BUSY: "_QUEUE_FULL",
        TIMEOUT: "_TIMED_OUT _TIMED_OUT_QUEUE REQUEST_TIMED_OUT",
        BUSY: """
            _WAIT_COORD COORDINATOR_LOAD_IN_PROGRESS COORDINATOR_NOT_AVAILABLE LEADER_NOT_AVAILABLE
            NOT_COORDINATOR NOT_ENOUGH_REPLICAS NOT_LEADER_FOR_PARTITION
        """,
        RATE_LIMIT: "THROTTLING_QUOTA_EXCEEDED",
    }
)
