"""Readers of errors: where each library keeps the code, the response headers and the original error.

A reader returns the verdict on one error, or None; it calls ``ask`` to judge another error inside it. Readers
do not guard against malformed errors: `Transient` catches what they raise. The codes are in `codes`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from redouble._failures import codes
from redouble._failures.builtin_errors import BUSY, NETWORK, TIMEOUT, UNSENT, Ask
from redouble._failures.grpc_trailers import requested_delay
from redouble._failures.quota_headers import decimal
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
    found = (getattr(error, name, None) for name in ("response", "meta"))  # `meta` is Elastic's
    return status_and_headers(next((response for response in found if response is not None), error))


def status_and_headers(response: object) -> tuple[Any, object]:
    """Return status and headers of a response of any library, each None if it has none."""
    status = getattr(response, "status_code", None) or getattr(response, "status", None)
    return status, getattr(response, "headers", None)


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
    for cause in causes(error):
        if isinstance(cause, OSError) and cause.errno is not None:
            verdict = ask(cause)
            if verdict is None:
                return None
            return codes.UNSENT_TIMEOUT if verdict.kind is Kind.timeout else UNSENT
    return UNSENT


def by_http2_event(error: Any, _: Ask) -> Verdict | None:
    """Judge by the HTTP/2 event that httpcore reports: a refused stream was not processed at all."""
    for one in (error, error.__cause__):  # httpcore's own error, and that of httpx around it
        event = next(iter(getattr(one, "args", ())), None)
        refused = (
            type(event).__name__ == "StreamReset" and getattr(event, "error_code", None) == REFUSED_STREAM
        )
        unseen = (
            type(event).__name__ == "ConnectionTerminated" and getattr(event, "last_stream_id", None) == 0
        )
        if refused or unseen:
            return NOT_PROCESSED
    return NETWORK


def by_errno_or_network(error: Any, ask: Ask) -> Verdict | None:
    """Judge by the errno (of a file to upload, for instance); without one, it is a network error."""
    return NETWORK if error.errno is None else ask(OSError(error.errno, ""))


# Where libraries keep the original error: urllib, urllib3 and urllib3's ProxyError, azure.core, pika.
_ORIGINAL = ("reason", "original_error", "inner_exception", "exception")


def _cause(error: Any) -> Exception | None:
    """Return the original error. `__context__` does not count: it may be any error that was being handled."""
    kwargs: Any = getattr(error, "kwargs", None) or {}  # botocore keeps it there
    named = (getattr(error, name, None) for name in _ORIGINAL)
    errors: Any = getattr(error, "errors", None)  # Elastic's, the latest first
    latest: object = errors[0] if errors and errors.__class__ is tuple else None
    candidates: tuple[object, ...] = (*named, kwargs.get("error"), *error.args, error.__cause__, latest)
    return next((candidate for candidate in candidates if isinstance(candidate, Exception)), None)


def causes(error: Any) -> Iterator[Exception]:
    """Iterate over the chain of original errors inside an error."""
    for _ in range(8):  # the chain may be circular
        error = _cause(error)
        if error is None:
            return
        yield error


# --------------------------------------------------------------------------- LLM providers


def by_llm_error(error: Any, _: Ask) -> Verdict | None:
    """Judge by the status, or by the error code in a stream; ``x-should-retry`` overrides both."""
    error_codes = [getattr(error, name, None) for name in ("code", "type")]
    headers = getattr(error, "litellm_response_headers", None)  # its `response` is made without them
    if headers is None:
        headers = getattr(getattr(error, "response", None), "headers", None)
    status = getattr(error, "status_code", 0)
    requested, hint = response_wish(headers, status)
    if requested is False or not codes.QUOTA.isdisjoint(error_codes):
        return None
    verdict = codes.LLM_STATUSES.get(status)
    if verdict is None and not 400 <= status < 500:  # a 4xx status decides, whatever code a gateway adds
        verdict = next((codes.LLM[code] for code in error_codes if code in codes.LLM), None)
    return with_hint(verdict or (codes.ANSWERED if requested else None), hint)


# ------------------------------------------------------------------ streams, WebSocket


def by_broken_stream(error: Any, ask: Ask) -> Verdict | None:
    """Retry a broken stream; not one that Trio reports because of a bad certificate."""
    cause = error.__cause__
    return ask(cause) if type(cause).__module__ == "ssl" else NETWORK


def by_close_code(error: Any, _: Ask) -> Verdict | None:
    """Judge by the close code that was received; without one, the connection was lost."""
    return NETWORK if error.rcvd is None else codes.WEBSOCKET.get(error.rcvd.code)


def by_cut_handshake(error: Any, _: Ask) -> Verdict | None:
    """Retry a WebSocket handshake that ended early; an answer that is no HTTP is final."""
    return NETWORK if isinstance(error.__cause__, EOFError) else None


# ---------------------------------------------------------- gRPC, Google, Azure, AWS, brokers


def by_grpc_code(error: Any, _: Ask) -> Verdict | None:
    """Judge by the status code, and by what the server asks for; it may forbid a retry."""
    code, details = error.code().name, str(error.details())
    if code == "RESOURCE_EXHAUSTED" and "larger than max" in details:
        return None  # the same message would be too large again
    if code == "UNAVAILABLE" and details.startswith(("failed to connect to all addresses", "DNS resolution")):
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


def by_google_code(error: Any, ask: Ask) -> Verdict | None:
    """Judge a gRPC error by itself, and a response by its reason and status; ``RetryInfo`` is a hint."""
    response, status, delay = error.response, error.code, _retry_info(error.details)
    headers = getattr(response, "headers", None)
    if headers is not None:
        limited = any(as_mapping(each).get("reason") in codes.GOOGLE_LIMITS for each in error.errors)
        verdict = codes.RATE_LIMIT if limited else codes.AWS_STATUSES.get(status)
        hint = response_hint(headers, status)
        return with_hint(verdict, delay if hint is None else hint)
    if response is not None:
        verdict = ask(response)
    elif error.grpc_status_code is not None:
        verdict = codes.GRPC.get(error.grpc_status_code.name)
    else:
        verdict = codes.AWS_STATUSES.get(status)
    return verdict if verdict is None or verdict.after is not None else with_hint(verdict, delay)


def _retry_info(details: Sequence[Any]) -> float | None:
    """Return the delay of a ``google.rpc.RetryInfo``, a message or JSON, in seconds."""
    for detail in details:
        if type(detail).__name__ == "RetryInfo":
            return float(detail.retry_delay.seconds + detail.retry_delay.nanos / 1e9)
        json = as_mapping(detail)
        if str(json.get("@type")).endswith("google.rpc.RetryInfo"):
            return decimal(str(json.get("retryDelay")).removesuffix("s"))
    return None


def as_mapping(value: object) -> Mapping[str, object]:
    """Return a mapping as it is, and an empty one for every other value."""
    return cast("Mapping[str, object]", value) if isinstance(value, Mapping) else {}


def by_azure_status(error: Any, ask: Ask) -> Verdict | None:
    """Judge by the status and headers of the response; without a response, judge the original error."""
    status, headers = error.status_code, getattr(error.response, "headers", None)
    if status is None:
        return ask(_cause(error))
    return with_hint(codes.AWS_STATUSES.get(status), response_hint(headers, status))


def by_amqp_code(error: Any, _: Ask) -> Verdict | None:
    """Retry if the broker was stopped (320); other reasons of its to close are mistakes of the client."""
    return NETWORK if error.reply_code == 320 else None


def by_amqp_handshake(error: Any, _: Ask) -> Verdict | None:
    """Retry a handshake that ended early; pika suspects a wrong protocol, but a broker may be starting."""
    return UNSENT if "StreamLostError" in str(error) else None


def by_last_attempt(error: Any, ask: Ask) -> Verdict | None:
    """Judge the error of the last attempt to connect."""
    return ask(error.exceptions[-1])


def by_cooldown(error: Any, _: Ask) -> Verdict | None:
    """Retry after the time that LiteLLM's router asks for."""
    return with_hint(codes.LIMITED_HERE, error.cooldown_time)


