"""The cost of retries for an HTTP client: processor time on success, wall-clock time with many failures.

A network is noisy, so the first is measured twice: over connections to a server in another process, and over
connections in memory. Only the processor time of the client's own thread counts.

A request takes a hundred times as long as the calls of the other rows, so that on a busy machine every sample
is disturbed, while the differences are a few percent. So a sample has only a few requests, every round
samples all clients in a random order, and the figure is the median of the ratios within a round. For two
identical clients it is 0.98 to 1.02; the ratio of the best samples would be 0.95 to 1.04.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from multiprocessing import get_context
from random import Random
from statistics import median
from time import perf_counter_ns, thread_time_ns
from typing import Any

import aiohttp
import httpx2

import redouble.aiohttp
import redouble.httpx2
from benchmarks import http_server
from benchmarks.http_clients import BARE, CLIENTS, Client, Get, read
from benchmarks.http_fake_connections import sockets
from benchmarks.server_process import server_process
from benchmarks.table_row import Row
from benchmarks.timing import Effort, Sample, Timing
from redouble import Retry

RIVALS = ("httpware", "httpx-retries", "aiohttp-retry")  # Redouble must not be slower
AT_A_TIME = 5  # requests of a sample
WARMING = 60  # warm-up requests
AT_ONCE = 200  # concurrent calls
DELAYS = [
    0.1,
    0.2,
    0.4,
    0.8,
    1.6,
]  # seconds, as in `presets.http()` without its jitter; no request fails as often


@dataclass(frozen=True)
class Pair:
    """The ratios of one variant to the bare client beside it, from one process."""

    bare: float  # nanoseconds of a request over the network
    network: float
    added_in_memory: float
    in_cycles: float  # objects of a request that only the garbage collector frees
    bare_in_cycles: float


def http(effort: Effort) -> Iterator[Row]:
    """Measure and yield the rows: each variant beside its bare client, in a process without the others.

    Others would fill the caches of the interpreter and of the processor.
    """
    with server_process(http_server.__file__) as address:
        url = f"http://{address}"
        for client in CLIENTS:
            pairs: dict[str, Pair] = {}
            for variant in client.made(False, AsyncExitStack()):
                if variant != BARE:
                    with ProcessPoolExecutor(1, get_context("spawn")) as process:
                        measured = process.submit(succeeding, client.name, variant, f"{url}/fine", effort)
                        pairs[variant] = measured.result()
            yield from rows(client, pairs)
        with asyncio.Runner() as runner, frozen():
            yield from failing(runner, url, effort)


def rows(client: Client, pairs: Mapping[str, Pair]) -> Iterator[Row]:
    """Make the rows of a successful request, and of the cost added to it over connections in memory."""
    ours = pairs["redouble"]

    def timings(ratios: Mapping[str, float]) -> dict[str, Timing]:
        return {name: Timing(ours.bare * ratio, ours.bare * ratio) for name, ratio in ratios.items()}

    taken = timings({BARE: 1.0, **{name: pair.network for name, pair in pairs.items()}})
    rivals = {name: 1.0 for name in taken if name in RIVALS}
    yield Row(f"{client.name}: a successful GET", taken, 1.05, BARE, faster_than=rivals, about="http")
    left = f"{ours.in_cycles:.0f} objects of a request left in cycles"
    yield Row(
        f"{client.name}: what is added to it, in memory",
        timings({BARE: 1.0, **{name: pair.added_in_memory for name, pair in pairs.items()}}),
        0.02 if client.aio else 0.03,
        BARE,
        problems=(left,) if ours.in_cycles >= 1 > ours.bare_in_cycles else (),  # bare httpx leaves some too
        about="http",
    )


def succeeding(name: str, variant: str, url: str, effort: Effort) -> Pair:
    """Measure a successful request of one variant and of the bare client."""
    (client,) = (client for client in CLIENTS if client.name == name)
    with asyncio.Runner() as runner, frozen():
        with opened(partial(pair, client, variant, False), runner) as gets:
            network = paired(samples(client, runner, gets, url), 5 * effort.rounds)
        with sockets(), opened(partial(pair, client, variant, True), runner) as gets:
            nowhere = samples(client, runner, gets, url)
            memory = paired(nowhere, 5 * effort.rounds)
            left = {name: in_cycles(sample) for name, sample in nowhere.items()}
    bare = network[BARE].best
    return Pair(
        bare=bare,
        network=network[variant].best / bare,
        added_in_memory=(memory[variant].best - memory[BARE].best) / bare,
        in_cycles=left[variant],
        bare_in_cycles=left[BARE],
    )


def pair(client: Client, variant: str, in_memory: bool, stack: AsyncExitStack) -> dict[str, Get]:
    """Open the bare client and one variant."""
    variants = client.made(in_memory, stack)
    return {name: variants[name]() for name in (BARE, variant)}


def paired(samples: Mapping[str, Sample], rounds: int, base: str = BARE) -> dict[str, Timing]:
    """Time all samples in alternation; return the base's best, and the others as ratios to it."""
    for sample in samples.values():
        sample(WARMING)
    names, order = list(samples), Random(7)  # noqa: S311  the same in every run
    taken: dict[str, list[float]] = {name: [] for name in names}
    gc.disable()
    try:
        for turn in range(rounds):
            if turn % 10 == 0:
                gc.collect()
            order.shuffle(names)  # in a fixed order one client would always run with warm caches
            for name in names:
                taken[name].append(samples[name](AT_A_TIME))
    finally:
        gc.enable()
    best = min(taken[base])
    ratios = {
        name: median(mine / bare for mine, bare in zip(times, taken[base], strict=True))
        for name, times in taken.items()
    }
    return {name: Timing(best * ratios[name], median(times)) for name, times in taken.items()}


