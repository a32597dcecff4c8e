"""A plain function that returns something to await is refused by every layer, at the first call.

Nothing in it has run yet: such a call would be neither retried nor limited nor counted.
"""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import aiohttp
import pytest
import trio
from aiohttp import web

import redouble
from redouble import (
    AdaptiveConcurrency,
    AdaptiveRate,
    Bulkhead,
    Chaos,
    CircuitBreaker,
    Fallback,
    Gate,
    Keyed,
    Layer,
    RateLimit,
    Retry,
    RetryBudget,
    Throttle,
    Timeout,
    Worker,
)
from redouble._internal.callables import check_result_type, plain_types
from tests.support.fakes import Boom, Ledger, Virtual, always

MESSAGE = r"returned something to await \(a \w+\), so nothing in it was retried"


class Admit(Gate):
    """A gate of the user's."""

    def admit(self, now: float, /) -> None: ...


async def fetch() -> int:
    raise AssertionError("it must not run")


class Lazy(Coroutine[Any, Any, int]):
    """A coroutine of another class, as aiohttp's context manager that can be awaited is."""

    def __init__(self) -> None:
        self.inner = fetch()

    def __await__(self) -> Generator[Any, Any, int]:
        return self.inner.__await__()

    def send(self, value: Any) -> Any:
        return self.inner.send(value)

    def throw(self, *error: Any) -> Any:
        return self.inner.throw(*error)

    def close(self) -> None:
        self.inner.close()


class Bare:
    """An awaitable that can be neither closed nor cancelled."""

    def __await__(self) -> Generator[Any, Any, int]:
        raise AssertionError("it must not be awaited")


class Pool(Bare):
    """An awaitable whose ``close`` is a coroutine function, as that of a pool of connections."""

    async def close(self) -> None:
        raise AssertionError("it is somebody else's")


class Stubborn(Bare):
    """An awaitable that cannot be cancelled."""

    __module__ = "grpc.aio._call"

    def cancel(self) -> None:
        raise RuntimeError("not now")


class AsyncCancel(Bare):
    """An awaitable whose ``cancel`` has to be awaited too."""

    __module__ = "grpc.aio._call"

    async def cancel(self) -> None:
        raise AssertionError("it must not be awaited")


AWAITABLES: list[Callable[[], Awaitable[int]]] = [fetch, Lazy, Bare, Pool, Stubborn, AsyncCancel]

LAYERS: dict[str, Callable[[], Layer]] = {
    "retry": lambda: Retry(on=Exception),
    "retry of transient errors": Retry,
    "retry with a budget": lambda: Retry(on=Exception, budget=RetryBudget()),
    "retry that counts starts": lambda: Retry(on=Exception, budget=RetryBudget(credit="request")),
    "retry with another budget": lambda: Retry(on=Exception, budget=Ledger()),
    "retry until": lambda: Retry(on=Exception, until=bool),
    "retry until, refusing": lambda: Retry(on=Exception, until=always(False), backoff=[0] * 9),
    "retry, wrapping": lambda: Retry(on=Exception, wrap=True),
    "retry on a thread": lambda: Retry(on=Exception, worker=Worker()),
    "retry on a thread, limited": lambda: Retry(on=Exception, attempt_timeout=9, worker=Worker()),
    "retry with work_timeout": lambda: Retry(on=Exception, work_timeout=9),
    "retry with a hook": lambda: Retry(on=Exception, before_attempt=lambda _: None),
    "timeout": lambda: Timeout(9, worker=Worker()),
    "bulkhead": lambda: Bulkhead(1, wait=0),
    "breaker": lambda: CircuitBreaker(failures=1),
    "rate": lambda: RateLimit(100, burst=100),
    "adaptive rate": lambda: AdaptiveRate(on=Exception),
    "adaptive concurrency": lambda: AdaptiveConcurrency(on=Exception),
    "throttle": lambda: Throttle(on=Exception),
    "fallback": lambda: Fallback(value=3),
    "chaos": lambda: Chaos(fault=Boom, rate=0),
    "keyed": lambda: Keyed(lambda: 1, lambda: CircuitBreaker(failures=1)),
    "gate": Admit,
    "pipeline": lambda: Fallback(value=3) | Retry(on=Exception) | CircuitBreaker(failures=1) | Bulkhead(1),
}


