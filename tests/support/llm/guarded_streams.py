"""Guarded streams of the sources in `chunk_sources`, read in every place.

A place is a kind of reader: blocking code with the default worker, without a worker or in a thread, and the
async libraries. The events of the sources, of the reader and of the observers are recorded in one trail of
words.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import trio
from trio.testing import MockClock

from redouble import SYSTEM, Retry, report
from redouble.llm import Model
from redouble.testing import virtual_time
from redouble.types import Event
from tests.support.fakes import ASYNC
from tests.support.llm.chunk_sources import Feed, Words
from tests.support.streams import HOOKS

BLOCKING = ("worker", "alone", "thread")  # on the default worker, without any, and in a thread
PLACES = BLOCKING + ASYNC
VIRTUAL = tuple(place for place in PLACES if place != "uvloop")  # uvloop has its own clock


def in_place(place: str, blocking: Callable[[], Any], waiting: Callable[[], Awaitable[Any]]) -> Any:
    """Run ``blocking`` or ``waiting``, whichever fits the place, in virtual time."""

    async def main() -> Any:
        return await waiting()

    def timed() -> Any:
        with virtual_time():
            return blocking()

    match place:
        case "worker" | "alone":
            return timed()
        case "thread":
            with ThreadPoolExecutor(1) as pool:
                return pool.submit(timed).result()
        case _:
            with virtual_time():
                return in_loop(place, main, MockClock(autojump_threshold=0))


def in_loop(loop: str, main: Callable[[], Any], clock: MockClock | None = None) -> Any:
    """Run a coroutine function on an event loop."""
    if loop == "trio":
        return trio.run(main, clock=clock)
    if loop == "uvloop":
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(main())
    return asyncio.run(main())


POLICY = Retry(attempts=3, backoff=[1, 1])


def model(place: str = "worker", **options: Any) -> Model:
    """Return a model for streams of words; options replace the defaults."""
    arguments: dict[str, Any] = {"policy": POLICY, "protocol": Words} | options
    if place == "alone":
        arguments["worker"] = None
    return Model("acme", "m-1", **arguments)


@dataclass(eq=False)
class StreamOutcome:
    """The outcome of one stream. The fields from ``attempts`` on are not compared if one of them is None.

    events: the trail of words.
    took: seconds.
    """

    chunks: list[Any] = field(default_factory=list[Any])
    raises: type[BaseException] | None = None
    reason: str | None = None

    attempts: int | None = None
    limit: str | None = None
    events: str | None = None
    took: float | None = None
    error: BaseException | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StreamOutcome) and all(
            mine == theirs
            or (None in (mine, theirs) and word in ("attempts", "limit", "events", "took", "error"))
            for (word, mine), theirs in zip(vars(self).items(), vars(other).values(), strict=True)
        )

    __hash__ = None  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]


def play(place: str, feed: Feed, *, most: int = 999, pause: float = 0, **options: Any) -> StreamOutcome:
    """Read at most ``most`` chunks of a stream, ``pause`` seconds apart, and return the outcome."""
    hooks: dict[str, Any] = dict.fromkeys(HOOKS, partial(_record, feed))
    policy = options.pop("policy", POLICY)
    streaming_model = model(place, policy=replace(policy, **hooks), **options)
    outcome = StreamOutcome()

    def take(chunk: Any) -> bool:
        feed.trail.append("chunk")
        outcome.chunks.append(chunk)
        return len(outcome.chunks) < most

    def blocking() -> None:
        began = SYSTEM.now()
        try:
            with streaming_model.stream(feed.open) as stream:
                for chunk in stream:
                    if not take(chunk):
                        break
                    SYSTEM.sleep(pause)
        finally:
            outcome.took = round(SYSTEM.now() - began, 9)

    async def waiting() -> None:
        began = SYSTEM.anow()
        try:
            async with streaming_model.stream(feed.aopen) as stream:
                async for chunk in stream:
                    if not take(chunk):
                        break
                    await SYSTEM.asleep(pause)
        finally:
            outcome.took = round(SYSTEM.anow() - began, 9)

    try:
        in_place(place, blocking, waiting)
    except BaseException as error:
        found = report(error)
        outcome.raises, outcome.error = type(error), error
        if found is not None:
            outcome.reason, outcome.attempts, outcome.limit = found.reason, found.attempts, found.limit
    outcome.attempts = feed.opened if outcome.attempts is None else outcome.attempts
    feed.trail.append("left")
    outcome.events = " ".join(feed.trail)
    return outcome


def _record(feed: Feed, event: Event) -> None:
    feed.trail.append(f"{event.what}:{event.attempt}")
