"""Tables of retryable codes: HTTP statuses, SQLSTATEs, codes of MySQL, gRPC, AWS, LLM providers and Kafka.

A code that is not in its table is not retried. The reasons for each choice are on the page
docs/reference/transient.md, and a test compares the two.
"""

from __future__ import annotations

from redouble._failures.builtin_errors import BUSY, NETWORK, TIMEOUT, UNSENT
from redouble._failures.verdict import Kind, Verdict

__all__ = [
    "ANSWERED",
    "AWS",
    "AWS_STATUSES",
    "CONFLUENT",
    "GRPC",
    "LLM",
    "LLM_STATUSES",
    "MYSQL",
    "POSTGRES",
    "POSTGRES_NEVER",
    "POSTGRES_TEXTS",
    "QUOTA",
    "STATUSES",
]


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

STATUSES: dict[int, Verdict] = {
    408: TIMED_OUT,
    425: _answered(Kind.server, "too_early"),
    429: RATE_LIMIT,
    502: HTTP_5XX,
    503: HTTP_5XX,
    504: HTTP_5XX,
    **dict.fromkeys(range(520, 525), HTTP_5XX),  # Cloudflare's variants of 502 and 504
    529: OVERLOADED,
}

# Elsewhere a 500 is most often a bug that recurs. These vendors document theirs as transient, and the LLM
# vendors document their 409 as a lock timeout.
AWS_STATUSES: dict[int, Verdict] = {**STATUSES, 500: HTTP_5XX}
LLM_STATUSES: dict[int, Verdict] = {**AWS_STATUSES, 409: CONFLICT}

# LLM errors inside a stream follow a status 200 and have only an error code or type.
LLM: dict[str, Verdict] = {
    "api_error": HTTP_5XX,
    "overloaded_error": OVERLOADED,
    "rate_limit_error": RATE_LIMIT,
    "rate_limit_exceeded": RATE_LIMIT,
    "server_error": HTTP_5XX,
    "timeout_error": TIMED_OUT,
}

# Sent with 429 too, but a retry cannot help: the paid quota is used up.
QUOTA = frozenset({"billing_hard_limit_reached", "billing_error", "insufficient_quota"})

# botocore's lists, and the codes of server errors that arrive with a 4xx status or in event streams.
AWS: dict[str, Verdict] = {
    **dict.fromkeys(
        (
            "BandwidthLimitExceeded",
            "EC2ThrottledException",
            "LimitExceededException",
            "PriorRequestNotComplete",
            "ProvisionedThroughputExceededException",
            "RequestLimitExceeded",
            "RequestThrottled",
            "RequestThrottledException",
            "SlowDown",
            "ThrottledException",
            "Throttling",
            "ThrottlingException",
            "TooManyRequestsException",
            "TransactionInProgressException",
        ),
        RATE_LIMIT,
    ),
    **dict.fromkeys(("RequestTimeout", "RequestTimeoutException"), TIMED_OUT),
    **dict.fromkeys(
        (
            "InternalError",
            "InternalFailure",
            "InternalServerError",
            "InternalServerException",
            "ServiceUnavailable",
            "ServiceUnavailableException",
        ),
        HTTP_5XX,
    ),
}

GRPC: dict[str, Verdict] = {
    "ABORTED": CONFLICT,
    "DEADLINE_EXCEEDED": TIMEOUT,
    "RESOURCE_EXHAUSTED": RATE_LIMIT,
    "UNAVAILABLE": Verdict.retry(kind=Kind.server, reason="unavailable"),
}

