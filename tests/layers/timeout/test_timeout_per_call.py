"""`Timeout` with a limit that depends on the arguments of the call, or on the recent latencies."""

from __future__ import annotations

import asyncio
import copy
import pickle
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx2
import pytest

from redouble import Retry, Timeout, Worker, deadline, errors, remaining
from redouble.config import from_mapping, to_mapping
from redouble.httpx2 import AsyncTransport, Transport
from redouble.testing import VirtualClock
from tests.support.virtual_time import in_virtual_colour, no_real_waits

pytestmark = pytest.mark.usefixtures(no_real_waits.__name__)

ASYNC = pytest.mark.parametrize("colour", ["asyncio", "trio"])


def by_minutes(size: float) -> timedelta:
    return timedelta(minutes=size)


def by_size(size: float, *, factor: float = 1) -> float:
    return size * factor


async def load(size: float, *, factor: float = 1) -> float | None:
    return remaining()


# ------------------------------------------------------------- a function of the arguments


@ASYNC
def test_the_limit_is_a_function_of_the_arguments(colour: str) -> None:
    async def items(size: float) -> AsyncIterator[float | None]:
        yield remaining()
        yield remaining()

    async def waiting(clock: VirtualClock) -> list[object]:
        limited = Timeout(by_size)(load)
        stream = Timeout(by_size)(items)
        return [
            await limited(3),
            await limited(3, factor=2),
            await Timeout(by_size).call(load, size=5),
            [item async for item in stream(4)],
            await Timeout(by_minutes)(load_at_once)(2),
            await (Retry() | Timeout(by_size))(load)(7),
        ]

    assert in_virtual_colour(colour, lambda clock: None, waiting) == [3, 6, 5, [4, None], 120, 7]


async def load_at_once(size: float) -> float | None:
    return remaining()


@ASYNC
def test_a_call_that_exceeds_its_own_limit_is_cancelled(colour: str) -> None:
    async def slow(size: float, clock: VirtualClock) -> None:
        await clock.asleep(10)

    def first(size: float, _: VirtualClock) -> float:
        return size

    async def waiting(clock: VirtualClock) -> float:
        limited, began = Timeout(first)(slow), clock.now()
        await limited(11, clock)
        with pytest.raises(errors.AttemptTimeout, match="slow took longer than 2 s") as caught:
            await limited(2, clock)
        assert (caught.value.seconds, caught.value.limit) == (2, "attempt")
        return clock.now() - began

    assert in_virtual_colour(colour, lambda clock: None, waiting) == 12


def test_on_a_worker() -> None:
    seen: list[float] = []

    def blocking(size: float) -> str:
        seen.append(remaining(0.0))
        return "done"

    limited = Timeout(by_size, worker=Worker())(blocking)
    assert limited(60) == limited(size=3600) == "done"
    assert 59 < seen[0] <= 60
    assert 3599 < seen[1] <= 3600
    with pytest.raises(errors.AttemptTimeout, match="blocking was not called: its limit is 0 s"):
        limited(0)
    assert len(seen) == 2


@pytest.mark.parametrize(
    ("returned", "error", "message"),
    [
        ("2s", TypeError, r"Timeout seconds=.*wrong\(\.\.\.\)='2s': write seconds as a number"),
        (None, TypeError, r"Timeout seconds=.*wrong\(\.\.\.\)=None: write seconds as a number"),
        (-1, ValueError, r"Timeout seconds=.*wrong\(\.\.\.\)=-1: write a finite number of seconds"),
    ],
)
def test_a_wrong_result_comes_out_before_the_call(
    returned: Any, error: type[Exception], message: str
) -> None:
    called: list[float] = []

    def wrong(size: float) -> Any:
        return returned

    async def fn(size: float) -> None:
        called.append(size)

    with pytest.raises(error, match=message):
        asyncio.run(Timeout(wrong)(fn)(3))
    assert not called


def test_what_the_function_raises_comes_out_before_the_call() -> None:
    def wrong(_: float) -> float:
        return 1 / 0

    with pytest.raises(ZeroDivisionError):
        asyncio.run(Timeout(wrong)(load_at_once)(3))


def test_a_function_that_does_not_fit_is_reported() -> None:
    with pytest.raises(TypeError, match=r"Timeout seconds=by_url does not accept the arguments of load"):
        Timeout(by_url)(load)
    with pytest.raises(TypeError, match="write Timeout\\(by_size, worker=Worker\\(\\)\\) to run it"):
        Timeout(by_size)(by_size)


def by_url(url: str) -> float:
    return 1


