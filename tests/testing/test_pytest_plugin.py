"""The pytest plugin: loaded by its entry point, for tests of every colour; it leaves nothing behind.

The tests run in another process, as those of a user who has installed the library.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from redouble import Retry
from redouble.testing import Script, VirtualClock, _virtual_loop, assert_retried, ok
from redouble.types import Event

# Without other plugins: starting some of them takes longer than all of these tests.
OTHERS = ("cacheprovider", "hypothesispytest", "xdist", "xdist.looponfail", "rerunfailures")
PYTEST = [sys.executable, "-m", "pytest", *(f"-pno:{plugin}" for plugin in OTHERS)]

HEAD = """
import pytest
from redouble import Retry, SYSTEM
from redouble._runtime.ambient import ambient
from redouble._runtime.clock import LOOPS, VIRTUAL
from redouble.testing import Script, assert_retried, ok

HOUR = 3600.0
POLICY = Retry(backoff=[HOUR, HOUR], give_up_after=None, name="fetch")
"""

# A hook that runs coroutine functions: each on its own loop, on a loop that existed before the test, and
# under Trio.
RUNNER = """
import asyncio
import inspect
import pytest
import trio
from functools import partial
from trio.testing import MockClock

RUNNER = asyncio.Runner()
RUNNER.get_loop()

@pytest.fixture(params=["own", "shared", "trio"])
def library(request):
    return request.param

@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    args = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    match args["library"]:
        case "own":
            asyncio.run(pyfuncitem.obj(**args))
        case "shared":
            RUNNER.run(pyfuncitem.obj(**args))
        case "trio":
            trio.run(partial(pyfuncitem.obj, **args), clock=MockClock())
    return True

def pytest_sessionfinish():
    RUNNER.close()
"""


def run(where: Path, *options: str, test: str = "", conftest: str = "") -> tuple[dict[str, int], str]:
    """Run pytest on a file; return the number of tests by outcome, and the output."""
    (where / "test_it.py").write_text(HEAD + dedent(test), "utf-8")
    (where / "conftest.py").write_text(conftest, "utf-8")
    command = [*PYTEST, "-W", "error", *options, "test_it.py"]
    done = subprocess.run(command, cwd=where, capture_output=True, text=True, check=False)  # noqa: S603
    ends = re.findall(r"(\d+) (passed|failed|error)", done.stdout)
    return {word: int(count) for count, word in ends}, done.stdout + done.stderr


def test_the_fixtures_are_available(redouble_time: VirtualClock, redouble_events: list[Event]) -> None:
    """In this test too, because the library is installed."""
    policy = Retry(backoff=[3600], give_up_after=None, name="fetch")
    assert policy.call(Script("fail", ok("done"))) == "done"
    assert (redouble_time.delays, redouble_time.now()) == ([3600], 3600)
    assert_retried(redouble_events, times=1, delays=[3600], name="fetch")


@pytest.mark.one_python
def test_the_fixtures_work_in_plain_tests(tmp_path: Path) -> None:
    ended, printed = run(
        tmp_path,
        test="""
        @pytest.mark.parametrize("times", [1, 2])
        def test_time(redouble_time, times):
            assert (redouble_time.delays, redouble_time.now()) == ([], 0)  # new for every test
            assert POLICY.call(Script(*["fail"] * times, ok(3))) == 3
            assert (redouble_time.delays, redouble_time.now()) == ([HOUR] * times, HOUR * times)
            redouble_time.advance(60)

        @pytest.mark.parametrize("times", [1, 2])
        def test_events(redouble_events, redouble_time, times):
            assert redouble_events == []
            POLICY.call(Script(*["fail"] * times, ok(3)))
            assert_retried(redouble_events, times=times, kind="network", name="fetch")

        @pytest.fixture
        def prepared(redouble_time):
            POLICY.call(Script("fail", ok(3)))
            return redouble_time

        def test_another_fixture(prepared, redouble_time):
            assert prepared is redouble_time
            assert redouble_time.delays == [HOUR]

        @pytest.mark.usefixtures("redouble_time")
        class TestMarked:
            def test_method(self):
                assert POLICY.call(Script("fail", ok(3))) == 3
                assert SYSTEM.now() == HOUR
        """,
    )
    assert ended == {"passed": 6}, printed


@pytest.mark.one_python
def test_the_fixtures_work_in_async_tests(tmp_path: Path) -> None:
    ended, printed = run(
        tmp_path,
        conftest=RUNNER,
        test="""
        @pytest.mark.parametrize("again", [1, 2])
        async def test_time(library, redouble_time, redouble_events, again):
            assert await POLICY.call(Script("fail", ok(3)).aio) == 3
            assert (redouble_time.delays, redouble_time.now(), SYSTEM.anow()) == ([HOUR], HOUR, HOUR)
            assert_retried(redouble_events, times=1)

        async def test_without(library):
            assert not ambient.active
        """,
    )
    assert ended == {"passed": 9}, printed


@pytest.mark.one_python
@pytest.mark.parametrize("how", ["assert False", "raise KeyboardInterrupt", "pytest.skip('now')", "pass"])
def test_the_fixtures_leave_nothing_behind(tmp_path: Path, how: str) -> None:
    """However a test ends. The last hook prints what is left."""
    ended, printed = run(
        tmp_path,
        conftest="""
