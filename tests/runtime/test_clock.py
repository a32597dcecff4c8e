"""Clocks: custom ones, the real one, and backends that are found without importing a library."""

from __future__ import annotations

import asyncio
import gc
import signal
import subprocess
import sys
import time
from typing import Any

import pytest
import trio

from redouble import SYSTEM, Clock, Retry
from redouble._runtime import asyncio_backend as _asyncio
from redouble._runtime import trio_backend as _trio
from redouble._runtime.backend import backend, cancelling, in_event_loop
from redouble._runtime.clock import ForeignClock
from tests.support.fakes import ASYNC, Virtual, in_colour
from tests.support.runtime.mock_clock import Busy, flaky, mocked

# ----------------------------------------------------------------------- the real clock


def test_the_real_clock_is_the_monotonic_one() -> None:
    before = time.monotonic()
    assert before <= SYSTEM.now() <= SYSTEM.anow() <= time.monotonic()
    assert before <= Clock().now() <= Clock().anow() <= time.monotonic()
    assert isinstance(SYSTEM, Clock)
    assert repr(SYSTEM) == "SYSTEM"
    SYSTEM.sleep(0)
    Clock().sleep(0)


@pytest.mark.skipif(sys.platform == "win32", reason="needs an interval timer")
@pytest.mark.parametrize("seconds", [1e18, sys.float_info.max])
def test_a_sleep_may_be_of_any_length(seconds: float) -> None:
    """`time.sleep` would raise OverflowError; ours begins, and a signal ends it at once."""

    def interrupt(*_: object) -> None:
        raise InterruptedError

    old = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pytest.raises(InterruptedError):
            signal.setitimer(signal.ITIMER_REAL, 0.005)
            SYSTEM.sleep(seconds)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)


@pytest.mark.parametrize("colour", ASYNC)
def test_an_async_sleep_may_be_of_any_length(colour: str) -> None:
    async def main() -> bool:
        if colour == "trio":
            with trio.move_on_after(0) as scope:
                await SYSTEM.asleep(sys.float_info.max)
            return scope.cancelled_caught
        task = asyncio.ensure_future(SYSTEM.asleep(sys.float_info.max))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    assert in_colour(colour, lambda: None, main)


# ------------------------------------------------------------------------------ backends


@pytest.mark.parametrize("colour", ASYNC)
def test_the_backend_is_that_of_the_running_loop(colour: str) -> None:
    async def main() -> None:
        assert backend() is (_trio if colour == "trio" else _asyncio)
        before = trio.current_time() if colour == "trio" else time.monotonic()
        assert 0 <= SYSTEM.anow() - before < 60
        assert 0 <= backend().now() - before < 60
        assert in_event_loop()
        assert not cancelling()

    in_colour(colour, lambda: None, main)
    assert not in_event_loop()
    assert not cancelling()


@pytest.mark.parametrize("colour", ["asyncio", "uvloop"] if "uvloop" in ASYNC else ["asyncio"])
def test_cancelling_is_true_even_if_the_task_swallows_the_cancellation(colour: str) -> None:
    async def stubborn() -> tuple[bool, bool]:
        before = cancelling()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            return before, cancelling()
        return before, False

    async def main() -> tuple[bool, bool]:
        task = asyncio.ensure_future(stubborn())
        await asyncio.sleep(0)
        task.cancel()
        return await task

    assert in_colour(colour, lambda: None, main) == (False, True)


@pytest.mark.parametrize("colour", ASYNC)
def test_a_sleep_of_zero_lets_other_tasks_run(colour: str) -> None:
    order: list[str] = []

    async def other() -> None:
        order.append("other")

    async def main() -> None:
        if colour == "trio":
            async with trio.open_nursery() as nursery:
                nursery.start_soon(other)
                await SYSTEM.asleep(0)
                await SYSTEM.asleep(0)
                order.append("main")
        else:
            task = asyncio.ensure_future(other())
            await SYSTEM.asleep(0)
            order.append("main")
            await task

    in_colour(colour, lambda: None, main)
    assert order == ["other", "main"]