def test_as_a_decorator_without_seconds_it_is_reported() -> None:
    for wrong in (load, int):
        with pytest.raises(TypeError, match=r"write @Timeout\(2\), with the seconds"):
            Timeout(wrong)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_explain_and_check_name_the_function() -> None:
    pipeline = Retry() | Timeout(by_size)
    assert "at most by_size(...) seconds" in pipeline.explain()
    assert (Timeout(1) | pipeline).check() == (Timeout(1) | Retry()).check()
    assert Timeout(by_size).snapshot() == {}
    assert repr(Timeout(by_size)) == "Timeout(seconds=by_size, worker=None)"


# ------------------------------------------------------------------------------- learned


async def take(seconds: float, clock: VirtualClock) -> None:
    await clock.asleep(seconds)


@ASYNC
def test_the_limit_is_learned_from_recent_latencies(colour: str) -> None:
    async def waiting(clock: VirtualClock) -> None:
        timeout = Timeout(60, multiple=3, quantile=0.9, minimum=20, initial=5)
        limited = timeout(take)
        for _ in range(19):
            await limited(1, clock)
            assert timeout.snapshot() == {"limit": 5}
        await limited(1, clock)
        assert 3 <= timeout.snapshot()["limit"] <= 3 * 1.07
        with pytest.raises(errors.AttemptTimeout, match="take took longer than 3"):
            await limited(4, clock)

    in_virtual_colour(colour, lambda clock: None, waiting)


@ASYNC
def test_calls_that_were_cut_off_make_the_limit_rise(colour: str) -> None:
    """They count as calls that took at least as long, so a slow service does not fail for ever."""

    async def waiting(clock: VirtualClock) -> float:
        timeout = Timeout(60, multiple=2, quantile=0.9, minimum=20)
        limited, cut = timeout(take), 0
        for _ in range(40):
            await limited(1, clock)
        assert timeout.snapshot()["limit"] < 2.2
        for _ in range(400):
            try:
                await limited(10, clock)
            except errors.AttemptTimeout:
                cut += 1
        assert timeout.snapshot()["limit"] >= 10
        return cut

    assert 1 <= in_virtual_colour(colour, lambda clock: None, waiting) <= 200


@ASYNC
@pytest.mark.parametrize(("seconds", "least", "most"), [(0.001, 0.5, 0.5), (50, 20, 20)])
def test_the_limit_is_bounded(colour: str, seconds: float, least: float, most: float) -> None:
    async def waiting(clock: VirtualClock) -> float:
        timeout = Timeout(20, multiple=2, quantile=0.9, least=0.5, minimum=20)
        for _ in range(20):
            with_errors = timeout(take)
            with suppress(errors.AttemptTimeout):
                await with_errors(seconds, clock)
        return timeout.snapshot()["limit"]

    assert least <= in_virtual_colour(colour, lambda clock: None, waiting) <= most


@ASYNC
def test_failures_say_nothing(colour: str) -> None:
    """A connection that is refused at once is no fast call; a cancellation is a call that took longer."""

    async def fails() -> None:
        raise ConnectionRefusedError

    async def waiting(clock: VirtualClock) -> None:
        timeout = Timeout(60, multiple=2, minimum=2)
        for _ in range(50):
            with pytest.raises(ConnectionRefusedError):
                await timeout(fails)()
        assert timeout.snapshot() == {"limit": 60}
        for _ in range(2):
            with pytest.raises(errors.AttemptTimeout):
                await (Timeout(4) | timeout)(take)(10, clock)
        assert 8 <= timeout.snapshot()["limit"] <= 8.6

    in_virtual_colour(colour, lambda clock: None, waiting)


@ASYNC
def test_a_call_after_the_deadline_says_nothing(colour: str) -> None:
    async def waiting(clock: VirtualClock) -> None:
        timeout = Timeout(60, multiple=2, minimum=1)
        with deadline(1):
            clock.advance(2)
            with pytest.raises(errors.AttemptTimeout, match="was not called: the deadline has passed"):
                await timeout(take)(10, clock)
        assert timeout.snapshot() == {"limit": 60}

    in_virtual_colour(colour, lambda clock: None, waiting)


def test_it_learns_from_workers_too() -> None:
    timeout = Timeout(3600, Worker(), multiple=1000, minimum=1, least=1)
    assert timeout.call(int, 3) == 3
    assert 1 <= timeout.snapshot()["limit"] < 3600


