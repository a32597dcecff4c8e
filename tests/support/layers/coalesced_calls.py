"""Concurrent calls of one function that ends on demand, on threads or as tasks."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from typing import Any

from redouble import Coalesce, Layer
from redouble._runtime.backend import backend
from tests.support.bulkhead_callers import until
from tests.support.fakes import SYNC, in_colour
from tests.support.runtime.tasks import settled, together

A_MINUTE = 60.0


class Service:
    """A function in both colours whose calls wait until they are released; each plays its own step."""

    def __init__(self, *steps: Any) -> None:
        self.steps = steps or ("done",)
        self.calls: list[tuple[Any, ...]] = []
        self.most = 0  # calls in flight at once
        self._running = 0
        self._released: list[threading.Event] = []
        self._wakes: list[Callable[[], object]] = []

    def _begin(self, args: tuple[Any, ...]) -> Any:
        self.calls.append(args)
        self._running += 1
        self.most = max(self.most, self._running)
        return self.steps[min(len(self.calls), len(self.steps)) - 1]

    def _finish(self, step: Any) -> Any:
        if isinstance(step, BaseException):
            raise step
        return step

    def fetch(self, *args: Any) -> Any:
        step, released = self._begin(args), threading.Event()
        self._released.append(released)
        try:
            released.wait(A_MINUTE)
            return self._finish(step)
        finally:
            self._running -= 1

    async def afetch(self, *args: Any) -> Any:
        step, (wake, woken) = self._begin(args), backend().waker()
        self._wakes.append(wake)
        try:
            await woken()
            return self._finish(step)
        finally:
            self._running -= 1

    def release(self) -> None:
        """End the calls in flight."""
        released, self._released = self._released, []
        wakes, self._wakes = self._wakes, []
        for event in released:
            event.set()
        for wake in wakes:
            wake()


class Group:
    """Calls of a service through a layer that are all in flight before the service is released."""

    def __init__(self, colour: str, coalesce: Coalesce, service: Service, layer: Layer | None = None) -> None:
        self.colour, self.coalesce, self.service = colour, coalesce, service
        outer = layer or coalesce
        self._fn, self._afn = outer(service.fetch), outer(service.afetch)

    def outcomes(self, *arguments: tuple[Any, ...], rounds: int = 1) -> list[Any]:
        """Make these calls at once, release the service once for each round; return values and errors."""
        found: list[Any] = [None] * len(arguments)
        if self.colour in SYNC:
            self._in_threads(found, arguments, rounds)
        else:
            in_colour(self.colour, lambda: None, lambda: self._in_tasks(found, arguments, rounds))
        return found

    def _in_threads(self, found: list[Any], arguments: tuple[tuple[Any, ...], ...], rounds: int) -> None:
        def run(index: int) -> None:
            try:
                found[index] = self._fn(*arguments[index])
            except BaseException as error:
                found[index] = error

        threads = list[threading.Thread]()
        for index in range(len(arguments)):
            threads.append(threading.Thread(target=run, args=[index], daemon=True))
            threads[-1].start()
            until(lambda count=index + 1: self._present() == count)  # type: ignore[misc]
        for _ in range(rounds):
            until(lambda: bool(self.service._released) and self._present() == _alive(threads))
            self.service.release()
        for thread in threads:
            thread.join(A_MINUTE)
            assert not thread.is_alive()

    async def _in_tasks(self, found: list[Any], arguments: tuple[tuple[Any, ...], ...], rounds: int) -> None:
        async def run(index: int) -> None:
            try:
                found[index] = await self._afn(*arguments[index])
            except Exception as error:
                found[index] = error

        async def releasing() -> None:
            for _ in range(rounds):
                await settled(self.colour)
                self.service.release()

        def starting(index: int) -> Callable[[], Awaitable[None]]:
            return lambda: run(index)

        await together(self.colour, *map(starting, range(len(arguments))), releasing)

    def _present(self) -> float:
        return sum(self.coalesce.snapshot().values())


def _alive(threads: list[threading.Thread]) -> int:
    return sum(thread.is_alive() for thread in threads)
