"""The types of calls, outcomes, blocks and events, checked by two type checkers and at run time."""
# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

import asyncio
import functools
from collections.abc import Coroutine, Mapping
from typing import Any, assert_type

import pytest

import redouble
from redouble import (
    Attempt,
    AttemptRecord,
    Clock,
    Gate,
    Grant,
    Kind,
    Layer,
    Outcome,
    Reason,
    Report,
    Retry,
    Verdict,
)
from redouble import errors as redouble_errors
from redouble.types import Admission, Ended, Event

pytestmark = pytest.mark.one_python

POLICY = Retry(on=ConnectionError, attempts=2, backoff=[0])


def download(url: str, *, chunk: int = 1) -> bytes:
    return url.encode() * chunk


async def adownload(url: str, *, chunk: int = 1) -> bytes:
    return url.encode() * chunk


class Client:
    def get(self, url: str) -> bytes:
        return url.encode()

    async def aget(self, url: str) -> bytes:
        return url.encode()


class Fetcher:
    def __call__(self, url: str) -> bytes:
        return url.encode()


class AsyncFetcher:
    async def __call__(self, url: str) -> bytes:
        return url.encode()


def nothing() -> None:
    """Return nothing."""


async def anothing() -> None:
    """Return nothing, in async code."""


def run(awaited: Coroutine[Any, Any, object]) -> None:
    asyncio.run(awaited)


# -------------------------------------------------------------------------------- call


def test_call() -> None:
    assert_type(POLICY.call(download, "a"), bytes)
    assert_type(POLICY.call(download, "a", chunk=2), bytes)
    assert_type(POLICY.call(Client().get, "a"), bytes)
    assert_type(POLICY.call(functools.partial(download, "a")), bytes)
    assert_type(POLICY.call(Fetcher(), "a"), bytes)
    assert_type(POLICY.call(lambda: 3), int)
    assert_type(POLICY.call(int, "3"), int)
    assert_type((POLICY | POLICY).call(download, "a"), bytes)


def test_call_of_a_coroutine_function() -> None:
    async def main() -> None:
        assert_type(await POLICY.call(adownload, "a", chunk=2), bytes)
        assert_type(await POLICY.call(Client().aget, "a"), bytes)
        assert_type(await POLICY.call(AsyncFetcher(), "a"), bytes)
        assert_type(await POLICY.call(functools.partial(adownload, "a")), bytes)
        assert_type(await (POLICY | POLICY).call(adownload, "a"), bytes)

    started: Coroutine[Any, Any, bytes] = POLICY.call(adownload, "a")
    started.close()
    run(main())


def test_wrong_arguments_of_calls_are_reported() -> None:
    with pytest.raises(TypeError):
        POLICY.call(download)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError):
        POLICY.call(download, "a", size=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError):
        POLICY.call(download, "a", chunk="3")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        POLICY.call("download")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]


# --------------------------------------------------------------------------------- run


def test_run() -> None:
    assert_type(POLICY.run(download, "a", chunk=2), Outcome[bytes])
    assert_type(POLICY.run(Client().get, "a"), Outcome[bytes])
    assert_type(POLICY.run(functools.partial(download, "a")), Outcome[bytes])
    assert_type(POLICY.run(Fetcher(), "a"), Outcome[bytes])
    assert_type(POLICY.run(lambda: 3), Outcome[int])


def test_run_of_a_coroutine_function() -> None:
    async def main() -> None:
        assert_type(await POLICY.run(adownload, "a", chunk=2), Outcome[bytes])
        assert_type(await POLICY.run(Client().aget, "a"), Outcome[bytes])
        assert_type(await POLICY.run(AsyncFetcher(), "a"), Outcome[bytes])
        assert_type(await POLICY.run(functools.partial(adownload, "a")), Outcome[bytes])
        assert_type((await POLICY.run(adownload, "a")).unwrap(), bytes)
        assert_type(await POLICY.run(anothing), Outcome[None])

    assert_type(POLICY.run(nothing), Outcome[None])
    started = POLICY.run(adownload, "a")
    assert_type(started, Coroutine[Any, Any, Outcome[bytes]]).close()
    run(main())


def test_run_results() -> None:
    outcome = POLICY.run(download, "a")
    assert_type(outcome.ok, bool)
    assert_type(outcome.value, bytes | None)
    assert_type(outcome.error, Exception | None)
    assert_type(outcome.report, Report)
    assert_type(outcome.unwrap(), bytes)
    wider: Outcome[bytes | str] = outcome  # covariant
    assert wider is outcome


def test_report() -> None:
    report = POLICY.run(download, "a").report
    assert_type(report.reason, Reason | None)
    assert_type(report.attempts, int)
    assert_type(report.elapsed, float)
    assert_type(report.work_elapsed, float)
    assert_type(report.workers_left, int)
    assert_type(report.labels, Mapping[str, str])
    assert_type(report.history, tuple[AttemptRecord, ...])
    assert_type(report.history[0].kind, Kind | None)
    assert_type(report.history[0].delay, float | None)
    assert_type(redouble.report(ValueError()), Report | None)


