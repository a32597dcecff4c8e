"""Nested policies that share a budget: it is credited once for each logical call, by the outermost one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

import httpx
import pytest

from redouble import Kind, Pipeline, Retry, RetryBudget, TokenBucket, Worker
from redouble._runtime.ambient import CREDITED_CALL, CreditedCall
from redouble.httpx import AsyncTransport, Transport
from tests.support.fakes import ASYNC, Boom, Ledger, in_colour, options


def retrying(budget: Any, **given: Any) -> Retry:
    return Retry(**options(on=Boom, attempts=3, backoff=[0, 0], budget=budget, nested="allow") | given)


class Function:
    """A function that fails as often as it is told, and then returns "done"; in each colour."""

    def __init__(self, fails: int = 0) -> None:
        self.fails = fails

    def __call__(self) -> str:
        if self.fails:
            self.fails -= 1
            raise Boom
        return "done"

    async def acall(self) -> str:
        await asyncio.sleep(0) if in_asyncio() else None
        return self()


def in_asyncio() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


Blocking = Callable[[Retry, Callable[[], str]], str]
Waiting = Callable[[Retry, Callable[[], Awaitable[str]]], Coroutine[Any, Any, str]]


def decorated(policy: Retry, fn: Callable[[], str]) -> str:
    return policy(fn)()


def called(policy: Retry, fn: Callable[[], str]) -> str:
    return policy.call(fn)


def outcome(policy: Retry, fn: Callable[[], str]) -> str:
    return policy.run(fn).unwrap()


def block(policy: Retry, fn: Callable[[], str]) -> str:
    for attempt in policy:
        with attempt:
            return fn()
    raise AssertionError


def stream(policy: Retry, fn: Callable[[], str]) -> str:
    (item,) = policy.stream(lambda: iter([fn()]))
    return item


def generator(policy: Retry, fn: Callable[[], str]) -> str:
    @policy
    def items() -> Iterator[str]:
        yield fn()

    (item,) = items()
    return item


def on_a_worker(policy: Retry, fn: Callable[[], str]) -> str:
    return Retry(**options(on=Boom, attempts=3, backoff=[0, 0], budget=policy.budget, worker=Worker())).call(
        fn
    )


async def adecorated(policy: Retry, fn: Callable[[], Awaitable[str]]) -> str:
    @policy
    async def wrapped() -> str:
        return await fn()

    return await wrapped()


async def acalled(policy: Retry, fn: Callable[[], Awaitable[str]]) -> str:
    async def wrapped() -> str:
        return await fn()

    return await policy.call(wrapped)


async def ablock(policy: Retry, fn: Callable[[], Awaitable[str]]) -> str:
    async for attempt in policy:
        with attempt:
            return await fn()
    raise AssertionError


async def astream(policy: Retry, fn: Callable[[], Awaitable[str]]) -> str:
    async def items() -> AsyncIterator[str]:
        yield await fn()

    (item,) = [item async for item in policy.stream(items)]
    return item


async def agenerator(policy: Retry, fn: Callable[[], Awaitable[str]]) -> str:
    @policy
    async def items() -> AsyncIterator[str]:
        yield await fn()

    (item,) = [item async for item in items()]
    return item


# The policies around others. A block is not among them, because what is inside it credits by itself.
BLOCKING = [decorated, called, outcome, stream, generator, on_a_worker]
WAITING = [adecorated, acalled, astream, agenerator]


def credits_of(ledger: Ledger) -> list[str]:
    return [line for line in ledger.lines if line.startswith(("start", "credit"))]


@pytest.mark.parametrize("outer", BLOCKING)
@pytest.mark.parametrize("inner", [*BLOCKING, block])
def test_blocking_calls_are_credited_once(outer: Blocking, inner: Blocking) -> None:
    """And started once. The next call is credited too: nothing of the first one is left in the context."""
    ledger = Ledger()
    policy, another = retrying(ledger), retrying(ledger, attempts=2)
    for calls in (1, 2):
        assert outer(policy, lambda: inner(another, Function())) == "done"
        assert credits_of(ledger) == ["start", "credit None"] * calls
        assert CREDITED_CALL.get() is None


@pytest.mark.parametrize("colour", ASYNC)
@pytest.mark.parametrize("outer", WAITING)
@pytest.mark.parametrize("inner", [*WAITING, ablock])
def test_async_calls_are_credited_once(colour: str, outer: Waiting, inner: Waiting) -> None:
    ledger = Ledger()
    policy, another = retrying(ledger), retrying(ledger, attempts=2)

    async def main() -> None:
        for calls in (1, 2):
            assert await outer(policy, lambda: inner(another, Function().acall)) == "done"
            assert credits_of(ledger) == ["start", "credit None"] * calls
            assert CREDITED_CALL.get() is None

    in_colour(colour, lambda: None, main)


@pytest.mark.parametrize("inner", [decorated, called, block])
def test_a_policy_in_a_block_credits_the_budget_itself(inner: Blocking) -> None:
    """A block does not call its body, so it cannot know what runs inside it."""
    ledger = Ledger()
    assert block(retrying(ledger), lambda: inner(retrying(ledger), Function())) == "done"
    assert credits_of(ledger) == ["start", "start", "credit None", "credit None"]


def test_a_block_in_a_generator_leaves_its_consumer_alone() -> None:
    """Two generators that are suspended in blocks, and leave them in another order."""
    ledger = Ledger()
    policy = retrying(ledger)

    def pages() -> Iterator[str]:
        for attempt in policy:
            with attempt:
                yield "page"

    for _ in range(3):
        for _ in zip(pages(), pages(), strict=True):
            assert CREDITED_CALL.get() is None
            ledger.lines.clear()
            assert policy.call(Function()) == "done"
            assert credits_of(ledger) == ["start", "credit None"]
    assert CREDITED_CALL.get() is None


@pytest.mark.parametrize("colour", ASYNC)
def test_a_block_in_an_async_generator_leaves_its_consumer_alone(colour: str) -> None:
    ledger = Ledger()
    policy = retrying(ledger)

    async def pages() -> AsyncIterator[str]:
        async for attempt in policy:
            with attempt:
                yield "page"

    async def main() -> None:
        async for _ in pages():
            ledger.lines.clear()
            assert await policy.call(Function().acall) == "done"
            assert credits_of(ledger) == ["start", "credit None"]

    in_colour(colour, lambda: None, main)


def chain() -> int:
    """Return how many calls that credit a budget the context holds."""
    links, call = 0, CREDITED_CALL.get()
    while call is not None:
        links, call = links + 1, call[2]
    return links


@pytest.mark.parametrize("shape", ["decorated", "called"])
def test_tasks_that_start_one_another_keep_no_chain(shape: str) -> None:
    """Each inherits the context of the one before, whose call is over soon after."""
    links = list[int]()

    async def main() -> None:
        over = asyncio.Event()

        async def start(left: int) -> None:
            links.append(chain())
            if left:
                tasks.append(asyncio.create_task(call(left - 1)))
            else:
                over.set()
            await asyncio.sleep(0)

        async def call(left: int) -> None:
            policy = retrying(Ledger())
            await (policy(start)(left) if shape == "decorated" else policy.call(start, left))

        tasks = [asyncio.create_task(call(50))]
        await over.wait()
        await asyncio.gather(*tasks)

    asyncio.run(main())
    assert len(links) == 51
    assert max(links) <= 4


@pytest.mark.parametrize("outer", [adecorated, acalled])
def test_a_coroutine_that_is_closed_in_another_context(outer: Waiting) -> None:
    """As the garbage collector does: the call of that context stays in force."""
    ledger = Ledger()

    class Forever:
        def __await__(self) -> Generator[None, None, None]:
            yield

    async def suspended() -> str:
        await Forever()
        return "never"

    coroutine = outer(retrying(Ledger()), suspended)
    copy_context().run(coroutine.send, None)

    @retrying(ledger)
    def load() -> str:
        coroutine.close()
        return retrying(ledger).call(Function())

    assert load() == "done"
    assert credits_of(ledger) == ["start", "credit None"]
    assert CREDITED_CALL.get() is None


def test_an_entry_of_another_call_stays() -> None:
    """A call restores the context only where its own entry is in force."""
    entry: CreditedCall = [Ledger(), None, None]

    def main() -> None:
        retrying(Ledger()).call(CREDITED_CALL.set, entry)
        assert CREDITED_CALL.get() is entry

    copy_context().run(main)


@pytest.mark.parametrize("levels", [2, 3])
def test_a_pipeline_is_credited_once(colour: str, levels: int) -> None:
    ledger, fn = Ledger(), Function()
    pipeline = Pipeline(*[retrying(ledger) for _ in range(levels)])
    wrapped, awrapped = pipeline(fn), pipeline(fn.acall)
    for calls in (1, 2):
        assert in_colour(colour, wrapped, awrapped) == "done"
        assert credits_of(ledger) == ["start", "credit None"] * calls


def test_budgets_that_differ_are_credited_each() -> None:
    one, other, third = Ledger(), Ledger(), Ledger()
    fn = retrying(one)(retrying(other)(retrying(third)(retrying(one)(Function()))))
    assert fn() == "done"
    assert [credits_of(each) for each in (one, other, third)] == [["start", "credit None"]] * 3


@pytest.mark.parametrize("inner", [*BLOCKING, block])
@pytest.mark.parametrize("outer", BLOCKING)
def test_the_credit_has_the_grant_of_the_last_retry(outer: Blocking, inner: Blocking) -> None:
    """Wherever that retry was: the tokens of the grants before it are spent."""
    ledger, fn = Ledger(), Function(fails=2)
    policy, another = retrying(ledger, attempts=2), retrying(ledger, attempts=2)
    assert outer(policy, lambda: inner(another, fn)) == "done"
    # The first retry is the inner policy's, which gives up then; the second one is the outer policy's.
    assert credits_of(ledger) == ["start", "credit 2"]
    fn.fails = 1
    ledger.lines.clear()
    assert outer(policy, lambda: inner(another, fn)) == "done"
    assert credits_of(ledger) == ["start", "credit 3"]  # an inner retry


def test_an_inner_retry_before_an_outer_one_is_not_the_last() -> None:
    ledger, calls = Ledger(), list[int]()
    inner = retrying(ledger)

    @retrying(ledger)
    def load() -> str:
        calls.append(1)
        inner.call(Function(fails=1 if len(calls) == 1 else 0))
        if len(calls) == 1:
            raise Boom
        return "done"

    assert load() == "done"
    assert credits_of(ledger) == ["start", "credit 2"]


def test_several_calls_inside_one() -> None:
    ledger = Ledger()

    @retrying(ledger)
    def load() -> list[str]:
        return [retrying(ledger).call(Function()) for _ in range(5)]

    assert load() == ["done"] * 5
    assert credits_of(ledger) == ["start", "credit None"]


def test_an_outer_call_that_fails_is_not_credited() -> None:
    ledger = Ledger()

    @retrying(ledger, attempts=1)
    def load() -> None:
        retrying(ledger).call(Function())
        raise Boom

    with pytest.raises(Boom):
        load()
    assert credits_of(ledger) == ["start"]
    retrying(ledger).call(Function())
    assert credits_of(ledger) == ["start", "start", "credit None"]


@pytest.mark.parametrize("leave", [KeyboardInterrupt, GeneratorExit, Boom])
@pytest.mark.parametrize("outer", [*BLOCKING, block])
def test_nothing_is_left_in_the_context(outer: Blocking, leave: type[BaseException]) -> None:
    def fails() -> str:
        raise leave

    with pytest.raises(leave):
        outer(retrying(Ledger(), attempts=1), fails)
    assert CREDITED_CALL.get() is None


def test_a_retry_budget() -> None:
    budget = RetryBudget(ratio=1, per_second=0)
    outer = retrying(budget)(retrying(budget)(Function()))
    for calls in (1, 2, 3):
        outer()
        assert budget.snapshot()["credits"] == calls


@pytest.mark.parametrize("credit", ["success", "request"])
def test_a_retry_budget_in_async_code(credit: Any) -> None:
    budget = RetryBudget(ratio=1, per_second=0, credit=credit)
    inner = retrying(budget)(Function().acall)

    @retrying(budget)
    async def outer() -> None:
        await asyncio.gather(
            inner(), asyncio.create_task(inner()), asyncio.to_thread(retrying(budget)(Function()))
        )

    asyncio.run(outer())
    assert budget.snapshot()["credits"] == 1


def test_a_token_bucket() -> None:
    bucket = TokenBucket(capacity=100, costs={None: 10})
    for _ in range(5):
        bucket.spend(Kind.network)
    retrying(bucket)(retrying(bucket)(Function()))()
    assert bucket.snapshot()["tokens"] == 51
    failing = Function(fails=1)
    retrying(bucket)(lambda: retrying(bucket).call(failing))()
    assert bucket.snapshot()["tokens"] == 51  # the retry took what its success returned
    assert failing.fails == 0


@pytest.mark.parametrize("with_context", [True, False])
def test_a_call_in_another_thread(*, with_context: bool) -> None:
    """Without a copy of the context, its thread does not know about the call around it."""
    ledger = Ledger()
    inner = retrying(ledger)(Function())

    @retrying(ledger)
    def load() -> None:
        with ThreadPoolExecutor(1) as pool:
            (pool.submit(copy_context().run, inner) if with_context else pool.submit(inner)).result()

    load()
    assert len(credits_of(ledger)) == (2 if with_context else 4)


def test_concurrent_calls_are_credited_each() -> None:
    ledger = Ledger()
    call = retrying(ledger)(Function().acall)

    async def main() -> None:
        await asyncio.gather(*(call() for _ in range(5)))

    asyncio.run(main())
    assert credits_of(ledger).count("credit None") == 5


@pytest.mark.parametrize("statuses", [[200], [503, 200]])
@pytest.mark.parametrize("idempotency", [None, "auto"])
def test_a_client_inside_a_call_with_its_budget(colour: str, idempotency: Any, statuses: list[int]) -> None:
    ledger = Ledger()
    policy = Retry(budget=ledger, backoff=[0, 0, 0])
    answers = iter([*statuses, *statuses, 200])
    network = httpx.MockTransport(lambda _: httpx.Response(next(answers)))
    request = httpx.Request("GET", "http://there.test/")

    @policy
    def fetch() -> object:
        return Transport(policy, wrapped=network, idempotency=idempotency).handle_request(request)

    @policy
    async def afetch() -> object:
        transport = AsyncTransport(policy, wrapped=network, idempotency=idempotency)
        return await transport.handle_async_request(request)

    in_colour(colour, fetch, afetch)
    assert credits_of(ledger) == ["start", f"credit {1 if len(statuses) == 2 else None}"]
    Transport(policy, wrapped=network).handle_request(request)
    assert len([line for line in ledger.lines if line.startswith("credit")]) == 2


def test_a_request_that_succeeds_at_once_inside_a_call_with_its_budget(colour: str) -> None:
    """The client makes no run for it."""
    budget = RetryBudget(ratio=1, per_second=0)
    policy = Retry(budget=budget)
    network = httpx.MockTransport(lambda _: httpx.Response(200))
    request = httpx.Request("GET", "http://there.test/")
    transport, atransport = Transport(policy, wrapped=network), AsyncTransport(policy, wrapped=network)

    @policy
    def fetch() -> object:
        return transport.handle_request(request)

    @policy
    async def afetch() -> object:
        return await atransport.handle_async_request(request)

    for calls in (1, 2):
        in_colour(colour, fetch, afetch)
        assert budget.snapshot()["credits"] == calls
    transport.handle_request(request)
    retrying(RetryBudget())(lambda: transport.handle_request(request))()
    assert budget.snapshot()["credits"] == 4


@pytest.mark.parametrize("outer", [adecorated, acalled])
@pytest.mark.parametrize("begins", ["inside", "after"])
def test_a_task_that_outlives_the_call(outer: Waiting, begins: str) -> None:
    """It inherits the context of the call, and credits the budget once the call is over."""
    ledger, tasks = Ledger(), list[asyncio.Task[str]]()

    async def main() -> None:
        over = asyncio.Event()

        async def slow() -> str:
            if begins == "inside":
                await over.wait()
            return "done"

        async def later() -> str:
            if begins == "after":
                await over.wait()
            return await retrying(ledger, attempts=2).call(slow)

        async def starts() -> str:
            tasks.append(asyncio.create_task(later()))
            await asyncio.sleep(0)
            return "started"

        await outer(retrying(ledger), starts)
        over.set()
        await tasks[0]

    asyncio.run(main())
    assert credits_of(ledger).count("credit None") == 2
