"""`Retry.enter`: entering a context manager is retried, its body never."""

from __future__ import annotations

import asyncio
import functools
from contextlib import AsyncExitStack, ExitStack
from typing import Any

import pytest

import redouble
from redouble import SYSTEM, errors, report
from redouble.types import Event
from tests.support.drivers.context_managers import Connection, ConnectionFactory, entered
from tests.support.fakes import ASYNC, Boom, Ledger, Panic, in_colour


def test_entering_is_retried(colour: str) -> None:
    """Each attempt makes a new connection; the one that was entered is exited once."""
    factory = ConnectionFactory(Boom(), Boom(), "in")
    seen: list[Connection] = []
    entered(colour, factory.policy.enter(factory.connect, "db", port=5), seen.append)
    retried = [f"before_attempt:{n} make enter failure:{n} retry:{n}" for n in (1, 2)]
    assert " ".join(factory.log) == " ".join([*retried, "before_attempt:3 make enter success:3 exit"])
    assert seen == [factory.connections[2]]
    assert [(connection.name, connection.exit_errors) for connection in factory.connections] == [
        ("db:5", []),
        ("db:5", []),
        ("db:5", [None]),
    ]
    assert factory.clock.waits == [1, 2]


def test_making_the_context_manager_is_retried(colour: str) -> None:
    factory, fails = ConnectionFactory(), [Boom(), Boom()]

    def make() -> Connection:
        if fails:
            raise fails.pop()
        return factory.connect()

    entered(colour, factory.policy.enter(make))
    assert factory.log[-4:] == ["make", "enter", "success:3", "exit"]


@pytest.mark.parametrize("colour", ASYNC)
def test_a_coroutine_function_may_make_the_context_manager(colour: str) -> None:
    factory = ConnectionFactory(Boom(), "in")
    entered(colour, factory.policy.enter(factory.aconnect, "db", port=5))
    assert [connection.name for connection in factory.connections] == ["db:5"] * 2


@pytest.mark.parametrize("error", [Boom("body"), LookupError("body"), Panic()], ids=repr)
@pytest.mark.parametrize("swallows", [False, True])
def test_the_body_is_never_retried(colour: str, error: BaseException, swallows: bool) -> None:
    """Its error goes to ``__exit__``, which may suppress it, and never to the policy."""
    factory, bodies = ConnectionFactory(), list[object]()
    factory.swallows = swallows

    def body(connection: object) -> None:
        bodies.append(connection)
        raise error

    manager = factory.policy.enter(factory.connect)
    if swallows:
        entered(colour, manager, body)
    else:
        with pytest.raises(type(error)) as caught:
            entered(colour, manager, body)
        assert caught.value is error
    assert bodies == factory.connections
    assert factory.connections[0].exit_errors == [error]
    assert factory.log == ["before_attempt:1", "make", "enter", "success:1", "exit"]
    assert report(error) is None
    assert not hasattr(error, "__notes__")


def test_after_giving_up_the_body_does_not_run(colour: str) -> None:
    """A connection that was not entered is not exited."""
    lost = Boom("lost")
    factory = ConnectionFactory(lost, attempts=2, name="database")
    with pytest.raises(Boom) as caught:
        entered(colour, factory.policy.enter(factory.connect), pytest.fail)
    assert caught.value is lost
    reported = report(lost)
    assert reported is not None
    assert (reported.reason, reported.attempts, reported.name) == ("attempts", 2, "database")
    assert lost.__notes__ == ["redouble: gave up after 2 attempts in 1.0 s (attempts exhausted)"]
    assert "exit" not in factory.log


def test_wrap_wraps_the_error_of_entering(colour: str) -> None:
    factory = ConnectionFactory(Boom("lost"), attempts=2, wrap=True)
    with pytest.raises(errors.AttemptsExhausted, match="lost") as caught:
        entered(colour, factory.policy.enter(factory.connect), pytest.fail)
    assert isinstance(caught.value.__cause__, Boom)


