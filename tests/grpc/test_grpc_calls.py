"""Calls over gRPC, in all shapes and colours: attempts and results."""

from __future__ import annotations

import grpc
import pytest

from redouble import Retry
from redouble.testing import virtual_time
from tests.support.grpc.calls import ALL, make_call, previous_attempts, retry, summary_of
from tests.support.grpc.server import Server


@pytest.mark.parametrize(
    ("script", "options", "expected"),
    [
        ("a OK", {}, (b"a", "OK", 1, None)),
        ("UNAVAILABLE, a OK", {}, (b"a", "OK", 2, None)),
        ("UNAVAILABLE, ABORTED, RESOURCE_EXHAUSTED, a OK", {}, (b"a", "OK", 4, None)),
        ("UNAVAILABLE", {"attempts": 3}, (b"", "UNAVAILABLE", 3, "attempts")),
        ("UNAVAILABLE", {"attempts": 1}, (b"", "UNAVAILABLE", 1, "attempts")),
        ("UNAVAILABLE, PERMISSION_DENIED", {}, (b"", "PERMISSION_DENIED", 2, "stopped")),
        ("INVALID_ARGUMENT", {}, (b"", "INVALID_ARGUMENT", 1, "stopped")),
        ("CANCELLED", {}, (b"", "CANCELLED", 1, "stopped")),
        ("UNKNOWN, a OK", {"on": Exception}, (b"a", "OK", 2, None)),
        ("head UNAVAILABLE, a OK", {}, (b"a", "OK", 2, None)),
        ("UNAVAILABLE", {"backoff": [0]}, (b"", "UNAVAILABLE", 2, "backoff_ended")),
        # A pushback that is not a duration forbids a retry, even one that the policy would make.
        ("@-1 UNAVAILABLE, a OK", {}, (b"", "UNAVAILABLE", 1, "stopped")),
        ("@soon UNAVAILABLE, a OK", {"on": Exception}, (b"", "UNAVAILABLE", 1, "stopped")),
        ("@ UNAVAILABLE, a OK", {"on": Exception}, (b"", "UNAVAILABLE", 1, "stopped")),
        ("@0 UNAVAILABLE, a OK", {}, (b"a", "OK", 2, None)),
    ],
)
@pytest.mark.parametrize(("colour", "shape"), ALL)
def test_attempts_result_and_reason_of_a_call(
    remote: Server,
    colour: str,
    shape: str,
    script: str,
    options: dict[str, object],
    expected: tuple[bytes, str, int, str | None],
) -> None:
    seen = make_call(remote, colour, shape, script, retry(**options))
    assert summary_of(seen) == expected


AGAIN = ("UNAVAILABLE", "RESOURCE_EXHAUSTED", "ABORTED", "DEADLINE_EXCEEDED")


@pytest.mark.parametrize("code", [code.name for code in grpc.StatusCode if code is not grpc.StatusCode.OK])
@pytest.mark.parametrize(("colour", "shape"), [case for case in ALL if case[0] != "thread"])
def test_codes_of_the_default_policy(remote: Server, colour: str, shape: str, code: str) -> None:
    with virtual_time():
        seen = make_call(remote, colour, shape, f"{code}, a OK")
    assert summary_of(seen) == ((b"a", "OK", 2, None) if code in AGAIN else (b"", code, 1, "stopped"))


@pytest.mark.parametrize(("colour", "shape"), ALL)
def test_each_attempt_sends_the_number_of_earlier_ones(remote: Server, colour: str, shape: str) -> None:
    seen = make_call(
        remote, colour, shape, "UNAVAILABLE, UNAVAILABLE, OK", retry(), metadata=(("own", "word"),)
    )
    assert previous_attempts(seen) == [None, "1", "2"]
    assert [attempt.metadata["own"] for attempt in seen.attempts] == ["word"] * 3
    whole = [b"one", b"two"] if shape in ("up", "both") else [b"one"]
    assert [attempt.requests for attempt in seen.attempts] == [whole] * 3


@pytest.mark.parametrize(("colour", "shape"), ALL)
def test_the_error_is_the_one_of_the_last_attempt(remote: Server, colour: str, shape: str) -> None:
    seen = make_call(remote, colour, shape, "UNAVAILABLE, ABORTED", retry(attempts=2))
    assert seen.error.details() == "as the script says"
    (note,) = seen.error.__notes__
    assert note.startswith("redouble: gave up after 2 attempts in")
    assert [record.kind for record in seen.report.history] == ["server", "server"]
    assert seen.report.name == f"test.Echo/{shape.title()}"


@pytest.mark.parametrize(("colour", "shape"), ALL)
def test_the_report_has_name_and_labels_of_the_policy(remote: Server, colour: str, shape: str) -> None:
    seen = make_call(
        remote, colour, shape, "UNAVAILABLE", Retry(attempts=1, name="echo", labels={"team": "a"})
    )
    assert (seen.report.name, seen.report.labels) == ("echo", {"team": "a"})
