"""The `drive` fixture: one row of a table, in every colour and in every shape a call can have."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from threading import Event, Thread
from threading import enumerate as enumerate_threads
from typing import Any

import pytest
from coverage import Coverage
from hypothesis import HealthCheck, settings

from redouble import Hints, Retry, report, types
from redouble._drivers.workers import threads
from tests.support.call_shapes import ASYNC_SHAPES, SHAPES, AsyncShape, Shape
from tests.support.fakes import COLOURS, Boom, Call, Ledger, Operation, Script, Virtual, in_colour, steps
from tests.support.flaky_function import flaky

# No time limit for examples: the machine may be busy, and the first text is drawn from tables that Hypothesis
# has to build.
settings.register_profile("redouble", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("redouble")

MOST_LOOKS = 10_000
TESTS_RUN = count(1)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes() -> None:
    """Stop measuring the controller of pytest-xdist, which runs no tests; its workers measure themselves."""
    if (measured := Coverage.current()) is not None:
        measured.stop()


def pytest_collection_finish() -> None:
    """Prepare the process that runs the tests: a worker of pytest-xdist, or the only process."""
    # The processes that tests start are not measured: some check which modules an import loads.
    os.environ.pop("COVERAGE_PROCESS_CONFIG", None)
    # Tests that call the garbage collector need not scan all collected tests.
    gc.collect()
    gc.freeze()


def pytest_runtest_logfinish() -> None:
    """Exclude pytest's reports too."""
    if next(TESTS_RUN) % 100 == 0:
        gc.collect()
        gc.freeze()


@pytest.fixture(autouse=True)
def no_busy_worker() -> Iterator[None]:
    """Wait until every worker thread of a test is idle before the next test begins."""
    yield
    parked: list[Any] = threads._idle
    never, busy = Event(), list[Thread]()
    for _ in range(MOST_LOOKS):
        busy = [t for t in enumerate_threads() if t.name == "redouble worker" and t not in parked]
        if not busy:
            return
        never.wait(0.001)
    pytest.fail(f"busy workers: {busy}")


@pytest.fixture(scope="session")
def remote() -> Iterator[Any]:
    """Run the server that all tests of gRPC share. A conftest in their folder would hide this one."""
    from tests.support.grpc.server import serving

    with serving() as server:
        yield server


HOOKS = ("before_attempt", "on_success", "on_failure", "on_retry", "on_give_up")


@dataclass
class Drive:
    """Makes a scripted call in every shape, checks that all shapes agree, and returns the result."""

    colour: str

    def __call__(self, script: Script, *, silent: bool = True, **options: Any) -> Call:
        """Run ``script``; options are those of `Retry`, where ``budget`` and ``clock`` make one each.

        Each shape is run with observers, and, if they change nothing (``silent``), without.
        """
        every: dict[str, Call] = {}
        hearing = (False, True) if silent else (True,)

        def blocking() -> None:
            for shape, make in SHAPES.items():
                for heard in hearing:
                    one = _ScriptedCall(script, options, heard)
                    if shape != "loop" or one.policy.until is None:
                        every[f"{shape}, heard={heard}"] = one.seen(make)

        async def waiting() -> None:
            for shape, make in ASYNC_SHAPES.items():
                for heard in hearing:
                    one = _ScriptedCall(script, options, heard)
                    if shape != "loop" or one.policy.until is None:
                        every[f"{shape}, heard={heard}"] = await one.aseen(make)

        in_colour(self.colour, blocking, waiting)
        first = every["call, heard=True"]
        for shape, call in every.items():
            seen, expected = vars(call), vars(first)
            if not shape.endswith("heard=True"):
                expected = {**expected, "told": seen["told"]}  # no observers
            assert seen == expected, shape  # strict: a row may omit fields, a shape may not
        return first


class _ScriptedCall:
    """One scripted call."""

    def __init__(self, script: Script, options: dict[str, Any], heard: bool) -> None:
        said: dict[str, Any] = {"on": Exception, "backoff": [0] * 99, "hints": Hints(spread=0)} | options
        self.clock: Virtual = said.pop("clock", Virtual)()
        self.budget: Ledger | None = said.pop("budget", lambda: None)()
        self.operation = Operation(steps(script), self.clock)
        self.told: list[str] = []
        self.heard = heard
        for hook in HOOKS if heard else ():
            said[hook] = self._recorder(said.get(hook))
        self.policy = Retry(**said, clock=self.clock, budget=self.budget)

    def _recorder(
        self, extra: Callable[[types.Event, Virtual], None] | None
    ) -> Callable[[types.Event], None]:
        def observer(event: types.Event) -> None:
            self.told.append(f"{event.what}:{event.attempt}")
            if extra is not None:
                extra(event, self.clock)

        return observer

    def seen(self, shape: Shape) -> Call:
        try:
            return self._call(value=shape(self.policy, self.operation))
        except BaseException as error:
            return self._call(error=error)

    async def aseen(self, shape: AsyncShape) -> Call:
        try:
            return self._call(value=await shape(self.policy, self._coloured))
        except BaseException as error:
            return self._call(error=error)

    async def _coloured(self) -> object:
        return self.operation()

    def _call(self, value: object = None, error: BaseException | None = None) -> Call:
        said = None if error is None else report(error)
        assert self.budget is None or self.budget.times == sorted(self.budget.times)
        return Call(
            value=value,
            raises=None if error is None else type(error),
            reason=None if said is None else said.reason,
            attempts=self.operation.calls,
            sleeps=[wait for wait in self.clock.waits if wait],
            limit=None if said is None else said.limit,
            ledger=None if self.budget is None else ", ".join(self.budget.lines),
            told=" ".join(self.told) if self.heard else None,
        )


@pytest.fixture(params=COLOURS)
def colour(request: pytest.FixtureRequest) -> str:
    """Parametrize by the colours of a call."""
    return str(request.param)


@pytest.fixture
def drive(colour: str) -> Drive:
    """Run a row of a table in this colour."""
    return Drive(colour)


@pytest.fixture
def two_failures() -> None:
    """Make the flaky function fail twice."""
    flaky[:] = [Boom("1"), Boom("2")]
