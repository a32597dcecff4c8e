"""Guests of a bulkhead, each on a thread of its own and in some colour, who come and go when told to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager

from redouble import Bulkhead
from tests.support.fakes import in_colour

MOST_LOOKS = 10_000
A_MOMENT = 0.001
A_MINUTE = 60


def until(so: Callable[[], bool]) -> None:
    """Wait until something is so that another thread does."""
    never = threading.Event()
    for _ in range(MOST_LOOKS):
        if so():
            return
        never.wait(A_MOMENT)
    raise AssertionError("that never came")


class Guest:
    """One call, which stays inside until it is let go."""

    def __init__(self, crowd: Crowd, colour: str) -> None:
        self.crowd = crowd
        self.name = f"{len(crowd.guests)} {colour}"
        self.error: BaseException | None = None
        self.let_go = threading.Event()
        self.thread = threading.Thread(target=self._come, args=[colour], daemon=True)

    def _come(self, colour: str) -> None:
        async def astay() -> None:
            self._stay()  # there is nothing else on this loop

        async def waiting() -> None:
            await self.crowd.gate.call(astay)

        try:
            in_colour(colour, lambda: self.crowd.gate.call(self._stay), waiting)
        except BaseException as error:
            self.error = error

    def _stay(self) -> None:
        self.crowd.came.append(self.name)
        self.let_go.wait()

    def leave(self) -> None:
        """Leave, and be gone."""
        self.let_go.set()
        self.thread.join(A_MINUTE)


class Crowd:
    """All guests of one bulkhead, and in which order they came in."""

    def __init__(self, gate: Bulkhead) -> None:
        self.gate = gate
        self.guests: list[Guest] = []
        self.came: list[str] = []

    def used(self) -> tuple[float, float]:
        """Tell how many are inside, and how many wait."""
        now = self.gate.snapshot()
        return now["in_use"], now["queued"]

    def come(self, colour: str) -> Guest:
        """Let one come, and wait until it is in, or in the queue, or gone again."""
        guest, before = Guest(self, colour), self.used()
        self.guests.append(guest)
        guest.thread.start()
        until(lambda: self.used() != before or not guest.thread.is_alive())
        return guest


@contextmanager
def crowd(gate: Bulkhead) -> Generator[Crowd]:
    """Give a crowd, let all go at the end, and see that nothing is left of them."""
    guests = Crowd(gate)
    try:
        yield guests
    finally:
        for guest in guests.guests:
            guest.let_go.set()
        for guest in guests.guests:
            guest.thread.join(A_MINUTE)
            assert not guest.thread.is_alive()
    assert guests.used() == (0, 0)
