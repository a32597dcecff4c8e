"""Budgets and gates of a user that raise, because a store is down: they never cost a result that is there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from redouble import Gate, Grant, Hedge, Kind, Retry, RetryBudget, Throttle
from redouble._internal.logger import call_hook
from tests.support.call_shapes import ASYNC_SHAPES, SHAPES
from tests.support.fakes import ASYNC, Boom, in_colour

HOOKS = ("start", "failed", "spend", "credit", "refund")


class StoreIsDown(ConnectionError):
    """The error of a store."""


class Stored:
    """A budget on a store, whose method ``down`` raises."""

    def __init__(self, down: str | None = None) -> None:
        self.down, self.calls = down, list[str]()

    def ask(self, method: str) -> None:
        self.calls.append(method)
        if method == self.down:
            raise StoreIsDown

    def start(self, now: float) -> None:
        self.ask("start")

    def failed(self, kind: Kind, now: float) -> None:
        self.ask("failed")

    def spend(self, kind: Kind, now: float) -> Grant | None:
        self.ask("spend")
        return Grant(1)

    def credit(self, grant: Grant | None, now: float) -> None:
        self.ask("credit")

    def refund(self, grant: Grant, now: float) -> None:
        self.ask("refund")

    def snapshot(self) -> dict[str, float]:
        return {}


def failing(times: int) -> Callable[[], str]:
    left = [Boom() for _ in range(times)]

    def work() -> str:
        if left:
            raise left.pop()
        return "done"

    return work


def policy_of(budget: Any) -> Retry:
    return Retry(on=Boom, backoff=[0] * 9, budget=budget)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("failures", [0, 1])
def test_a_budget_that_raises_costs_no_result(shape: str, hook: str, failures: int) -> None:
    budget, call = Stored(hook), SHAPES[shape]
    if hook == "spend" and failures:
        with pytest.raises(Boom) as caught:
            call(policy_of(budget), failing(failures))
        assert "retry budget exhausted" in caught.value.__notes__[0]
    else:
        assert call(policy_of(budget), failing(failures)) == "done"


@pytest.mark.parametrize("shape", ASYNC_SHAPES)
@pytest.mark.parametrize("colour", ASYNC)
@pytest.mark.parametrize("hook", HOOKS)
def test_a_budget_that_raises_costs_no_async_result(shape: str, colour: str, hook: str) -> None:
    def coloured(work: Callable[[], str]) -> Callable[[], Awaitable[str]]:
        async def awork() -> str:
            return work()

        return awork

    async def main() -> None:
        call = ASYNC_SHAPES[shape]
        assert await call(policy_of(Stored(hook)), coloured(failing(0))) == "done"
        if hook == "spend":
            with pytest.raises(Boom):
                await call(policy_of(Stored(hook)), coloured(failing(1)))
        else:
            assert await call(policy_of(Stored(hook)), coloured(failing(1))) == "done"

    in_colour(colour, lambda: None, main)


@pytest.mark.parametrize("hook", HOOKS)
def test_a_budget_that_raises_costs_no_stream(hook: str) -> None:
    work = failing(hook != "spend")

    def items() -> Iterator[str]:
        yield work()

    assert list(Retry(on=Boom, backoff=[0], budget=Stored(hook))(items)()) == ["done"]


def test_a_refund_that_raises_does_not_replace_the_error() -> None:
    """The grant is refunded because the observer takes all the time that is left."""

    def observe(event: object) -> None:
        raise KeyboardInterrupt

    budget = Stored("refund")
    with pytest.raises(KeyboardInterrupt):
        Retry(on=Boom, backoff=[0], budget=budget, on_retry=observe).call(failing(1))
    assert "refund" in budget.calls


def test_a_broken_method_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Stored):
        """A class of its own: what is logged is remembered by class and method."""

    budget = Broken("credit")
    for _ in range(3):
        assert policy_of(budget).call(failing(0)) == "done"
    (record,) = caplog.records
    assert "Broken.credit() raised; the call goes on without it" in record.getMessage()
    assert "StoreIsDown" in record.getMessage()


def test_a_hedge_without_an_answer_of_its_budget_makes_no_extra_call() -> None:
    hedge = Hedge(delay=1, budget=Stored("spend"))
    assert not hedge._state.allow_attempt()


# ----------------------------------------------------------------------------------- gates


class Recording(Gate):
    """A gate on a store, which is down when a call ends."""

    def __init__(self) -> None:
        self.ends = list[BaseException | None]()

    def admit(self, now: float, /) -> str:
        return "ticket"

    def ended(self, ticket: str, error: BaseException | None, now: float, /) -> None:
        self.ends.append(error)
        raise StoreIsDown


class BrokenThrottle(Throttle):
    """A throttle with a compiled wrapper, whose `ended` raises."""

    def ended(self, ticket: None, error: BaseException | None, now: float, /) -> None:
        raise StoreIsDown


@pytest.mark.parametrize("make", [Recording, BrokenThrottle])
def test_a_gate_that_raises_at_the_end_costs_no_result(make: Callable[[], Gate]) -> None:
    gate = make()
    assert gate.call(lambda: "done") == "done"
    assert gate(lambda: "done")() == "done"
    with gate:
        pass
    with pytest.raises(Boom):
        gate.call(failing(1))
    with pytest.raises(Boom), gate:
        raise Boom

    def items() -> Iterator[str]:
        yield "done"

    assert list(gate(items)()) == ["done"]


@pytest.mark.parametrize("colour", ASYNC)
@pytest.mark.parametrize("make", [Recording, BrokenThrottle])
def test_a_gate_that_raises_at_the_end_costs_no_async_result(make: Callable[[], Gate], colour: str) -> None:
    gate = make()

    @gate
    async def work(fails: bool) -> str:
        if fails:
            raise Boom
        return "done"

    async def main() -> None:
        assert await work(False) == "done"
        with pytest.raises(Boom):
            await work(True)
        async with gate:
            pass

    in_colour(colour, lambda: None, main)


def test_a_gate_that_cannot_decide_admits_no_call() -> None:
    """Its error comes out as it is; only its author knows whether a call may pass without it."""

    class Undecided(Gate):
        def admit(self, now: float, /) -> None:
            raise StoreIsDown

    called: list[None] = []

    def work() -> None:
        called.append(None)

    with pytest.raises(StoreIsDown):
        Undecided().call(work)
    with pytest.raises(StoreIsDown):
        Undecided()(work)()
    assert not called


def test_what_a_budget_of_this_package_raises_comes_out() -> None:
    """Only a signal handler can be the cause."""
    with pytest.raises(TypeError):
        call_hook(RetryBudget(), "spend", "too", "many", "arguments")
