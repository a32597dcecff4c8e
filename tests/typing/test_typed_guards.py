"""The types of budgets, bulkheads, breakers, fallbacks and presets: by two type checkers, and when run."""
# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator, Mapping
from datetime import timedelta
from typing import Any, Literal, assert_type

import pytest

import redouble
from redouble import (
    Backoff,
    Bulkhead,
    CircuitBreaker,
    Coalesce,
    Fallback,
    Grant,
    Kind,
    Pipeline,
    Retry,
    RetryBudget,
    Timeout,
    TokenBucket,
    Verdict,
    Worker,
    presets,
    retry,
    transient,
)
from redouble.errors import BulkheadFull, CircuitOpen, Rejected
from redouble.types import Admission, Budget, Event

pytestmark = pytest.mark.one_python

BULKHEAD = Bulkhead(10)
BREAKER = CircuitBreaker()
GUARDED = (
    Fallback(value=b"", on=ConnectionError) | BULKHEAD | Retry() | BREAKER | Timeout(60, worker=Worker())
)


def download(url: str, *, chunk: int = 1) -> bytes:
    return url.encode() * chunk


@GUARDED
def guarded(url: str, *, chunk: int = 1) -> bytes:
    return url.encode() * chunk


@GUARDED
async def aguarded(url: str, *, chunk: int = 1) -> bytes:
    return url.encode() * chunk


@BULKHEAD
@BREAKER
@Fallback(value=["x"])
def dialogue(url: str) -> Generator[str, int, bytes]:
    got = yield url
    return b"x" * got


@GUARDED
async def lines(url: str) -> AsyncIterator[str]:
    yield url


class Client:
    @BULKHEAD
    def get(self, url: str) -> bytes:
        return url.encode()

    @BREAKER
    async def aget(self, url: str) -> bytes:
        return url.encode()

    @classmethod
    @GUARDED
    def of_class(cls, url: str) -> bytes:
        return url.encode()

    @Fallback(value=b"")
    @staticmethod
    def static(url: str) -> bytes:
        return url.encode()


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(main)


# ------------------------------------------------------------------------------- layers


def test_decorated_functions_keep_their_types() -> None:
    async def main() -> None:
        assert_type(await aguarded("a", chunk=2), bytes)
        assert_type(await Client().aget("a"), bytes)
        assert_type([line async for line in lines("a")], list[str])

    assert_type(guarded("a", chunk=2), bytes)
    assert_type(dialogue("a"), Generator[str, int, bytes])
    assert_type(next(dialogue("a")), str)
    assert_type(Client().get("a"), bytes)
    assert_type(Client.of_class("a"), bytes)
    assert_type(Client.static("a"), bytes)
    for layer in (BULKHEAD, BREAKER, Fallback(value=b"")):
        assert_type(layer.call(download, "a", chunk=2), bytes)
        assert_type(layer | Retry(), Pipeline)
        assert_type(Retry() | layer, Pipeline)
    assert_type(GUARDED, Pipeline)
    assert_type(GUARDED.explain(), str)
    assert_type(GUARDED.check(), list[str])
    run(main())