def test_errors() -> None:
    try:
        Retry(until=bool, attempts=1).call(nothing)
    except redouble_errors.NotAccepted as error:
        assert_type(error.reason, Reason | None)
        assert_type(error.report, Report | None)
        assert_type(error.last, object)
    assert_type(redouble_errors.Rejected("no", retry_after=3).retry_after, float | None)
    assert_type(redouble_errors.ConfigError("no", path="a.b").path, str)


# ------------------------------------------------------------------------------ blocks


def test_block() -> None:
    for attempt in POLICY:
        assert_type(attempt, Attempt)
        with attempt as entered:
            assert_type(entered, Attempt)
            assert_type(attempt.number, int)


def test_async_block() -> None:
    async def main() -> None:
        async for attempt in POLICY:
            as_public: Attempt = attempt
            with attempt as entered:
                as_entered: Attempt = entered
                assert as_public is as_entered
                assert_type(attempt.number, int)

    run(main())


def returned_from_a_block() -> bytes:
    """Return from inside a block; an attempt may swallow an error, so the code after it is reachable."""
    for attempt in POLICY:
        with attempt:
            return download("a")
    raise AssertionError  # without this line both type checkers report a missing return


def test_returning_from_a_block() -> None:
    assert_type(returned_from_a_block(), bytes)


# -------------------------------------------------------------------- policies, variants


@redouble.retry(attempts=3)
def fetch(url: str) -> bytes:
    return url.encode()


@redouble.retry(attempts=3)
async def afetch(url: str) -> bytes:
    return url.encode()


class Service:
    @redouble.retry(attempts=3)
    def get(self, url: str) -> bytes:
        return url.encode()


def test_policy_of() -> None:
    assert_type(redouble.policy_of(fetch), Layer | None)
    assert_type(redouble.policy_of(Service().get), Layer | None)
    assert_type(redouble.policy_of(download), Layer | None)


def test_variant() -> None:
    async def main() -> None:
        assert_type(await redouble.variant(afetch, attempts=1)("a"), bytes)

    assert_type(redouble.variant(fetch, attempts=1)("a"), bytes)
    assert_type(redouble.variant(fetch)("a"), bytes)
    assert_type(redouble.variant(Service().get, on=OSError, backoff=[0], wrap=True)("a"), bytes)
    run(main())


def test_wrong_options_of_variants_are_reported() -> None:
    with pytest.raises(TypeError):
        redouble.variant(fetch, attempt=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError):
        redouble.variant(fetch, attempts="1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        redouble.variant(fetch, 1)  # type: ignore[call-arg, arg-type]  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError):
        redouble.variant(fetch, attempts=1)(1, 2)  # type: ignore[call-arg, arg-type]  # pyright: ignore[reportCallIssue]


# ------------------------------------------------------------------- user-defined objects


class Bucket:
    """A user-defined budget: has the methods, and inherits nothing."""

    def start(self, now: float, /) -> None: ...
    def failed(self, kind: Kind, now: float, /) -> None: ...
    def spend(self, kind: Kind, now: float, /) -> Grant | None:
        return Grant(1)

    def credit(self, grant: Grant | None, now: float, /) -> None: ...
    def refund(self, grant: Grant, now: float, /) -> None: ...
    def snapshot(self) -> Mapping[str, float]:
        return {}


class Door(Gate):
    def admit(self, now: float, /) -> int:
        return 1

    def ended(self, ticket: int, error: BaseException | None, now: float, /) -> None:
        assert ticket == 1


class Still(Clock):
    def now(self) -> float:
        return 0.0


class Patient:
    def judge(self, ended: Ended, /) -> Verdict | None:
        assert_type(ended.error, Exception | None)
        assert_type(ended.attempt, int)
        return Verdict.retry(kind=Kind.server) if ended.error else None


def watch(event: Event) -> None:
    assert_type(event.attempt, int)
    assert_type(event.error, Exception | None)
    assert_type(event.verdict, Verdict | None)
    assert_type(event.delay, float | None)
    assert_type(event.labels, Mapping[str, str])


def test_user_defined_budgets_gates_clocks_rules_and_observers() -> None:
    policy = Retry(on=Patient(), budget=Bucket(), clock=Still(), before_attempt=watch, on_success=watch)
    assert_type(policy.call(download, "a"), bytes)
    assert_type((Door() | policy).call(download, "a"), bytes)
    with redouble.observe(watch), Door() as admission:
        assert_type(admission, Admission)
    redouble.observe(watch).remove()
    with pytest.raises(TypeError):
        redouble.observe("watch")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
