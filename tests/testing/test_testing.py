"""What happened, for tests: events recorded, and an assertion that shows them when it fails."""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

from redouble import Kind, Reason, Retry, Verdict
from redouble import testing as public
from redouble._runtime.ambient import ambient
from redouble.testing import Script, assert_retried, fail, ok, recorded, virtual_time
from redouble.types import Event
from tests.support.fakes import ASYNC, in_colour
from tests.support.virtual_time import run, unwaiting
from tests.testing.test_virtual_tasks import together

pytestmark = pytest.mark.usefixtures(unwaiting.__name__)

POLICY = Retry(on=OSError, backoff=[5, 10], attempts=3, name="fetch")
STEPS: dict[str, Sequence[Any]] = {
    "retried": [fail(takes=0.25), TimeoutError("slow"), ok("done")],
    "network": ["fail", "fail", ok("done")],
    "given up": ["fail", "fail", "fail"],
    "stopped": [ValueError("no")],
    "stopped later": ["fail", ValueError("no")],
    "at once": [ok("done")],
}


def happened(*names: str) -> list[Event]:
    """Return the events of calls made one after the other."""
    with virtual_time(), recorded() as events:
        for name in names:
            with suppress(OSError, ValueError):
                POLICY.call(Script(*STEPS[name]))
    return events


def said(**expected: Any) -> dict[str, Any]:
    return expected


# ------------------------------------------------------------------------- assert_retried

GOOD: list[tuple[list[str], dict[str, Any]]] = [
    (["network"], said()),
    (["network"], said(times=2)),
    (["network"], said(delays=[5, 10])),
    (["network"], said(delays=(5.0000000001, 10))),
    (["network"], said(kind="network")),
    (["network"], said(kind=Kind.network)),
    (["network"], said(name="fetch")),
    (["network"], said(times=2, delays=[5, 10], kind="network", name="fetch")),
    (["given up"], said(reason="attempts")),
    (["given up"], said(times=2, reason=Reason.attempts, kind="network", delays=[5, 10])),
    (["stopped later"], said(times=1, reason="stopped")),
    (["stopped"], said(times=0, reason="stopped")),
    (["at once"], said(times=0)),
    (["at once"], said(times=0, delays=[], ok=True)),
    (["given up"], said(ok=False)),
    (["network"], said(times=0, name="another")),
    ([], said(times=0)),
    (["network", "at once", "given up"], said(times=4, delays=[5, 10, 5, 10], reason="attempts")),
]


@pytest.mark.parametrize(("calls", "expected"), GOOD)
def test_what_happened_is_as_expected(calls: list[str], expected: dict[str, Any]) -> None:
    assert_retried(happened(*calls), **expected)
    assert_retried(iter(happened(*calls)), **expected)


BAD: list[tuple[list[str], dict[str, Any], str]] = [
    (["at once"], said(), "retries: some, and there were 0"),
    (["network"], said(times=0), "retries: 0, and there were 2"),
    (["network"], said(times=3), "retries: 3, and there were 2"),
    (["network"], said(delays=[5]), "delays of [5], and they were [5.0, 10.0]"),
    (["network"], said(delays=[10, 5]), "delays of [10, 5], and they were [5.0, 10.0]"),
    (["network"], said(delays=[5, 10.001]), "delays of [5, 10.001], and they were [5.0, 10.0]"),
    (["at once"], said(times=0, kind="network"), "failures of kind network, and they were none"),
    (["given up"], said(ok=True), "it to succeed, and it did not"),
    (["network"], said(ok=False), "it to fail, and it did not"),
    (["retried"], said(kind="network"), "failures of kind network, and they were network, timeout"),
    (["network"], said(kind=Kind.server), "failures of kind server, and they were network, network"),
    (["network"], said(reason="attempts"), "it to be given up because of attempts, and it was not"),
    (
        ["given up"],
        said(reason=Reason.timeout),
        "it to be given up because of timeout, and it was attempts",
    ),
    (
        ["given up", "stopped"],
        said(reason="attempts"),
        "it to be given up because of attempts, and it was attempts and stopped",
    ),
    (["network"], said(name="another"), "retries: some, and there were 0"),
    ([], said(), "retries: some, and there were 0"),
    (
        ["network"],
        said(times=1, delays=[1], kind="timeout", reason="budget"),
        (
            "retries: 1, and there were 2; delays of [1], and they were [5.0, 10.0]; "
            "failures of kind timeout, and they were network, network; "
            "it to be given up because of budget, and it was not"
        ),
    ),
]


@pytest.mark.parametrize(("calls", "expected", "message"), BAD)
def test_what_happened_is_not_as_expected(calls: list[str], expected: dict[str, Any], message: str) -> None:
    with pytest.raises(AssertionError, match=f"^expected {re.escape(message)}. What happened:\n  "):
        assert_retried(happened(*calls), **expected)


