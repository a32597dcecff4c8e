"""A cap on retries in flight: what counts, from when to when, in every shape and colour of a call."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from contextvars import copy_context
from math import ceil
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redouble import Pipeline, Reason, Retry, RetryBudget, TokenBucket, Worker, report
from redouble._engine.budgets.retries_in_flight import RetriesInFlight
from redouble.http import HostBudgets
from redouble.httpx import AsyncTransport, Transport
from redouble.types import BudgetTraits
from tests.support.call_shapes import ASYNC_CLOSING_SHAPES, CLOSING_SHAPES
from tests.support.fakes import ASYNC, Boom, Ledger, in_colour, options
from tests.support.interruption import SignalHandler, ctrl_c
from tests.support.scripted import Virtual


def capped(share: float = 0.5, minimum: int = 1, **given: Any) -> RetryBudget:
    return RetryBudget(None, max_in_flight=share, minimum=minimum, **given)


def retrying(budget: Any, **given: Any) -> Retry:
    return Retry(**options(on=Boom, attempts=3, backoff=[0, 0], budget=budget, nested="allow") | given)


def in_flight(budget: Any) -> tuple[int, int]:
    """Return the calls and the retries in flight."""
    seen = budget.snapshot()
    return seen["calls_in_flight"], seen["retries_in_flight"]


class Work:
    """An operation that fails some times, and what was in flight at each attempt."""

    def __init__(self, budget: Any, *ends: BaseException | None) -> None:
        self.budget, self.ends = budget, list(ends)
        self.seen: list[tuple[int, int]] = []

    def __call__(self) -> str:
        self.seen.append(in_flight(self.budget))
        error = self.ends.pop(0)
        if error is not None:
            raise error
        return "done"

    async def acall(self) -> str:
        return self()


SHAPE = pytest.mark.parametrize("shape", CLOSING_SHAPES)


def do(colour: str, shape: str, policy: Retry, work: Work) -> object:
    return in_colour(
        colour,
        lambda: CLOSING_SHAPES[shape](policy, work),
        lambda: ASYNC_CLOSING_SHAPES[shape](policy, work.acall),
    )


@SHAPE
@pytest.mark.parametrize(
    ("ends", "raises"),
    [
        ([None], None),
        ([Boom(), None], None),
        ([Boom(), Boom(), None], None),
        ([Boom(), Boom(), Boom()], Boom),
        ([Boom(), ValueError()], ValueError),
        ([ValueError()], ValueError),
        ([KeyboardInterrupt()], KeyboardInterrupt),
        ([Boom(), KeyboardInterrupt()], KeyboardInterrupt),
        ([GeneratorExit()], GeneratorExit),
        ([Boom(), GeneratorExit()], GeneratorExit),
    ],
)
def test_a_call_counts_from_its_begin_to_its_end(
    colour: str, shape: str, ends: list[BaseException | None], raises: type[BaseException] | None
) -> None:
    """And a retry from its grant to the end of its attempt; however the call ends."""
    budget = capped()
    work = Work(budget, *ends)
    held: BaseException | None = None
    try:
        assert do(colour, shape, retrying(budget), work) == "done"
    except BaseException as error:
        held = error  # its traceback refers to all frames of the call
    if sys.exc_info()[1] is None and held is not None:
        assert raises is not None
        assert raises in {type(held), *(type(each) for each in getattr(held, "exceptions", ()))}
    assert work.seen == [(1, 0), (1, 1), (1, 1)][: len(work.seen)]
    assert in_flight(budget) == (0, 0)


@SHAPE
def test_a_refused_retry_ends_the_call(colour: str, shape: str) -> None:
    """As a budget that is used up does."""
    budget = capped(minimum=0)
    with pytest.raises(Boom) as caught:
        do(colour, shape, retrying(budget), Work(budget, Boom()))
    stamped = report(caught.value)
    assert stamped is not None
    assert stamped.reason is Reason.budget
    assert in_flight(budget) == (0, 0)


@pytest.mark.parametrize("limit", [{"attempt_timeout": 5}, {"timeout": 5}, {"until": bool}, {"name": "one"}])
@pytest.mark.parametrize("shape", ["decorator", "call", "run"])
def test_policies_with_other_templates_count_too(colour: str, shape: str, limit: dict[str, Any]) -> None:
    """Blocking code on a worker."""
    budget = capped()
    work = Work(budget, Boom(), None)
    worker = {} if colour in ASYNC or "name" in limit or "until" in limit else {"worker": Worker()}
    assert do(colour, shape, retrying(budget, **limit, **worker), work) == "done"
    assert work.seen == [(1, 0), (1, 1)]
    assert in_flight(budget) == (0, 0)


@pytest.mark.parametrize("shape", ["decorator", "call", "loop"])
@pytest.mark.parametrize("attempts", [1, 2])
@pytest.mark.parametrize("colour", ["asyncio", "trio"])
def test_a_cancelled_call_counts_no_longer(colour: str, shape: str, attempts: int) -> None:
    """In an attempt, and in a retry."""
    budget, seen = capped(), list[tuple[int, int]]()

    async def hang() -> None:
        seen.append(in_flight(budget))
        if len(seen) < attempts:
            raise Boom
        if colour == "asyncio":
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(0)
        else:
            import trio

            with trio.CancelScope() as scope:
                scope.cancel()
                await trio.lowlevel.checkpoint()

    async def main() -> None:
        if colour == "asyncio":
            with suppress(asyncio.CancelledError):
                await ASYNC_CLOSING_SHAPES[shape](retrying(budget), hang)
        else:
            await ASYNC_CLOSING_SHAPES[shape](retrying(budget), hang)

    in_colour(colour, lambda: None, main)
    assert seen == [(1, 0), (1, 1)][:attempts]
    assert in_flight(budget) == (0, 0)


def test_a_retry_is_in_flight_during_its_delay(colour: str) -> None:
    """Like in Envoy, whose retries are in flight from the moment they are decided on."""
    budget, seen = capped(), list[tuple[int, int]]()

    class Looking(Virtual):
        def sleep(self, seconds: float) -> None:
            seen.append(in_flight(budget))

        async def asleep(self, seconds: float) -> None:
            seen.append(in_flight(budget))

    do(colour, "decorator", retrying(budget, clock=Looking(), backoff=[1]), Work(budget, Boom(), None))
    assert seen == [(1, 1)]


@pytest.mark.parametrize("colour", ["sync", "asyncio"])
@pytest.mark.parametrize("shape", ["decorator", "call", "loop"])
def test_a_wait_that_is_interrupted_ends_the_call(colour: str, shape: str) -> None:
    budget = capped()

    class Broken(Virtual):
        def sleep(self, seconds: float) -> None:
            raise KeyboardInterrupt

        async def asleep(self, seconds: float) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        do(colour, shape, retrying(budget, clock=Broken(), backoff=[1]), Work(budget, Boom(), None))
    assert in_flight(budget) == (0, 0)


@pytest.mark.parametrize("shape", ["decorator", "call", "run", "loop"])
def test_no_time_left_for_a_retry_that_was_granted(colour: str, shape: str) -> None:
    """The sleep took longer than expected."""
    budget, clock = capped(), Virtual()

    def late(_: object) -> None:
        clock.time += 100

    policy = retrying(budget, clock=clock, backoff=[1], give_up_after=10, on_retry=late)
    with pytest.raises(Boom):
        do(colour, shape, policy, Work(budget, Boom(), None))
    assert in_flight(budget) == (0, 0)


# ------------------------------------------------------------------------- what is dropped


def test_a_loop_that_is_left_between_two_attempts() -> None:
    """By a body that suppresses the error itself, by a `break`, and by dropping the iterator."""
    budget = capped()
    for _ in retrying(budget):
        assert in_flight(budget) == (1, 0)
        break
    assert in_flight(budget) == (0, 0)
    for attempt in retrying(budget):
        with attempt:
            raise Boom
        break
    assert in_flight(budget) == (0, 0)
    for attempt in retrying(budget):
        with suppress(ValueError), attempt:
            raise ValueError
    assert in_flight(budget) == (0, 0)
    for _ in retrying(budget):
        with pytest.raises(RuntimeError):
            for _ in retrying(budget):
                pass
        break
    assert in_flight(budget) == (0, 0)


def test_a_generator_that_is_dropped_in_an_attempt() -> None:
    budget = capped()

    def pages() -> Iterator[str]:
        for attempt in retrying(budget):
            with attempt:
                yield "page"

    one = pages()
    assert next(one) == "page"
    assert in_flight(budget) == (1, 0)
    del one
    gc.collect()
    assert in_flight(budget) == (0, 0)


def test_a_coroutine_that_is_dropped_in_an_attempt() -> None:
    budget = capped()

    class Forever:
        def __await__(self) -> Any:
            yield

    async def hang() -> None:
        await Forever()

    coroutine: Any = retrying(budget)(hang)()
    coroutine.send(None)
    assert in_flight(budget) == (1, 0)
    del coroutine
    gc.collect()
    assert in_flight(budget) == (0, 0)


def test_an_async_loop_that_is_dropped() -> None:
    budget = capped()

    async def main() -> None:
        attempts = aiter(retrying(budget))
        await anext(attempts)
        assert in_flight(budget) == (1, 0)
        del attempts
        gc.collect()
        assert in_flight(budget) == (0, 0)

    asyncio.run(main())


def test_a_call_without_an_end_leaves_with_its_last_reference() -> None:
    """As one that a signal handler has interrupted before its driver could end it."""
    counter = RetriesInFlight(0.5, 1)
    call = counter.call(counted=True)
    call.begin_call()
    assert call.begin_retry()
    assert (len(counter.calls), len(counter.retries)) == (1, 1)
    del call
    gc.collect()
    assert (len(counter.calls), len(counter.retries)) == (0, 0)


def test_a_stream_counts_until_its_first_item() -> None:
    """Like its limits: that item is what the budget is credited for."""
    budget = capped()

    @retrying(budget)
    def items() -> Iterator[int]:
        assert in_flight(budget) == (1, 0)
        yield 1
        yield 2

    stream = items()
    assert next(stream) == 1
    assert in_flight(budget) == (0, 0)
    assert next(stream) == 2


def test_a_stream_that_resumes_counts_again() -> None:
    budget, seen = capped(), list[tuple[int, int]]()

    def first() -> Iterator[int]:
        seen.append(in_flight(budget))
        yield 1
        raise Boom

    def rest(_: int) -> Iterator[int]:
        seen.append(in_flight(budget))
        yield 2

    assert list(retrying(budget).stream(first, resume=rest)) == [1, 2]
    assert seen == [(1, 0), (1, 1)]
    assert in_flight(budget) == (0, 0)


# ----------------------------------------------------------------------------------- nesting


def test_nested_policies_are_one_call(colour: str) -> None:
    """Each has retries of its own."""
    budget = capped(0.5, 2)
    work = Work(budget, Boom(), Boom(), Boom(), None)
    pipeline = Pipeline(retrying(budget, attempts=2), retrying(budget, attempts=2))
    assert in_colour(colour, pipeline(work), pipeline(work.acall)) == "done"
    # The retry of the inner policy, that of the outer one, and both.
    assert work.seen == [(1, 0), (1, 1), (1, 1), (1, 2)]
    assert in_flight(budget) == (0, 0)


@pytest.mark.parametrize("shape", ["decorator", "call", "run"])
def test_a_view_counts_its_retries_and_no_calls(colour: str, shape: str) -> None:
    budget = capped()
    work = Work(budget, Boom(), None)
    assert do(colour, shape, retrying(budget.without_credit()), work) == "done"
    assert work.seen == [(0, 0), (0, 1)]
    assert in_flight(budget) == (0, 0)


def test_a_cap_beside_the_window() -> None:
    """Both have to grant a retry; one that the cap refuses takes nothing from the window."""
    budget = RetryBudget(0, per_second=0.1, window=10, max_in_flight=0, minimum=1)
    calls = list[int]()

    @retrying(budget)
    def outer() -> None:
        calls.append(1)
        if len(calls) > 1:
            with pytest.raises(Boom):
                retrying(budget).call(Work(budget, Boom()))  # the cap: the outer retry is in flight
            assert budget.snapshot()["granted"] == 1
            return
        raise Boom

    outer()
    with pytest.raises(Boom):
        retrying(budget).call(Work(budget, Boom()))  # the window
    assert in_flight(budget) == (0, 0)


# ----------------------------------------------------------------------------------- clients


@pytest.mark.parametrize("hosts", [False, True])
def test_a_client(colour: str, hosts: bool) -> None:
    given: dict[str, Any] = {"max_in_flight": 0.5, "minimum": 1}
    budget = HostBudgets(None, **given) if hosts else RetryBudget(None, **given)
    seen = list[tuple[int, int]]()
    policy = Retry(budget=budget, backoff=[0, 0, 0])

    def counting() -> RetryBudget:
        if not isinstance(budget, HostBudgets):
            return budget
        (one,) = budget._by_host._values.values()
        return one

    def answer(_: object) -> httpx.Response:
        seen.append(in_flight(counting()))
        return httpx.Response(503 if len(seen) == 1 else 200)

    network, request = httpx.MockTransport(answer), httpx.Request("GET", "http://there.test/")
    in_colour(
        colour,
        lambda: Transport(policy, wrapped=network).handle_request(request),
        lambda: AsyncTransport(policy, wrapped=network).handle_async_request(request),
    )
    assert seen == [(1, 0), (1, 1)]
    assert in_flight(counting()) == (0, 0)


# ----------------------------------------------------------------------------------- Ctrl-C


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("shape", ["decorator", "call", "loop", "generator", "stream", "enter"])
@pytest.mark.parametrize("ends", [(None,), (Boom(), None), (Boom(), Boom(), Boom())])
def test_ctrl_c_at_any_point_leaves_nothing_in_flight(
    shape: str, ends: tuple[BaseException | None, ...]
) -> None:
    from redouble._drivers import blocks, calls, opened_stream, streams
    from redouble._engine import run, run_state
    from redouble._engine.budgets import retries_in_flight as module
    from redouble._engine.budgets import retry_budget
    from redouble._internal import locks, reentrancy

    modules = (blocks, calls, streams, opened_stream, module, retry_budget, run, run_state, locks, reentrancy)
    files = {each.__file__ for each in modules} | {"<redouble> attempts, counted and credited"}
    number, more = 0, True
    while more:
        number += 1
        budget = capped()

        def use(budget: RetryBudget = budget) -> None:
            # In a context of its own: an interrupted call may leave its entry there, which is over.
            copy_context().run(CLOSING_SHAPES[shape], retrying(budget), Work(budget, *ends))

        more = SignalHandler(files, ctrl_c, number).interrupt(use, KeyboardInterrupt, Boom)
        gc.collect() if in_flight(budget) != (0, 0) else None
        assert in_flight(budget) == (0, 0), number
        assert CLOSING_SHAPES["call"](retrying(budget), Work(budget, Boom(), None)) == "done"
    assert number > 5


def test_a_re_entrant_retry_is_refused() -> None:
    counter = RetriesInFlight(0, 3)
    with counter._lock:
        assert not counter.call(counted=False).begin_retry()
    assert counter.call(counted=False).begin_retry()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_nothing_of_the_parent_is_in_flight_after_a_fork() -> None:
    counter = RetriesInFlight(0.5, 1)
    call = counter.call(counted=True)
    call.begin_call()
    call.begin_retry()
    counter._after_fork()
    assert counter.snapshot() == {"calls_in_flight": 0, "retries_in_flight": 0, "max_retries_in_flight": 1}
    call.end()


# ------------------------------------------------------------------------------- the options


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"max_in_flight": 20}, "max_in_flight=20: write a share of the calls in flight from 0 to 1"),
        ({"max_in_flight": -0.1}, "max_in_flight=-0.1: write a share"),
        ({"max_in_flight": "0.2"}, "max_in_flight='0.2': write a share"),
        ({"max_in_flight": 0.2, "minimum": -1}, "minimum=-1: write a whole number, 0 or more"),
        ({"max_in_flight": 0.2, "minimum": 1.5}, r"minimum=1\.5: write a whole number"),
        ({"minimum": 7}, "minimum=7 is for retries in flight: write max_in_flight= too"),
        ({"ratio": None}, "ratio=None: write a finite number.*unless max_in_flight is set"),
    ],
)
def test_wrong_options_are_refused_by_name(given: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=f"RetryBudget {message}"):
        RetryBudget(**given)


def test_what_a_budget_says_of_itself() -> None:
    budget = capped(0.2, 3, name="one")
    assert (budget.ratio, budget.max_in_flight, budget.minimum) == (None, 0.2, 3)
    assert repr(budget) == (
        "RetryBudget(ratio=None, per_second=10, window=10, credit='success', max_in_flight=0.2, minimum=3, "
        "name='one')"
    )
    counts = {"calls_in_flight": 0, "retries_in_flight": 0, "max_retries_in_flight": 3}
    assert budget.snapshot() == {"available": 3, **counts}
    both = RetryBudget(0, per_second=0.1, max_in_flight=0.2)
    assert both.snapshot() == {"available": 1, "limit": 1, "granted": 0, "credits": 0, **counts}
    assert "max_in_flight" not in repr(RetryBudget())
    assert "calls_in_flight" not in RetryBudget().snapshot()


def test_limits_change_in_place_while_calls_run() -> None:
    """But a cap does not come or go: functions that are decorated already would not count."""
    budget = capped(0, 1)
    counter = budget.traits.in_flight
    assert counter is not None
    one, other = counter.call(counted=False), counter.call(counted=False)
    assert one.begin_retry()
    assert not other.begin_retry()
    changed = capped(0.25, 2)
    assert budget.can_reconfigure(changed)
    budget.reconfigure(changed)
    assert budget.traits.in_flight is counter
    assert (budget.max_in_flight, budget.minimum) == (0.25, 2)
    assert other.begin_retry()
    assert not budget.can_reconfigure(RetryBudget())
    assert not RetryBudget().can_reconfigure(budget)
    budget.reconfigure(RetryBudget(0.1, max_in_flight=0.5))
    assert budget.ratio == 0.1
    for call in (one, other):
        call.end()


def test_a_budget_of_your_own_may_have_a_cap() -> None:
    class Own(Ledger):
        traits = BudgetTraits(in_flight=RetriesInFlight(0, 0))

    with pytest.raises(Boom):
        retrying(Own()).call(Work(capped(), Boom()))


# ----------------------------------------------------------------------------- the invariant


@given(
    st.fractions(0, 1).map(float).map(lambda share: round(share, 3)),
    st.integers(0, 4),
    st.lists(st.sampled_from(["begin", "retry", "end retry", "end", "end twice", "drop"]), max_size=60),
    st.randoms(use_true_random=False),
)
def test_a_retry_is_granted_exactly_if_there_is_room(
    share: float, minimum: int, steps: list[str], chance: Any
) -> None:
    counter = RetriesInFlight(share, minimum)
    calls, retries = list[Any](), set[int]()
    for step in steps:
        if step == "begin":
            calls.append(counter.call(counted=True))
            calls[-1].begin_call()
        elif calls:
            call = chance.choice(calls)
            if step == "retry" and id(call) not in retries:
                room = len(retries) + 1 <= max(minimum, len(calls) * round(share * 1000) // 1000)
                assert call.begin_retry() is room
                retries |= {id(call)} if room else set()
            elif step == "end retry":
                call.end_retry()
                retries.discard(id(call))
            elif step.startswith("end") or step == "drop":
                calls.remove(call)
                retries.discard(id(call))
                for _ in range(("drop", "end", "end twice").index(step)):
                    call.end()
                del call
        assert (len(counter.calls), len(counter.retries)) == (len(calls), len(retries))
        assert counter.most == max(minimum, len(calls) * round(share * 1000) // 1000)


@pytest.mark.parametrize(("share", "needed"), [(0.2, 5), (0.07, 15), (1, 1), (0.3, 4)])
def test_a_share_gives_whole_retries(share: float, needed: int) -> None:
    counter, calls = RetriesInFlight(share, 0), list[Any]()
    while counter.most == 0:
        calls.append(counter.call(counted=True))
        calls[-1].begin_call()
    assert len(calls) == needed == ceil(1 / share)


def test_a_token_bucket_has_no_cap() -> None:
    assert TokenBucket().traits.in_flight is None
