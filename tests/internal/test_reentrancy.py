"""Operations of shared objects run one at a time and completely, whatever interrupts them."""

from __future__ import annotations

import gc
import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any

import pytest

from redouble._internal import locks, reentrancy
from redouble._internal.reentrancy import ReentrancySafe, SerialQueue
from tests.support.fakes import Boom
from tests.support.garbage_collection import Thing
from tests.support.interruption import SignalHandler, ctrl_c
from tests.support.thread_switching import frequent_switches, run_in_threads

FILES: set[str | None] = {reentrancy.__file__, locks.__file__}
PATIENCE = 30.0  # seconds, after which a thread that waits here is taken for stuck


def in_order(*calls: Callable[[], object]) -> Callable[[], None]:
    """Return a function that makes these calls."""

    def call_all() -> None:
        for call in calls:
            call()

    return call_all


class Journal(ReentrancySafe):
    """An object whose operation writes two entries, and fails if another one runs in between."""

    def __init__(self) -> None:
        super().__init__()
        self.entries: list[str] = []
        self.inside = 0
        self.meanwhile: Callable[[], object] = int

    def write(self, name: str) -> str | None:
        """Run the operation."""
        return self._run_exclusively(self._write, name)

    def _write(self, name: str) -> str:
        assert not self.inside
        assert self._owned_by_this_thread()
        self.inside += 1
        try:
            self.entries.append(f"{name} begins")
            meanwhile, self.meanwhile = self.meanwhile, int
            meanwhile()
            self.entries.append(f"{name} ends")
        finally:
            self.inside -= 1
        return name.upper()

    def read(self) -> int:
        """Return the number of entries."""
        return self._run_now(len, self.entries)

    def fail(self) -> None:
        """Run an operation that raises."""
        self._run_exclusively(self._fail)

    def _fail(self) -> None:
        self._write("failing")
        raise Boom

    def check(self, *names: str) -> None:
        """Check that these operations ran, each completely, and that none is left and none runs."""
        assert self.entries == [f"{name} {part}" for name in names for part in ("begins", "ends")]
        assert not self._deferred
        assert not self._owned_by_this_thread()


def test_an_operation_runs_and_returns_its_result() -> None:
    journal = Journal()
    assert journal.write("a") == "A"
    journal.check("a")


def test_a_re_entrant_operation_runs_after_the_outer_one() -> None:
    journal = Journal()
    journal.meanwhile = in_order(partial(journal.write, "b"), partial(journal.write, "c"))
    assert journal.write("a") == "A"
    journal.check("a", "b", "c")


def test_a_deferred_operation_may_be_re_entered_too() -> None:
    journal = Journal()

    def meanwhile() -> None:
        journal.write("b")
        journal.meanwhile = partial(journal.write, "c")

    journal.meanwhile = meanwhile
    journal.write("a")
    journal.check("a", "b", "c")


def test_a_re_entrant_operation_has_no_result() -> None:
    journal, results = Journal(), list[str | None]()
    journal.meanwhile = lambda: results.append(journal.write("b"))
    journal.write("a")
    assert results == [None]


def test_a_read_runs_in_the_middle_of_an_operation() -> None:
    journal, results = Journal(), list[int]()
    journal.meanwhile = in_order(lambda: results.append(journal.read()), partial(journal.write, "b"))
    journal.write("a")
    assert results == [1]
    assert journal.read() == 4
    journal.check("a", "b")


def test_what_a_read_deferred_runs_after_it() -> None:
    journal = Journal()
    assert journal._run_now(journal.write, "a") is None
    journal.check("a")


def test_operations_deferred_by_one_that_raises_run_nevertheless() -> None:
    journal = Journal()
    journal.meanwhile = in_order(partial(journal.write, "b"), journal.fail, partial(journal.write, "c"))
    with pytest.raises(Boom) as caught:
        journal.fail()
    assert isinstance(caught.value.__context__, Boom)
    journal.check("failing", "b", "failing", "c")


def test_an_operation_that_is_deferred_after_the_last_look_at_them_runs() -> None:
    """As by a signal handler that runs when the thread is about to stop running them."""
    journal = Journal()

    class Runners(set[Any]):
        def discard(self, thread: object, /) -> None:
            if "c begins" not in journal.entries:
                journal._deferred.append((journal._write, ("c",)))
            super().discard(thread)

    journal._runners = Runners()
    journal.meanwhile = partial(journal.write, "b")
    journal.write("a")
    journal.check("a", "b", "c")


# -------------------------------------------------------------------------- interruptions


@pytest.mark.parametrize("everywhere", [False, True], ids=["checks", "opcodes"])
def test_re_entered_at_every_point(everywhere: bool) -> None:
    """Each operation runs once and completely, and the outer call returns its own result."""
    number, more = 0, True
    while more:
        number += 1
        journal, results = Journal(), list[str | None]()
        journal.meanwhile = partial(journal.write, "deferred")

        def outer(journal: Journal = journal, results: list[str | None] = results) -> None:
            results.append(journal.write("outer"))

        inner = partial(journal.write, "inner")
        more = SignalHandler(FILES, inner, number, everywhere=everywhere).interrupt(outer)
        assert results == ["OUTER"]
        assert journal.inside == 0
        names = [entry.split()[0] for entry in journal.entries[::2]]
        assert sorted(names) == ["deferred", *["inner"] * more, "outer"]
        journal.check(*names)
    assert number > 10


