"""The options of workers, and which attempts of a policy run on a worker."""

from __future__ import annotations

import asyncio
import pickle
import threading
from dataclasses import FrozenInstanceError, replace
from datetime import timedelta
from typing import Any

import pytest

from redouble import Retry, Worker
from tests.support.call_shapes import ASYNC_SHAPES, SHAPES, AsyncShape, Shape
from tests.support.fakes import ASYNC, SYNC, Boom, in_colour

# ----------------------------------------------------------------------------- options


def test_the_defaults() -> None:
    worker = Worker()
    assert (worker.kind, worker.grace, worker.overlap, worker.start) == ("thread", 0.1, False, "spawn")
    assert repr(worker) == "Worker(kind='thread', grace=0.1, overlap=False, start='spawn')"


def test_a_worker_is_a_value() -> None:
    worker = Worker(grace=2, overlap=True)
    assert worker == Worker(grace=2.0, overlap=True) == Worker(grace=timedelta(seconds=2), overlap=True)
    assert worker != Worker(grace=2)
    assert len({worker, Worker(grace=2.0, overlap=True), Worker()}) == 2
    assert pickle.loads(pickle.dumps(worker)) == worker
    assert replace(worker, grace=3) == Worker(grace=3, overlap=True)
    assert isinstance(worker.grace, float)


def test_a_worker_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        Worker().grace = 1  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("grace", [0, 1e-9, 1e300, timedelta(0), timedelta(days=9999)])
def test_the_grace_may_be_any_finite_time(grace: float | timedelta) -> None:
    assert Retry(worker=Worker(grace=grace)).call(lambda: "done") == "done"


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"kind": "threads"}, ValueError, "kind='threads': write 'thread' or 'process'"),
        ({"kind": None}, ValueError, "kind=None"),
        ({"kind": ["thread"]}, ValueError, "kind="),
        ({"grace": -0.1}, ValueError, "grace=-0.1: write a finite number of seconds, 0 or more"),
        ({"grace": timedelta(-1)}, ValueError, "grace="),
        ({"grace": float("nan")}, ValueError, "grace=nan"),
        ({"grace": float("inf")}, ValueError, "grace=inf"),
        ({"grace": 10**400}, ValueError, "grace is too large"),
        ({"grace": None}, TypeError, "grace=None: write seconds"),
        ({"grace": True}, TypeError, "grace=True"),
        ({"grace": "100ms"}, TypeError, "configuration files"),
        ({"overlap": 1}, TypeError, "overlap=1: write True or False"),
        ({"overlap": None}, TypeError, "overlap=None"),
        ({"start": "fork"}, ValueError, "copy locks that are never released"),
        ({"start": None}, ValueError, "start=None: write 'spawn' or 'forkserver'"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(
        error, match=f"^Worker {message.split('=', maxsplit=1)[0]}" if "=" in message else "^Worker "
    ) as caught:
        Worker(**options)
    assert message in str(caught.value)


@pytest.mark.parametrize("worker", ["thread", Worker, True, 0.1, Boom()])
def test_a_policy_refuses_what_is_no_worker(worker: Any) -> None:
    with pytest.raises(TypeError, match=r"^worker=.*: write Worker\(\)"):
        Retry(worker=worker)


def test_policies_with_equal_workers_are_equal() -> None:
    assert Retry(worker=Worker()) == Retry(worker=Worker()) != Retry(worker=Worker(grace=1))
    assert Retry(worker=Worker()) != Retry()
    assert "worker=Worker(" in repr(Retry(worker=Worker()))


# ------------------------------------------------------------------------- calls


CALLS = {name: shape for name, shape in SHAPES.items() if name != "loop"}


@pytest.mark.parametrize("colour", SYNC)
@pytest.mark.parametrize("shape", CALLS.values(), ids=CALLS)
def test_attempts_run_on_another_thread(colour: str, shape: Shape) -> None:
    """Rules, observers and delays stay in the caller's thread."""
    attempts, others = set[threading.Thread](), set[threading.Thread]()
    fails = [Boom("1"), Boom("2")]

    def work() -> str:
        attempts.add(threading.current_thread())
        if fails:
            raise fails.pop()
        return "done"

    def here(_: object) -> bool:
        others.add(threading.current_thread())
        return True

    def blocking() -> object:
        mine = threading.current_thread()
        done = shape(policy, work)
        assert others == {mine}
        assert mine not in attempts
        return done

    policy = Retry(on=here, until=here, on_retry=here, on_failure=here, backoff=[0, 0], worker=Worker())
    assert in_colour(colour, blocking, asyncio.Event().wait) == "done"
    assert all(thread.daemon for thread in attempts)


@pytest.mark.parametrize("colour", ASYNC)
@pytest.mark.parametrize("shape", ASYNC_SHAPES.values(), ids=ASYNC_SHAPES)
def test_async_functions_use_no_worker(colour: str, shape: AsyncShape) -> None:
    """One policy may serve both: async functions can be cancelled."""
    threads: list[threading.Thread] = []

    async def work() -> None:
        threads.append(threading.current_thread())
        if len(threads) < 2:
            raise Boom

    policy = Retry(on=Boom, backoff=[0], attempt_timeout=60, worker=Worker(kind="process"))
    in_colour(colour, lambda: None, lambda: shape(policy, work))
    assert threads == [threading.current_thread()] * 2


def test_methods_and_builtins_run_on_a_worker() -> None:
    class Client:
        name = "it"

        @Retry(worker=Worker())
        def fetch(self, url: str, *, times: int = 1) -> str:
            return f"{self.name}: {url * times}"

    assert Client().fetch("x", times=3) == "it: xxx"
    assert Retry(worker=Worker()).call(sorted, [3, 1, 2], reverse=True) == [3, 2, 1]
    assert Retry(worker=Worker()).call(Client().fetch, "y") == "it: y"


def test_arguments_of_any_name() -> None:
    """The names of the library's own parameters do not collide with those of the function."""

    def work(**given: object) -> dict[str, object]:
        return given

    names = {"fn": 1, "run": 2, "worker": 3, "self": 4, "policy": 5, "args": 6, "kwargs": 7, "wake": 8}
    assert Retry(worker=Worker()).call(work, **names) == names
    assert Retry(worker=Worker())(work)(**names) == names


def test_a_worker_refuses_an_awaitable_result() -> None:
    async def fetch(url: str) -> None: ...

    def work() -> object:
        return fetch("somewhere")

    with pytest.raises(TypeError, match="returned something to await"):
        Retry(worker=Worker()).call(work)
