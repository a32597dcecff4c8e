"""The parser of a gRPC server's trailing metadata: how long it asks the client to wait, and whether to retry.

A pushback is the entry ``grpc-retry-pushback-ms``. A ``RetryInfo`` is one of the details of the status, the
protobuf message ``google.rpc.Status`` in ``grpc-status-details-bin``. The few fields that are needed are read
here, without a protobuf library. Malformed details are no hint; nothing here raises.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, cast

from redouble._failures.retry_after import milliseconds

PUSHBACK, DETAILS = "grpc-retry-pushback-ms", "grpc-status-details-bin"
RETRY_INFO = b"/google.rpc.RetryInfo"  # the end of a type URL; its beginning may be any host
FORBIDDEN = -1.0

MAX_ENTRIES = 1000  # of metadata: the iterable of an error may be endless
MAX_BYTES = 64 * 1024  # of details; gRPC accepts 8 KiB of metadata unless configured otherwise
MAX_SECONDS = 315_576_000_000  # of a protobuf duration: 10,000 years

# The fields of the messages.
STATUS_DETAILS, ANY_TYPE_URL, ANY_VALUE, RETRY_DELAY, SECONDS, NANOSECONDS = 3, 1, 2, 1, 1, 2


def requested_delay(metadata: object) -> float | None:
    """Return the seconds that the server asks the client to wait, negative if it forbids a retry, or None.

    Of several delays the longest counts. A pushback that is negative or not a number forbids a retry.
    """
    delays = list[float]()
    try:
        for key, value in islice(cast("Any", metadata or ()), MAX_ENTRIES):
            if key == PUSHBACK:
                delay = milliseconds(value)
                delays.append(FORBIDDEN if delay is None else delay)
            elif key == DETAILS and isinstance(value, bytes) and len(value) <= MAX_BYTES:
                delays.extend(_retry_delays(value))
    except Exception:  # an entry is not a pair of texts, or the iterator raises
        return None
    return FORBIDDEN if FORBIDDEN in delays else max(delays, default=None)


def _retry_delays(status: bytes) -> Iterator[float]:
    """Yield the delay of each well-formed ``RetryInfo`` in a status."""
    try:
        details = _messages(status, STATUS_DETAILS)
    except ValueError:
        return
    for detail in details:
        try:
            type_url = b"".join(_messages(detail, ANY_TYPE_URL)[-1:])
            if type_url.endswith(RETRY_INFO):
                info = b"".join(_messages(detail, ANY_VALUE)[-1:])
                # The parts of a field that is sent in parts are merged: so are their bytes.
                yield from (_seconds(b"".join(parts)) for parts in [_messages(info, RETRY_DELAY)] if parts)
        except ValueError:
            continue


def _seconds(duration: bytes) -> float:
    seconds = nanoseconds = 0
    for field, value in _fields(duration):
        if isinstance(value, int):
            seconds = value if field == SECONDS else seconds
            nanoseconds = value if field == NANOSECONDS else nanoseconds
    if seconds > MAX_SECONDS or nanoseconds >= 10**9:  # a negative number is read as a very large one
        raise ValueError(duration)
    return seconds + nanoseconds / 10**9


def _messages(message: bytes, number: int) -> list[bytes]:
    """Return the values of the fields with this number that are messages, texts or bytes."""
    return [value for field, value in _fields(message) if field == number and isinstance(value, bytes)]


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the number and the value of each field of a protobuf message."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == 0:
            value, at = _varint(message, at)
            yield number, value
            continue
        size = {1: 8, 5: 4}.get(wire_type)
        if wire_type == 2:
            size, at = _varint(message, at)
        if size is None or at + size > len(message) or not number:
            raise ValueError(f"wire type {wire_type} of field {number}, up to {size} bytes")
        yield number, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """Return the number that begins at a place, and the place after it."""
    number = 0
    for position in range(10):
        if at + position >= len(message):
            break
        byte = message[at + position]
        number |= (byte & 0x7F) << 7 * position
        if byte < 0x80:
            return number, at + position + 1
    raise ValueError("a number without an end")
