"""`Retry.enter`: entering a context manager is retried, its body never."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack
from types import TracebackType
from typing import Any, Self

import pytest

import redouble
from redouble import SYSTEM, Retry, errors, report
from redouble.types import Event
from tests.support.fakes import ASYNC, Boom, Ledger, Panic, Virtual, in_colour
from tests.support.streams import HOOKS


class Place:
    """Where connections are made, as a script says: how entering each ends, the last for good."""

    def __init__(self, *script: Any, **options: Any) -> None:
        self.script = script or ("in",)
        self.log: list[str] = []
        self.made: list[Connection] = []
        self.clock = Virtual()
        self.swallows = False
        hooks: dict[str, Any] = dict.fromkeys(HOOKS, self.hear)
        said: dict[str, Any] = {"on": Boom, "backoff": [1, 2, 4], "clock": self.clock}
        self.policy = Retry(**said | hooks | options)

    def hear(self, event: Event) -> None:
        self.log.append(f"{event.what}:{event.attempt}")

    def connect(self, host: str = "host", *, port: int = 1) -> Connection:
        self.log.append("make")
        self.made.append(Connection(self, f"{host}:{port}"))
        return self.made[-1]

    async def aconnect(self, host: str = "host", *, port: int = 1) -> Connection:
        await SYSTEM.asleep(0)
        return self.connect(host, port=port)


class Connection:
    """For ``with`` and for ``async with``."""

    def __init__(self, place: Place, name: str) -> None:
        self.place, self.name = place, name
        self.left: list[BaseException | None] = []

    def __enter__(self) -> Self:
        turn = self.place.script[min(len(self.place.made), len(self.place.script)) - 1]
        self.place.log.append("enter")
        if isinstance(turn, BaseException):
            raise turn
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> bool:
        assert kind is (None if error is None else type(error))
        assert (tb is None) is (error is None)
        self.place.log.append("exit")
        self.left.append(error)
        return self.place.swallows

    async def __aenter__(self) -> Self:
        await SYSTEM.asleep(0)
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> bool:
        await SYSTEM.asleep(0)
        return self.__exit__(kind, error, tb)


def entered(colour: str, entrance: Any, body: Callable[[Any], object] = lambda _: None) -> None:
    """Enter, and do something inside."""

    def blocking() -> None:
        with entrance as connection:
            body(connection)

    async def waiting() -> None:
        async with entrance as connection:
            await SYSTEM.asleep(0)
            body(connection)

    in_colour(colour, blocking, waiting)


def test_entering_is_retried(colour: str) -> None:
    """Each time a new one is made; the one that was entered is left, once."""
    place = Place(Boom(), Boom(), "in")
    seen: list[Connection] = []
    entered(colour, place.policy.enter(place.connect, "db", port=5), seen.append)
    retried = [f"before_attempt:{n} make enter failure:{n} retry:{n}" for n in (1, 2)]
    assert " ".join(place.log) == " ".join([*retried, "before_attempt:3 make enter success:3 exit"])
    assert seen == [place.made[2]]
    assert [(connection.name, connection.left) for connection in place.made] == [
        ("db:5", []),
        ("db:5", []),
        ("db:5", [None]),
    ]
    assert place.clock.waits == [1, 2]


def test_making_is_retried(colour: str) -> None:
    place, fails = Place(), [Boom(), Boom()]

    def make() -> Connection:
        if fails:
            raise fails.pop()
        return place.connect()

    entered(colour, place.policy.enter(make))
    assert place.log[-4:] == ["make", "enter", "success:3", "exit"]


@pytest.mark.parametrize("colour", ASYNC)
def test_made_by_a_coroutine_function(colour: str) -> None:
    place = Place(Boom(), "in")
    entered(colour, place.policy.enter(place.aconnect, "db", port=5))
    assert [connection.name for connection in place.made] == ["db:5"] * 2


@pytest.mark.parametrize("error", [Boom("body"), LookupError("body"), Panic()], ids=repr)
@pytest.mark.parametrize("swallows", [False, True])
def test_the_body_is_never_retried(colour: str, error: BaseException, swallows: bool) -> None:
    """Its error goes to ``__exit__``, which may swallow it; no policy judges it."""
    place, bodies = Place(), list[object]()
    place.swallows = swallows

    def body(connection: object) -> None:
        bodies.append(connection)
        raise error

    entrance = place.policy.enter(place.connect)
    if swallows:
        entered(colour, entrance, body)
    else:
        with pytest.raises(type(error)) as caught:
            entered(colour, entrance, body)
        assert caught.value is error
    assert bodies == place.made
    assert place.made[0].left == [error]
    assert place.log == ["before_attempt:1", "make", "enter", "success:1", "exit"]
    assert report(error) is None
    assert not hasattr(error, "__notes__")


def test_giving_up(colour: str) -> None:
    """The body does not run, and nothing is left that was not entered."""
    lost = Boom("lost")
    place = Place(lost, attempts=2, name="database")
    with pytest.raises(Boom) as caught:
        entered(colour, place.policy.enter(place.connect), pytest.fail)
    assert caught.value is lost
    said = report(lost)
    assert said is not None
    assert (said.reason, said.attempts, said.name) == ("attempts", 2, "database")
    assert lost.__notes__ == ["redouble: gave up after 2 attempts in 1.0 s (attempts exhausted)"]
    assert "exit" not in place.log


def test_wrapped(colour: str) -> None:
    place = Place(Boom("lost"), attempts=2, wrap=True)
    with pytest.raises(errors.AttemptsExhausted, match="lost") as caught:
        entered(colour, place.policy.enter(place.connect), pytest.fail)
    assert isinstance(caught.value.__cause__, Boom)


@pytest.mark.parametrize("error", [LookupError("no"), Panic()], ids=repr)
def test_what_is_not_retried(colour: str, error: BaseException) -> None:
    place = Place(error)
    with pytest.raises(type(error)):
        entered(colour, place.policy.enter(place.connect), pytest.fail)
    assert len(place.made) == 1


def test_the_name_is_the_function_s(colour: str) -> None:
    names: list[str] = []

    def note(event: Event) -> None:
        names.append(event.name)

    place = Place(on_success=note)
    entered(colour, place.policy.enter(place.connect))
    entered(colour, place.policy.enter(functools.partial(place.connect, "db")))
    assert names == ["Place.connect"] * 2


def test_the_budget(colour: str) -> None:
    ledger = Ledger()
    place = Place(Boom(), "in", budget=ledger)
    entered(colour, place.policy.enter(place.connect))
    assert ledger.lines == ["start", "failed unknown", "spend unknown", "credit 1"]


def test_nested_and_repeated(colour: str) -> None:
    """One entrance may be used again, also inside itself; the innermost is left first."""
    place = Place()
    entrance: Any = place.policy.enter(place.connect)

    def blocking() -> None:
        for _ in range(2):
            with entrance as outer:
                with entrance as inner:
                    assert [outer, inner] == place.made[-2:]
                assert (outer.left, inner.left) == ([], [None])
            assert outer.left == [None]
        with ExitStack() as stack:
            assert stack.enter_context(entrance) is place.made[4]

    async def waiting() -> None:
        for _ in range(2):
            async with entrance as outer:
                async with entrance as inner:
                    assert [outer, inner] == place.made[-2:]
                assert (outer.left, inner.left) == ([], [None])
            assert outer.left == [None]
        async with AsyncExitStack() as stack:
            assert await stack.enter_async_context(entrance) is place.made[4]

    in_colour(colour, blocking, waiting)
    assert [connection.left for connection in place.made] == [[None]] * 5


def test_nothing_happens_before_it_is_entered() -> None:
    place = Place()
    place.policy.enter(place.connect)
    assert place.log == []


def test_two_tasks_and_one_entrance() -> None:
    """Each leaves what it entered, and not what the other is still using."""
    place = Place()
    entrance: Any = place.policy.enter(place.connect)

    async def one(turns: int) -> None:
        async with entrance as connection:
            for _ in range(turns):
                await SYSTEM.asleep(0)
            assert connection.left == []
        assert connection.left == [None]

    async def main() -> None:
        await asyncio.gather(one(3), one(9))

    asyncio.run(main())


@pytest.mark.parametrize("deadline", [None, 60], ids=["free", "after a deadline"])
def test_left_in_any_order(colour: str, deadline: float | None) -> None:
    """As a pool does it: without a limit nothing of ours is in the way, under Trio neither."""
    if deadline is not None:
        with redouble.deadline(deadline):
            pass
    place = Place()
    first, second = place.policy.enter(place.connect), place.policy.enter(place.connect)
    nobody = (None, None, None)

    def blocking() -> None:
        for entrance in (first, second):
            entrance.__enter__()
        for entrance in (first, second):
            entrance.__exit__(*nobody)

    async def waiting() -> None:
        for entrance in (first, second):
            await entrance.__aenter__()
        for entrance in (first, second):
            await entrance.__aexit__(*nobody)

    in_colour(colour, blocking, waiting)
    assert [connection.left for connection in place.made] == [[None], [None]]
