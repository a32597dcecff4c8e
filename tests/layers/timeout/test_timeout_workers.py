"""`Timeout` around blocking code, which runs on workers; under deadlines; and around methods."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import replace
from typing import Any

import pytest

import redouble
from redouble import SYSTEM, Timeout, Worker, cancelled, deadline, errors, policy_of, remaining
from redouble.testing import Script, VirtualClock, ok, virtual_time
from tests.support.drivers.stuck_operations import IN_A_WHILE, SOON, stuck
from tests.support.fakes import Boom, Panic, in_colour
from tests.support.virtual_time import HOUR, LOOP_PLACES, in_virtual_time, no_real_waits

pytestmark = pytest.mark.usefixtures(no_real_waits.__name__)

THREAD = Worker(grace=0)


def test_blocking_code_runs_on_a_thread() -> None:
    limit = Timeout(HOUR, worker=Worker())
    assert limit.call(threading.get_ident) != threading.get_ident()
    assert limit.call(int, "7", base=8) == 7
    for error in (Boom("mine"), TimeoutError("its own"), Panic()):
        with pytest.raises(type(error)) as caught:
            limit.call(Script(error))
        assert caught.value is error


def test_blocking_code_that_stops_when_cancelled_raises_attempt_timeout() -> None:
    out_of_time: list[bool] = []

    def operation() -> str:
        pause = threading.Event()
        while not cancelled():
            pause.wait(SOON / 10)
        out_of_time.append(remaining() == 0)
        return "late"

    with pytest.raises(errors.AttemptTimeout, match=r"operation took longer than 0.01 s$") as caught:
        Timeout(SOON, worker=Worker(grace=HOUR)).call(operation)
    assert (caught.value.limit, caught.value.seconds) == ("attempt", SOON)
    assert out_of_time == [True]


def test_blocking_code_that_does_not_stop_raises_worker_still_running() -> None:
    message = r"StuckOperation took longer than 0.01 s, and its worker is still running$"
    with stuck() as operation, pytest.raises(errors.WorkerStillRunning, match=message) as caught:
        Timeout(SOON, worker=THREAD).call(operation)
    assert isinstance(caught.value.__cause__, errors.AttemptTimeout)
    assert isinstance(caught.value, TimeoutError)


def test_with_overlap_a_worker_that_is_still_running_raises_attempt_timeout() -> None:
    with stuck() as operation, pytest.raises(errors.AttemptTimeout):
        Timeout(SOON, worker=replace(THREAD, overlap=True)).call(operation)


def test_an_attempt_timeout_raised_by_the_function_propagates() -> None:
    theirs = errors.AttemptTimeout("theirs")
    with pytest.raises(errors.AttemptTimeout) as caught:
        Timeout(HOUR, worker=Worker()).call(Script(theirs))
    assert caught.value is theirs


def test_a_limit_on_a_worker_in_virtual_time() -> None:
    with virtual_time() as clock:
        with pytest.raises(errors.AttemptTimeout):
            Timeout(5, worker=Worker()).call(SYSTEM.sleep, 8)
        assert clock.now() >= 5


def test_a_process_is_killed() -> None:
    limit = Timeout(0.05, worker=Worker(kind="process"))
    with pytest.raises(errors.AttemptTimeout, match=r"sleep took longer than 0\.05 s$"):
        limit.call(time.sleep, 1e6)
    assert Timeout(60, worker=Worker(kind="process")).call(divmod, 7, 2) == (3, 1)


# ------------------------------------------------------------------------ under a deadline


@pytest.mark.parametrize(("seconds", "limit"), [(1, "deadline"), (2, "attempt"), (3, "attempt")])
@pytest.mark.parametrize("place", LOOP_PLACES)
def test_the_shorter_of_limit_and_deadline_applies(place: str, seconds: float, limit: str) -> None:
    async def waiting(clock: VirtualClock) -> None:
        with deadline(seconds), pytest.raises(errors.AttemptTimeout) as caught:
            await Timeout(2).call(Script(ok(takes=HOUR)).aio)
        assert (caught.value.limit, caught.value.seconds) == (limit, min(seconds, 2))
        assert clock.now() == min(seconds, 2)

    in_virtual_time(place, waiting)


def test_nothing_is_called_after_a_deadline(colour: str) -> None:
    script = Script()

    def blocking() -> None:
        with deadline(0):
            Timeout(2, worker=Worker()).call(script)

    async def waiting() -> None:
        with deadline(0):
            await Timeout(2).call(script.aio)

    with pytest.raises(errors.AttemptTimeout, match="deadline") as caught:
        in_colour(colour, blocking, waiting)
    assert (caught.value.limit, caught.value.seconds, script.calls) == ("deadline", 0, [])


def test_a_worker_under_a_deadline() -> None:
    with stuck() as operation, deadline(IN_A_WHILE), pytest.raises(errors.WorkerStillRunning) as caught:
        Timeout(HOUR, worker=THREAD).call(operation)
    cause = caught.value.__cause__
    assert isinstance(cause, errors.AttemptTimeout)
    assert cause.limit == "deadline"
    with virtual_time(), deadline(5):
        assert Timeout(60, worker=Worker()).call(remaining) == 5
        assert Timeout(3, worker=Worker()).call(remaining) == 3


# -------------------------------------------------------------------- decorated functions


class Client:
    limit = Timeout(2, worker=Worker())

    @limit
    def get(self, url: str) -> str:
        """Get it."""
        return url

    @limit
    async def aget(self, url: str) -> str:
        await SYSTEM.asleep(len(url))
        return url

    @classmethod
    @limit
    def of_class(cls, url: str) -> str:
        return url


def test_methods() -> None:
    client = Client()
    assert client.get("a") == Client.of_class("a") == "a"
    assert client.get.__doc__ == "Get it."
    assert {policy_of(fn) for fn in (Client.get, client.get, client.aget, client.of_class)} == {Client.limit}

    async def main() -> None:
        with virtual_time():
            assert await client.aget("a") == "a"
            with pytest.raises(errors.AttemptTimeout, match=r"^Client\.aget took longer"):
                await client.aget("too long")

    asyncio.run(main())


def test_a_function_that_returns_a_coroutine_raises_type_error() -> None:
    async def fetch() -> None: ...

    def forgetful() -> Any:
        return fetch()

    with pytest.raises(TypeError, match="forgetful returned something to await"):
        Timeout(2, worker=Worker()).call(forgetful)


def test_no_report_is_left_on_its_errors() -> None:
    with stuck() as operation, pytest.raises(errors.WorkerStillRunning) as caught:
        Timeout(SOON, worker=THREAD).call(operation)
    assert redouble.report(caught.value) is None
