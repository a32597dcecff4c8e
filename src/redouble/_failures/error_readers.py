"""Readers of errors: where each library keeps the code, the response headers and the original error.

A reader returns the verdict on one error, or None; it calls ``ask`` to judge another error inside it. Readers
do not guard against malformed errors: `Transient` catches what they raise. The codes are in `codes`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from redouble._failures import codes
from redouble._failures.builtin_errors import BUSY, NETWORK, TIMEOUT, UNSENT, Ask
from redouble._failures.grpc_trailers import requested_delay
from redouble._failures.retry_after import response_hint, response_wish, with_hint
from redouble._failures.verdict import Kind, Verdict, changed

# It has been sent, body and all, and the server has promised that it did nothing with it.
NOT_PROCESSED = Verdict.retry(kind=Kind.network, sent=False, reason="not_processed")
REFUSED_STREAM = 7  # an error code of HTTP/2

# -------------------------------------------------------------------------- HTTP clients


def by_status(error: Any, _: Ask) -> Verdict | None:
    """Judge by the status and headers of the HTTP response."""
    if _is_malformed_response(error):
        return NETWORK
    status, headers = response_of(error)
    requested, hint = response_wish(headers, status)
    if requested is False:
        return None
    return with_hint(codes.STATUSES.get(status) or (codes.ANSWERED if requested else None), hint)


def response_of(error: Any) -> tuple[Any, object]:
    """Return status and headers of the response: of ``error.response``, or of the error (aiohttp, urllib)."""
    if _is_malformed_response(error):
        return None, None
    response = getattr(error, "response", None)
    source = error if response is None else response
    status = getattr(source, "status_code", None) or getattr(source, "status", None)
    return status, getattr(source, "headers", None)


def _is_malformed_response(error: Any) -> bool:
    """Return True for aiohttp's error about a malformed response, whose status is not the server's."""
    return type(error.__cause__).__module__ == "aiohttp.http_exceptions"


def by_payload(error: Any, _: Ask) -> Verdict | None:
    """Retry a truncated body; a complete body that cannot be decoded would be the same again."""
    return None if type(error.__cause__).__name__ == "ContentEncodingError" else NETWORK


def is_from_proxy(error: object) -> bool:
    """Return True for aiohttp's error about the response of a proxy: the server has received nothing."""
    return any(kind.__name__ == "ClientHttpProxyError" for kind in type(error).__mro__)


def by_proxy_status(error: Any, ask: Ask) -> Verdict | None:
    """Judge by the proxy's status; a retry counts as unsent, because the server received nothing."""
    verdict = by_status(error, ask)
    return None if verdict is None else changed(verdict, sent=False)


def by_cause(error: Any, ask: Ask) -> Verdict | None:
    """Judge the original error."""
    return ask(_cause(error))


def by_cause_or_network(error: Any, ask: Ask) -> Verdict | None:
    """Judge the original error; without one, it is a network error."""
    cause = _cause(error)
    return NETWORK if cause is None else ask(cause)


def by_cause_or_timeout(error: Any, ask: Ask) -> Verdict | None:
    """Judge the original error; without a verdict, it is a timeout."""
    return ask(_cause(error)) or TIMEOUT


def by_connect_error(error: Any, ask: Ask) -> Verdict | None:
    """Retry a failed connection as unsent; not if the certificate, the host or a permission is the cause."""
    for cause in _causes(error):
        if isinstance(cause, OSError) and cause.errno is not None:
            verdict = ask(cause)
            if verdict is None:
                return None
            return codes.UNSENT_TIMEOUT if verdict.kind is Kind.timeout else UNSENT
    return UNSENT


def by_http2_event(error: Any, _: Ask) -> Verdict | None:
    """Judge by the HTTP/2 event that httpcore reports: a refused stream was not processed at all."""
    event = next(iter(getattr(error.__cause__, "args", ())), None)
    refused = type(event).__name__ == "StreamReset" and getattr(event, "error_code", None) == REFUSED_STREAM
    unseen = type(event).__name__ == "ConnectionTerminated" and getattr(event, "last_stream_id", None) == 0
    return NOT_PROCESSED if refused or unseen else NETWORK


