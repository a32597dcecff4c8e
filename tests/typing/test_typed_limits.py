"""The types of limits, deadlines and workers: by two type checkers, and when run."""
# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Coroutine, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, assert_type

import pytest

import redouble
from redouble import Pipeline, Report, Retry, Timeout, Worker, cancelled, current, deadline, remaining
from redouble.errors import AttemptTimeout
from redouble.types import CurrentCall, Event, Limit

pytestmark = pytest.mark.one_python

LIMIT = Timeout(60, worker=Worker())


def download(url: str, *, chunk: int = 1) -> bytes:
    return url.encode() * chunk


@LIMIT
def limited(url: str, *, chunk: int = 1) -> bytes:
    return url.encode() * chunk


@Timeout(timedelta(minutes=1))
async def alimited(url: str, *, chunk: int = 1) -> bytes:
    return url.encode() * chunk


@Timeout(60) | Retry() | Timeout(2)
async def lines(url: str) -> AsyncIterator[str]:
    yield url


class Client:
    @LIMIT
    def get(self, url: str) -> bytes:
        return url.encode()

    @classmethod
    @LIMIT
    def of_class(cls, url: str) -> bytes:
        return url.encode()


def run(awaited: Coroutine[Any, Any, object]) -> None:
    asyncio.run(awaited)


# ----------------------------------------------------------------------------- Timeout


def test_limited_functions_keep_their_types() -> None:
    async def main() -> None:
        assert_type(await alimited("a", chunk=2), bytes)
        assert_type([line async for line in lines("a")], list[str])

    assert_type(limited("a", chunk=2), bytes)
    assert_type(Client().get("a"), bytes)
    assert_type(Client.of_class("a"), bytes)
    assert_type(LIMIT.call(download, "a", chunk=2), bytes)
    assert_type(LIMIT | Retry(), Pipeline)
    assert_type(Retry() | LIMIT | LIMIT, Pipeline)
    run(main())


def test_limits_of_calls_and_learned_limits() -> None:
    def of_call(url: str, *, chunk: int = 1) -> float:
        return chunk

    def span_of_call(url: str) -> timedelta:
        return timedelta(seconds=len(url))

    Timeout(of_call)
    Timeout(span_of_call)
    Timeout(10, multiple=3, quantile=0.95, least=0.1, initial=timedelta(seconds=1), minimum=20)
    assert_type(Timeout(10, multiple=3).snapshot(), Mapping[str, float])
    with pytest.raises(TypeError):
        Timeout(10, multiple="3")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_wrong_calls_of_limited_functions_are_reported() -> None:
    with pytest.raises(TypeError):
        limited()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError):
        limited("a", size=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError):
        LIMIT.call(download, chunk=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def test_wrong_limits() -> None:
    with pytest.raises(TypeError):
        Timeout()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError):
        Timeout(None)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        Timeout("2s")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        Timeout(2, worker="thread")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        Timeout(2, worker=Worker)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(AttributeError):
        LIMIT.seconds = 3  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]


# ------------------------------------------------------------------------------ Worker


def test_workers() -> None:
    worker = Worker(kind="process", grace=timedelta(seconds=1), overlap=True, start="forkserver")
    assert_type(replace(worker, grace=0.5), Worker)
    assert_type(Retry(worker=Worker(), attempt_timeout=2), Retry)
    assert_type(Retry(worker=None, attempt_timeout=timedelta(seconds=2), work_timeout=3), Retry)
    assert_type(redouble.retry(worker=Worker("thread"), attempt_timeout=2), Retry)


def test_wrong_workers() -> None:
    with pytest.raises(ValueError, match="kind"):
        Worker(kind="fibre")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="start"):
        Worker(start="fork")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        Worker(grace=None)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        Worker(overlap=1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        Retry(worker="thread")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        Retry(attempt_timeout="2s")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        redouble.retry(worker=3)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]


# ------------------------------------------------------------------------------- acall


def test_blocking_calls_from_async_code() -> None:
    policy = Retry(attempt_timeout=60)

    async def main() -> None:
        assert_type(await policy.acall(download, "a", chunk=2), bytes)
        assert_type(await policy.acall(Client().get, "a"), bytes)
        assert_type(await policy.acall(functools.partial(download, "a")), bytes)
        assert_type(await policy.acall(lambda: 3), int)
        with pytest.raises(TypeError):
            await policy.acall(download)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
        with pytest.raises(TypeError):
            await policy.acall(download, "a", size=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]

    run(main())


# ---------------------------------------------------------------------------- deadlines


def test_deadlines() -> None:
    with deadline(2) as nothing, deadline(timedelta(seconds=3)):
        assert_type(nothing, None)
        assert_type(remaining(), float | None)
        assert_type(remaining(10.0), float)
        assert_type(remaining(10), float | int)
        assert_type(remaining("none"), float | str)
        assert_type(remaining(None), float | None)
        assert_type(remaining(default=1.5), float)
    assert_type(cancelled(), bool)
    assert_type(current(), CurrentCall | None)
    if (call := current()) is not None:
        assert_type(call.attempt, int)
        assert_type(call.attempts, int | None)
        assert_type(call.remaining, float | None)


def test_wrong_deadlines() -> None:
    with pytest.raises(TypeError):
        deadline()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError):
        deadline("2s")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        deadline(None)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        deadline(seconds=2)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def test_deadlines_and_attempts_are_no_async_context_managers() -> None:
    async def wrong() -> None:
        async with deadline(2):  # type: ignore[attr-defined]  # pyright: ignore[reportGeneralTypeIssues]
            pass

    async def wrong_too() -> None:
        async for attempt in Retry():
            async with attempt:  # type: ignore[attr-defined]  # pyright: ignore[reportGeneralTypeIssues]
                pass

    for main in (wrong, wrong_too):
        with pytest.raises(TypeError, match=r"^write `with "):
            run(main())


# --------------------------------------------------------------------------------- events


def test_reports_and_errors() -> None:
    def seen(event: Event) -> None:
        assert_type(event.limit, Limit | None)

    outcome = Retry(on_success=seen).run(download, "a")
    report = outcome.report
    assert_type(report, Report)
    assert_type(report.limit, Limit | None)
    assert_type(report.late, bool)
    assert_type(report.workers_left, int)
    error = AttemptTimeout("slow", limit="attempt", seconds=2)
    assert_type(error.limit, Limit | None)
    assert_type(error.seconds, float | None)