def by_retryable(error: Any, _: Ask) -> Verdict | None:
    """Judge by the library's own flag ``retryable``."""
    return BUSY if error.retryable is True else None


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


def by_smtp_code(error: Any, _: Ask) -> Verdict | None:
    """Judge by the reply code."""
    return codes.SMTP.get(error.smtp_code)


def by_recipients(error: Any, _: Ask) -> Verdict | None:
    """Judge by the reply codes of all recipients: one that is refused for good would be refused again."""
    refusals = [codes.SMTP.get(code) for code, _ in error.recipients.values()]
    return codes.ANSWERED if refusals and None not in refusals else None


def by_tls_reason(error: Any, _: Ask) -> Verdict | None:
    """Retry a TLS connection that was closed early; others, such as a bad certificate, are final."""
    return NETWORK if error.reason == "UNEXPECTED_EOF_WHILE_READING" else None


# On these platforms the resolver also says "no such name" if it cannot reach a server.
AMBIGUOUS_RESOLVERS = ("darwin", "ios", "win32", "cygwin")
LOOKUP_FAILURES = frozenset({"gaierror", "herror", "NameResolutionError", "ClientConnectorDNSError"})


def by_lookup(error: Any, _: Ask) -> Verdict | None:
    """Retry if the failure of the resolver may be temporary."""
    return resolver_verdict(error.errno)


def by_host_lookup(error: Any, _: Ask) -> Verdict | None:
    """Judge like `by_lookup`, by the numbers of the older ``h_errno`` (2 is TRY_AGAIN)."""
    return UNSENT if error.errno == 2 else None


def resolver_verdict(number: object) -> Verdict | None:
    """Return the verdict on the error number of a name lookup; "no such name" is final if it is reliable."""
    socket = sys.modules.get("socket")
    temporary, unknown = getattr(socket, "EAI_AGAIN", None), getattr(socket, "EAI_NONAME", None)
    if number is not None and number == unknown:
        return UNSENT if temporary is None or sys.platform in AMBIGUOUS_RESOLVERS else None
    return UNSENT if number is not None and number == temporary else None


def is_lookup_failure(error: Exception) -> bool:
    """Return True if a name could not be resolved: by the error, or by one that it was raised from."""
    kinds = [base.__name__ for one in (error, *causes(error)) for base in type(one).__mro__]
    return not LOOKUP_FAILURES.isdisjoint(kinds)
