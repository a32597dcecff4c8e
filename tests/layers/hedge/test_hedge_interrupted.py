"""Ctrl-C at any point of a blocking call that is hedged: all workers and retries of the call end."""

from __future__ import annotations

import gc
import threading

import pytest

from redouble import Hedge, RetryBudget, Worker
from redouble._drivers.workers import threads, worker_slots
from redouble._layers.hedge import hedge as _hedge
from redouble._layers.hedge import race, race_workers
from tests.support.bulkhead_callers import until
from tests.support.fakes import Boom
from tests.support.interruption import SignalHandler, ctrl_c

MODULES = (_hedge, race, race_workers, worker_slots, threads)
FILES = {module.__file__ for module in MODULES} | {"<redouble> hedge"}


class Attempts:
    """The attempts of one call: one of them waits until it is released, the others return or fail at once."""

    def __init__(self, slow: int, error: type[Exception] | None) -> None:
        self.slow, self.error = slow, error
        self.release = threading.Event()
        self._left = [1, 2]
        self._lock = threading.Lock()

    def __call__(self) -> str:
        with self._lock:
            number = self._left.pop(0)
        if number == self.slow:
            self.release.wait(60)
        elif self.error is not None:
            raise self.error
        return "done"


def interrupted(number: int, attempts: Attempts) -> bool:
    """Make a call with Ctrl-C at the n-th point; return True if there is such a point."""
    worker, budget = Worker(limit=2, grace=0), RetryBudget(None, max_in_flight=0.2, minimum=1)
    hedge = Hedge(0, None, worker=worker, budget=budget, on=Boom)
    handler = SignalHandler(FILES, ctrl_c, number)
    more = handler.interrupt(hedge(attempts), KeyboardInterrupt, Boom)
    attempts.release.set()
    del handler  # it and the frames of the call refer to each other
    until(lambda: gc.collect() >= 0 == worker.snapshot()["in_use"] == budget.snapshot()["retries_in_flight"])
    return more


@pytest.mark.parametrize(
    ("slow", "error"),
    [(0, None), (1, None), (2, None), (0, Boom)],
    ids=["both are fast", "the first is slow", "the second is slow", "both fail"],
)
def test_ctrl_c_at_any_point(slow: int, error: type[Exception] | None) -> None:
    number = 1
    while interrupted(number, Attempts(slow, error)):
        number += 1
    assert number > 20
