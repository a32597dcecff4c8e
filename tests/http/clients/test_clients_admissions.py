"""Gates of a client's policy end with the body: a broken one is a failure, and slots are held until then."""

from __future__ import annotations

import asyncio
import gc
import importlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from anyio import fail_after, move_on_after

from redouble import (
    AdaptiveConcurrency,
    AdaptiveRate,
    Bulkhead,
    CircuitBreaker,
    Fallback,
    Gate,
    Keyed,
    Layer,
    Retry,
    RetryBudget,
    Throttle,
    TokenBucket,
    errors,
)
from redouble.http import host
from tests.support.http.body_readers import reader
from tests.support.http.clients import CLIENTS, HTTPX, Client, client, is_async
from tests.support.servers import Server, pattern

EVERY_CLIENT = pytest.mark.parametrize("name", CLIENTS)
BOTH = pytest.mark.parametrize("whole", [True, False], ids=["whole", "iterated"])
BREAKS = pytest.mark.parametrize(
    "break_", ["cut=0", "cut=4000", "rst=4000"], ids=["before the first byte", "later", "reset"]
)
NO_WAIT: dict[str, Any] = {"wait": 0}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


def open_streamed(http: Client, url: str, inside: Callable[[Any], Any]) -> Any:
    """Request a streamed response, and return what ``inside`` returns within the `with` block."""

    def blocking() -> Any:
        with http._open("GET", url, True, {}) as response:
            return inside(response)

    async def waiting() -> Any:
        async with await http._open("GET", url, True, {}) as response:
            return inside(response)

    return http.run(waiting if is_async(http.name) else blocking)


class Recording(Gate):
    """A gate of the user's, which records how each call ended."""

    def __init__(self) -> None:
        self.open, self.ends = 0, list[str]()

    def admit(self, now: float, /) -> None:
        self.open += 1

    def ended(self, ticket: object, error: BaseException | None, now: float, /) -> None:
        self.open -= 1
        self.ends.append(
            "ok" if error is None else "cancelled" if not isinstance(error, Exception) else "broken"
        )


# ------------------------------------------------------------------ a broken body is a failure


@EVERY_CLIENT
@BOTH
@BREAKS
@pytest.mark.parametrize("place", ["alone", "inside", "outside", "keyed"])
def test_bodies_that_break_open_a_breaker(
    server: Server, name: str, whole: bool, break_: str, place: str
) -> None:
    made = CircuitBreaker(failures=3)
    breaker: Layer = made if place != "keyed" else Keyed(host, lambda: made)
    once = Retry(attempts=1)
    policy = {"alone": breaker, "outside": breaker | once}.get(place, once | breaker)
    url = server.url(f"200~size=5000~{break_}")
    read = reader(name, whole=whole)
    with client(name, policy) as http:
        seen = [read.read_with(http, url) for _ in range(6)]
    assert all(one.error is not None for one in seen)
    assert [isinstance(one.error, errors.CircuitOpen) for one in seen] == [False] * 3 + [True] * 3
    assert len(server.ledger(url)) == 3
    assert made.state == "open"


@EVERY_CLIENT
@BOTH
def test_each_attempt_with_a_broken_body_counts(server: Server, name: str, whole: bool) -> None:
    """Inside the `Retry` each attempt is a call, outside the whole call is one."""
    inner, outer, beside = Recording(), Recording(), Recording()
    with client(name, outer | Retry(attempts=3, backoff=[0] * 3) | inner) as http:
        seen = reader(name, whole=whole).read_with(http, server.url("200~cut=0,503,200"))
        assert seen.error is None
        assert (inner.ends, outer.ends) == (["broken", "broken", "ok"], ["ok"])
        seen = reader(name, whole=whole).read_with(http, server.url("200~cut=0"))
        assert seen.error is not None
        assert (inner.ends[3:], outer.ends[1:]) == (["broken"] * 3, ["broken"])
    with client(name, Fallback(raised) | beside) as http:
        seen = reader(name, whole=whole).read_with(http, server.url("200~cut=0"))
    assert (beside.ends, beside.open) == (["broken"], 0)