import pytest

@pytest.hookimpl(trylast=True)
def pytest_unconfigure():
    import asyncio
    from redouble._telemetry.observers import watch
    from redouble._runtime.ambient import ambient
    from redouble._runtime.clock import LOOPS, VIRTUAL
    left = (ambient.active, VIRTUAL.get(), LOOPS, watch.entries)
    replaced = asyncio.BaseEventLoop.run_forever.__module__
    print("left:", left, replaced)
""",
        test=f"""
        def test_it(redouble_time, redouble_events):
            assert ambient.active
            POLICY.call(Script("fail", ok(3)))
            {how}

        def test_next():
            assert not ambient.active
        """,
    )
    assert "left: ({}, None, {}, ()) asyncio.base_events" in printed
    passed = {"assert False": 1, "raise KeyboardInterrupt": 0, "pytest.skip('now')": 1, "pass": 2}
    assert ended.get("passed", 0) == passed[how], printed


@pytest.mark.one_python
def test_the_fixtures_are_described(tmp_path: Path) -> None:
    _, printed = run(tmp_path, "--fixtures", test="def test_it(): pass")
    for name, words in {
        "redouble_time": "Virtual time for the whole test: a clock with ``delays``, ``now()`` and",
        "redouble_events": "Every event of every policy during the test, in a list; for",
    }.items():
        assert re.search(rf"^{name} -- .*pytest_plugin.py:\d+\n +{re.escape(words)}", printed, re.MULTILINE)
    assert "fixtures defined from redouble.pytest_plugin" in printed


@pytest.mark.one_python
def test_the_plugin_is_loaded_by_its_entry_point_and_can_be_disabled(tmp_path: Path) -> None:
    ended, printed = run(
        tmp_path, "-p", "no:redouble", test="def test_it(redouble_time): pass\ndef test_other(): pass"
    )
    assert ended == {"passed": 1, "error": 1}
    assert "fixture 'redouble_time' not found" in printed


@pytest.mark.one_python
def test_nothing_is_imported_without_a_fixture(tmp_path: Path) -> None:
    """Every run of pytest in the environment loads the plugin, also for code without retries."""
    script = (
        "import sys, pytest\n"
        "before = set(sys.modules)\n"
        "import redouble.pytest_plugin\n"
        f"costly = {{'asyncio', 'trio', 'redouble.testing', {_virtual_loop.__name__!r}}}\n"
        "print(*sorted(costly & set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)  # noqa: S603
    assert done.stdout.split() == []
    (tmp_path / "test_it.py").write_text(
        "import sys\n"
        "def test_before(): assert 'redouble.testing' not in sys.modules\n"
        "def test_asked(redouble_events): assert 'redouble.testing' in sys.modules\n",
        "utf-8",
    )
    command = [*PYTEST, "-q", "test_it.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)  # noqa: S603
    assert "2 passed" in done.stdout
