"""Callers of a bulkhead, each on its own thread and in some colour, that start and finish on demand."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager

from redouble import Bulkhead, priority
from tests.support.fakes import in_colour

MAX_POLLS = 10_000
POLL_INTERVAL = 0.001
A_MINUTE = 60


def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition that another thread makes true."""
    never = threading.Event()
    for _ in range(MAX_POLLS):
        if condition():
            return
        never.wait(POLL_INTERVAL)
    raise AssertionError("the condition has not become true")


class Caller:
    """One call that occupies its slot until it is released."""

    def __init__(self, owner: Callers, colour: str, of: str | None) -> None:
        self.owner, self.of = owner, of
        self.name = f"{len(owner.started)} {colour}"
        self.error: BaseException | None = None
        self.released = threading.Event()
        self.thread = threading.Thread(target=self._run, args=[colour], daemon=True)

    def _run(self, colour: str) -> None:
        async def occupy() -> None:
            self._occupy()  # blocks the loop, which runs nothing else

        async def waiting() -> None:
            await self.owner.gate.call(occupy)

        try:
            with priority(self.of):
                in_colour(colour, lambda: self.owner.gate.call(self._occupy), waiting)
        except BaseException as error:
            self.error = error

    def _occupy(self) -> None:
        self.owner.admitted.append(self.name)
        self.released.wait()

    def finish(self) -> None:
        """Release the slot, and wait for the end of the thread."""
        self.released.set()
        self.thread.join(A_MINUTE)


class Callers:
    """All callers of one bulkhead, and the order in which they were admitted."""

    def __init__(self, gate: Bulkhead) -> None:
        self.gate = gate
        self.started: list[Caller] = []
        self.admitted: list[str] = []

    def used(self) -> tuple[float, float]:
        """Return the numbers of calls in flight and of waiters."""
        now = self.gate.snapshot()
        return now["in_use"], now["queued"]

    def start(self, colour: str, of: str | None = None) -> Caller:
        """Start a caller of a class, and wait until it is admitted, queued or rejected."""
        caller, before = Caller(self, colour, of), self.used()
        self.started.append(caller)
        caller.thread.start()
        until(lambda: self.used() != before or not caller.thread.is_alive())
        return caller


@contextmanager
def callers(gate: Bulkhead) -> Generator[Callers]:
    """Yield the callers of a bulkhead; on exit release all, and check that every slot is free."""
    group = Callers(gate)
    try:
        yield group
    finally:
        for caller in group.started:
            caller.released.set()
        for caller in group.started:
            caller.thread.join(A_MINUTE)
            assert not caller.thread.is_alive()
    assert group.used() == (0, 0)