class Following(ReentrancySafe):
    """An object that reads itself after each deferred operation."""

    followed = 0

    def _after_deferred(self) -> None:
        self.followed += 1
        self._run_now(int)


def test_thousands_of_deferred_operations_are_run_one_after_the_other() -> None:
    """The collector may finalise that many waiters of an event loop that has ended, inside one operation."""
    shared, ran = Following(), list[int]()
    with shared._lock:
        for number in range(5000):
            shared._run_exclusively(ran.append, number)
    shared._run_now(int)
    assert ran == [*range(5000)]
    assert shared.followed == 5000


@pytest.mark.parametrize("work", [Journal.write, Journal.read], ids=["write", "read"])
def test_ctrl_c_at_every_point_leaves_the_object_usable(work: Callable[..., object]) -> None:
    """Python checks for signals after calls. The lock is free again, and what was deferred has run."""
    number, more = 0, True
    while more:
        number += 1
        journal = Journal()
        journal.meanwhile = partial(journal.write, "deferred")
        outer = partial(work, journal, *["outer"] if work == Journal.write else [])
        more = SignalHandler(FILES, ctrl_c, number).interrupt(outer, KeyboardInterrupt)
        assert not journal._owned_by_this_thread()
        assert journal.inside == 0
        journal.meanwhile = int
        journal.write("next")
        assert not journal._deferred
        assert journal.entries[-2:] == ["next begins", "next ends"]
    assert number > 2


