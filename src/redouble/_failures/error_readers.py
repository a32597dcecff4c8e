"""How to read an error: where each library keeps the code, the answer's headers, and what is inside.

Every function looks at one error and says what it makes of it; ``ask`` judges another error found inside.
They read as if all were well: whoever calls them takes care of errors that are not what they seem. What a
code means is not known here, see `_codes`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from redouble._failures import codes
from redouble._failures.builtin_errors import BUSY, NETWORK, TIMEOUT, UNSENT, Ask
from redouble._failures.retry_after import after, hint, milliseconds, should_retry
from redouble._failures.verdict import Kind, Verdict

__all__ = ["answer_of"]


# -------------------------------------------------------------------------- HTTP clients


def by_status(error: Any, _: Ask) -> Verdict | None:
    """Look at the answer's status."""
    return NETWORK if _unreadable(error) else _answered(*answer_of(error))


def answer_of(error: Any) -> tuple[Any, object]:
    """Find status and headers of an answer: on the error itself (aiohttp), or on its response."""
    if _unreadable(error):
        return None, None
    response = getattr(error, "response", None)
    source = error if response is None else response
    status = getattr(source, "status_code", None) or getattr(source, "status", None)
    return status, getattr(source, "headers", None)


def _unreadable(error: Any) -> bool:
    """Say whether it is no answer with that status, but aiohttp's word for one that could not be read."""
    return type(error.__cause__).__module__ == "aiohttp.http_exceptions"


def by_payload(error: Any, _: Ask) -> Verdict | None:
    """Look whether a body was cut short; one that came whole and cannot be decoded will come again."""
    return None if type(error.__cause__).__name__ == "ContentEncodingError" else NETWORK


def by_urllib_status(error: Any, _: Ask) -> Verdict | None:
    """Look at the status where urllib keeps it."""
    return _answered(error.code, error.headers)


def _answered(status: Any, headers: object) -> Verdict | None:
    wish = should_retry(headers)
    if wish is False:
        return None
    return after(codes.STATUSES.get(status) or (codes.ANSWERED if wish else None), hint(headers, status))


def by_proxy_status(error: Any, ask: Ask) -> Verdict | None:
    """Look at the status of a proxy: the server itself never heard of the request."""
    found = by_status(error, ask)
    if found is None:
        return None
    return Verdict.retry(kind=found.kind, after=found.after, sent=False, reason=found.reason)


def by_inside(error: Any, ask: Ask) -> Verdict | None:
    """Judge the error it was made of."""
    return ask(_inside(error))


def by_inside_or_network(error: Any, ask: Ask) -> Verdict | None:
    """Judge the error it was made of; without one, it is the network."""
    inside = _inside(error)
    return NETWORK if inside is None else ask(inside)


def by_inside_or_timeout(error: Any, ask: Ask) -> Verdict | None:
    """Judge the error it was made of; a timeout it is anyway."""
    return ask(_inside(error)) or TIMEOUT


def connecting(error: Any, ask: Ask) -> Verdict | None:
    """Retry, unsent; but a bad certificate, an unknown host or a forbidden socket stay what they are."""
    for cause in _causes(error):
        if isinstance(cause, OSError) and cause.errno is not None:
            found = ask(cause)
            if found is None:
                return None
            return codes.UNSENT_TIMEOUT if found.kind is Kind.timeout else UNSENT
    return UNSENT


def by_errno_or_network(error: Any, ask: Ask) -> Verdict | None:
    """Look at the number, of a file for instance that was to be sent; without one, it is the network."""
    return NETWORK if error.errno is None else ask(OSError(error.errno, ""))


def _inside(error: Any) -> Exception | None:
    """Find what an error was made of. Not its context: that may be anything somebody was handling."""
    kwargs: Any = getattr(error, "kwargs", None) or {}  # botocore keeps it there
    reason, original = getattr(error, "reason", None), getattr(error, "original_error", None)
    places: tuple[object, ...] = (reason, original, kwargs.get("error"), *error.args, error.__cause__)
    return next((place for place in places if isinstance(place, Exception)), None)


def _causes(error: Any) -> Iterator[Exception]:
    for _ in range(8):  # they may go round in a circle
        error = _inside(error)
        if error is None:
            return
        yield error


# ------------------------------------------------------- the interfaces of language models


def by_answer(error: Any, _: Ask) -> Verdict | None:
    """Look at the status, or at the word in a stream; the server may also say outright what it wants."""
    words = [getattr(error, name, None) for name in ("code", "type")]
    headers = getattr(getattr(error, "response", None), "headers", None)
    wish = should_retry(headers)
    if wish is False or not codes.QUOTA.isdisjoint(words):
        return None
    status = getattr(error, "status_code", 0)
    found = codes.LLM_STATUSES.get(status)
    if found is None and not 400 <= status < 500:  # such a status says enough, whatever a gateway calls it
        found = next((codes.LLM[word] for word in words if word in codes.LLM), None)
    found = found or (codes.ANSWERED if wish else None)
    return after(found, hint(headers, status))