@pytest.mark.parametrize("error", [LookupError("no"), Panic()], ids=repr)
def test_errors_that_on_excludes_are_not_retried(colour: str, error: BaseException) -> None:
    factory = ConnectionFactory(error)
    with pytest.raises(type(error)):
        entered(colour, factory.policy.enter(factory.connect), pytest.fail)
    assert len(factory.connections) == 1


def test_events_have_the_name_of_the_function(colour: str) -> None:
    names: list[str] = []

    def note(event: Event) -> None:
        names.append(event.name)

    factory = ConnectionFactory(on_success=note)
    entered(colour, factory.policy.enter(factory.connect))
    entered(colour, factory.policy.enter(functools.partial(factory.connect, "db")))
    assert names == ["ConnectionFactory.connect"] * 2


def test_entering_uses_the_budget(colour: str) -> None:
    ledger = Ledger()
    factory = ConnectionFactory(Boom(), "in", budget=ledger)
    entered(colour, factory.policy.enter(factory.connect))
    assert ledger.lines == ["start", "failed unknown", "spend unknown", "credit 1"]


def test_an_entrance_is_reusable_and_reentrant(colour: str) -> None:
    """It may be entered again, also inside itself; the innermost connection is exited first."""
    factory = ConnectionFactory()
    manager: Any = factory.policy.enter(factory.connect)

    def blocking() -> None:
        for _ in range(2):
            with manager as outer:
                with manager as inner:
                    assert [outer, inner] == factory.connections[-2:]
                assert (outer.exit_errors, inner.exit_errors) == ([], [None])
            assert outer.exit_errors == [None]
        with ExitStack() as stack:
            assert stack.enter_context(manager) is factory.connections[4]

    async def waiting() -> None:
        for _ in range(2):
            async with manager as outer:
                async with manager as inner:
                    assert [outer, inner] == factory.connections[-2:]
                assert (outer.exit_errors, inner.exit_errors) == ([], [None])
            assert outer.exit_errors == [None]
        async with AsyncExitStack() as stack:
            assert await stack.enter_async_context(manager) is factory.connections[4]

    in_colour(colour, blocking, waiting)
    assert [connection.exit_errors for connection in factory.connections] == [[None]] * 5


def test_enter_makes_no_connection_before_the_with_block() -> None:
    factory = ConnectionFactory()
    factory.policy.enter(factory.connect)
    assert factory.log == []


def test_two_tasks_may_share_an_entrance() -> None:
    """Each exits its own connection, and not the one that the other still uses."""
    factory = ConnectionFactory()
    manager: Any = factory.policy.enter(factory.connect)

    async def one(turns: int) -> None:
        async with manager as connection:
            for _ in range(turns):
                await SYSTEM.asleep(0)
            assert connection.exit_errors == []
        assert connection.exit_errors == [None]

    async def main() -> None:
        await asyncio.gather(one(3), one(9))

    asyncio.run(main())


@pytest.mark.parametrize("deadline", [None, 60], ids=["free", "after a deadline"])
def test_connections_may_be_exited_in_any_order(colour: str, deadline: float | None) -> None:
    """As a pool does. Without a limit no cancel scope of ours is open, which Trio would require to nest."""
    if deadline is not None:
        with redouble.deadline(deadline):
            pass
    factory = ConnectionFactory()
    first, second = factory.policy.enter(factory.connect), factory.policy.enter(factory.connect)
    no_error = (None, None, None)

    def blocking() -> None:
        for manager in (first, second):
            manager.__enter__()
        for manager in (first, second):
            manager.__exit__(*no_error)

    async def waiting() -> None:
        for manager in (first, second):
            await manager.__aenter__()
        for manager in (first, second):
            await manager.__aexit__(*no_error)

    in_colour(colour, blocking, waiting)
    assert [connection.exit_errors for connection in factory.connections] == [[None], [None]]