def raised(error: Exception) -> Any:
    raise error


class RecordingHeads(Recording):
    """A gate of the user's that the bodies of responses do not concern."""

    ends_with_head = True


@EVERY_CLIENT
def test_a_gate_that_ends_with_the_head_sees_no_broken_body(server: Server, name: str) -> None:
    gate = RecordingHeads()
    with client(name, gate) as http:
        seen = reader(name, whole=False).read_with(http, server.url("200~size=5000~cut=4000"))
    assert seen.error is not None
    assert (gate.ends, gate.open) == (["ok"], 0)


@EVERY_CLIENT
@BOTH
def test_a_bulkhead_around_a_retry_keeps_its_slot_during_a_restart(
    server: Server, name: str, whole: bool
) -> None:
    bulkhead, inner = Bulkhead(1, wait=0), Bulkhead(1, wait=0)
    with client(name, bulkhead | Retry(attempts=3, backoff=[0] * 3) | inner) as http:
        for _ in range(2):
            seen = reader(name, whole=whole).read_with(http, server.url("200~cut=0,200~cut=0,200"))
            assert (seen.error, seen.report().attempts) == (None, 3)
            assert bulkhead.snapshot()["in_use"] == inner.snapshot()["in_use"] == 0


@EVERY_CLIENT
@BREAKS
def test_the_other_gates_see_broken_bodies_too(server: Server, name: str, break_: str) -> None:
    throttle, adaptive, rate = Throttle(), AdaptiveConcurrency(20, on=Exception), AdaptiveRate(on=Exception)
    with client(name, Retry(attempts=1) | throttle | adaptive | rate) as http:
        seen = http.get(server.url(f"200~size=5000~{break_}"))
        assert seen.error is not None
        assert throttle.snapshot()["accepts"] == 0
        assert throttle.snapshot()["requests"] == 1
        assert adaptive.snapshot()["in_use"] == 0
        assert rate.snapshot()["rate"] is not None  # it took the failure for throttling


# -------------------------------------------------------------------- until the body is there


GATES: dict[str, Callable[[], Any]] = {
    "Bulkhead": lambda: Bulkhead(1, wait=0),
    "AdaptiveConcurrency": lambda: AdaptiveConcurrency(1),
}


@EVERY_CLIENT
@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("keyed", [False, True], ids=["", "keyed"])
@pytest.mark.parametrize("size", [9, 1_000_000])
@pytest.mark.parametrize("status", [200, 404])
def test_a_slot_is_held_until_a_streamed_response_is_left(
    server: Server, name: str, kind: str, keyed: bool, size: int, status: int
) -> None:
    gate = GATES[kind]()
    policy = Keyed(host, lambda: gate) if keyed else gate

    def in_use(response: object) -> int:
        assert response is not None
        found: int = gate.snapshot()["in_use"]
        return found

    for around in (policy, Retry(attempts=2) | policy, policy | Retry(attempts=2)):
        with client(name, around) as http:
            held = open_streamed(http, server.url(f"{status}~size={size}"), in_use)
            assert held == 1 or (name == "aiohttp" and size == 9)  # where a small body arrives with its head
            assert gate.snapshot()["in_use"] == 0
            assert http.get(server.url(f"{status}~size={size}")).content == pattern(size)
            assert gate.snapshot()["in_use"] == 0