@pytest.mark.parametrize("missing", [["trio"], ["trio", "asyncio.events"]])
def test_a_library_that_was_not_imported_is_not_used(
    missing: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert backend() is _asyncio
    for module in missing:
        monkeypatch.delitem(sys.modules, module)
    before = time.monotonic()
    assert before <= SYSTEM.anow() <= time.monotonic()
    assert backend() is _asyncio
    assert not in_event_loop()


SCRIPTS = {
    "nothing": "policy.call(lambda: 1)",
    "asyncio": "import asyncio; asyncio.run(policy.call(fetch))",
    "trio": "import trio; trio.run(policy.call, fetch)",
}


@pytest.mark.parametrize("used", SCRIPTS)
def test_only_the_backend_of_the_running_loop_is_imported(used: str) -> None:
    script = (
        "import sys, redouble\n"
        "async def fetch(left=[1]):\n"
        "    if left.pop() is None: return\n"
        "    left.append(None)\n"
        "    raise ConnectionError\n"
        "policy = redouble.Retry(backoff=[0, 0])\n"
        f"{SCRIPTS[used]}\n"
        f"print(*{{'asyncio', 'trio', {_asyncio.__name__!r}, {_trio.__name__!r}}} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)  # noqa: S603
    loaded = set(done.stdout.split())
    if used != "trio":
        assert loaded == ({"asyncio", _asyncio.__name__} if used == "asyncio" else set())
    else:
        assert loaded >= {"trio", _trio.__name__}
        assert _asyncio.__name__ not in loaded


@pytest.mark.parametrize("shape", ["call", "run", "loop"])
def test_calls_work_if_trio_cannot_be_imported(shape: str) -> None:
    """``sys.modules["trio"] = None`` makes Python treat Trio as not installed."""
    script = (
        "import sys\n"
        "sys.modules['trio'] = None\n"
        "import asyncio, redouble\n"
        "async def fetch(left=[1]):\n"
        "    if left.pop() is None: return 'done'\n"
        "    left.append(None)\n"
        "    raise ConnectionError\n"
        "policy = redouble.Retry(backoff=[0, 0])\n"
        "async def call(): return await policy.call(fetch)\n"
        "async def run(): return (await policy.run(fetch)).unwrap()\n"
        "async def loop():\n"
        "    async for attempt in policy:\n"
        "        with attempt: return await fetch()\n"
        f"print(asyncio.run({shape}()))\n"
        "for attempt in policy:\n"
        "    with attempt: print(attempt.number)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)  # noqa: S603
    assert (done.stdout.split(), done.stderr) == (["done", "1"], "")


# ----------------------------------------------------------------------- custom clocks


class Duck:
    """A clock with the required methods only."""

    def __init__(self) -> None:
        self.virtual = Virtual(50.0)

    def now(self) -> float:
        return self.virtual.now()

    def sleep(self, seconds: float) -> None:
        self.virtual.sleep(seconds)


class AsyncDuck(Duck):
    async def asleep(self, seconds: float) -> None:
        await trio.lowlevel.checkpoint()
        self.virtual.sleep(seconds)


def policy_with(clock: Any) -> Retry:
    return Retry(on=Busy, backoff=[7, 7], clock=clock)


def test_a_clock_needs_only_now_and_sleep() -> None:
    duck = Duck()
    left = [1, 2]

    def fetch() -> str:
        if left.pop():
            raise Busy
        return "never"

    with pytest.raises(IndexError):
        policy_with(duck).call(fetch)
    assert duck.virtual.waits == [7, 7]
    assert vars(policy_with(duck))["clock"] is duck
    assert isinstance(policy_with(duck)._time, ForeignClock)


def test_a_clock_without_asleep_uses_the_real_clock_in_async_code() -> None:
    async def main(duck: Duck) -> tuple[str, float]:
        started = trio.current_time()
        return await policy_with(duck).call(flaky(2)), trio.current_time() - started

    plain, own = Duck(), AsyncDuck()
    assert mocked(lambda: main(plain)) == ("done", 14)
    assert plain.virtual.waits == []
    assert mocked(lambda: main(own)) == ("done", 0)
    assert own.virtual.waits == [7, 7]


@pytest.mark.parametrize("ending", ["cancelled", "done"])
def test_a_delay_under_asyncio_leaves_no_timer_and_no_cycle(ending: str) -> None:
    """A cancelled call that would have slept for hours must not stay in the loop's heap for hours."""

    async def main() -> None:
        delay = _asyncio.Delay(1e6 if ending == "cancelled" else 1e-9)
        handle = delay._handle
        if ending == "cancelled":
            delay.cancel("enough")
            with pytest.raises(asyncio.CancelledError, match="enough"):
                await delay
        else:
            await delay
        assert handle.cancelled()
        assert not any(isinstance(held, asyncio.Future) for held in gc.get_referents(handle))

    asyncio.run(main())
