"""What the trailing metadata of a gRPC server ask for: pushback and `RetryInfo`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redouble._failures.grpc_trailers import MAX_BYTES, MAX_SECONDS, requested_delay
from tests.support.grpc.statuses import (
    DETAILS,
    TYPE,
    after,
    duration,
    message,
    number,
    retry_info,
    status,
    varint,
)

PUSHBACK = "grpc-retry-pushback-ms"
INFO = retry_info(duration(0, 700_000_000))
VALUE = INFO[len(message(1, TYPE)) :]
OTHER = message(1, b"type.googleapis.com/google.rpc.ErrorInfo") + message(2, message(1, b"QUOTA"))
FIXED = varint(15 << 3 | 1) + bytes(8) + varint(16 << 3 | 5) + bytes(4)


def details(*parts: bytes) -> list[tuple[str, bytes]]:
    return [(DETAILS, status(*parts))]


@pytest.mark.parametrize(
    ("metadata", "delay"),
    [
        pytest.param(details(INFO), 0.7, id="nanoseconds"),
        pytest.param([after(3)], 3.0, id="seconds"),
        pytest.param([after(3, 250_000_000)], 3.25, id="both"),
        pytest.param([after(0)], 0.0, id="zero"),
        pytest.param([after(MAX_SECONDS)], MAX_SECONDS, id="longest"),
        pytest.param(details(OTHER, INFO), 0.7, id="second detail"),
        pytest.param(
            details(INFO, retry_info(duration(2)), retry_info(duration(1))), 2.0, id="longest of three"
        ),
        pytest.param([("a", "b"), *details(INFO), ("c-bin", b"d")], 0.7, id="other entries"),
        pytest.param([after(1), after(2)], 2.0, id="two entries"),
        pytest.param(details(message(1, b"x/google.rpc.RetryInfo") + VALUE), 0.7, id="other host"),
        pytest.param(details(INFO + FIXED), 0.7, id="unknown fields in the detail"),
        pytest.param([(DETAILS, FIXED + status(INFO) + FIXED)], 0.7, id="unknown fields in the status"),
        pytest.param(details(retry_info(duration(1) + duration(0, 5_000_000) + FIXED)), 1.005, id="parts"),
        pytest.param(details(retry_info(number(1, 9) + number(1, 2))), 2.0, id="the last one counts"),
        pytest.param(
            details(message(1, TYPE) + message(2, message(1, duration(1)) + VALUE[2:])),
            1.7,
            id="a delay in two parts",
        ),
        pytest.param([(PUSHBACK, "1500"), after(0, 700_000_000)], 1.5, id="longer pushback"),
        pytest.param([after(2), (PUSHBACK, "1500")], 2.0, id="longer RetryInfo"),
        pytest.param([after(2), (PUSHBACK, "-1")], -1.0, id="pushback forbids"),
        pytest.param([(PUSHBACK, "soon"), after(2)], -1.0, id="invalid pushback forbids"),
        pytest.param([(PUSHBACK, "250")], 0.25, id="pushback alone"),
        pytest.param(((PUSHBACK, "0"),), 0.0, id="pushback of zero"),
    ],
)
def test_the_delay_that_a_server_asks_for(metadata: object, delay: float) -> None:
    assert requested_delay(metadata) == delay


class Raises:
    def __iter__(self) -> Iterator[Any]:
        raise OSError


@pytest.mark.parametrize(
    "metadata",
    [
        pytest.param(None, id="no metadata"),
        pytest.param((), id="none"),
        pytest.param([("a", "b")], id="other entries"),
        pytest.param(details(), id="no details"),
        pytest.param(details(OTHER), id="other details"),
        pytest.param(details(message(1, TYPE)), id="no value"),
        pytest.param(details(message(1, TYPE) + message(2, b"")), id="no delay"),
        pytest.param(details(message(1, TYPE) + message(2, number(1, 5))), id="a delay that is a number"),
        pytest.param(details(message(1, b"google.rpc.RetryInfo") + VALUE), id="no type URL"),
        pytest.param(details(message(1, TYPE + b"2") + VALUE), id="another type"),
        pytest.param([after(-1)], id="negative seconds"),
        pytest.param([after(1, -1)], id="negative nanoseconds"),
        pytest.param([after(1, 10**9)], id="too many nanoseconds"),
        pytest.param([after(MAX_SECONDS + 1)], id="too many seconds"),
        pytest.param([(DETAILS, status(INFO)[:-1])], id="truncated status"),
        pytest.param(details(INFO[:-1]), id="truncated detail"),
        pytest.param(details(INFO + b"\x80" * 12), id="an endless number"),
        pytest.param([(DETAILS, status(INFO) + b"\xff" * 20)], id="garbage after it"),
        pytest.param([(DETAILS, status(INFO) + varint(9 << 3 | 3))], id="a group"),
        pytest.param([(DETAILS, status(INFO) + message(0, b""))], id="field number 0"),
        pytest.param([(DETAILS, status(INFO).hex())], id="a text"),
        pytest.param([(DETAILS, status(INFO, bytes(MAX_BYTES)))], id="too large"),
        pytest.param([(DETAILS, status(INFO)), 5], id="no pair"),
        pytest.param(5, id="no metadata but a number"),
        pytest.param(Raises(), id="an iterator that raises"),
        pytest.param(repeat(("a", "b")), id="endless metadata"),
    ],
)
def test_malformed_details_ask_for_nothing(metadata: object) -> None:
    assert requested_delay(metadata) is None


def test_a_malformed_detail_does_not_hide_a_well_formed_one() -> None:
    assert requested_delay(details(INFO[:-1], retry_info(duration(-1)), INFO)) == 0.7
    assert requested_delay([(DETAILS, b"\xff"), after(2)]) == 2.0


@given(st.binary(max_size=200))
def test_no_bytes_raise(data: bytes) -> None:
    for wrapped in (
        data,
        status(data),
        status(message(1, TYPE) + message(2, data)),
        status(retry_info(data)),
    ):
        delay = requested_delay([(DETAILS, wrapped)])
        assert delay is None or 0 <= delay <= MAX_SECONDS + 1


@given(st.integers(0, MAX_SECONDS), st.integers(0, 10**9 - 1), st.data())
def test_every_delay_is_read_and_every_truncated_one_is_ignored(
    seconds: int, nanoseconds: int, data: st.DataObject
) -> None:
    whole = status(retry_info(duration(seconds, nanoseconds)))
    assert requested_delay([(DETAILS, whole)]) == seconds + nanoseconds / 10**9
    end = data.draw(st.integers(0, len(whole) - 1))
    assert requested_delay([(DETAILS, whole[:end])]) is None