@EVERY_CLIENT
@pytest.mark.parametrize(("method", "script"), [("HEAD", "200"), ("GET", "204"), ("GET", "200~body=")])
def test_a_response_without_a_body_holds_nothing(server: Server, name: str, method: str, script: str) -> None:
    bulkhead, inner, budget = Bulkhead(1, wait=0), Recording(), RetryBudget(ratio=1, per_second=0)
    url = server.url(script)
    with client(name, bulkhead | Retry(budget=budget) | inner) as http:

        def blocking() -> None:
            with http._open(method, url, True, {}), http._open(method, url, True, {}):
                seen.append((bulkhead.snapshot()["in_use"], inner.open, budget.snapshot()["credits"]))

        async def waiting() -> None:
            async with await http._open(method, url, True, {}), await http._open(method, url, True, {}):
                seen.append((bulkhead.snapshot()["in_use"], inner.open, budget.snapshot()["credits"]))

        seen = list[Any]()
        http.run(waiting if is_async(name) else blocking)
    assert seen == [(0, 0, 2)]
    assert inner.ends == ["ok", "ok"]


@pytest.mark.parametrize("limit", [1, 5])
@pytest.mark.parametrize("size", [2, 5000])
@pytest.mark.parametrize("place", ["inside", "outside", "both"])
@pytest.mark.parametrize("broken", [False, True], ids=["", "restarted"])
def test_aiohttp_responses_that_have_arrived_hold_nothing(
    server: Server, limit: int, size: int, place: str, broken: bool
) -> None:
    """Nobody has to read one response before the next request can begin."""
    bulkhead = Bulkhead(limit, wait=None)
    once = Retry(attempts=3, backoff=[0] * 3, budget=None)
    policy = {"inside": once | bulkhead, "outside": bulkhead | once}.get(place)
    inner = Recording()
    policy = policy or bulkhead | once | inner
    script = f"200~size={size}~cut=0,200~size={size}" if broken else f"200~size={size}"

    async def main() -> list[bytes]:
        with fail_after(20):
            async with asyncio.TaskGroup() as group:
                calls = [group.create_task(opened(server.url(script))) for _ in range(12)]
            return [await each.result().read() for each in calls]

    async def opened(url: str) -> Any:
        response = await http.raw.get(url)
        if broken:
            assert await response.content.read(1) == pattern(1)
        return response

    with client("aiohttp", policy) as http:
        expected = pattern(size)[1:] if broken else pattern(size)
        assert http.run(main) == [expected] * 12
        assert (bulkhead.snapshot()["in_use"], inner.open) == (0, 0)
        assert "cancelled" not in inner.ends


def test_an_aiohttp_response_is_held_until_its_body_has_arrived(server: Server) -> None:
    gate = Recording()

    async def main() -> None:
        response = await http.raw.get(server.url("200~size=5~drip=0.02"))
        before = gate.open
        await response.content.wait_eof()
        assert (before, gate.open, gate.ends) == (1, 0, ["ok"])
        assert await response.read() == pattern(5)
        response = await http.raw.get(server.url("200~size=1000000"))
        assert gate.open == 1  # it does not fit into the buffers of the client
        response.close()
        assert (gate.open, gate.ends) == (0, ["ok", "ok"])

    with client("aiohttp", gate) as http:
        http.run(main)


@EVERY_CLIENT
def test_a_second_request_is_refused_while_the_first_body_is_open(server: Server, name: str) -> None:
    with client(name, Bulkhead(1, wait=0)) as http:
        url = server.url("200~size=300000")

        def blocking() -> Any:
            with http._open("GET", url, True, {}), http._open("GET", url, False, {}):
                pass

        async def waiting() -> Any:
            async with await http._open("GET", url, True, {}), await http._open("GET", url, False, {}):
                pass

        with pytest.raises(errors.BulkheadFull):
            http.run(waiting if is_async(name) else blocking)
        assert http.get(url).status == 200


