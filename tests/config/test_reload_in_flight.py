"""Reloading while calls run: every call uses one configuration, and functions are not kept alive."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Iterator
from threading import Event, Thread
from typing import Any
from weakref import ref

import pytest

from redouble import SYSTEM, RetryBudget
from redouble.config import _reload as _live
from redouble.config._reload import load, policies, reload
from tests.support.bulkhead_callers import A_MINUTE, until
from tests.support.config.named_policies import policy_document
from tests.support.fakes import Boom, in_colour
from tests.support.thread_switching import frequent_switches


def test_a_call_keeps_the_policy_it_began_with(colour: str) -> None:
    payments, calls = policies("payments"), list[int]()

    def fail() -> None:
        calls.append(1)
        if len(calls) == 2:
            assert reload(policy_document(7)).ok
        raise Boom

    work = payments(fail)

    @payments
    async def awork() -> None:
        await SYSTEM.asleep(0)
        fail()

    async def waiting() -> None:
        await awork()

    load(policy_document(4))
    for attempts in (4, 7):
        calls.clear()
        with pytest.raises(Boom):
            in_colour(colour, work, waiting)
        assert len(calls) == attempts
        load(policy_document(7))


def test_a_stream_keeps_the_policy_it_began_with(colour: str) -> None:
    payments, opened = policies("payments"), list[int]()

    def table() -> Iterator[int]:
        opened.append(1)
        if len(opened) < 3:
            reload(policy_document(1))
            raise Boom
        yield from (1, 2)

    rows = payments(table)

    @payments
    async def arows() -> AsyncIterator[int]:
        for row in table():
            yield row

    async def waiting() -> list[int]:
        return [row async for row in arows()]

    load(policy_document(4))
    assert in_colour(colour, lambda: list(rows()), waiting) == [1, 2]
    opened.clear()
    with pytest.raises(Boom):
        in_colour(colour, lambda: list(rows()), waiting)
    assert len(opened) == 1


def test_each_call_uses_one_configuration_while_threads_reload() -> None:
    """The number of attempts of each call is that of one configuration, never a mixture."""
    with frequent_switches():
        load(policy_document(2, budgets={"own": {}}))
        payments, counts, over = policies("payments"), list[int](), Event()

        @payments
        def work(tries: list[int]) -> None:
            tries.append(1)
            raise Boom

        def calls() -> None:
            while not over.is_set():
                tries: list[int] = []
                with pytest.raises(Boom):
                    work(tries)
                counts.append(len(tries))

        def reloads(first: int) -> None:
            for attempts in [first, first + 2] * 10:
                assert reload(policy_document(attempts, budgets={"own": {"ratio": attempts / 10}})).ok

        callers = [Thread(target=calls) for _ in range(2)]
        loaders = [Thread(target=reloads, args=[first]) for first in (2, 3)]
        for thread in (*callers, *loaders):
            thread.start()
        for thread in loaders:
            thread.join(A_MINUTE)
        until(lambda: len(counts) > 20)
        over.set()
        for thread in callers:
            thread.join(A_MINUTE)
    assert set(counts) <= {2, 3, 4, 5}
    budget: Any = _live.LIVE._active and _live.LIVE._active.config.budgets["own"]
    assert isinstance(budget, RetryBudget)
    assert budget.ratio == (payments.attempts or 0) / 10, "policies and budgets are those of the last reload"


def test_decorated_functions_and_names_are_not_kept_alive() -> None:
    """Neither the configuration nor the error of a reload refers to a function or its `Named` strongly."""
    gc.disable()
    try:
        load(policy_document(2))

        def decorated() -> tuple[Any, Any]:
            @policies("payments")
            def work() -> None: ...

            @policies("payments")
            async def rows() -> AsyncIterator[int]:
                yield 1

            return work, rows

        functions = decorated()
        references = [ref(functions[0]), ref(functions[1]), ref(policies("payments"))]
        reload(policy_document(3))
        result = reload({"policies": {"payments": {"attempt_timeout": 1}}})
        assert not result.ok
        assert len(policies("payments")._cells) == 2
        del functions
        assert [reference() for reference in references] == [None] * 3
        assert result.error is not None
        assert result.error.__traceback__ is None
    finally:
        gc.enable()
