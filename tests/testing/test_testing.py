"""`recorded` and `assert_retried`: events are recorded, and a failed assertion shows them."""

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
from tests.support.runtime.tasks import together
from tests.support.virtual_time import no_real_waits, run

pytestmark = pytest.mark.usefixtures(no_real_waits.__name__)

POLICY = Retry(on=OSError, backoff=[5, 10], attempts=3, name="fetch")
STEPS: dict[str, Sequence[Any]] = {
    "retried": [fail(takes=0.25), TimeoutError("slow"), ok("done")],
    "network": ["fail", "fail", ok("done")],
    "given up": ["fail", "fail", "fail"],
    "stopped": [ValueError("no")],
    "stopped later": ["fail", ValueError("no")],
    "at once": [ok("done")],
}


def events_of(*names: str) -> list[Event]:
    """Return the events of these calls, made one after the other."""
    with virtual_time(), recorded() as events:
        for name in names:
            with suppress(OSError, ValueError):
                POLICY.call(Script(*STEPS[name]))
    return events


def expecting(**expected: Any) -> dict[str, Any]:
    return expected


# ------------------------------------------------------------------------- assert_retried

GOOD: list[tuple[list[str], dict[str, Any]]] = [
    (["network"], expecting()),
    (["network"], expecting(times=2)),
    (["network"], expecting(delays=[5, 10])),
    (["network"], expecting(delays=(5.0000000001, 10))),
    (["network"], expecting(kind="network")),
    (["network"], expecting(kind=Kind.network)),
    (["network"], expecting(name="fetch")),
    (["network"], expecting(times=2, delays=[5, 10], kind="network", name="fetch")),
    (["given up"], expecting(reason="attempts")),
    (["given up"], expecting(times=2, reason=Reason.attempts, kind="network", delays=[5, 10])),
    (["stopped later"], expecting(times=1, reason="stopped")),
    (["stopped"], expecting(times=0, reason="stopped")),
    (["at once"], expecting(times=0)),
    (["at once"], expecting(times=0, delays=[], ok=True)),
    (["given up"], expecting(ok=False)),
    (["network"], expecting(times=0, name="another")),
    ([], expecting(times=0)),
    (["network", "at once", "given up"], expecting(times=4, delays=[5, 10, 5, 10], reason="attempts")),
]


@pytest.mark.parametrize(("calls", "expected"), GOOD)
def test_assert_retried_passes(calls: list[str], expected: dict[str, Any]) -> None:
    assert_retried(events_of(*calls), **expected)
    assert_retried(iter(events_of(*calls)), **expected)


BAD: list[tuple[list[str], dict[str, Any], str]] = [
    (["at once"], expecting(), "retries: some, and there were 0"),
    (["network"], expecting(times=0), "retries: 0, and there were 2"),
    (["network"], expecting(times=3), "retries: 3, and there were 2"),
    (["network"], expecting(delays=[5]), "delays of [5], and they were [5.0, 10.0]"),
    (["network"], expecting(delays=[10, 5]), "delays of [10, 5], and they were [5.0, 10.0]"),
    (["network"], expecting(delays=[5, 10.001]), "delays of [5, 10.001], and they were [5.0, 10.0]"),
    (["at once"], expecting(times=0, kind="network"), "failures of kind network, and they were none"),
    (["given up"], expecting(ok=True), "it to succeed, and it did not"),
    (["network"], expecting(ok=False), "it to fail, and it did not"),
    (["retried"], expecting(kind="network"), "failures of kind network, and they were network, timeout"),
    (["network"], expecting(kind=Kind.server), "failures of kind server, and they were network, network"),
    (["network"], expecting(reason="attempts"), "it to be given up because of attempts, and it was not"),
    (
        ["given up"],
        expecting(reason=Reason.timeout),
        "it to be given up because of timeout, and it was attempts",
    ),
    (
        ["given up", "stopped"],
        expecting(reason="attempts"),
        "it to be given up because of attempts, and it was attempts and stopped",
    ),
    (["network"], expecting(name="another"), "retries: some, and there were 0"),
    ([], expecting(), "retries: some, and there were 0"),
    (
        ["network"],
        expecting(times=1, delays=[1], kind="timeout", reason="budget"),
        (
            "retries: 1, and there were 2; delays of [1], and they were [5.0, 10.0]; "
            "failures of kind timeout, and they were network, network; "
            "it to be given up because of budget, and it was not"
        ),
    ),
]


@pytest.mark.parametrize(("calls", "expected", "message"), BAD)
def test_assert_retried_fails_with_a_message(
    calls: list[str], expected: dict[str, Any], message: str
) -> None:
    with pytest.raises(AssertionError, match=f"^expected {re.escape(message)}. What happened:\n  "):
        assert_retried(events_of(*calls), **expected)


def test_the_message_has_a_timeline() -> None:
    with pytest.raises(AssertionError) as caught:
        assert_retried(events_of("retried", "stopped"), times=1)
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


def test_the_timeline_without_events() -> None:
    with pytest.raises(AssertionError, match=r"What happened:\n  nothing$"):
        assert_retried([])
    with pytest.raises(AssertionError, match=r"What happened:\n  nothing$"):
        assert_retried(events_of("network"), name="another")


def test_the_timeline_shows_no_secrets() -> None:
    with virtual_time(), recorded() as events:
        POLICY.call(Script(ConnectionError("password"), ok("secret")), "token", key="token")
    with pytest.raises(AssertionError) as caught:
        assert_retried(events, times=9)
    assert not re.search("password|secret|token", str(caught.value))


def test_the_timeline_of_an_accepted_error() -> None:
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


def test_recording_ends_if_the_block_raises() -> None:
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

    async def fast() -> None:
        with pytest.raises(ConnectionError):
            await Retry(backoff=[1], attempts=2, name="fast").call(Script("fail", "fail").aio)

    with virtual_time(), recorded() as events:
        run(colour, lambda: together(colour, slow, fast))
    assert_retried(events, times=3)
    assert_retried(events, name="slow", times=2, delays=[60, 60])
    assert_retried(events, name="fast", times=1, delays=[1], reason="attempts")
    with pytest.raises(AssertionError, match="and it was not") as caught:
        assert_retried(events, name="slow", reason="attempts")
    assert "fast" not in str(caught.value)


# --------------------------------------------------------------------------------- the names


@pytest.mark.parametrize("name", public.__all__)
def test_every_public_name_has_a_docstring(name: str) -> None:
    docstring = getattr(public, name).__doc__
    assert docstring
    assert docstring.splitlines()[0].endswith(".")