@pytest.mark.parametrize("name", HTTPX)
def test_a_slot_is_held_while_a_body_is_read_as_a_whole(name: str) -> None:
    theirs, bulkhead, counts = importlib.import_module(name.partition("-")[0]), Bulkhead(2), list[float]()

    class Body(theirs.SyncByteStream, theirs.AsyncByteStream):  # type: ignore[misc,name-defined]
        def __iter__(self) -> Iterator[bytes]:
            counts.append(bulkhead.snapshot()["in_use"])
            yield b"abc"

        async def __aiter__(self) -> Any:
            counts.append(bulkhead.snapshot()["in_use"])
            yield b"abc"

    def answer(request: object) -> Any:
        assert request is not None
        return theirs.Response(200, stream=Body())

    with client(name, bulkhead, wrapped=theirs.MockTransport(answer)) as http:
        assert http.get("http://nowhere/").content == b"abc"
    assert counts == [1]
    assert bulkhead.snapshot()["in_use"] == 0


def nothing() -> None: ...


async def nothing_async() -> None: ...


@EVERY_CLIENT
def test_a_response_that_is_dropped_unread_gives_its_slot_back(server: Server, name: str) -> None:
    gate = Recording()
    with client(name, Retry(attempts=1) | gate) as http:

        def blocking() -> None:
            arguments = {"stream": True} if name == "requests" else {}
            if name == "requests":
                http.raw.get(server.url("200~size=300000"), **arguments)
            else:
                http.raw.send(http.raw.build_request("GET", server.url("200~size=300000")), stream=True)

        async def waiting() -> None:
            if name == "aiohttp":
                await http.raw.get(server.url("200~size=300000"))
            else:
                await http.raw.send(http.raw.build_request("GET", server.url("200~size=300000")), stream=True)

        with suppress(ResourceWarning):
            http.run(waiting if is_async(name) else blocking)
        for _ in range(100):  # until the loop of an async client has dropped it
            gc.collect()
            if not gate.open:
                break
            http.run(nothing_async if is_async(name) else nothing)
        assert (gate.open, gate.ends) == (0, ["ok"])


@EVERY_CLIENT
def test_a_response_of_a_fallback_holds_nothing(server: Server, name: str) -> None:
    kept: list[Any] = []
    bulkhead = Bulkhead(1, wait=0)
    with client(name, bulkhead | Fallback(lambda error: kept[0]) | Retry(attempts=1)) as http:
        kept.append(http.get(server.url("200~size=9")).response)
        assert http.request("GET", server.url("rst")).response is kept[0]
        assert bulkhead.snapshot()["in_use"] == 0


# ----------------------------------------------------------------------------- budgets


@EVERY_CLIENT
@BOTH
@BREAKS
@pytest.mark.parametrize("path", ["fast", "slow"])
def test_a_broken_body_earns_no_credit(
    server: Server, name: str, whole: bool, break_: str, path: str
) -> None:
    budget = RetryBudget(ratio=1, per_second=0)
    policy = Retry(attempts=2, backoff=[0], budget=budget, give_up_after=9 if path == "fast" else 9.5)
    around: Layer = policy if path == "fast" else policy | CircuitBreaker(failures=99)
    with client(name, around) as http:
        read = reader(name, whole=whole)
        for _ in range(3):
            assert read.read_with(http, server.url(f"200~size=5000~{break_}")).error is not None
        assert budget.snapshot() == {"available": 0, "limit": 0, "granted": 0, "credits": 0}
        for credits_, body in enumerate(("size=5000", "size=5000~chunked", "body="), 1):
            if not (body == "body=" and name == "aiohttp" and not whole):
                assert read.read_with(http, server.url(f"200~{body}")).error is None
                assert budget.snapshot()["credits"] == credits_


@EVERY_CLIENT
def test_a_streamed_body_earns_its_credit_at_its_end(server: Server, name: str) -> None:
    budget = RetryBudget(ratio=1, per_second=0)
    with client(name, Retry(budget=budget)) as http:
        url = server.url("200~size=300000")
        assert open_streamed(http, url, lambda response: budget.snapshot()["credits"]) == 0
        assert budget.snapshot()["credits"] == 1  # closed by the caller