@pytest.mark.parametrize("make", LAYERS.values(), ids=list(LAYERS))
@pytest.mark.parametrize("awaitable", AWAITABLES)
def test_every_layer_refuses_it(make: Callable[[], Layer], awaitable: Callable[[], Any]) -> None:
    """It is called once: the refusal is not an error to retry, to replace or to count."""
    calls: list[int] = []

    def plain() -> Any:
        calls.append(1)
        return awaitable()

    layer = make()
    with pytest.raises(TypeError, match=f"plain {MESSAGE}"):
        layer(plain)()
    with pytest.raises(TypeError, match=f"plain {MESSAGE}"):
        layer.call(plain)
    assert len(calls) == 2
    gc.collect()  # which would warn about a coroutine that was never awaited


class Service:
    """A callable object with methods."""

    def __call__(self, *_: object) -> Any:
        return Lazy()

    def get(self, *_: object) -> Any:
        return Lazy()

    @staticmethod
    def read(*_: object) -> Any:
        return Lazy()


def lazy(*_: object) -> Any:
    return Lazy()


@pytest.mark.parametrize("fn", [Service(), Service().get, Service.read, partial(Service().get, 1), lazy])
@pytest.mark.parametrize("layer", [Retry(), CircuitBreaker(), Bulkhead(1), RateLimit(100)])
def test_every_callable_is_refused(layer: Layer, fn: Any) -> None:
    with pytest.raises(TypeError, match=MESSAGE):
        layer(fn)(1)


def test_an_outer_decorator_neither_retries_nor_replaces_the_refusal() -> None:
    calls: list[int] = []

    @Fallback(value=3)
    @Retry(on=Exception, backoff=[0] * 9)
    @CircuitBreaker(failures=1)
    def plain() -> Any:
        calls.append(1)
        return Lazy()

    with pytest.raises(TypeError, match=MESSAGE):
        plain()
    with pytest.raises(TypeError, match=MESSAGE):  # the circuit is still closed
        plain()
    assert len(calls) == 2


@pytest.mark.parametrize("options", [{}, {"until": bool}, {"budget": Ledger()}, {"work_timeout": 9}])
def test_a_later_attempt_is_refused_too(options: dict[str, Any]) -> None:
    fails = [Boom()]

    def plain() -> Any:
        if fails:
            raise fails.pop()
        return Lazy()

    policy = Retry(on=Exception, backoff=[1] * 9, clock=Virtual(), **options)
    with pytest.raises(TypeError, match=MESSAGE):
        policy(plain)()


def test_results_of_other_types_pass() -> None:
    """Also those of a class that cannot be hashed, and of one that has every attribute."""

    class Meta(type):
        def __eq__(cls, other: object) -> bool:
            raise AssertionError("not compared")

        def __getattr__(cls, name: str) -> Any:
            raise RuntimeError("not asked")

        __hash__: Any = None

    class Odd(metaclass=Meta): ...

    class NotAwaitable(Lazy):
        __await__: Any = None

    odd = Odd()
    results: list[Any] = [None, 3, odd, "text", odd, None, 3, 3]

    @Retry()
    def plain(place: int) -> Any:
        return results[place]

    for place, expected in enumerate(results):
        assert plain(place) is expected
    never = NotAwaitable()
    assert Retry().call(lambda: never) is never
    never.close()


def test_the_type_of_a_result_is_not_kept() -> None:
    """A wrapper remembers the type of its last result, and does not keep it alive."""

    @Retry()
    def make() -> Any:
        return type("Local", (), {})()

    made: object = make()
    kind = weakref.ref(type(made))
    del made
    gc.collect()
    assert kind() is None
    make()


def test_one_refusal_follows_a_success() -> None:
    results: list[Any] = [3, 3, Lazy(), 3]

    @Retry()
    def plain() -> Any:
        return results.pop(0)

    assert plain() == 3
    assert plain() == 3
    with pytest.raises(TypeError, match=MESSAGE):
        plain()
    assert plain() == 3