POSTGRES: dict[str, Verdict] = {
    "08000": NETWORK,  # connection_exception
    "08001": UNSENT,  # sqlclient_unable_to_establish_sqlconnection
    "08003": NETWORK,  # connection_does_not_exist
    "08004": UNSENT,  # sqlserver_rejected_establishment_of_sqlconnection
    "08006": NETWORK,  # connection_failure
    "08007": NETWORK,  # transaction_resolution_unknown
    "40000": CONFLICT,  # transaction_rollback
    "40001": CONFLICT,  # serialization_failure
    "40003": NETWORK,  # statement_completion_unknown
    "40P01": CONFLICT,  # deadlock_detected
    "53000": ANSWERED,  # insufficient_resources
    "53200": ANSWERED,  # out_of_memory
    "53300": UNSENT_FULL,  # too_many_connections
    "55006": LOCKED,  # object_in_use
    "55P03": LOCKED,  # lock_not_available
    "57P01": NETWORK,  # admin_shutdown
    "57P02": NETWORK,  # crash_shutdown
    "57P03": UNSENT_BUSY,  # cannot_connect_now
    "57P05": NETWORK,  # idle_session_timeout
}

# libpq has no SQLSTATE for failures without a response of the server, only a text. `POSTGRES_NEVER` is
# checked first: with several hosts the text lists the failure of each.
POSTGRES_NEVER = (
    "authentication failed",
    "no password supplied",
    "no pg_hba.conf entry",
    "does not exist",
    "certificate verify failed",
    "name or service not known",
    "not permitted to log in",
)
POSTGRES_TEXTS: dict[str, Verdict] = {
    "connection refused": UNSENT,
    "accepting connections on that socket": UNSENT,
    "no route to host": UNSENT,
    "network is unreachable": UNSENT,
    "temporary failure in name resolution": UNSENT,
    "timeout expired": UNSENT_TIMEOUT,
    "connection timed out": UNSENT_TIMEOUT,
    "too many clients already": UNSENT_FULL,
    "connection slots are reserved": UNSENT_FULL,
    "too many connections for": UNSENT_FULL,
    "the database system is": UNSENT_BUSY,
    "server closed the connection unexpectedly": NETWORK,
    "connection has been closed unexpectedly": NETWORK,
    "connection reset by peer": NETWORK,
    "could not receive data from server": NETWORK,
    "could not send data to server": NETWORK,
    "ssl syscall error": NETWORK,
    "terminating connection due to": NETWORK,
    "the connection is lost": NETWORK,
}

MYSQL: dict[int, Verdict] = {
    1040: UNSENT_FULL,  # too many connections
    1053: NETWORK,  # server shutdown in progress
    1158: NETWORK,  # error reading communication packets, and three similar ones
    1159: NETWORK,
    1160: NETWORK,
    1161: NETWORK,
    1203: UNSENT_FULL,  # too many connections of this user
    1205: LOCKED,  # lock wait timeout exceeded
    1213: CONFLICT,  # deadlock
    2002: UNSENT,  # cannot connect through the socket
    2003: UNSENT,  # cannot connect to the host
    2006: NETWORK,  # server has gone away
    2013: NETWORK,  # lost connection during query
    2055: NETWORK,  # lost connection at ...
    3101: CONFLICT,  # rolled back by group replication
    3572: LOCKED,  # NOWAIT, and the lock is held
    4031: NETWORK,  # disconnected for being idle
}

CONFLUENT: dict[str, Verdict] = {
    "_ALL_BROKERS_DOWN": NETWORK,
    "_QUEUE_FULL": UNSENT_BUSY,
    "_TIMED_OUT": TIMEOUT,
    "_TIMED_OUT_QUEUE": TIMEOUT,
    "_TRANSPORT": NETWORK,
    "_WAIT_COORD": BUSY,
    "COORDINATOR_LOAD_IN_PROGRESS": BUSY,
    "COORDINATOR_NOT_AVAILABLE": BUSY,
    "LEADER_NOT_AVAILABLE": BUSY,
    "NETWORK_EXCEPTION": NETWORK,
    "NOT_COORDINATOR": BUSY,
    "NOT_ENOUGH_REPLICAS": BUSY,
    "NOT_LEADER_FOR_PARTITION": BUSY,
    "REQUEST_TIMED_OUT": TIMEOUT,
    "THROTTLING_QUOTA_EXCEEDED": RATE_LIMIT,
}
