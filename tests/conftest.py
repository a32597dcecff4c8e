"""Hooks and fixtures for all tests, such as `drive`: a row of a table in every colour and shape of a call."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from threading import Event, Thread
from threading import enumerate as enumerate_threads
from typing import Any

import pytest
from coverage import Coverage
from hypothesis import HealthCheck, settings

from redouble._drivers.workers import threads
from tests.support.drivers.flaky_function import flaky
from tests.support.drivers.scripted_calls import Drive
from tests.support.fakes import COLOURS, Boom

# No time limit for examples: the machine may be busy, and the first text is drawn from tables that Hypothesis
# has to build.
settings.register_profile("redouble", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("redouble")

PHASES = {"quiet", "one_python", "stress"}  # markers that noxfile.py selects alone
MOST_LOOKS = 10_000
TESTS_RUN = count(1)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes() -> None:
    """Stop measuring the controller of pytest-xdist, which runs no tests; its workers measure themselves."""
    if (measured := Coverage.current()) is not None:
        measured.stop()


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """Print no dot for a test that passed unless somebody watches: in a log they bury what failed."""
    return ("passed", "", "") if report.passed and report.when == "call" and not sys.stdout.isatty() else None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip the modules in which ``-m quiet`` selects nothing: importing them takes longer than its tests."""
    wanted = str(config.option.markexpr).split(" or ")
    if collection_path.suffix != ".py" or not PHASES.issuperset(wanted):
        return None
    text = collection_path.read_text("utf-8")
    return None if any(f"pytest.mark.{marker}" in text for marker in wanted) else True


def pytest_collection_finish() -> None:
    """Prepare the process that runs the tests: a worker of pytest-xdist, or the only process."""
    # The processes that tests start are not measured: some check which modules an import loads.
    os.environ.pop("COVERAGE_PROCESS_CONFIG", None)
    # Tests that call the garbage collector need not scan all collected tests.
    gc.collect()
    gc.freeze()


def pytest_runtest_logfinish() -> None:
    """Exclude the objects of pytest's reports from garbage collection too."""
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
