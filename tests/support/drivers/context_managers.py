"""Scripted connections for `Retry.enter`, as context managers of both colours."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from redouble import SYSTEM, Retry
from redouble.types import Event
from tests.support.fakes import Boom, Virtual, in_colour
from tests.support.streams import HOOKS


class Place:
    """Makes connections; a step of the script is the result of entering one, and the last step repeats."""

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
    """A context manager for ``with`` and for ``async with``."""

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
    """Enter a context manager, and call ``body`` inside."""

    def blocking() -> None:
        with entrance as connection:
            body(connection)

    async def waiting() -> None:
        async with entrance as connection:
            await SYSTEM.asleep(0)
            body(connection)

    in_colour(colour, blocking, waiting)