@EVERY_CLIENT
def test_a_token_bucket_keeps_what_a_retry_with_a_broken_body_cost(server: Server, name: str) -> None:
    bucket = TokenBucket(20)
    with client(name, Retry(attempts=2, backoff=[0], budget=bucket)) as http:
        assert reader(name, whole=False).read_with(http, server.url("503,200~size=9000~rst=8000")).error
        assert bucket.snapshot()["tokens"] == 15
        assert http.get(server.url("503,200")).status == 200
        assert bucket.snapshot()["tokens"] == 15


# ------------------------------------------------------------------ unusual ends of a response


class FailsOnce(Layer):
    """Fails after the first successful attempt, and so drops its response."""

    failed = False

    def around(self, fn: Callable[..., Any], /) -> Callable[..., Any]:
        def failing(*args: Any) -> Any:
            return self._check(fn(*args))

        return failing

    def around_async(self, fn: Callable[..., Any], /) -> Callable[..., Any]:
        async def failing(*args: Any) -> Any:
            return self._check(await fn(*args))

        return failing

    def _check(self, response: Any) -> Any:
        if not self.failed:
            self.failed = True
            raise LookupError("not this one")
        return response


@EVERY_CLIENT
def test_a_dropped_response_ends_its_admission_before_the_next_attempt(server: Server, name: str) -> None:
    outer, inner = Recording(), Recording()
    policy = outer | Retry(on=LookupError, attempts=2, backoff=[0]) | FailsOnce() | inner
    with client(name, policy) as http:
        assert http.get(server.url("200~size=300000")).status == 200
    assert (inner.ends, outer.ends, inner.open, outer.open) == (["ok", "ok"], ["ok"], 0, 0)


@EVERY_CLIENT
def test_a_result_that_is_no_response_ends_the_admission(server: Server, name: str) -> None:
    gate = Recording()
    with client(name, gate | Fallback(value="x")) as http:
        seen = http.get(server.url("rst"))
    assert isinstance(seen.error, TypeError)
    assert (gate.ends, gate.open) == (["ok"], 0)


@pytest.mark.parametrize("name", [name for name in CLIENTS if name != "aiohttp"])
def test_a_response_that_the_caller_has_closed_does_not_restart_the_call(server: Server, name: str) -> None:
    """Not even if its stream is iterated over afterwards."""
    url = server.url("200~size=5000~stall=0,200")
    gate = Recording()

    def blocking() -> None:
        response = http._open("GET", url, True, {"timeout": 0.1})
        if name == "requests":
            response.close()
            assert response.content == b""
            return
        with response as opened:
            opened.close()
            with suppress(Exception):
                list(opened.stream)

    async def waiting() -> None:
        async with await http._open("GET", url, True, {"timeout": 0.1}) as opened:
            await opened.aclose()
            with suppress(Exception):
                assert len([piece async for piece in opened.stream]) >= 0

    with client(name, gate | Retry(attempts=3, backoff=[0] * 3)) as http:
        http.run(waiting if is_async(name) else blocking)
    assert len(server.ledger(url)) == 1
    assert gate.ends == ["ok"]


@pytest.mark.quiet
@pytest.mark.parametrize("name", [name for name in CLIENTS if is_async(name)])
@pytest.mark.parametrize("gated", [False, True])
def test_a_body_that_is_cancelled_is_neither_a_success_nor_a_failure(
    server: Server, name: str, gated: bool
) -> None:
    budget, gate = RetryBudget(ratio=1, per_second=0), Recording()
    policy = Retry(budget=budget)

    async def main() -> None:
        with move_on_after(0.3):
            async with await http._open("GET", server.url("200~size=5000~stall=100"), False, {}) as response:
                await response.read()

    with client(name, policy | gate if gated else policy) as http:
        http.run(main)
    assert budget.snapshot()["credits"] == 0
    assert gate.ends == (["cancelled"] if gated else [])
