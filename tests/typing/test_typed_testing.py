"""The types of `redouble.testing`: by two type checkers, and when run."""
# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, assert_type

import pytest

from redouble import Clock, Kind, Reason, Retry
from redouble.testing import (
    Script,
    ScriptedFailure,
    Switch,
    VirtualClock,
    assert_retried,
    attempts,
    fail,
    no_retries,
    ok,
    recorded,
    virtual_time,
)
from redouble.types import Event

pytestmark = pytest.mark.one_python

POLICY = Retry(backoff=[1, 2])


def test_virtual_time() -> None:
    with virtual_time() as clock:
        assert_type(clock, VirtualClock)
        assert_type(clock.delays, list[float])
        assert_type(clock.now(), float)
        clock.advance(60)
        clock.advance(0.5)
        as_clock: Clock = clock
        assert as_clock.now() == 60.5
    with pytest.raises(TypeError):
        clock.advance("60s")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_moving_the_clock_by_a_timedelta() -> None:
    """`advance` accepts it like a number of seconds."""
    with virtual_time() as clock:
        clock.advance(timedelta(minutes=1))
        assert clock.now() == 60


def test_scripts() -> None:
    script = Script("fail", TimeoutError, TimeoutError("slow"), ok(3), fail(OSError, takes=0), ok(takes=0))
    assert_type(script.aio, Callable[..., Coroutine[Any, Any, Any]])
    assert_type(script.calls, list[tuple[tuple[Any, ...], dict[str, Any]]])
    fail(ScriptedFailure("no"), takes=timedelta(seconds=1))
    Script(*["fail"] * 3, ok(3))
    Script(*[OSError] * 3, ok(3))
    with pytest.raises(TypeError):
        Script(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        Script("ok")
    with pytest.raises(TypeError):
        ok(3, takes="1s")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        ok(3, 1.0)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def test_scripts_in_calls() -> None:
    """They return `Any`, and their async form an awaitable."""
    with virtual_time():
        assert_type(POLICY.call(Script("fail", ok(3)), "an argument"), Any)
        assert_type(POLICY(Script("fail", ok(3))), Script)

    async def main() -> None:
        with virtual_time():
            assert_type(await POLICY.call(Script("fail", ok(3)).aio, key="word"), Any)
            assert (await POLICY.run(Script("fail", ok(3)).aio)).unwrap() == 3

    asyncio.run(main())


def test_no_retries_and_attempts() -> None:
    assert_type(no_retries(), Switch[None])
    with attempts(3), no_retries() as nothing:
        assert_type(nothing, None)
    with (
        pytest.raises(TypeError),
        attempts("3"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    ):
        pass


def test_events() -> None:
    with virtual_time(), recorded() as events:
        assert_type(events, list[Event])
        POLICY.call(Script("fail", ok(3)))
    assert_retried(events)
    assert_retried(events, times=1, delays=[1], kind="network", name="Script")
    assert_retried(iter(events), times=1, delays=(1.0,), kind=Kind.network)
    with pytest.raises(AssertionError):
        assert_retried(events, reason=Reason.attempts)
    with pytest.raises(TypeError):
        assert_retried(events, 1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def test_fixtures(redouble_time: VirtualClock, redouble_events: list[Event]) -> None:
    POLICY.call(Script("fail", ok(3)))
    assert_type(redouble_time.delays, list[float])
    assert_retried(redouble_events, times=1)