# ---------------------------------------------------------------------------- databases


def by_sqlstate(error: Any, _: Ask) -> Verdict | None:
    """Look at the SQLSTATE."""
    return codes.POSTGRES.get(getattr(error, "sqlstate", None) or getattr(error, "pgcode", None) or "")


def by_sqlstate_or_text(error: Any, ask: Ask) -> Verdict | None:
    """Look at the SQLSTATE; without one, at what libpq says."""
    if getattr(error, "sqlstate", None) or getattr(error, "pgcode", None):
        return by_sqlstate(error, ask)
    text = str(error).lower()
    if any(never in text for never in codes.POSTGRES_NEVER):
        return None
    return next((verdict for said, verdict in codes.POSTGRES_TEXTS.items() if said in text), None)


def by_mysql_code(error: Any, _: Ask) -> Verdict | None:
    """Look at the number that comes first."""
    return codes.MYSQL.get(error.args[0])


def by_orig(error: Any, ask: Ask) -> Verdict | None:
    """Judge the driver's error; a connection that SQLAlchemy calls broken is."""
    found = ask(error.orig)
    return NETWORK if found is None and getattr(error, "connection_invalidated", None) is True else found


def by_sqlite_name(error: Any, _: Ask) -> Verdict | None:
    """Look whether it is somebody's lock."""
    return BUSY if error.sqlite_errorname.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")) else None


def by_redis_text(error: Any, ask: Ask) -> Verdict | None:
    """Look whether it says "connecting", and with which number."""
    found = re.match(r"Error (-?[0-9]{1,5}) connecting to ", str(error))
    if found is None:
        return NETWORK
    number = int(found[1])  # those of name lookups are negative
    return ask(OSError(number, "")) if number > 0 else _looked_up(number)


def by_redis_timeout(error: Any, _: Ask) -> Verdict | None:
    """Look whether it says "connecting"."""
    return codes.UNSENT_TIMEOUT if "connecting" in str(error) else TIMEOUT


# ----------------------------------------------------------------------- gRPC, AWS, Kafka


def by_grpc_code(error: Any, _: Ask) -> Verdict | None:
    """Look at the code, and at how long the server wants us to hold back; a negative time is a no."""
    code, details = error.code().name, str(error.details())
    if code == "RESOURCE_EXHAUSTED" and "larger than max" in details:
        return None  # the message will not get smaller
    if code == "UNAVAILABLE" and details.startswith("failed to connect to all addresses"):
        return UNSENT
    metadata: dict[str, str] = dict(error.trailing_metadata() or ())
    if "grpc-retry-pushback-ms" not in metadata:
        return codes.GRPC.get(code)
    held = milliseconds(metadata["grpc-retry-pushback-ms"])
    return None if held is None else after(codes.GRPC.get(code), held)


def by_aws_code(error: Any, _: Ask) -> Verdict | None:
    """Look at the code, then at the status."""
    response: Mapping[str, Any] = error.response
    metadata: Mapping[str, Any] = response.get("ResponseMetadata") or {}
    status = metadata.get("HTTPStatusCode", 0)
    found = codes.AWS.get(response.get("Error", {}).get("Code")) or codes.AWS_STATUSES.get(status)
    return after(found, hint(metadata.get("HTTPHeaders"), status))


def by_retriable(error: Any, _: Ask) -> Verdict | None:
    """Take the library's word for it."""
    return BUSY if error.retriable is True else None


def by_kafka_name(error: Any, _: Ask) -> Verdict | None:
    """Look at the name of the error inside, or take the library's word for it."""
    inside = error.args[0]
    if inside.fatal():
        return None
    return codes.CONFLUENT.get(inside.name()) or (BUSY if inside.retriable() else None)


# -------------------------------------------------------------------- the standard library


def by_tls_reason(error: Any, _: Ask) -> Verdict | None:
    """Retry a TLS connection that was cut, as opposed to one refused: a bad certificate stays bad."""
    return NETWORK if error.reason == "UNEXPECTED_EOF_WHILE_READING" else None


def by_lookup(error: Any, _: Ask) -> Verdict | None:
    """Retry if the resolver says "try again"; "no such host" is an answer."""
    return _looked_up(error.errno)


def by_host_lookup(error: Any, _: Ask) -> Verdict | None:
    """Do the same with the older numbers."""
    return UNSENT if error.errno == 2 else None


def _looked_up(number: object) -> Verdict | None:
    again = getattr(sys.modules.get("socket"), "EAI_AGAIN", None)
    return UNSENT if number is not None and number == again else None