def by_errno_or_network(error: Any, ask: Ask) -> Verdict | None:
    """Judge by the errno (of a file to upload, for instance); without one, it is a network error."""
    return NETWORK if error.errno is None else ask(OSError(error.errno, ""))


def _cause(error: Any) -> Exception | None:
    """Return the original error. `__context__` does not count: it may be any error that was being handled."""
    kwargs: Any = getattr(error, "kwargs", None) or {}  # botocore keeps it there
    reason, original = getattr(error, "reason", None), getattr(error, "original_error", None)
    candidates: tuple[object, ...] = (reason, original, kwargs.get("error"), *error.args, error.__cause__)
    return next((candidate for candidate in candidates if isinstance(candidate, Exception)), None)


def _causes(error: Any) -> Iterator[Exception]:
    for _ in range(8):  # the chain may be circular
        error = _cause(error)
        if error is None:
            return
        yield error


# --------------------------------------------------------------------------- LLM providers


def by_llm_error(error: Any, _: Ask) -> Verdict | None:
    """Judge by the status, or by the error code in a stream; ``x-should-retry`` overrides both."""
    error_codes = [getattr(error, name, None) for name in ("code", "type")]
    headers = getattr(getattr(error, "response", None), "headers", None)
    status = getattr(error, "status_code", 0)
    requested, hint = response_wish(headers, status)
    if requested is False or not codes.QUOTA.isdisjoint(error_codes):
        return None
    verdict = codes.LLM_STATUSES.get(status)
    if verdict is None and not 400 <= status < 500:  # a 4xx status decides, whatever code a gateway adds
        verdict = next((codes.LLM[code] for code in error_codes if code in codes.LLM), None)
    return with_hint(verdict or (codes.ANSWERED if requested else None), hint)


# ---------------------------------------------------------------------------- databases


def by_sqlstate(error: Any, _: Ask) -> Verdict | None:
    """Judge by the SQLSTATE."""
    return codes.POSTGRES.get(getattr(error, "sqlstate", None) or getattr(error, "pgcode", None) or "")


def by_sqlstate_or_text(error: Any, ask: Ask) -> Verdict | None:
    """Judge by the SQLSTATE; without one, by libpq's text."""
    if getattr(error, "sqlstate", None) or getattr(error, "pgcode", None):
        return by_sqlstate(error, ask)
    text = str(error).lower()
    return next((verdict for part, verdict in codes.POSTGRES_TEXTS.items() if part in text), None)


def by_mysql_code(error: Any, _: Ask) -> Verdict | None:
    """Judge by the error number, which is the first argument."""
    return codes.MYSQL.get(error.args[0])


def by_orig(error: Any, ask: Ask) -> Verdict | None:
    """Judge the driver's error; without a verdict, retry if SQLAlchemy has invalidated the connection."""
    verdict = ask(error.orig)
    return NETWORK if verdict is None and getattr(error, "connection_invalidated", None) is True else verdict


def by_sqlite_name(error: Any, _: Ask) -> Verdict | None:
    """Retry if another connection holds a lock."""
    return BUSY if error.sqlite_errorname.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")) else None


def by_redis_text(error: Any, ask: Ask) -> Verdict | None:
    """Judge by the error number in a text "Error ... connecting to"; any other text is a network error."""
    match = re.match(r"Error (-?[0-9]{1,5}) connecting to ", str(error))
    if match is None:
        return NETWORK
    number = int(match[1])  # the numbers of name lookups are negative
    return ask(OSError(number, "")) if number > 0 else _resolver_verdict(number)


