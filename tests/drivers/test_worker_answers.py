"""Whatever happens on a worker, the caller gets an answer: exceptions and clocks that cannot be looked at."""

from __future__ import annotations

import threading
from time import monotonic
from typing import Any

import pytest

from redouble import Clock, Retry, Timeout, Worker, errors
from redouble._drivers.workers import threads
from redouble._drivers.workers.child import JobResult
from tests.support.bulkhead_callers import until
from tests.support.fakes import ASYNC, in_colour
from tests.support.interruption import SignalHandler, ctrl_c

A_MINUTE = 60.0


class Hidden(Exception):
    """An error of which one attribute cannot be read."""


def raising(name: str) -> type[Hidden]:
    def broken(self: object, *_: object) -> Any:
        raise LookupError(f"{name} cannot be read")

    method = name in ("__str__", "__repr__", "__eq__", "__hash__", "__bool__", "__reduce__", "__reduce_ex__")
    return type(f"Without{name}", (Hidden,), {name: broken if method else property(broken)})


ATTRIBUTES = (
    "__class__",
    "__dict__",
    "__traceback__",
    "__cause__",
    "__context__",
    "__notes__",
    "__str__",
    "__repr__",
    "__eq__",
    "__hash__",
    "__bool__",
    "__reduce__",
    "args",
)
ERRORS = pytest.mark.parametrize("name", ATTRIBUTES)


class BrokenClock(Clock):
    """A clock that raises in other threads than the one that made it."""

    def __init__(self) -> None:
        self.home = threading.get_ident()

    def now(self) -> float:
        if threading.get_ident() != self.home:
            raise LookupError("no clock here")
        return monotonic()

    anow = now


POLICIES = {
    "retry": Retry(attempt_timeout=A_MINUTE, worker=Worker(), attempts=2),
    "timeout": Timeout(A_MINUTE, worker=Worker()),
}


@ERRORS
@pytest.mark.parametrize("layer", POLICIES)
def test_an_error_that_cannot_be_looked_at_comes_out(name: str, layer: str) -> None:
    kind, policy = raising(name), POLICIES[layer]

    def fail() -> None:
        raise kind

    with pytest.raises(Exception) as caught:  # noqa: PT011
        policy.call(fail)
    assert issubclass(type(caught.value), Hidden | LookupError)
    assert policy.call(str) == ""


@ERRORS
@pytest.mark.parametrize("colour", ASYNC)
def test_an_error_that_cannot_be_looked_at_comes_out_of_async_code(name: str, colour: str) -> None:
    kind, policy = raising(name), Retry(attempt_timeout=A_MINUTE, worker=Worker(), attempts=2)

    def fail() -> None:
        raise kind

    async def main() -> None:
        with pytest.raises(Exception) as caught:  # noqa: PT011
            await policy.acall(fail)
        assert issubclass(type(caught.value), Hidden | LookupError)

    in_colour(colour, lambda: None, main)


def test_a_clock_that_raises_on_a_worker_costs_no_result() -> None:
    policy = Retry(attempt_timeout=A_MINUTE, worker=Worker(), clock=BrokenClock())

    def work() -> str:
        return "done"

    assert (policy.call(work), policy(work)()) == ("done", "done")
    assert policy.call(work) == "done"


@pytest.mark.parametrize("colour", ASYNC)
def test_a_clock_that_raises_on_a_worker_costs_no_result_in_async_code(colour: str) -> None:
    policy, got = Retry(attempt_timeout=A_MINUTE, worker=Worker(), clock=BrokenClock()), list[str]()

    async def main() -> None:
        got.append(await policy.acall(lambda: "done"))

    in_colour(colour, lambda: None, main)
    assert got == ["done"]


def raise_hidden(name: str) -> None:
    raise raising(name)("hidden")


@pytest.mark.parametrize("name", ["__class__", "__str__", "__reduce__", "__cause__"])
def test_an_error_that_cannot_be_looked_at_comes_out_of_a_process(name: str) -> None:
    """Its class does not exist in this process, so it is not the error itself that comes out."""
    policy = Retry(attempt_timeout=A_MINUTE, worker=Worker(kind="process"), attempts=1)
    with pytest.raises(errors.WorkerFailed, match=f"Without{name}|no text"):
        policy.call(raise_hidden, name)


# --------------------------------------------------------------------- interrupted callers


def test_a_caller_that_is_interrupted_loses_no_worker_thread() -> None:
    """Ctrl-C at any point between taking an idle thread and handing over the job."""
    policy = Retry(attempt_timeout=A_MINUTE, worker=Worker(), attempts=1)
    policy.call(str)
    until(lambda: bool(threads._idle))
    number, more = 0, True
    while more:
        number += 1
        before = set(threads._idle)
        handler = SignalHandler({threads.__file__}, ctrl_c, number)
        more = handler.interrupt(lambda: policy.call(str), KeyboardInterrupt)
        until(lambda before=before: before <= set(threads._idle))  # type: ignore[misc]
    assert number > 5
    assert policy.call(lambda: "done") == "done"


def test_a_thread_whose_caller_is_interrupted_stays_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    class Idle:
        """A thread that cannot be given a job."""

        @property
        def job(self) -> None:
            return None

        @job.setter
        def job(self, job: object) -> None:
            raise KeyboardInterrupt

    parked: list[Any] = [Idle()]
    idle = list(parked)
    monkeypatch.setattr(threads, "_idle", parked)
    with pytest.raises(KeyboardInterrupt):
        threads.ThreadJob(monotonic, str, (), {}).start()
    assert parked == idle


def test_an_error_whose_traceback_cannot_be_formatted_is_sent_from_a_process() -> None:
    class Unformatted(Exception):
        def __getattribute__(self, name: str) -> Any:
            if name == "__cause__":
                raise LookupError
            return super().__getattribute__(name)

    ended = JobResult()
    ended.error = Unformatted("text")
    kind, _, text = ended.reply()
    assert kind == "unpicklable error"
    assert text.endswith("Unformatted: text")