def test_wrong_calls_of_decorated_functions_are_reported() -> None:
    with pytest.raises(TypeError):
        Client().get()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError):
        BREAKER.call(download, "a", size=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError):
        BULKHEAD.call(download, chunk=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def test_blocks() -> None:
    async def main() -> None:
        async with BULKHEAD as admission:
            assert_type(admission, Admission)
        async with BREAKER:
            pass

    with BULKHEAD as admission, BREAKER as other:
        assert_type(admission, Admission)
        assert_type(other, Admission)
    run(main())


def class_of(url: str) -> str | None:
    return "users" if url == "/" else None


def test_bulkheads() -> None:
    Bulkhead(1, None, 3, name="db")
    Bulkhead(limit=1, wait=timedelta(seconds=1), queue=0)
    Bulkhead(2, order="adaptive", shares={"users": 0.6, "batch": 0.1}, priority="batch")
    Bulkhead(2, shares={"users": 0.6}, priority=class_of)
    with redouble.priority("batch"), redouble.priority(None):
        pass
    with pytest.raises(TypeError):
        Bulkhead(2, shares=0.5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="order="):
        Bulkhead(2, order="newest")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        redouble.priority(5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert_type(BULKHEAD.limit, int)
    assert_type(BULKHEAD.wait, float | None)
    assert_type(BULKHEAD.queue, int | None)
    assert_type(BULKHEAD.snapshot(), Mapping[str, float])
    with pytest.raises(TypeError):
        Bulkhead()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError):
        Bulkhead(1.5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        Bulkhead(1, wait="1s")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        Bulkhead(download)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_breakers() -> None:
    def seen(event: Event) -> None: ...

    CircuitBreaker(OSError, 3, on_change=seen, name="db")
    CircuitBreaker(on=[transient, OSError], ratio=0.5, window=timedelta(minutes=1), minimum=5, slow=2)
    CircuitBreaker(cooldown=timedelta(seconds=5), probes=3, reopening=(0.1, 0.5))
    assert_type(BREAKER.state, Literal["closed", "open", "half_open", "isolated", "disabled", "metrics_only"])
    assert_type(BREAKER.snapshot(), Mapping[str, float | str | None])
    CircuitBreaker(until=lambda status: status < 500, slow=1, slow_ratio=0.5, calls=50, state="metrics_only")
    CircuitBreaker(cooldown=Backoff.exponential(5), probes=10, probe_ratio=0.5)
    CircuitBreaker(cooldown=[1, 2.5])
    CircuitBreaker(cooldown=lambda reopened: 5.0 * reopened)
    BREAKER.isolate()
    BREAKER.disable()
    BREAKER.metrics_only()
    BREAKER.close()
    with pytest.raises(ValueError, match="state="):
        CircuitBreaker(state="open")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        CircuitBreaker(failures="5")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        CircuitBreaker(reopening=0.5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        CircuitBreaker(on=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(AttributeError):
        BREAKER.state = "open"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]


def test_fallbacks() -> None:
    def instead(error: Exception) -> bytes:
        return b""

    async def ainstead(error: Exception) -> bytes:
        return b""

    Fallback(instead)
    Fallback(ainstead, on=(OSError, KeyError))
    Fallback(lambda error: error.args, on=lambda error: isinstance(error, OSError))
    Fallback(value=None, on=[transient, Rejected])
    with pytest.raises(TypeError):
        Fallback(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        Fallback(instead, OSError)
    with pytest.raises(TypeError):
        Fallback(fn=instead)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def test_fallbacks_of_calls() -> None:
    def of_call(error: Exception, url: str) -> bytes:
        return b""

    def marked(result: bytes, age: float) -> bytes:
        return result

    Fallback(of_call, value=b"", until=bool, name="cached")
    Fallback.stale(60, most=10, key=class_of, mark=marked, on=OSError, until=bool, name="cached")
    assert_type(Fallback.stale(timedelta(minutes=1))(download)("a"), bytes)
    with pytest.raises(TypeError):
        Fallback.stale("60s")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_coalesced_functions_keep_their_types() -> None:
    Coalesce(key=class_of, name="pages")
    assert_type(Coalesce()(download)("a"), bytes)
    assert_type(Coalesce().call(download, "a"), bytes)
    assert_type(Coalesce() | Retry(), Pipeline)
    with pytest.raises(TypeError):
        Coalesce("url")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_rejections() -> None:
    full, shut = BulkheadFull("full", limit=3, wait=1.0), CircuitOpen("open", retry_after=2.5)
    assert_type(full.limit, int | None)
    assert_type(full.wait, float | None)
    assert_type(shut.retry_after, float | None)


# ------------------------------------------------------------------------------ budgets


def test_budgets() -> None:
    budgets: list[Budget] = [RetryBudget(), TokenBucket()]
    for budget in budgets:
        Retry(budget=budget)
        retry(budget=budget)
    shared = RetryBudget(0.1, per_second=1, window=timedelta(seconds=20), credit="request")
    assert_type(shared.spend(), Grant | None)
    assert_type(shared.spend(Kind.throttled, 3.0), Grant | None)
    assert_type(shared.snapshot(), Mapping[str, float])
    capped = RetryBudget(None, max_in_flight=0.2, minimum=1)
    assert_type(capped.without_credit(), Budget)
    assert_type(capped.max_in_flight, float | None)
    assert_type(Worker(limit=3, wait=None, name="io").snapshot(), Mapping[str, int | None])
    bucket = TokenBucket(10, {Kind.throttled: 2, None: 1}, refill_per_second=0.5, when_empty="wait")
    assert_type(bucket.spend(), Grant | None)
    assert_type(bucket.snapshot(3.0), Mapping[str, float])
    TokenBucket(costs={None: 1})
    TokenBucket(costs={Kind.timeout: 2.5})


def test_wrong_budgets() -> None:
    with pytest.raises(ValueError, match="credit"):
        RetryBudget(credit="failure")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="when_empty"):
        TokenBucket(when_empty="sleep")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        RetryBudget(ratio="20%")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        Retry(budget=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        Retry(budget=RetryBudget)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


# ------------------------------------------------------------------------------ presets


def test_presets() -> None:
    """Presets accept the options of `Retry` only."""
    assert_type(presets.http(), Retry)
    assert_type(presets.aws_standard(attempts=5, budget=None), Retry)
    assert_type(presets.httpware(timeout=timedelta(seconds=9)), Retry)
    assert_type(presets.finagle(on=OSError), Retry)
    assert_type(presets.database(on=lambda error: Verdict.retry()), Retry)
    assert_type(presets.polling(until=lambda state: state == "done"), Retry)
    assert_type(presets.llm(worker=Worker(), attempt_timeout=9), Retry)
    makes: Callable[[], Retry] = presets.http
    assert_type(makes(), Retry)

    @presets.http(attempts=2)
    def fetch(url: str) -> Iterator[str]:
        yield url

    assert_type(fetch("a"), Iterator[str])


def test_wrong_options_of_presets() -> None:
    with pytest.raises(TypeError):
        presets.http(attempts="3")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        presets.llm(tries=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError):
        presets.database(3)  # type: ignore[call-arg,arg-type]  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError):
        presets.http(download)  # type: ignore[call-arg,arg-type]  # pyright: ignore[reportCallIssue]
