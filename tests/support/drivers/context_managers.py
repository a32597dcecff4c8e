"""Scripted connections for `Retry.enter`, as context managers of both colours."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from redouble import SYSTEM, Retry
from redouble.types import Event
from tests.support.fakes import Boom, Virtual, in_colour
from tests.support.streams import HOOKS


class ConnectionFactory:
    """Makes connections; a step of the script is the result of entering one, and the last step repeats."""

    def __init__(self, *script: Any, **options: Any) -> None:
        self.script = script or ("in",)
        self.log: list[str] = []
        self.connections: list[Connection] = []
        self.clock = Virtual()
        self.swallows = False
        hooks: dict[str, Any] = dict.fromkeys(HOOKS, self.record)
        arguments: dict[str, Any] = {"on": Boom, "backoff": [1, 2, 4], "clock": self.clock}
        self.policy = Retry(**arguments | hooks | options)

    def record(self, event: Event) -> None:
        self.log.append(f"{event.what}:{event.attempt}")

    def connect(self, host: str = "host", *, port: int = 1) -> Connection:
        self.log.append("make")
        self.connections.append(Connection(self, f"{host}:{port}"))
        return self.connections[-1]

    async def aconnect(self, host: str = "host", *, port: int = 1) -> Connection:
        await SYSTEM.asleep(0)
        return self.connect(host, port=port)


class Connection:
    """A context manager for ``with`` and for ``async with``."""

    def __init__(self, factory: ConnectionFactory, name: str) -> None:
        self.factory, self.name = factory, name
        self.exit_errors: list[BaseException | None] = []

    def __enter__(self) -> Self:
        step = self.factory.script[min(len(self.factory.connections), len(self.factory.script)) - 1]
        self.factory.log.append("enter")
        if isinstance(step, BaseException):
            raise step
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> bool:
        assert kind is (None if error is None else type(error))
        assert (tb is None) is (error is None)
        self.factory.log.append("exit")
        self.exit_errors.append(error)
        return self.factory.swallows

    async def __aenter__(self) -> Self:
        await SYSTEM.asleep(0)
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> bool:
        await SYSTEM.asleep(0)
        return self.__exit__(kind, error, tb)


def entered(colour: str, manager: Any, body: Callable[[Any], object] = lambda _: None) -> None:
    """Enter a context manager, and call ``body`` inside."""

    def blocking() -> None:
        with manager as connection:
            body(connection)

    async def waiting() -> None:
        async with manager as connection:
            await SYSTEM.asleep(0)
            body(connection)

    in_colour(colour, blocking, waiting)