def in_cycles(sample: Sample) -> float:
    """Return the number of objects per request that only the garbage collector frees."""
    gc.collect()
    gc.disable()
    try:
        sample(WARMING)
        return gc.collect() / WARMING
    finally:
        gc.enable()


@contextmanager
def opened(
    made: Callable[[AsyncExitStack], dict[str, Get]], runner: asyncio.Runner
) -> Generator[dict[str, Get]]:
    """Open a client in some variants, and close them on exit."""
    stack = AsyncExitStack()

    async def on_loop() -> dict[str, Get]:  # aiohttp needs a running loop
        return made(stack)

    try:
        yield runner.run(on_loop())
    finally:
        runner.run(stack.aclose())


def samples(
    client: Client, runner: asyncio.Runner, variants: Mapping[str, Get], url: str
) -> dict[str, Sample]:
    """Sample requests one after the other, in processor time."""
    return {
        name: awaited(runner, get, url) if client.aio else blocking(get, url)
        for name, get in variants.items()
    }


def blocking(get: Get, url: str) -> Sample:
    """Sample blocking requests."""

    def sample(times: int) -> float:
        started = thread_time_ns()
        for _ in repeat(None, times):
            get(url)
        return (thread_time_ns() - started) / times

    return sample


def awaited(runner: asyncio.Runner, get: Get, url: str) -> Sample:
    """Sample async requests."""

    async def sample(times: int) -> float:
        started = thread_time_ns()
        for _ in repeat(None, times):
            await get(url)
        return (thread_time_ns() - started) / times

    return lambda times: runner.run(sample(times))


def failing(runner: asyncio.Runner, url: str, effort: Effort) -> Iterator[Row]:
    """Measure the time of many concurrent calls if three of ten responses are failures."""
    for name, made in (("httpx2, async", many_httpx2), ("aiohttp", many_aiohttp)):
        with opened(made, runner) as variants:
            samples = {variant: together(runner, get, url) for variant, get in variants.items()}
            taken = paired(samples, max(3, effort.rounds // 6), "by hand")
        yield Row(f"{name}: {AT_ONCE} GETs at once, 30 % failures", taken, 1.03, about="http")


def many_httpx2(stack: AsyncExitStack) -> dict[str, Get]:
    """Retry by hand and by Redouble, with httpx2."""
    limits = httpx2.Limits(max_connections=AT_ONCE, max_keepalive_connections=AT_ONCE)

    def client(transport: httpx2.AsyncBaseTransport | None = None) -> httpx2.AsyncClient:
        made = httpx2.AsyncClient(transport=transport, limits=limits, timeout=60)
        stack.push_async_callback(made.aclose)
        return made

    wrapped = httpx2.AsyncHTTPTransport(limits=limits)
    retrying = redouble.httpx2.AsyncTransport(policy(), wrapped=wrapped)
    return {"by hand": looped(client().get), "redouble": client(retrying).get}


def many_aiohttp(stack: AsyncExitStack) -> dict[str, Get]:
    """Retry by hand and by Redouble, with aiohttp."""

    def session(*middlewares: aiohttp.ClientMiddlewareType) -> aiohttp.ClientSession:
        made = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=AT_ONCE), middlewares=middlewares)
        stack.push_async_callback(made.close)
        return made

    return {
        "by hand": looped(read(session())),
        "redouble": read(session(redouble.aiohttp.middleware(policy()))),
    }


def policy() -> Retry:
    """Return a policy with the same delays."""
    return Retry(attempts=len(DELAYS) + 1, backoff=DELAYS)


def looped(get: Get) -> Get:
    """Retry by hand."""

    async def got(url: str) -> Any:
        for delay in DELAYS:
            response = await get(url)
            if status_of(response) != 503:
                return response
            await asyncio.sleep(delay)
        return await get(url)

    return got


def status_of(response: Any) -> int:
    """Return the status of a response of either library."""
    return int(response.status_code if hasattr(response, "status_code") else response.status)


def together(runner: asyncio.Runner, get: Get, url: str) -> Sample:
    """Sample concurrent calls in wall-clock time; in each sample the same requests fail, but no call."""

    async def sample() -> float:
        started = perf_counter_ns()
        answers = await asyncio.gather(*[get(f"{url}/some/{number}") for number in range(AT_ONCE)])
        taken = perf_counter_ns() - started
        if {status_of(answer) for answer in answers} != {200}:
            raise AssertionError("all were to succeed in the end")
        return taken

    return lambda _: runner.run(sample())


@contextmanager
def frozen() -> Generator[None]:
    """Exclude all existing objects from garbage collection, which would take longer than a sample."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