async def never() -> None:
    raise AssertionError("it must not run")


@pytest.mark.parametrize("make", LAYERS.values(), ids=list(LAYERS))
def test_a_task_is_cancelled_before_it_runs(make: Callable[[], Layer]) -> None:
    """Nothing is sent: a task runs only when the caller gives up control."""
    tasks: list[asyncio.Task[None]] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()

        def start() -> Any:
            tasks.append(loop.create_task(never()))
            return tasks[-1]

        layer = make()
        with pytest.raises(TypeError, match=r"start returned something to await \(a Task\)"):
            layer(start)()
        await asyncio.sleep(0)

    asyncio.run(main())
    assert [task.cancelled() for task in tasks] == [True]


def test_a_pending_future_is_cancelled_and_a_failed_one_is_the_cause() -> None:
    """The error of a future that has failed is not lost, and asyncio does not log that nobody read it."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        logged: list[Any] = []
        loop.set_exception_handler(lambda _, context: logged.append(context))
        future: asyncio.Future[int] = loop.create_future()
        with pytest.raises(TypeError, match=r"\(a Future\)"):
            Retry()(lambda: future)()
        assert future.cancelled()
        with pytest.raises(TypeError, match=r"\(a Future\)"):
            Retry()(lambda: future)()
        done: asyncio.Future[int] = loop.create_future()
        done.set_result(3)
        with pytest.raises(TypeError, match=r"\(a Future\)"):
            Retry()(lambda: done)()
        failed: list[asyncio.Future[int]] = [loop.create_future()]
        failed[0].set_exception(Boom("lost"))
        with pytest.raises(TypeError, match=r"\(a Future\)") as caught:
            Retry()(failed.pop)()
        assert isinstance(caught.value.__cause__, Boom)
        del caught
        gc.collect()
        await asyncio.sleep(0)
        assert logged == []

    asyncio.run(main())


def test_acall_refuses_it_on_the_event_loop() -> None:
    calls: list[int] = []

    def plain() -> Any:
        calls.append(1)
        return Lazy()

    async def main() -> None:
        for policy in (Retry(on=Exception), Retry(on=Exception, until=always(False), backoff=[0] * 9)):
            with pytest.raises(TypeError, match=f"plain {MESSAGE}"):
                await policy.acall(plain)

    asyncio.run(main())
    trio.run(main)
    assert len(calls) == 4


def test_under_trio() -> None:
    def sleep() -> Any:
        return trio.sleep(1)  # noqa: ASYNC105

    async def main() -> None:
        with pytest.raises(TypeError, match=r"\(a coroutine\)"):
            CircuitBreaker()(sleep)()

    trio.run(main)


def test_run_refuses_it_aloud() -> None:
    """It is a mistake in the program, so it is raised and not put into the outcome."""
    never = Retry(on=Exception, until=always(False), backoff=[0] * 9)
    for policy in (Retry(on=Exception), never, Retry(on=Exception, worker=Worker())):
        run: Any = policy.run
        with pytest.raises(TypeError, match=MESSAGE):
            run(lazy)


def test_run_raises_the_refusal_of_a_function_inside() -> None:
    inner: Any = CircuitBreaker()(lazy)

    async def outer() -> None:
        inner()

    async def main() -> None:
        with pytest.raises(TypeError, match=MESSAGE):
            await Retry(on=Exception).run(outer)

    asyncio.run(main())


def test_a_block_whose_decorated_function_is_refused_ends() -> None:
    """`on=Exception` of an outer loop does not retry the refusal either."""
    turns = 0
    inner = CircuitBreaker()(lazy)
    with pytest.raises(TypeError, match=MESSAGE):
        for attempt in Retry(on=Exception, backoff=[0] * 9):
            turns += 1
            with attempt:
                inner()
    assert turns == 1


def test_a_budget_is_not_credited_for_a_refusal() -> None:
    ledger = Ledger()
    with pytest.raises(TypeError, match=MESSAGE):
        Retry(budget=ledger)(lazy)()
    assert not [line for line in ledger.lines if line.startswith("credit")]


def test_slots_are_released() -> None:
    bulkhead, limit = Bulkhead(1, wait=0), AdaptiveConcurrency()
    for gate in (bulkhead, limit):
        with pytest.raises(TypeError, match=MESSAGE):
            gate(lazy)()
    assert bulkhead.snapshot()["in_use"] == limit.snapshot()["in_use"] == 0


@asynccontextmanager
async def served() -> AsyncGenerator[tuple[str, list[str]]]:
    """Serve requests, and record their paths."""
    seen: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append(request.path)
        return web.Response(text="ok")

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        yield f"http://{host}:{port}", seen
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("decorate", [redouble.retry, CircuitBreaker(), Bulkhead(2)])
def test_a_request_of_aiohttp_is_not_sent(decorate: Any) -> None:
    """`session.get` is a plain function, and returns a context manager that can be awaited."""

    async def main() -> None:
        async with served() as (url, seen), aiohttp.ClientSession() as session:
            with pytest.raises(TypeError, match=r"\(a _\w*RequestContextManager\)"):
                decorate(session.get)(f"{url}/refused")

            async def get(url: str) -> str:
                async with session.get(url) as answer:
                    return await answer.text()

            assert await decorate(get)(f"{url}/awaited") == "ok"
            assert seen == ["/awaited"]  # the server receives requests in the order they were begun

    asyncio.run(main())


class Rpc(Bare):
    """An RPC as those of gRPC: its error has to be awaited, and it cannot be cancelled any more."""

    __module__ = "grpc.aio._call"

    def cancel(self) -> bool:
        return False

    def cancelled(self) -> bool:
        return False

    async def exception(self) -> Exception:
        raise AssertionError("it must not be awaited")


def test_an_error_that_has_to_be_awaited_is_closed() -> None:
    with pytest.raises(TypeError, match=r"\(a Rpc\)") as caught:
        Retry().call(Rpc)
    assert caught.value.__cause__ is None
    gc.collect()


def test_a_type_that_no_longer_exists_is_forgotten() -> None:
    """A new class may have its identity."""
    before = len(plain_types)
    kinds = [type("Local", (), {}) for _ in range(9)]

    @Retry()
    def make(kind: type[object]) -> object:
        return kind()

    assert [type(make(kind)) for kind in kinds] == kinds
    assert len(plain_types) == before + 9
    kinds.clear()
    gc.collect()
    assert len(plain_types) == before


def test_an_awaitable_substitute_of_a_fallback_is_refused_aloud() -> None:
    """Around blocking code; no outer policy retries that."""
    calls: list[int] = []

    def fail() -> int:
        calls.append(1)
        raise Boom

    def substitute(_: Exception) -> Any:
        return Lazy()

    with pytest.raises(TypeError, match=r"has to be awaited, and .*fail blocks"):
        (Retry(on=Exception, backoff=[0] * 9) | Fallback(substitute)).call(fail)
    assert len(calls) == 1


class ByHash(type):
    """A metaclass whose classes have no module that can be looked up."""

    @property
    def __module__(cls) -> str:  # type: ignore[override]  # pyright: ignore[reportIncompatibleVariableOverride]
        raise RuntimeError("do not look")


def test_a_wrapper_remembers_types_of_modules_only() -> None:
    """The class of a mock refers to the mock: a wrapper that remembered it would keep both alive."""

    class Local: ...

    class Hidden(metaclass=ByHash): ...

    results: list[tuple[object, type[object]]] = [(3, int), ("", str), (Local(), object), (Hidden(), object)]
    for result, remembered in [*results, (None, object)]:
        assert check_result_type(len, result) is remembered


class Shared(Bare):
    """A future of another library, which blocking code may use too."""

    def cancel(self) -> None:
        raise AssertionError("it is somebody else's")


def test_a_future_of_another_library_is_refused_and_left_alone() -> None:
    with pytest.raises(TypeError, match=r"\(a Shared\)") as caught:
        Retry().call(Shared)
    assert caught.value.__cause__ is None