def by_redis_timeout(error: Any, _: Ask) -> Verdict | None:
    """Retry as unsent if the text contains "connecting"."""
    return codes.UNSENT_TIMEOUT if "connecting" in str(error) else TIMEOUT


# ----------------------------------------------------------------------- gRPC, AWS, Kafka


def by_grpc_code(error: Any, _: Ask) -> Verdict | None:
    """Judge by the status code, and by what the server asks for; it may forbid a retry."""
    code, details = error.code().name, str(error.details())
    if code == "RESOURCE_EXHAUSTED" and "larger than max" in details:
        return None  # the same message would be too large again
    if code == "UNAVAILABLE" and details.startswith("failed to connect to all addresses"):
        return UNSENT
    if code == "INTERNAL" and details == "Internal error from Core" and _failed_to_send(error):
        return codes.GRPC["UNAVAILABLE"]
    delay = requested_delay(error.trailing_metadata())
    return None if delay is not None and delay < 0 else with_hint(codes.GRPC.get(code), delay)


def _failed_to_send(error: Any) -> bool:
    """Return True if a message could not be sent because the server had ended the call.

    `grpc.aio` then replaces the status of the server by an error of its own.
    """
    text = str(error.debug_error_string())
    return text.startswith('Failed "execute_batch"') and "SendMessageOperation" in text


def by_aws_code(error: Any, _: Ask) -> Verdict | None:
    """Judge by the error code, then by the status."""
    response: Mapping[str, Any] = error.response
    metadata: Mapping[str, Any] = response.get("ResponseMetadata") or {}
    status = metadata.get("HTTPStatusCode", 0)
    verdict = codes.AWS.get(response.get("Error", {}).get("Code")) or codes.AWS_STATUSES.get(status)
    return with_hint(verdict, response_hint(metadata.get("HTTPHeaders"), status))


def by_retriable(error: Any, _: Ask) -> Verdict | None:
    """Judge by the library's own flag ``retriable``."""
    return BUSY if error.retriable is True else None


def by_kafka_name(error: Any, _: Ask) -> Verdict | None:
    """Judge by the name of the inner error, or by the library's own flag ``retriable()``."""
    inner_error = error.args[0]
    if inner_error.fatal():
        return None
    return codes.CONFLUENT.get(inner_error.name()) or (BUSY if inner_error.retriable() else None)


# -------------------------------------------------------------------- the standard library


def by_tls_reason(error: Any, _: Ask) -> Verdict | None:
    """Retry a TLS connection that was closed early; others, such as a bad certificate, are final."""
    return NETWORK if error.reason == "UNEXPECTED_EOF_WHILE_READING" else None


AMBIGUOUS_RESOLVERS = ("darwin", "win32", "cygwin")
LOOKUP_FAILURES = frozenset({"gaierror", "herror", "NameResolutionError", "ClientConnectorDNSError"})


def by_lookup(error: Any, _: Ask) -> Verdict | None:
    """Retry if the resolver reports a temporary failure; "no such host" is final."""
    return _resolver_verdict(error.errno)


def by_host_lookup(error: Any, _: Ask) -> Verdict | None:
    """Judge like `by_lookup`, by the numbers of the older ``h_errno`` (2 is TRY_AGAIN)."""
    return UNSENT if error.errno == 2 else None


def _resolver_verdict(number: object) -> Verdict | None:
    """Retry a temporary failure; macOS and Windows also report "no such name" while the network is down."""
    names = ("EAI_AGAIN", "EAI_NONAME") if sys.platform in AMBIGUOUS_RESOLVERS else ("EAI_AGAIN",)
    known = [getattr(sys.modules.get("socket"), name, None) for name in names]
    return UNSENT if number is not None and number in known else None


def is_lookup_failure(error: Exception) -> bool:
    """Return True if a name could not be resolved: by the error, or by one that it was raised from."""
    kinds = [base.__name__ for one in (error, *_causes(error)) for base in type(one).__mro__]
    return not LOOKUP_FAILURES.isdisjoint(kinds)