def test_a_learned_timeout_is_described() -> None:
    timeout = Timeout(timedelta(seconds=10), multiple=3, least=timedelta(seconds=0.05), initial=2)
    assert (
        "at most 3 times what 99 % of the calls take, from 0.05 s to 10 s, currently 2 s"
        in (Retry() | timeout).explain()
    )
    assert timeout.traits().time_limit == 10
    assert (Timeout(5) | timeout).check() == []
    [problem] = (Timeout(0.01) | timeout).check()
    assert "Timeout(10) inside a limit of 0.01 s" in problem
    assert repr(timeout) == "Timeout(seconds=10.0, worker=None, multiple=3, least=0.05, initial=2.0)"


def test_copies_share_what_is_learned() -> None:
    timeout = Timeout(10, multiple=3)
    assert copy.deepcopy(timeout) == timeout == Timeout(10, multiple=3) == replace(timeout, minimum=None)
    assert copy.deepcopy(timeout)._learned is timeout._learned
    assert replace(timeout)._learned is not timeout._learned
    with pytest.raises(TypeError, match="cannot be sent to another"):
        pickle.dumps(timeout)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"multiple": 0.5}, ValueError, "Timeout multiple=0.5: write how many times, 1 or more, such as 3"),
        ({"multiple": "3"}, TypeError, "Timeout multiple='3': write how many times"),
        ({"multiple": 3, "quantile": 1}, ValueError, "Timeout quantile=1: write a share from 0.5"),
        ({"multiple": 3, "quantile": 0.3}, ValueError, "Timeout quantile=0.3: write a share from 0.5"),
        ({"multiple": 3, "least": 0}, ValueError, "Timeout least=0: write more seconds, such as 0.05"),
        ({"multiple": 3, "least": 11}, ValueError, "write least <= initial <= seconds"),
        ({"multiple": 3, "initial": 11}, ValueError, "least=0.01, initial=11, seconds=10: write least"),
        ({"multiple": 3, "minimum": 0}, ValueError, "Timeout minimum=0: write how many calls"),
        ({"least": 1}, ValueError, "Timeout least=1 is for a learned limit: write multiple= too"),
        ({"minimum": 5}, ValueError, "Timeout minimum=5 is for a learned limit"),
    ],
)
def test_wrong_options_of_a_learned_limit(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        Timeout(10, **options)


def test_a_learned_limit_needs_its_bound() -> None:
    with pytest.raises(TypeError, match="Timeout multiple= and a function as seconds: write either"):
        Timeout(by_size, multiple=3)


# ------------------------------------------------------------- documents, and policies of clients


def test_a_learned_limit_in_a_document() -> None:
    document = {"type": "timeout", "seconds": "10s", "multiple": 3, "least": "50ms", "minimum": 200}
    config = from_mapping({"pipelines": {"api": {"layers": [document]}}})
    [layer] = config.pipelines["api"].layers
    assert layer == Timeout(10, multiple=3, least=0.05, minimum=200)
    assert to_mapping(layer) == {
        "type": "timeout",
        "seconds": 10,
        "multiple": 3,
        "least": 0.05,
        "minimum": 200,
    }
    with pytest.raises(errors.ConfigError, match="write least <= initial <= seconds"):
        from_mapping({"pipelines": {"api": {"layers": [document | {"initial": "20s"}]}}})


def by_path(request: httpx2.Request) -> float:
    return 0.5 if request.url.path == "/slow" else 3600


@pytest.mark.parametrize("outside", [False, True])
def test_a_client_has_a_limit_for_each_request(outside: bool) -> None:
    seen: list[tuple[str, float]] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        seen.append((request.url.path, remaining(0.0)))
        return httpx2.Response(200)

    limit = Timeout(by_path)
    policy = limit | Retry(attempts=1) if outside else Retry(attempts=1) | limit
    with httpx2.Client(transport=Transport(policy, wrapped=httpx2.MockTransport(answer))) as client:
        client.get("https://example.org/slow")
        client.get("https://example.org/fast")
    (slow, half), (fast, hour) = seen
    assert (slow, fast) == ("/slow", "/fast")
    assert 0 < half <= 0.5
    assert 3000 < hour <= 3600


def test_a_client_learns_its_limit() -> None:
    async def answer(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200)

    async def main() -> None:
        async with httpx2.AsyncClient(
            transport=AsyncTransport(timeout, wrapped=httpx2.MockTransport(answer))
        ) as client:
            await client.get("https://example.org/")

    timeout = Timeout(3600, multiple=2, minimum=2, least=1)
    asyncio.run(main())
    with httpx2.Client(
        transport=Transport(timeout, wrapped=httpx2.MockTransport(lambda _: httpx2.Response(200)))
    ) as client:
        client.get("https://example.org/")
    assert 1 <= timeout.snapshot()["limit"] < 3600