def test_the_timeline() -> None:
    with pytest.raises(AssertionError) as caught:
        assert_retried(happened("retried", "stopped"), times=1)
    assert str(caught.value) == (
        "expected retries: 1, and there were 2. What happened:\n"
        "  0.000 s  fetch, attempt 1: before attempt\n"
        "  0.250 s  fetch, attempt 1: failure, ScriptedFailure (network)\n"
        "  0.250 s  fetch, attempt 1: retry after 5 s\n"
        "  5.250 s  fetch, attempt 2: before attempt\n"
        "  5.250 s  fetch, attempt 2: failure, TimeoutError (timeout)\n"
        "  5.250 s  fetch, attempt 2: retry after 10 s\n"
        "  15.250 s  fetch, attempt 3: before attempt\n"
        "  15.250 s  fetch, attempt 3: success\n"
        "  0.000 s  fetch, attempt 1: before attempt\n"
        "  0.000 s  fetch, attempt 1: failure, ValueError (unknown)\n"
        "  0.000 s  fetch, attempt 1: give up (stopped)"
    )


def test_the_timeline_of_nothing() -> None:
    with pytest.raises(AssertionError, match=r"What happened:\n  nothing$"):
        assert_retried([])
    with pytest.raises(AssertionError, match=r"What happened:\n  nothing$"):
        assert_retried(happened("network"), name="another")


def test_the_timeline_shows_no_secrets() -> None:
    with virtual_time(), recorded() as events:
        POLICY.call(Script(ConnectionError("password"), ok("secret")), "token", key="token")
    with pytest.raises(AssertionError) as caught:
        assert_retried(events, times=9)
    assert not re.search("password|secret|token", str(caught.value))


def test_an_error_that_was_the_success() -> None:
    policy = Retry(on=lambda _: Verdict.accept(), name="gone")
    with recorded() as events, pytest.raises(KeyError):
        policy.call(Script(KeyError("it")))
    with pytest.raises(AssertionError, match=r"attempt 1: success, KeyError$"):
        assert_retried(events)


# -------------------------------------------------------------------------------- recorded


def test_every_event_is_recorded_until_the_end_of_the_block() -> None:
    own: list[Event] = []
    policy = Retry(backoff=[0], attempts=2, on_retry=own.append, on_success=own.append)
    assert policy.call(Script("fail", ok())) is None
    own.clear()
    with recorded() as events:
        assert events == []
        policy.call(Script("fail", ok()))
        with recorded() as inner:
            policy.call(Script(ok()))
        assert [event.what for event in inner] == ["before_attempt", "success"]
    policy.call(Script("fail", ok()))
    assert [event.what for event in events] == [
        "before_attempt", "failure", "retry", "before_attempt", "success", "before_attempt", "success",
    ]  # fmt: skip
    assert own[:3] == [event for event in events if event.what in ("retry", "success")]


def test_recording_ends_with_an_error_too() -> None:
    with pytest.raises(ZeroDivisionError), recorded():
        _ = 1 / 0
    assert not ambient.active


def test_other_threads_are_recorded_too() -> None:
    with recorded() as events, ThreadPoolExecutor(1) as pool:
        assert pool.submit(POLICY.call, Script(ok("done"))).result() == "done"
    assert [event.what for event in events] == ["before_attempt", "success"]


def test_every_colour_is_recorded(colour: str) -> None:
    policy = Retry(backoff=[0, 0], name="fetch")
    script = Script("fail", "fail", ok("done"))
    with recorded() as events:
        assert in_colour(colour, lambda: policy.call(script), lambda: policy.call(script.aio)) == "done"
    assert_retried(events, times=2, delays=[0, 0], kind="network", name="fetch")


@pytest.mark.parametrize("colour", ASYNC)
def test_concurrent_calls_are_distinguished_by_name(colour: str) -> None:
    async def slow() -> None:
        await Retry(backoff=[60, 60], give_up_after=None, name="slow").call(Script("fail", "fail", ok()).aio)

    async def quick() -> None:
        with pytest.raises(ConnectionError):
            await Retry(backoff=[1], attempts=2, name="quick").call(Script("fail", "fail").aio)

    with virtual_time(), recorded() as events:
        run(colour, lambda: together(colour, slow, quick))
    assert_retried(events, times=3)
    assert_retried(events, name="slow", times=2, delays=[60, 60])
    assert_retried(events, name="quick", times=1, delays=[1], reason="attempts")
    with pytest.raises(AssertionError, match="and it was not") as caught:
        assert_retried(events, name="slow", reason="attempts")
    assert "quick" not in str(caught.value)


# --------------------------------------------------------------------------------- the names


@pytest.mark.parametrize("name", public.__all__)
def test_every_name_is_described(name: str) -> None:
    described = getattr(public, name).__doc__
    assert described
    assert described.splitlines()[0].endswith(".")
