"""One circuit breaker used by threads, event loops and signal handlers at once.

Threads switch every microsecond here. A burst of failures opens it once, and its events form one chain.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest

import redouble
from redouble import CircuitBreaker, errors
from redouble.testing import recorded
from redouble.types import Event
from tests.support.fakes import Boom, Virtual
from tests.support.layers.breaker_scripts import BreakerScript, after_script, at_every_line
from tests.support.thread_switching import run_in_threads, switching

pytestmark = [pytest.mark.one_python, pytest.mark.usefixtures(switching.__name__)]

THREADS = 8
CALLS = 150
STATES = {"circuit_opened", "circuit_half_open", "circuit_closed", "circuit_isolated"}


def states(events: list[Event]) -> list[str]:
    return [event.what for event in events if event.what in STATES]


def fail() -> None:
    raise Boom


async def afail() -> None:
    await redouble.SYSTEM.asleep(0)
    raise Boom


def tried(breaker: CircuitBreaker, work: Callable[[], object]) -> None:
    with suppress(Boom, errors.CircuitOpen):
        breaker.call(work)


def blocking(breaker: CircuitBreaker) -> Callable[[str], None]:
    return calling(breaker, fail)


def calling(breaker: CircuitBreaker, *works: Callable[[], object]) -> Callable[[str], None]:
    def work(owner: str) -> None:
        for number in range(CALLS):
            tried(breaker, works[number % len(works)])

    return work


def looping(breaker: CircuitBreaker) -> Callable[[str], None]:
    async def atried() -> None:
        with suppress(Boom, errors.CircuitOpen):
            await breaker.call(afail)

    async def main() -> None:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(CALLS):
                tasks.create_task(atried())

    return lambda _: asyncio.run(main())


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"ratio": 0.5},
        {"slow": 1e6},
        {"ratio": 0.1, "slow": 1e6},
        {"ratio": 0.5, "calls": 100, "slow": 1e6, "slow_ratio": 0.5},
    ],
)
@pytest.mark.parametrize("works", [(blocking,), (looping,), (blocking, looping)])
def test_many_failures_at_once_open_it_once(options: dict[str, Any], works: tuple[Any, ...]) -> None:
    received: list[Event] = []
    breaker = CircuitBreaker(**options, clock=Virtual(), on_change=received.append)
    run_in_threads(*(work(breaker) for work in works), threads=THREADS)
    assert states(received) == ["circuit_opened"]
    rejected = breaker.snapshot()["rejected"]  # 0 if all tasks were admitted before the first one failed
    assert [event.what for event in received].count("circuit_rejected") == bool(rejected)
    assert breaker.state == "open"


def test_no_rejection_is_miscounted() -> None:
    breaker = CircuitBreaker()
    breaker.isolate()
    run_in_threads(calling(breaker, int), threads=THREADS)
    assert breaker.snapshot()["rejected"] == THREADS * CALLS


@pytest.mark.parametrize("options", [{}, {"calls": 10**4}, {"slow": 1e6, "slow_ratio": 1}])
def test_no_call_of_a_ratio_is_miscounted(options: dict[str, Any]) -> None:
    breaker = CircuitBreaker(ratio=1, clock=Virtual(), **options)
    tried(breaker, int)
    run_in_threads(
        calling(breaker, int),
        blocking(breaker),
        threads=THREADS,
    )
    snapshot = breaker.snapshot()
    assert (snapshot["calls"], snapshot["failures"]) == (THREADS * CALLS + 1, THREADS * CALLS // 2)


@pytest.mark.parametrize("options", [{}, {"probe_ratio": 1}, {"probe_ratio": 0.5}])
def test_no_more_probes_are_admitted_than_allowed(options: dict[str, Any]) -> None:
    """In every round exactly ``probes`` calls are admitted, however many arrive."""
    probes, clock = 3, Virtual()
    breaker = CircuitBreaker(failures=1, probes=probes, cooldown=10, clock=clock, **options)
    tried(breaker, fail)
    rounds = threading.Barrier(THREADS)
    inside: list[int] = []
    lock = threading.Lock()

    def work(owner: str) -> None:
        for _ in range(20):
            if rounds.wait() == 0:
                clock.time += 10
                inside.clear()
            rounds.wait()
            try:
                ticket = breaker.admit(clock.now())
            except errors.CircuitOpen:
                ticket = None
            else:
                with lock:
                    inside.append(1)
            rounds.wait()
            assert len(inside) == probes
            if ticket is not None:
                breaker.ended(ticket, Boom(), clock.now())

    run_in_threads(work, threads=THREADS)
    assert breaker.state == "open"


def test_events_form_one_chain_of_states() -> None:
    """Some threads call, others isolate and close: no state follows itself, and none is left out."""
    received: list[Event] = []
    breaker = CircuitBreaker(failures=1, cooldown=0, on_change=received.append)

    def by_hand(owner: str) -> None:
        for _ in range(CALLS):
            breaker.isolate()
            breaker.close()

    with recorded() as observed:
        run_in_threads(by_hand, calling(breaker, int, fail), threads=THREADS)
    assert received == [event for event in observed if event.what != "rejected"]
    seen = states(received)
    allowed = {
        "circuit_closed": {"circuit_opened", "circuit_isolated"},
        "circuit_opened": {"circuit_half_open", "circuit_closed", "circuit_isolated"},
        "circuit_half_open": {"circuit_opened", "circuit_closed", "circuit_isolated"},
        "circuit_isolated": {"circuit_closed"},
    }
    assert all(after in allowed[before] for before, after in pairwise(["circuit_closed", *seen]))
    breaker.close()
    assert breaker.call(int) == 0


# --------------------------------------------------------------------- interrupted calls


@pytest.mark.parametrize(
    ("options", "before", "call"),
    [
        ({"failures": 1}, "good", "bad"),
        ({"failures": 2}, "bad", "good"),
        ({"failures": 1}, "bad", "good"),
        ({"failures": 1}, "bad +30", "good"),
        ({"failures": 1}, "bad +30", "bad"),
        ({"failures": 1, "slow": 5}, "a> b> +5", "good"),
        ({"failures": 1, "slow": 5}, "a> +5", "a=good"),
        ({"ratio": 0.5, "minimum": 2}, "bad", "bad"),
        ({"ratio": 0.5, "calls": 2}, "bad", "bad"),
        ({"failures": 9, "slow": 5, "slow_ratio": 1, "minimum": 2}, "a> b> +5", "good"),
        ({"failures": 1, "probes": 2, "probe_ratio": 1}, "bad +30 bad", "bad"),
        ({"failures": 1, "cooldown": (3, 9)}, "bad +3", "bad"),
        ({"failures": 1, "reopening": (0.5,)}, "bad +30 good good +30", "good"),
        ({"failures": 1}, "isolate", "close"),
        ({"failures": 1}, "bad", "close"),
    ],
)
def test_an_isolation_by_a_signal_handler_holds(options: dict[str, Any], before: str, call: str) -> None:
    """Wherever the interruption happens, the breaker is isolated, unless close() is called later."""
    for seen in at_every_line(
        after_script(before, **options), lambda made: made.run(call), lambda made: made.breaker.isolate()
    ):
        received = seen.emitted.split()
        assert all(one != other for one, other in pairwise(received))
        if call == "close" and seen.breaker.state == "closed":
            assert "isolated" not in received[received.index("closed") :] or received[-1] == "closed"
            seen.run("good:closed isolate")
        seen.run("good:no +1000000 good:no close:closed good:closed bad")


@pytest.mark.parametrize(
    ("options", "before", "call", "names"),
    [
        ({"failures": 1}, "bad +30 a> +30", "good", "a"),
        ({"failures": 1, "probes": 2}, "bad +30 a> b> +30", "good", "ab"),
        ({"failures": 1, "probes": 2}, "bad +30 a> b>", "a=good", "b"),
        ({"failures": 3, "slow": 5}, "a> b> c> +5", "good", "abc"),
        ({"failures": 3, "slow": 5}, "a> b> c> +5", "a=good", "bc"),
        ({"failures": 9, "slow": 5}, "a> b> c> +5", "good", "abc"),
        ({"ratio": 0.5, "minimum": 4, "slow": 5}, "a> b> c> +5", "good", "abc"),
        ({"ratio": 0.5, "calls": 4, "slow": 5, "slow_ratio": 0.5}, "a> b> c> +5", "good", "abc"),
        ({"failures": 1, "probes": 3, "probe_ratio": 0.6}, "bad +30 a> b>", "a=good", "b"),
        ({"failures": 1, "cooldown": (3, 9)}, "bad +30 a> +30", "good", "a"),
        ({"failures": 1, "reopening": (0.5,)}, "bad +30 good a> b> +30", "good", "ab"),
    ],
)
@pytest.mark.parametrize("end", ["good", "bad", "cancelled"])
def test_a_call_that_the_collector_ends_in_the_middle_of_another_breaks_nothing(
    options: dict[str, Any], before: str, call: str, names: str, end: str
) -> None:
    """Nothing breaks, no change is emitted twice, and the breaker closes again when other calls succeed."""

    def collect(made: BreakerScript) -> None:
        for name in names:
            made.run(f"{name}={end}")

    for seen in at_every_line(after_script(before, **options), lambda made: made.run(call), collect):
        received = [word for word in seen.emitted.split() if word != "rejected"]
        assert all(one != other for one, other in pairwise(received))
        for _ in range(6):
            seen.run("+30 good")
        seen.run("good:closed")
        assert not seen.breaker._circuit.epoch.calls
        assert not seen.breaker._circuit.epoch.probes


@pytest.mark.parametrize(
    ("options", "before"),
    [
        ({"failures": 9, "slow": 5}, "a> b>"),
        ({"failures": 9, "slow": 5}, "a> b> +5"),
        ({"failures": 1}, "a> b> bad +30"),
        ({"failures": 1, "reopening": (0.5,)}, "a> b> bad +30 good good +30"),
    ],
)
@pytest.mark.parametrize("end", ["good", "bad", "cancelled"])
def test_no_call_is_rejected_because_of_the_collector(options: dict[str, Any], before: str, end: str) -> None:
    """A probe slot that was acquired is not lost either."""
    for seen in at_every_line(
        after_script(before, **options),
        lambda made: made.run("good:closed"),
        lambda made: made.run(f"a={end} b={end}"),
    ):
        assert not seen.breaker._circuit.epoch.calls
        assert not seen.breaker._circuit.epoch.probes
        assert seen.breaker.snapshot()["rejected"] == 0


@pytest.mark.parametrize("before", ["bad", "isolate"])
def test_the_first_rejection_is_published_once(before: str) -> None:
    """A signal handler or another thread may be rejected in the middle of it, and is not the first."""
    for seen in at_every_line(
        after_script(before, failures=1), lambda made: made.run("good:no"), lambda made: made.run("good:no")
    ):
        assert seen.emitted.count("rejected") == 1


@pytest.mark.parametrize(
    ("options", "before", "call", "passes"),
    [
        ({"failures": 2}, "bad", "good", True),
        ({"failures": 2, "slow": 5}, "bad", "good", True),
        ({"failures": 1}, "bad", "good", False),
        ({"failures": 1}, "isolate", "good", False),
        ({"failures": 1}, "bad +30 a>", "good", False),
    ],
)
def test_a_call_of_a_signal_handler_is_admitted_or_rejected_as_usual(
    options: dict[str, Any], before: str, call: str, passes: bool
) -> None:
    """The handler interrupts another call at every line."""
    found = "good:closed" if passes else "good:no"
    for seen in at_every_line(
        after_script(before, **options), lambda made: made.run(call), lambda made: made.run(found)
    ):
        seen.run("close good:closed")