@contextmanager
def handling_sigterm(handler: Callable[[], object]) -> Generator[None]:
    def handle(signum: int, frame: FrameType | None) -> None:
        handler()

    before = signal.signal(signal.SIGTERM, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_real_signal_handler_is_deferred() -> None:
    journal, results = Journal(), list[str | None]()
    journal.meanwhile = partial(signal.raise_signal, signal.SIGTERM)
    with handling_sigterm(lambda: results.append(journal.write("handler"))):
        journal.write("main")
    assert results == [None]
    journal.check("main", "handler")


def test_a_real_signal_handler_that_raises_loses_nothing() -> None:
    journal = Journal()

    def interrupted() -> None:
        journal.write("deferred")
        signal.raise_signal(signal.SIGTERM)

    journal.meanwhile = interrupted
    with handling_sigterm(ctrl_c), pytest.raises(KeyboardInterrupt):
        journal.write("main")
    assert journal.entries == ["main begins", "deferred begins", "deferred ends"]
    assert not journal._owned_by_this_thread()


def test_a_finaliser_that_the_collector_runs_is_deferred() -> None:
    journal = Journal()

    class Closing(Thing):
        def __del__(self) -> None:
            journal.write("finaliser")

    def collect() -> None:
        thing = Closing()
        thing.itself = thing  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
        del thing
        gc.collect()

    journal.meanwhile = collect
    journal.write("main")
    journal.check("main", "finaliser")


# ------------------------------------------------------------------------- threads, forks


def test_another_thread_waits_for_a_running_operation() -> None:
    journal = Journal()
    inside, go_on = threading.Event(), threading.Event()
    journal.meanwhile = in_order(inside.set, partial(go_on.wait, PATIENCE))
    first = threading.Thread(target=journal.write, args=("first",))
    second = threading.Thread(target=journal.write, args=("second",))
    first.start()
    assert inside.wait(PATIENCE)
    second.start()
    go_on.set()
    first.join()
    second.join()
    journal.check("first", "second")


def test_another_thread_runs_what_was_deferred() -> None:
    """Between the end of an operation and the deferred one another thread may come in."""
    journal = Journal()
    journal._deferred.append((journal._write, ("deferred",)))
    other = threading.Thread(target=journal.write, args=("other",))

    class StolenAtOnce(type(journal._deferred)):  # type: ignore[misc]
        """A queue that another thread empties once it was seen not to be empty."""

        def __bool__(self) -> bool:
            found = len(self) > 0
            if found and not journal._owned_by_this_thread() and threading.current_thread() is not other:
                other.start()
                other.join()
            return found

    journal._deferred = StolenAtOnce(journal._deferred)
    journal._run_deferred()
    journal.check("other", "deferred")


def test_many_threads_and_re_entrant_calls_run_one_at_a_time() -> None:
    journal = Journal()

    def work(name: str) -> None:
        for _ in range(50):
            journal._run_exclusively(write_twice, name)

    def write_twice(name: str) -> None:
        journal._write(name)
        journal.write(f"{name} again")

    with frequent_switches():
        run_in_threads(work, threads=8)
    names = [entry.rpartition(" ")[0] for entry in journal.entries[::2]]
    assert len(names) == 800
    journal.check(*names)


def test_a_child_that_is_forked_in_the_middle_of_an_operation_can_use_the_object() -> None:
    journal = Journal()
    inside, go_on = threading.Event(), threading.Event()
    journal.meanwhile = in_order(
        partial(journal.write, "deferred"), inside.set, partial(go_on.wait, PATIENCE)
    )
    parent = threading.Thread(target=journal.write, args=("parent",))
    parent.start()
    assert inside.wait(PATIENCE)
    journal._after_fork()  # as in a child, where the thread does not exist
    journal.inside = 0
    del journal.entries[:]
    assert journal.write("child") == "CHILD"
    assert journal.entries == ["child begins", "child ends"]
    go_on.set()
    parent.join()


# --------------------------------------------------------------------------- SerialQueue


class Reader:
    """Receives numbers from a queue; may run a function at one of them."""

    def __init__(self) -> None:
        self.read: list[int] = []
        self.at: dict[int, Callable[[], object]] = {}
        self.queue = SerialQueue()

    def _receive(self, number: int) -> None:
        self.read.append(number)
        self.at.get(number, int)()

    def add(self, number: int) -> None:
        self.queue.add(self._receive, number)

    def run(self, *numbers: int) -> None:
        for number in numbers:
            self.add(number)
        self.queue.run()


def test_the_calls_of_a_queue_run_in_order() -> None:
    reader = Reader()
    reader.run(1, 2)
    reader.run()
    reader.run(3)
    assert reader.read == [1, 2, 3]


def test_a_call_that_is_queued_during_another_runs_after_it() -> None:
    reader = Reader()

    def meanwhile() -> None:
        reader.run(3, 4)
        reader.read.append(-1)

    reader.at[1] = meanwhile
    reader.at[4] = lambda: reader.run(5)
    reader.run(1, 2)
    assert reader.read == [1, -1, 2, 3, 4, 5]


def test_a_call_that_raises_loses_no_other() -> None:
    """The next run of the queue runs the remaining calls."""
    reader = Reader()
    reader.at[1] = ctrl_c
    with pytest.raises(KeyboardInterrupt):
        reader.run(1, 2)
    assert reader.read == [1]
    reader.run(3)
    assert reader.read == [1, 2, 3]


def test_no_call_waits_for_a_call_in_another_thread() -> None:
    """That thread runs the calls that other threads add meanwhile."""
    reader = Reader()
    reading, go_on = threading.Event(), threading.Event()
    reader.at[1] = in_order(reading.set, partial(go_on.wait, PATIENCE))
    thread = threading.Thread(target=reader.run, args=(1,))
    thread.start()
    try:
        assert reading.wait(PATIENCE)
        reader.run(2)
        assert reader.read == [1]
    finally:
        go_on.set()
        thread.join()
    assert reader.read == [1, 2]


def test_many_threads_run_each_call_of_a_queue_once_and_in_order() -> None:
    reader, lock, added = Reader(), threading.Lock(), list[int]()

    def add(_: str) -> None:
        for _number in range(200):
            with lock:
                added.append(len(added))
                reader.add(added[-1])
            reader.run()

    with frequent_switches():
        run_in_threads(add, threads=8)
    assert reader.read == added
    assert len(added) == 1600


def test_a_queue_re_entered_at_every_point_runs_each_call_once() -> None:
    number, more = 0, True
    while more:
        number += 1
        queue, log = SerialQueue(), list[str]()

        def use(name: str, queue: SerialQueue = queue, log: list[str] = log) -> None:
            queue.add(log.append, name)
            queue.run()

        more = SignalHandler(FILES, partial(use, "inner"), number, everywhere=True).interrupt(
            partial(use, "outer")
        )
        assert sorted(log) == ["inner", "outer"] if more else log == ["outer"]
    assert number > 20


def test_ctrl_c_at_every_point_leaves_a_queue_usable() -> None:
    number, more = 0, True
    while more:
        number += 1
        queue, log = SerialQueue(), list[str]()
        queue.add(log.append, "outer")
        more = SignalHandler(FILES, ctrl_c, number).interrupt(queue.run, KeyboardInterrupt)
        queue.add(log.append, "next")
        queue.run()
        assert log[-1] == "next"
    assert number > 3


@pytest.mark.parametrize("number", range(1, 40))
def test_ctrl_c_in_a_call_inside_an_operation_leaves_the_lock_to_the_operation(number: int) -> None:
    """The inner call does not release what the outer one holds; the deferred operation runs after it."""
    journal = Journal()

    def interrupted_inside() -> None:
        journal.write("deferred")
        SignalHandler(FILES, ctrl_c, number).interrupt(
            partial(journal._run_now, journal.entries.append, "read"), KeyboardInterrupt
        )
        assert journal._owned_by_this_thread()

    journal.meanwhile = interrupted_inside
    assert journal.write("a") == "A"
    assert [entry for entry in journal.entries if entry != "read"] == [
        *("a begins", "a ends"),
        *("deferred begins", "deferred ends"),
    ]
    assert not journal._owned_by_this_thread()
