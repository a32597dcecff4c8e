"""Signal handlers that raise while a ``with`` of the package is entered or left: nothing stays in force."""

from __future__ import annotations

import gc
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import pytest

import redouble
from redouble import (
    AdaptiveConcurrency,
    AdaptiveRate,
    Bulkhead,
    CircuitBreaker,
    Gate,
    RateLimit,
    Retry,
    Throttle,
    bind,
    deadline,
    observe,
    remaining,
)
from redouble._clients.socket_deadline import SOCKET_DEADLINE, LimitedWaits
from redouble._runtime.ambient import ATTEMPT_OVERRIDE, ambient
from redouble._runtime.clock import VIRTUAL
from redouble._runtime.deadline import ACTIVE_DEADLINE
from redouble._telemetry.bound_fields import BOUND
from redouble._telemetry.emit import CONTINUING, ContinuingCall
from redouble._telemetry.observers import watch
from redouble.instruments import logging, memory
from redouble.llm import Spend
from redouble.testing import attempts, no_retries, recorded, virtual_time
from redouble.types import What
from tests.support.interruption import SignalHandler, ctrl_c

FILES: set[str | None] = {str(path) for path in Path(redouble.__file__).parent.rglob("*.py")}
SIGNALS = 60
# A handler may raise between the creation and the awaiting of a coroutine, or in a finaliser.
UNRAISABLE = pytest.mark.filterwarnings(
    "ignore:coroutine .* was never awaited", "ignore::pytest.PytestUnraisableExceptionWarning"
)


class Opened(Gate):
    """A gate of a user, which counts the calls in flight."""

    open = 0

    def admit(self, now: float, /) -> str:
        self.open += 1
        return "ticket"

    def ended(self, ticket: str, error: BaseException | None, now: float, /) -> None:
        self.open -= 1


class OwnBulkhead(Bulkhead):
    """A bulkhead whose every call calls its methods."""

    def ended(self, ticket: Any, error: BaseException | None, now: float, /) -> None:
        Bulkhead.ended(self, ticket, error, now)


class Items:
    """A stream that counts those that are open."""

    open = 0

    def __call__(self) -> Iterator[int]:
        self.open += 1
        try:
            yield from range(3)
        finally:
            self.open -= 1


def with_block(make: Callable[[], AbstractContextManager[Any]]) -> None:
    with make():
        pass


def with_stack(manager: AbstractContextManager[Any]) -> None:
    with ExitStack() as stack:
        stack.enter_context(manager)
        stack.pop_all().__exit__(None, None, None)


def with_error(manager: AbstractContextManager[Any]) -> None:
    try:
        with manager:
            raise LookupError
    except LookupError:
        pass


