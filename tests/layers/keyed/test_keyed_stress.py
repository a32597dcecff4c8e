"""`Keyed` used by many threads at once, with very few keys kept: still one layer for each key.

Threads switch every microsecond here.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redouble import SYSTEM, Bulkhead, Keyed
from redouble.testing import virtual_time
from tests.layers.keyed.test_keyed import first
from tests.support.fakes import COLOURS, in_colour

KEYS = "abc"
CALLS = 120


@pytest.fixture
def switching() -> Iterator[None]:
    """Switch threads every microsecond."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def linger() -> None:
    """Let other threads and tasks run."""
    for _ in range(20):
        pass


class Houses:
    """A room for each key, for one call at a time: it records which calls are inside."""

    def __init__(self, most: int, idle: float | None = None) -> None:
        self.layers = Keyed(first, self._make, most, idle)
        self.inside: dict[str, list[object]] = {key: [] for key in KEYS}
        self.too_many: list[str] = []
        self.served: list[None] = []
        self.wrong: list[BaseException] = []

    def _make(self) -> Bulkhead:
        linger()
        return Bulkhead(1, None)

    def visit(self, key: str) -> None:
        me, inside = object(), self.inside[key]
        inside.append(me)
        linger()
        self._look(key)
        inside.remove(me)
        self.served.append(None)

    async def avisit(self, key: str) -> None:
        me, inside = object(), self.inside[key]
        inside.append(me)
        self._look(key)
        await SYSTEM.asleep(0)
        self._look(key)
        inside.remove(me)
        self.served.append(None)

    def visits(self, key: str) -> Iterator[None]:
        me, inside = object(), self.inside[key]
        inside.append(me)
        self._look(key)
        yield None
        self._look(key)
        inside.remove(me)
        self.served.append(None)

    def _look(self, key: str) -> None:
        if len(self.inside[key]) > 1:
            self.too_many.append(key)

    def everywhere(self, mains: list[Callable[[int], object]]) -> None:
        """Run each function in its own thread; assert that all ended, and that no call is left inside."""

        def run(main: Callable[[int], object], number: int) -> None:
            try:
                main(number)
            except BaseException as error:
                self.wrong.append(error)

        threads = [threading.Thread(target=run, args=pair) for pair in zip(mains, range(99), strict=False)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert self.wrong == []
        assert self.too_many == []
        assert len(self.served) == CALLS * len(mains)
        assert self.inside == {key: [] for key in KEYS}
        assert [self.layers.of(key).snapshot()["in_use"] for key in KEYS] == [0, 0, 0]


def some_key(number: int, turn: int) -> str:
    """Let some threads use all keys in turn, each in its own order, and others change keys rarely."""
    return KEYS[(turn * number + turn // 3) % 3 if number % 2 else turn // 20 % 3]


@pytest.mark.usefixtures(switching.__name__)
@pytest.mark.parametrize("most", [1, 2])
@pytest.mark.parametrize("idle", [None, 0])
@pytest.mark.parametrize("how", ["decorated", "called", "stream", "decorated anew"])
def test_threads_never_meet_in_a_house_for_one(most: int, idle: float | None, how: str) -> None:
    houses = Houses(most, idle)
    visit: Any = houses.layers(houses.visits if how == "stream" else houses.visit)

    def main(number: int) -> None:
        for turn in range(CALLS):
            key = some_key(number, turn)
            match how:
                case "called":
                    houses.layers.call(houses.visit, key)
                case "stream":
                    assert [*visit(key)] == [None]
                case "decorated anew":
                    houses.layers(houses.visit)(key)
                case _:
                    visit(key)

    houses.everywhere([main] * 6)
    assert houses.layers.snapshot()["keys"] <= most


@pytest.mark.usefixtures(switching.__name__)
@pytest.mark.parametrize("most", [1, 2])
def test_threads_and_loops_never_meet_in_a_house_for_one(most: int) -> None:
    houses = Houses(most)
    visit, avisit = houses.layers(houses.visit), houses.layers(houses.avisit)

    def main(colour: str, number: int) -> None:
        def blocking() -> None:
            for turn in range(CALLS):
                visit(some_key(number, turn))

        async def waiting() -> None:
            for turn in range(CALLS):
                await avisit(some_key(number, turn))

        in_colour(colour, blocking, waiting)

    houses.everywhere([functools.partial(main, colour) for colour in COLOURS])


@pytest.mark.usefixtures(switching.__name__)
def test_explaining_changes_no_state() -> None:
    houses = Houses(2)
    visit, over = houses.layers(houses.visit), threading.Event()
    said: list[str] = []

    def main(number: int) -> None:
        for turn in range(CALLS):
            visit(some_key(number, turn))

    def tell() -> None:
        while not over.is_set():
            said.append((houses.layers | Bulkhead(1)).explain())
            houses.layers.snapshot()

    telling = threading.Thread(target=tell)
    telling.start()
    try:
        houses.everywhere([main] * 4)
    finally:
        over.set()
        telling.join()
    assert said[-1].startswith("Keyed")


# ------------------------------------------------------------------------------ sequences

HOWS = st.sampled_from(["decorated", "other", "called", "stream", "of"])


class Model:
    """What `Keyed` does, in a few plain lines: an ordered dict of when each key was last used."""

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
def test_any_sequence_of_uses(most: int, idle: float, uses: list[tuple[str, int, float]]) -> None:
    """A layer is made exactly when a plain table of the least recently used would have none."""
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
        ways: dict[str, Callable[[int], object]] = {
            "decorated": fetch,
            "other": other,
            "called": lambda key: layers.call(same, key),
            "stream": lambda key: [*items(key)],
            "of": layers.of,
        }
        for how, key, later in uses:
            clock.advance(later)
            ways[how](key)
            if model.use(key, clock.now()):
                expected.append(key)
            assert made == expected
            assert layers.snapshot()["keys"] <= most
