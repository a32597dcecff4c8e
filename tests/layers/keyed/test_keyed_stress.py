"""`Keyed` used by many threads at once, with very few keys kept: still one layer for each key.

Threads switch every microsecond here.
"""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redouble import SYSTEM, Bulkhead, Keyed
from redouble.testing import virtual_time
from tests.support.fakes import COLOURS, in_colour
from tests.support.layers.keyed_calls import first
from tests.support.thread_switching import switching

pytestmark = pytest.mark.stress

KEYS = "abc"
CALLS = 120


def linger() -> None:
    """Let other threads and tasks run."""
    for _ in range(20):
        pass


class Service:
    """A function with a bulkhead of one slot for each key; it records its calls in flight."""

    def __init__(self, most: int, idle: float | None = None) -> None:
        self.layers = Keyed(first, self._make, most, idle)
        self.in_flight: dict[str, list[object]] = {key: [] for key in KEYS}
        self.too_many: list[str] = []
        self.finished: list[None] = []
        self.failures: list[BaseException] = []

    def _make(self) -> Bulkhead:
        linger()
        return Bulkhead(1, None)

    def work(self, key: str) -> None:
        me, in_flight = object(), self.in_flight[key]
        in_flight.append(me)
        linger()
        self._check(key)
        in_flight.remove(me)
        self.finished.append(None)

    async def awork(self, key: str) -> None:
        me, in_flight = object(), self.in_flight[key]
        in_flight.append(me)
        self._check(key)
        await SYSTEM.asleep(0)
        self._check(key)
        in_flight.remove(me)
        self.finished.append(None)

    def work_items(self, key: str) -> Iterator[None]:
        me, in_flight = object(), self.in_flight[key]
        in_flight.append(me)
        self._check(key)
        yield None
        self._check(key)
        in_flight.remove(me)
        self.finished.append(None)

    def _check(self, key: str) -> None:
        if len(self.in_flight[key]) > 1:
            self.too_many.append(key)

    def everywhere(self, mains: list[Callable[[int], object]]) -> None:
        """Run each function in its own thread; assert that all ended, and that no call is in flight."""

        def run(main: Callable[[int], object], number: int) -> None:
            try:
                main(number)
            except BaseException as error:
                self.failures.append(error)

        threads = [threading.Thread(target=run, args=pair) for pair in zip(mains, range(99), strict=False)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert self.failures == []
        assert self.too_many == []
        assert len(self.finished) == CALLS * len(mains)
        assert self.in_flight == {key: [] for key in KEYS}
        assert [self.layers.of(key).snapshot()["in_use"] for key in KEYS] == [0, 0, 0]


def some_key(number: int, turn: int) -> str:
    """Return a key: threads with odd numbers use all keys in turn, the others change keys rarely."""
    return KEYS[(turn * number + turn // 3) % 3 if number % 2 else turn // 20 % 3]


@pytest.mark.usefixtures(switching.__name__)
@pytest.mark.parametrize("most", [1, 2])
@pytest.mark.parametrize("idle", [None, 0])
@pytest.mark.parametrize("how", ["decorated", "called", "stream", "decorated each time"])
def test_threads_never_exceed_the_limit_of_a_key(most: int, idle: float | None, how: str) -> None:
    service = Service(most, idle)
    work: Any = service.layers(service.work_items if how == "stream" else service.work)

    def main(number: int) -> None:
        for turn in range(CALLS):
            key = some_key(number, turn)
            match how:
                case "called":
                    service.layers.call(service.work, key)
                case "stream":
                    assert [*work(key)] == [None]
                case "decorated each time":
                    service.layers(service.work)(key)
                case _:
                    work(key)

    service.everywhere([main] * 6)
    assert service.layers.snapshot()["keys"] <= most


@pytest.mark.usefixtures(switching.__name__)
@pytest.mark.parametrize("most", [1, 2])
def test_threads_and_loops_never_exceed_the_limit_of_a_key(most: int) -> None:
    service = Service(most)
    work, awork = service.layers(service.work), service.layers(service.awork)

    def main(colour: str, number: int) -> None:
        def blocking() -> None:
            for turn in range(CALLS):
                work(some_key(number, turn))

        async def waiting() -> None:
            for turn in range(CALLS):
                await awork(some_key(number, turn))

        in_colour(colour, blocking, waiting)

    service.everywhere([functools.partial(main, colour) for colour in COLOURS])


@pytest.mark.usefixtures(switching.__name__)
def test_explaining_changes_no_state() -> None:
    service = Service(2)
    work, over = service.layers(service.work), threading.Event()
    texts: list[str] = []

    def main(number: int) -> None:
        for turn in range(CALLS):
            work(some_key(number, turn))

    def explain_repeatedly() -> None:
        while not over.is_set():
            texts.append((service.layers | Bulkhead(1)).explain())
            service.layers.snapshot()

    explaining = threading.Thread(target=explain_repeatedly)
    explaining.start()
    try:
        service.everywhere([main] * 4)
    finally:
        over.set()
        explaining.join()
    assert texts[-1].startswith("Keyed")


# ------------------------------------------------------------------------------ sequences

HOWS = st.sampled_from(["decorated", "other", "called", "stream", "of"])


class Model:
    """A simple model of `Keyed`: an ordered dict with the time at which each key was last used."""

    def __init__(self, most: int, idle: float) -> None:
        self.most, self.idle = most, idle
        self.used: OrderedDict[int, float] = OrderedDict()

    def use(self, key: int, now: float) -> bool:
        """Use a key; return True if it is new."""
        new = now - self.used.pop(key, -1e9) > self.idle
        self.used[key] = now
        if len(self.used) > self.most:
            self.used.popitem(last=False)
        return new


@given(
    st.integers(1, 4),
    st.sampled_from([0, 2, 5, 1e6]),
    st.lists(st.tuples(HOWS, st.integers(0, 5), st.sampled_from([0, 0, 1, 3, 6])), max_size=40),
)
def test_any_sequence_of_uses_matches_a_model(
    most: int, idle: float, uses: list[tuple[str, int, float]]
) -> None:
    """A layer is made exactly when the model has none."""
    made: list[int] = []

    def make(key: int) -> Bulkhead:
        made.append(key)
        return Bulkhead(1, 0)

    layers = Keyed(first, make, most, idle)

    def same(key: int) -> int:
        return key

    fetch = layers(same)

    @layers
    def other(key: int, *more: int) -> int:
        return key

    @layers
    def items(key: int) -> Iterator[int]:
        yield key

    with virtual_time() as clock:
        model, expected = Model(most, idle), list[int]()
        functions: dict[str, Callable[[int], object]] = {
            "decorated": fetch,
            "other": other,
            "called": lambda key: layers.call(same, key),
            "stream": lambda key: [*items(key)],
            "of": layers.of,
        }
        for how, key, later in uses:
            clock.advance(later)
            functions[how](key)
            if model.use(key, clock.now()):
                expected.append(key)
            assert made == expected
            assert layers.snapshot()["keys"] <= most