async def awith_block(manager: AbstractAsyncContextManager[Any]) -> None:
    async with manager:
        pass


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that never waits, without an event loop."""
    try:
        main.send(None)
    except StopIteration:
        return
    finally:
        main.close()
    pytest.fail("it waits")


def ignore(event: object) -> None: ...


def nothing() -> None:
    """Check nothing more than every check does."""


class Case:
    """One use of context managers, and the check that nothing is left of them."""

    def __init__(self, use: Callable[[], object], left: Callable[[], object]) -> None:
        self.use, self.left = use, left

    def check(self) -> None:
        """Assert that nothing is in force, and nothing held."""
        assert not self.left()
        assert remaining() is None
        assert (BOUND.get(), watch.entries, ambient.active, ambient.others) == ({}, (), {}, {})
        assert (VIRTUAL.get(), ATTEMPT_OVERRIDE.get(), SOCKET_DEADLINE.get()) == (None, None, None)
        assert CONTINUING.get() is False


Make = Callable[[], Case]
NONE = dict[str, Make]()
CASES: dict[str, Make] = {}


def case(make: Make) -> Make:
    CASES[make.__name__] = make
    return make


def of(make: Callable[[], AbstractContextManager[Any]], left: Callable[[], object] = nothing) -> Make:
    return lambda: Case(lambda: with_block(make), left)


ONLY_RETRIES: tuple[What, ...] = ("retry",)
MANAGERS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "deadline": lambda: deadline(60),
    "bind": lambda: bind(run="r-1"),
    "observe": lambda: observe(ignore),
    "observe failures": lambda: observe(ignore, only=ONLY_RETRIES),
    "instrument memory": memory.instrument,
    "instrument logging": logging.instrument,
    "virtual time": virtual_time,
    "no retries": no_retries,
    "attempts": lambda: attempts(2),
    "recorded": recorded,
    "socket deadline": lambda: LimitedWaits(lambda: 0.0, 1.0),
    "continuing call": ContinuingCall,
}
CASES.update({name: of(make) for name, make in MANAGERS.items()})


@case
def a_deadline_left_by_an_error() -> Case:
    return Case(lambda: with_error(deadline(60)), nothing)


@case
def a_deadline_on_an_exit_stack() -> Case:
    return Case(lambda: with_stack(deadline(60)), nothing)


@case
def one_deadline_twice() -> Case:
    limit = deadline(60)

    def use() -> None:
        with limit, limit:
            pass

    return Case(use, nothing)


@case
def a_reservation() -> Case:
    spend = Spend(tokens=1000, warn_at=None)
    return Case(
        lambda: with_block(lambda: spend.reserve(tokens=1)), lambda: spend.snapshot()["tokens_reserved"]
    )


@case
def an_attempt() -> Case:
    policy = Retry()

    def use() -> None:
        for attempt in policy:
            with attempt:
                pass

    return Case(use, nothing)


@case
def entering_with_retries() -> Case:
    lock = threading.Lock()
    return Case(lambda: with_block(lambda: Retry().enter(lambda: lock)), lock.locked)


@case
def entering_a_class_with_retries() -> Case:
    class Resource:
        open = 0

        def __enter__(self) -> None:
            self.open += 1

        def __exit__(self, *_: object) -> None:
            self.open -= 1

    resource = Resource()
    return Case(lambda: with_block(lambda: Retry().enter(lambda: resource)), lambda: resource.open)


@case
def a_stream() -> Case:
    items = Items()

    def use() -> None:
        with Retry().stream(items) as stream:
            next(stream)

    def left() -> int:
        gc.collect()  # a source that was being opened is closed with its last reference
        return items.open

    return Case(use, left)


GATES: dict[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {
    "bulkhead": (lambda: Bulkhead(1000), lambda gate: gate.snapshot()["in_use"]),
    "own bulkhead": (lambda: OwnBulkhead(1000), lambda gate: gate.snapshot()["in_use"]),
    "adaptive concurrency": (lambda: AdaptiveConcurrency(1000), lambda gate: gate.snapshot()["in_use"]),
    "breaker": (lambda: CircuitBreaker(failures=10**6), lambda gate: gate.state != "closed"),
    "slow breaker": (
        lambda: CircuitBreaker(failures=10**6, slow=60),
        lambda gate: gate._circuit.epoch.calls,
    ),
    "breaker by result": (
        lambda: CircuitBreaker(failures=10**6, until=bool),
        lambda gate: gate.state != "closed",
    ),
    "breaker with a share of slow calls": (
        lambda: CircuitBreaker(failures=10**6, slow=60, slow_ratio=1),
        lambda gate: gate._circuit.epoch.calls,
    ),
    "rate limit": (lambda: RateLimit(1e9), lambda gate: gate.snapshot()["queued"]),
    "adaptive rate": (AdaptiveRate, lambda gate: gate.snapshot()["queued"]),
    "throttle": (lambda: Throttle(minimum=10**9), lambda gate: None),
    "own gate": (Opened, lambda gate: gate.open),
}


def gate_case(name: str, use: Callable[[Any], object]) -> Make:
    def make() -> Case:
        create, left = GATES[name]
        gate = create()
        return Case(lambda: use(gate), lambda: left(gate))

    return make


def decorated(gate: Gate) -> None:
    gate.call(str)


def streamed(gate: Gate) -> None:
    def items() -> Generator[int]:
        yield 1

    list(gate(items)())


for one in GATES:
    CASES.update(
        {
            f"{one}, with": gate_case(one, lambda gate: with_block(lambda: gate)),
            f"{one}, with error": gate_case(one, with_error),
            f"{one}, async with": gate_case(one, lambda gate: run(awith_block(gate))),
            f"{one}, called": gate_case(one, decorated),
            f"{one}, streamed": gate_case(one, streamed),
        }
    )
for one in ("slow breaker", "breaker with a share of slow calls"):
    del CASES[f"{one}, called"]  # one that is interrupted at its end counts as slow after a while


@pytest.fixture(autouse=True)
def clean() -> Generator[None]:
    """Remove what a case that failed has left, or all later cases would fail."""
    yield
    watch.replace(())
    for left in (ambient.active, ambient.others):
        left.clear()
    ACTIVE_DEADLINE.set(None)
    ATTEMPT_OVERRIDE.set(None)
    VIRTUAL.set(None)
    SOCKET_DEADLINE.set(None)
    CONTINUING.set(False)
    BOUND.set({})


@UNRAISABLE
@pytest.mark.parametrize("name", CASES)
def test_ctrl_c_at_any_point_leaves_nothing_in_force(name: str) -> None:
    one = CASES[name]()
    one.use()
    one.check()
    number, more = 0, True
    while more:
        number += 1
        more = SignalHandler(FILES, ctrl_c, number).interrupt(one.use, KeyboardInterrupt)
        one.check()
    assert number > 2


COLLECTED = ("a_reservation", "a_stream")  # what is being opened is released with its last reference
STANDARD = ("a_deadline_on_an_exit_stack",)  # an `ExitStack` itself may lose what it has entered


class SoftTimeLimit(Exception):
    """The error of a signal handler."""


def main() -> None:
    """Use every case while real signals raise errors; print the cases of which something is left.

    In a process of its own: such a signal may hit the standard library, and leave one of its locks taken.
    """
    armed = [False]

    def handle(*_: object) -> None:
        if armed[0]:
            raise SoftTimeLimit

    signal.signal(signal.SIGALRM, handle)
    for name in [name for name in CASES if name not in STANDARD]:
        one, chance, kept = CASES[name](), random.Random(name), list[Exception]()
        for _ in range(SIGNALS):
            try:
                armed[0] = True
                signal.setitimer(signal.ITIMER_REAL, chance.uniform(2e-5, 3e-4), 0.5)  # again if swallowed
                while True:
                    one.use()
            except SoftTimeLimit as error:
                armed[0] = False
                if name not in COLLECTED:
                    kept.append(error)  # with its traceback, and so all the frames
            try:
                one.check()
            except AssertionError as error:
                print(name, error)
                sys.exit(1)
    signal.setitimer(signal.ITIMER_REAL, 0)  # at the end of the interpreter a signal would kill the process


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there are no timers that send signals")
def test_real_signals_leave_nothing_in_force() -> None:
    command = [sys.executable, "-W", "ignore", "-m", "tests.internal.test_context_managers_interrupted"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)  # noqa: S603
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr[-2000:]


if __name__ == "__main__":
    main()
