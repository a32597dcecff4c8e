"""The protobuf messages in the trailing metadata of a gRPC server: a status with a `RetryInfo`."""

from __future__ import annotations

DETAILS = "grpc-status-details-bin"
TYPE = b"type.googleapis.com/google.rpc.RetryInfo"


def varint(number: int) -> bytes:
    """Return a whole number; a negative one has ten bytes."""
    number %= 2**64
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    return bytes([*encoded, number])


def number(field: int, value: int) -> bytes:
    """Return a field that is a number."""
    return varint(field << 3) + varint(value)


def message(field: int, value: bytes) -> bytes:
    """Return a field that is a message, or a text."""
    return varint(field << 3 | 2) + varint(len(value)) + value


def duration(seconds: int, nanoseconds: int = 0) -> bytes:
    """Return a ``google.protobuf.Duration``, in which zeros are left out."""
    return (number(1, seconds) if seconds else b"") + (number(2, nanoseconds) if nanoseconds else b"")


def retry_info(delay: bytes) -> bytes:
    """Return the ``google.protobuf.Any`` of a ``google.rpc.RetryInfo``."""
    return message(1, TYPE) + message(2, message(1, delay))


def status(*details: bytes) -> bytes:
    """Return a ``google.rpc.Status`` with these details."""
    return (
        number(1, 8) + message(2, "zu viel ☃".encode()) + b"".join(message(3, detail) for detail in details)
    )


def after(seconds: int, nanoseconds: int = 0) -> tuple[str, bytes]:
    """Return the entry of trailing metadata that asks for this delay."""
    return DETAILS, status(retry_info(duration(seconds, nanoseconds)))
