"""Limits and workers that a shape of code does not support are refused, with a hint what to write."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any, cast

import pytest

from redouble import Gate, Pipeline, Retry, Timeout, Worker, deadline, variant
from redouble._runtime.ambient import ambient
from tests.support.fakes import ASYNC, in_colour

calls: list[str] = []


@pytest.fixture(autouse=True)
def uncalled() -> Iterator[None]:
    """Assert that the options are rejected before anything is called."""
    calls.clear()
    yield
    assert calls == []


def fetch() -> None:
    calls.append("fetch")


class Fetcher:
    def __call__(self) -> None:
        calls.append("Fetcher")

    def get(self) -> None:
        calls.append("get")


def lines() -> Iterator[str]:
    calls.append("lines")
    yield "line"


def opened() -> list[str]:
    calls.append("opened")
    return ["line"]


@contextmanager
def connect() -> Generator[None]:
    calls.append("connect")
    yield


class OpenGate(Gate):
    def admit(self, now: float, /) -> None:
        calls.append("admitted")


def loop(policy: Retry) -> None:
    for attempt in policy:
        with attempt:
            calls.append("attempt")


def enter(policy: Retry) -> None:
    with policy.enter(connect):
        calls.append("entered")


def enter_later(policy: Retry) -> None:
    with policy.enter(partial(connect)):
        calls.append("entered")


# ------------------------------------------------------------------ blocking, without a worker

PLAIN: dict[str, Callable[[Retry], object]] = {
    "decorated": lambda policy: policy(fetch),
    "called": lambda policy: policy.call(fetch),
    "run": lambda policy: policy.run(fetch),
    "a partial": lambda policy: policy.call(partial(fetch)),
    "an object": lambda policy: policy(Fetcher()),
    "a method": lambda policy: policy.call(Fetcher().get),
    "static": lambda policy: policy(staticmethod(fetch)),
    "inside a gate": lambda policy: (OpenGate() | policy)(fetch),
    "around a gate": lambda policy: (policy | OpenGate()).call(fetch),
    "around a limit": lambda policy: (policy | Timeout(1, worker=Worker()))(fetch),
    "alone in a pipeline": lambda policy: Pipeline(policy)(fetch),
    "a variant": lambda policy: variant(Retry()(fetch), attempt_timeout=policy.attempt_timeout),
}


@pytest.mark.parametrize("shape", PLAIN)
@pytest.mark.parametrize("ambience", [False, True])
def test_an_attempt_timeout_is_refused_for_blocking_code(shape: str, ambience: bool) -> None:
    """Also with an observer, or a deadline."""
    name = {"an object": "Fetcher", "a method": r"Fetcher\.get"}.get(shape, "fetch")
    message = rf"^attempt_timeout= cannot stop {name}, which blocks: add worker=Worker\(\)"
    policy = Retry(attempt_timeout=2)
    if ambience:
        with deadline(60), pytest.raises(TypeError, match=message):
            PLAIN[shape](policy)
    else:
        assert not ambient.active
        with pytest.raises(TypeError, match=message):
            PLAIN[shape](policy)


def test_the_message_names_all_alternatives() -> None:
    with pytest.raises(TypeError) as caught:
        Retry(attempt_timeout=2)(fetch)
    for fix in ("worker=Worker()", "await policy.acall(...)", "timeout=", "give_up_after="):
        assert fix in str(caught.value)


def test_limits_of_the_call_are_accepted_for_blocking_code() -> None:
    """They only prevent attempts that would begin too late."""
    assert Retry(timeout=2, work_timeout=2, give_up_after=2).call(int, "3") == 3


# -------------------------------------------------------------------- blocks and streams

BLOCKS: dict[str, tuple[Callable[[Retry], object], str]] = {
    # how the policy is used, and its name in the message
    "for": (loop, "a `for` loop"),
    "enter": (enter, "a `with` block"),
    "enter a partial": (enter_later, "a `with` block"),
    "stream": (lambda policy: list(policy.stream(opened)), "a stream"),
    "stream, next": (lambda policy: next(policy.stream(lines)), "a stream"),
    "stream, resumed": (lambda policy: list(policy.stream(lines, resume=str)), "a stream"),
    "generator": (lambda policy: policy(lines), "lines"),
    "generator, called": (lambda policy: policy.call(lines), "lines"),
    "generator, in a pipeline": (lambda policy: (OpenGate() | policy)(lines), "lines"),
}


@pytest.mark.parametrize("ambience", [False, True])
@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"worker": Worker()}, "worker"),
        ({"worker": Worker(kind="process")}, "worker"),
        ({"attempt_timeout": 2}, "attempt_timeout"),
        ({"attempt_timeout": 2, "worker": Worker()}, "worker"),
    ],
    ids=["a thread", "a process", "a limit", "both"],
)
@pytest.mark.parametrize("shape", BLOCKS)
def test_workers_and_attempt_timeouts_are_refused_for_blocks_and_streams(
    shape: str, options: dict[str, Any], named: str, ambience: bool
) -> None:
    use, what = BLOCKS[shape]
    fix = r"leave it out of this policy, or put the work into a function for policy\.call\(fn, \.\.\.\)"
    message = rf"^{named}= is for whole calls, and {what} runs in the thread that started it: {fix}$"
    if ambience:
        with deadline(60), pytest.raises(TypeError, match=message):
            use(Retry(**options))
    else:
        with pytest.raises(TypeError, match=message):
            use(Retry(**options))


# ------------------------------------------------------------------------------- a Timeout


LIMITED: dict[str, Callable[[Timeout], object]] = {
    "decorated": lambda limit: limit(fetch),
    "called": lambda limit: limit.call(fetch),
    "a method": lambda limit: limit(Fetcher().get),
    "inside a retry": lambda limit: (Retry() | limit)(fetch),
    "around a retry": lambda limit: (limit | Retry()).call(fetch),
}


@pytest.mark.parametrize("shape", LIMITED)
def test_a_timeout_layer_is_refused_for_blocking_code(shape: str) -> None:
    fix = r"write Timeout\(2\.5, worker=Worker\(\)\) to run it on a thread$"
    with pytest.raises(TypeError, match=rf"^Timeout cannot stop [\w.]*(fetch|get), which blocks: {fix}"):
        LIMITED[shape](Timeout(2.5))


@pytest.mark.parametrize("worker", [None, Worker()])
def test_a_timeout_layer_is_refused_for_generators(worker: Worker | None) -> None:
    with pytest.raises(TypeError, match=r"^Timeout cannot limit lines.*: write an async generator"):
        Timeout(2, worker=worker)(lines)
    with pytest.raises(TypeError, match=r"^Timeout cannot limit lines.*: write an async generator"):
        (Retry() | Timeout(2, worker=worker)).call(lines)


@pytest.mark.parametrize("wrong", [3, None, "fetch"])
def test_a_timeout_layer_refuses_what_is_not_callable(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"cannot decorate .*: it is not callable"):
        Timeout(2)(wrong)


# ---------------------------------------------------------------------------- async code


@pytest.mark.parametrize("options", [{"attempt_timeout": 60}, {"worker": Worker()}], ids=["limit", "worker"])
@pytest.mark.parametrize("colour", ASYNC)
def test_async_code_may_have_limits_and_workers(colour: str, options: dict[str, Any]) -> None:
    """It can be cancelled; the worker is for blocking functions under the same policy."""
    policy = Retry(**options)

    async def afetch() -> int:
        return 3

    async def alines() -> AsyncIterator[int]:
        yield 3

    @asynccontextmanager
    async def aconnect() -> AsyncGenerator[int]:
        yield 3

    async def looped() -> int:
        async for attempt in policy:
            with attempt:
                return 3
        return 0

    async def waiting() -> list[object]:
        async with policy.enter(aconnect) as entered:
            return [
                entered,
                await looped(),
                await policy(afetch)(),
                (await policy.run(afetch)).value,
                *[item async for item in policy.call(alines)],
                *[item async for item in policy.stream(alines)],
            ]

    assert in_colour(colour, lambda: None, waiting) == [3] * 6


@pytest.mark.parametrize(
    ("fn", "what"),
    [(lines, "generator"), (asyncio.sleep, "coroutine")],
    ids=["generator", "coroutine"],
)
def test_acall_is_for_blocking_functions(fn: Any, what: str) -> None:
    async def main() -> None:
        await Retry(attempt_timeout=2).acall(fn)

    with pytest.raises(TypeError, match=rf"^acall is for blocking functions, and {fn.__name__} is a {what}"):
        asyncio.run(main())


def test_a_timeout_layer_needs_seconds() -> None:
    async def coroutine() -> None:
        pass

    for wrong in (coroutine, int):
        with pytest.raises(TypeError, match=r"^write @Timeout\(2\), with the seconds"):
            Timeout(cast("Any", wrong))
