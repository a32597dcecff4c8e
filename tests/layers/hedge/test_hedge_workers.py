"""Blocking functions, hedged on workers: the loser is told, its result is closed, and nothing waits for it.

The attempts wait for one another and never for time, so that no test depends on it.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Generator
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from functools import partial
from typing import Any

import pytest

from redouble import Hedge, Retry, RetryBudget, Timeout, Worker, cancelled, deadline, observe, remaining
from redouble._layers.hedge.race_workers import WorkerRace, close
from redouble.errors import WorkerFailed
from redouble.testing import virtual_time
from redouble.types import Event
from tests.support.fakes import Boom, Panic, always
from tests.support.garbage_collection import Thing, without_gc

PATIENCE = 30  # seconds until a test fails
AT_ONCE = Worker(grace=0)


class Response:
    """A result that has to be closed."""

    def __init__(self, fails: type[Exception] | None = None) -> None:
        self.closed = threading.Event()
        self._fails = fails

    def close(self) -> None:
        self.closed.set()
        if self._fails is not None:
            raise self._fails


class Attempts:
    """Attempts that block until they are released; a step is what one returns or raises."""

    def __init__(self, *steps: Any, wait_for: Callable[[int], int | None] = {1: 2}.get) -> None:
        self.steps = steps
        self.began = [threading.Event() for _ in steps]
        self.ended = [threading.Event() for _ in steps]
        self.go_on = threading.Event()
        self.cancelled: list[int] = []
        self.arguments: list[Any] = []
        self._wait_for = wait_for
        self._lock = threading.Lock()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Make the next attempt."""
        with self._lock:
            number = next(place for place, event in enumerate(self.began, 1) if not event.is_set())
        return self.make(number, *args, **kwargs)

    def first(self, *args: Any, **kwargs: Any) -> Any:
        """Make the first attempt: two threads may reach their first line in any order."""
        return self.make(1, *args, **kwargs)

    def second(self, *args: Any, **kwargs: Any) -> Any:
        return self.make(2, *args, **kwargs)

    def make(self, number: int, *args: Any, **kwargs: Any) -> Any:
        self.began[number - 1].set()
        self.arguments.append((args, kwargs))
        try:
            self.wait(number)
            if cancelled():
                self.cancelled.append(number)
            ending = self.steps[number - 1]
            if isinstance(ending, type):
                raise ending(f"attempt {number}")
            return ending
        finally:
            self.ended[number - 1].set()

    def wait(self, number: int) -> None:
        """Wait for the end of the other attempt, and until it was cancelled."""
        other = self._wait_for(number)
        if other is not None:
            assert self.began[other - 1].wait(PATIENCE)
            while not cancelled() and not self.go_on.wait(0.001):
                pass


def wait_for_all(attempts: Attempts) -> None:
    for began, ended in zip(attempts.began, attempts.ended, strict=True):
        assert not began.is_set() or ended.wait(PATIENCE)


def wait_for_every(attempts: Attempts) -> None:
    """Wait for all attempts, also for a loser whose thread begins when the call is over."""
    assert all(ended.wait(PATIENCE) for ended in attempts.ended)


def outcome(hedge: Hedge, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return the result of a call, or its error as text."""
    try:
        return hedge.call(fn, *args, **kwargs)
    except Exception as error:
        return f"{type(error).__name__}({error})"


def alone(_: int) -> None:
    """Wait for no other attempt."""


def is_good(result: object) -> bool:
    return result != "bad"


def raising(result: object) -> bool:
    raise LookupError(str(result))


OVER: dict[str, Any] = {"failover": True, "delay": 60}


@pytest.mark.parametrize("grace", [0, PATIENCE])
def test_a_late_call_is_repeated_beside_the_first(grace: float) -> None:
    """The loser sees that it is cancelled. With a long grace period the call returns when it has ended."""
    work = Attempts("a", "b")
    hedge = Hedge(0, None, different=work.second, worker=Worker(grace=grace))
    assert hedge.call(work.first, 1, key=2) == "b"
    assert not grace or work.ended[0].is_set()
    wait_for_every(work)
    assert (work.cancelled, work.arguments) == ([1], [((1,), {"key": 2})] * 2)
    assert hedge.snapshot() == {"delay": 0, "calls": 1, "hedged": 1, "won": 1, "suppressed": 0}


ROWS: list[tuple[dict[str, Any], list[Any], str, int]] = [
    ({"delay": 60}, ["a"], "a", 1),
    ({"delay": 60}, [Boom], "ScriptedError(attempt 1)", 1),
    ({"delay": [60]}, ["a"], "a", 1),
    ({"delay": always(None)}, ["a"], "a", 1),
    ({"delay": None, "max_extra_load": 0.5}, ["a"], "a", 1),
    ({"delay": None, "max_extra_load": 0.5, "failover": True}, [Boom, "b"], "b", 2),
    ({**OVER}, [Boom, "b"], "b", 2),
    ({**OVER}, [Boom, KeyError], "ScriptedError(attempt 1)", 2),
    ({**OVER, "hedges": 3}, [Boom, KeyError, OSError, "d"], "d", 4),
    ({**OVER, "on": Boom}, [OSError, "b"], "OSError(attempt 1)", 1),
    ({**OVER, "on": Boom}, [Boom, OSError], "OSError(attempt 2)", 2),
    ({**OVER, "until": is_good}, ["bad", "b"], "b", 2),
    ({**OVER, "until": always(False)}, ["a", "b"], "a", 2),
    ({**OVER, "budget": RetryBudget(0, 0)}, [Boom, "b"], "ScriptedError(attempt 1)", 1),
    ({**OVER, "until": raising}, ["a"], "LookupError(a)", 1),
]


@pytest.mark.parametrize(("options", "steps", "expected", "began"), ROWS)
@pytest.mark.parametrize("way", ["called", "decorated"])
def test_one_call(options: dict[str, Any], steps: list[Any], expected: str, began: int, way: str) -> None:
    work = Attempts(*steps, "unused", wait_for=alone)
    arguments: dict[str, Any] = {"max_extra_load": None, "worker": AT_ONCE, **options}
    hedge = Hedge(**arguments)
    if way == "decorated":
        assert outcome(Hedge(60, None, worker=AT_ONCE), hedge(work)) == expected
    else:
        assert outcome(hedge, work) == expected
    assert sum(event.is_set() for event in work.began) == began


def test_a_decorated_function_keeps_its_signature() -> None:
    @Hedge(60, worker=AT_ONCE)
    def fetch(url: str, *, page: int = 1) -> str:
        return f"{url} {page}"

    assert fetch("u", page=2) == "u 2"
    with pytest.raises(TypeError):
        fetch()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def test_the_delay_is_measured() -> None:
    work = Attempts("a", "b")
    hedge = Hedge(max_extra_load=0.5, minimum=4, longest=0.001, different=work.second, worker=AT_ONCE)
    for _ in range(4):
        assert hedge.call(int) == 0
    assert hedge.snapshot()["delay"] == 0.001
    assert hedge.call(work.first) == "b"
    wait_for_all(work)


def test_virtual_time_passes_as_the_delay_does() -> None:
    work = Attempts("a", "b")
    with virtual_time() as clock:
        assert Hedge(0.01, None, different=work.second, worker=AT_ONCE).call(work.first) == "b"
        assert clock.now() >= 0.01
    wait_for_all(work)


# ------------------------------------------------------------------------------ different


def test_other_functions_and_arguments() -> None:
    names: list[str] = []

    def read(region: str) -> str:
        names.append(region)
        raise Boom(region)

    def other(region: str) -> str:
        return f"{region} elsewhere"

    hedge = Hedge(60, None, hedges=2, failover=True, different=[{"region": "eu"}, other], worker=AT_ONCE)
    assert hedge.call(read, "us") == "us elsewhere"
    assert names == ["us", "eu"]


def test_other_arguments_of_a_function_without_a_signature() -> None:
    hedge = Hedge(60, None, failover=True, until=lambda it: "b" in it, different={"b": 2}, worker=AT_ONCE)
    assert hedge.call(dict, a=1) == {"a": 1, "b": 2}


def test_an_async_function_in_place_of_a_blocking_one() -> None:
    """It is found when it is called; the mistake is raised."""

    async def other() -> None: ...

    def plain() -> Any:
        return other()

    hedge = Hedge(60, None, failover=True, different=plain, worker=AT_ONCE)
    assert outcome(hedge, Attempts(Boom, wait_for=alone)).startswith("UsageError(")


# ----------------------------------------------------------------------- losers and results


@pytest.mark.parametrize("fails", [None, Boom])
@pytest.mark.parametrize("grace", [0, PATIENCE])
def test_the_result_of_a_loser_is_closed(grace: float, fails: Any, caplog: pytest.LogCaptureFixture) -> None:
    late, good = Response(fails), Response()
    work = Attempts(late, good)
    hedge = Hedge(0, None, different=work.second, worker=Worker(grace=grace))
    assert hedge.call(work.first) is good
    assert late.closed.wait(PATIENCE)
    assert not good.closed.is_set()


def test_refused_results_are_closed() -> None:
    results = [Response(), Response(Boom), Response()]
    hedge = Hedge(60, None, hedges=2, failover=True, until=lambda it: it is results[2], worker=AT_ONCE)
    assert hedge.call(Attempts(*results, wait_for=alone)) is results[2]
    assert [result.closed.is_set() for result in results] == [True, True, False]


def test_if_all_results_are_refused_the_first_stays_open() -> None:
    results = [Response(), Response()]
    hedge = Hedge(60, None, failover=True, until=lambda it: False, worker=AT_ONCE)
    assert hedge.call(Attempts(*results, wait_for=alone)) is results[0]
    assert [result.closed.is_set() for result in results] == [False, True]


class AsyncOnly:
    closed = 0

    async def close(self) -> None:
        self.closed += 1


def test_a_result_that_only_async_code_can_close_is_left_alone() -> None:
    """Without a warning about a coroutine that was never awaited."""
    for result in (AsyncOnly(), None, {"close": 1}):
        close(result)


def test_a_base_exception_ends_the_race() -> None:
    work = Attempts("a", Panic)
    with pytest.raises(Panic, match="attempt 2"):
        Hedge(0, None, different=work.second, worker=AT_ONCE).call(work.first)
    wait_for_every(work)
    assert work.cancelled == [1]


class Interrupted(WorkerRace):
    """A race whose caller gets a Ctrl-C during a wait."""

    during = 2  # the number of that wait

    def _wait(self, seconds: float) -> None:
        self.during -= 1
        if self.during == 0:
            assert self._others_ended(PATIENCE)
            raise KeyboardInterrupt
        super()._wait(seconds)

    def _others_ended(self, seconds: float) -> bool:
        """Wait until the second attempt has handed over its result, or has closed it."""
        for _ in range(1000 * int(seconds)):
            if self._jobs[1].has_ended:
                return True
            threading.Event().wait(0.001)
        return False


@pytest.mark.parametrize("during", [2, 3])
def test_an_interrupted_caller_stops_all_attempts_and_closes_their_results(during: int) -> None:
    """While it waits for the outcome, which has just come; and, with an outcome, for the loser to end."""
    results = [Response(), Response()]
    work = Attempts(*results)
    hedge = Hedge(0, None, different=work.second, worker=Worker(grace=PATIENCE))
    race = Interrupted(hedge._state, 0.0, (work.first, (), {}))
    race.during = during
    race.plan(None, is_stream=False)
    with pytest.raises(KeyboardInterrupt):
        race.run()
    wait_for_every(work)
    assert work.cancelled == [1]
    assert all(result.closed.wait(PATIENCE) for result in results)
    assert hedge.snapshot()["won"] == 0


def test_without_a_worker_there_is_no_extra_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of the first attempt is raised, whatever ``on`` names."""
    start = WorkerRace._run_on_worker

    def starting(self: WorkerRace, number: int, call: Any) -> None:
        if number > 1:
            raise WorkerFailed("no thread")
        start(self, number, call)

    monkeypatch.setattr(WorkerRace, "_run_on_worker", starting)
    hedge = Hedge(60, None, on=Boom, failover=True, worker=AT_ONCE)
    assert outcome(hedge, Attempts(Boom, wait_for=alone)) == "ScriptedError(attempt 1)"


def test_other_arguments_that_do_not_fit_are_a_failed_attempt() -> None:
    """Known only when it is called: this function takes any arguments."""

    def read(*args: int, **options: int) -> None:
        raise Boom("first")

    hedge = Hedge(60, None, on=Boom, failover=True, different=abs, worker=AT_ONCE)
    assert outcome(hedge, read, 1, 2).startswith("TypeError(")


def test_arguments_that_cannot_be_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    def different(self: WorkerRace, number: int) -> Any:
        raise TypeError(f"attempt {number}")

    monkeypatch.setattr(WorkerRace, "different", different)
    hedge = Hedge(60, None, on=Boom, failover=True, worker=AT_ONCE)
    assert outcome(hedge, Attempts(Boom, wait_for=alone)) == "TypeError(attempt 2)"


def slots_in_use(worker: Worker) -> int:
    for _ in range(1000 * PATIENCE):  # a slot is released when its thread is idle again
        if not worker.snapshot()["in_use"]:
            break
        threading.Event().wait(0.001)
    return worker.snapshot()["in_use"] or 0


def test_attempts_take_the_slots_of_a_worker_with_a_limit() -> None:
    work, worker = Attempts("a", "b"), Worker(limit=2, grace=0)

    def second() -> Any:
        assert work.began[0].wait(PATIENCE)  # a job that no thread has begun is revoked when the call is over
        return work.second()

    assert Hedge(0, None, different=second, worker=worker).call(work.first) == "b"
    wait_for_every(work)
    assert work.cancelled == [1]
    assert slots_in_use(worker) == 0


def test_an_extra_attempt_never_waits_for_a_slot() -> None:
    """The first attempt continues."""
    worker = Worker(limit=1, grace=0)
    hedge = Hedge(0, None, worker=worker)

    def first() -> str:
        for _ in range(1000 * PATIENCE):
            if hedge.snapshot()["hedged"]:
                return "a"
            threading.Event().wait(0.001)
        return "no extra attempt"

    assert hedge.call(first) == "a"
    assert slots_in_use(worker) == 0


def test_a_first_attempt_that_finds_no_slot_is_rejected() -> None:
    worker = Worker(limit=1, wait=0, grace=0)
    hedge = Hedge(60, None, worker=worker)

    def nested() -> str:
        return str(outcome(hedge, int))

    assert hedge.call(nested).startswith("WorkersBusy(the worker is busy: 1 attempt is running")
    assert slots_in_use(worker) == 0


# ------------------------------------------------------------------ time, context, events


def test_attempts_know_the_deadline_and_the_context() -> None:
    tenant: ContextVar[str] = ContextVar("tenant", default="nobody")
    seen: list[Any] = []

    def reading() -> None:
        seen.append((tenant.get(), 0 < remaining(99) <= 30))
        tenant.set("changed")
        raise Boom

    tenant.set("me")
    with deadline(30), suppress(Boom):
        Hedge(60, None, failover=True, worker=AT_ONCE).call(reading)
    assert seen == [("me", True)] * 2
    assert tenant.get() == "me"


def test_no_attempt_starts_when_no_time_is_left() -> None:
    work = Attempts(Boom, "b", wait_for=alone)
    with deadline(0):
        assert outcome(Hedge(60, None, failover=True, worker=AT_ONCE), work) == "ScriptedError(attempt 1)"
    assert not work.began[1].is_set()


def test_its_events() -> None:
    seen: list[Event] = []
    work = Attempts(Boom, "b", wait_for=alone)
    with observe(seen.append, only=("hedged", "hedge_won")):
        Hedge(60, None, failover=True, worker=AT_ONCE, name="db").call(work)
    assert [(event.what, event.attempt, event.by, event.name) for event in seen] == [
        ("hedged", 2, "hedge", "db"),
        ("hedge_won", 2, "hedge", "db"),
    ]
    assert all(0 <= event.elapsed < PATIENCE for event in seen)


def test_within_other_layers() -> None:
    work = Attempts(Boom, Boom, "c", wait_for=alone)
    policy = Retry(on=Boom, attempts=2, backoff=[0]) | Hedge(60, None, failover=True, worker=AT_ONCE)
    assert (Timeout(PATIENCE, worker=Worker()) | policy).call(work) == "c"


# ------------------------------------------------------------------------------ processes


def process_id(region: str) -> tuple[str, int]:
    """Return where this runs."""
    if region == "nowhere":
        raise OSError(region)
    return region, os.getpid()


def hang(region: str) -> str:
    """Run until the process is killed."""
    while region:
        threading.Event().wait(PATIENCE)
    return "woken"


@pytest.mark.quiet
def test_attempts_in_processes() -> None:
    """The loser is killed."""
    worker = Worker(kind="process", grace=PATIENCE)
    hedge = Hedge(60, None, failover=True, different={"region": "here"}, worker=worker)
    region, process = hedge.call(process_id, "nowhere")
    assert region == "here"
    assert process != os.getpid()
    hedge = Hedge(0, None, different=process_id, worker=worker)
    there: Any = hedge.call(hang, "here")
    assert there[1] != os.getpid()


def test_a_process_that_is_not_needed_any_more_is_not_started() -> None:
    hedge = Hedge(0, None, worker=Worker(kind="process"))
    race = WorkerRace(hedge._state, 0.0, (process_id, ("here",), {}))
    race._over = True
    with pytest.raises(WorkerFailed, match="the call was over before its process had started"):
        race._run_in_process(partial(process_id, "here"))


# -------------------------------------------------------------------------------- streams


class Lines:
    """Streams of blocking code: each waits, then yields three items."""

    def __init__(self, *steps: Any, wait_for: Callable[[int], int | None] = {1: 2}.get) -> None:
        self.work = Attempts(*steps, wait_for=wait_for)
        self.closed = [threading.Event(), threading.Event()]
        self.sent: list[Any] = []

    def read(self, name: str = "", attempt: str = "__call__") -> Generator[str, Any, str]:
        number = None
        try:
            number = getattr(self.work, attempt)()
            for item in range(3 if number else 0):
                self.sent.append((yield f"{name}{number}.{item}"))
            return f"read {number}"
        finally:
            self.closed[(number or 1) - 1].set()


def test_the_first_stream_that_yields_wins() -> None:
    lines = Lines(1, 2)
    stream = Hedge(0, None, different={"attempt": "second"}, worker=AT_ONCE)(lines.read)("s", "first")
    assert next(iter(stream)) == "s2.0"
    assert lines.closed[0].wait(PATIENCE)
    assert not lines.closed[1].is_set()
    assert list(stream) == ["s2.1", "s2.2"]
    assert lines.closed[1].is_set()


def test_a_stream_is_a_generator() -> None:
    def whole(stream: Generator[str, Any, str]) -> Generator[str]:
        returned = yield from stream
        yield returned

    hedge = Hedge(60, None, failover=True, worker=AT_ONCE)
    lines = Lines(Boom, 2, wait_for=alone)
    stream: Any = hedge(lines.read)()
    assert [next(stream), stream.send("sent"), next(stream)] == ["2.0", "2.1", "2.2"]
    assert lines.sent == ["sent", None]
    stream = whole(hedge(Lines(1, wait_for=alone).read)())
    assert list(stream) == ["1.0", "1.1", "1.2", "read 1"]
    assert list(whole(hedge(Lines(0, wait_for=alone).read)())) == ["read 0"]
    lines = Lines(1, wait_for=alone)
    stream = hedge(lines.read)()
    next(stream)
    with pytest.raises(Boom):
        stream.throw(Boom)
    assert lines.closed[0].is_set()
    lines = Lines(1, wait_for=alone)
    stream = hedge(lines.read)()
    next(stream)
    stream.close()
    assert lines.closed[0].is_set()


def test_other_streams() -> None:
    hedge = Hedge(60, None, failover=True, different=Lines(2, wait_for=alone).read, hedges=1, worker=AT_ONCE)
    assert list(hedge(Lines(Boom, wait_for=alone).read)("x")) == ["x2.0", "x2.1", "x2.2"]
    hedge = Hedge(60, None, failover=True, different={"name": "eu"}, worker=AT_ONCE)
    assert next(iter(hedge(Lines(Boom, 2, wait_for=alone).read)("us"))) == "eu2.0"


# ---------------------------------------------------------------------------------- leaks


@pytest.mark.usefixtures(without_gc.__name__)
@pytest.mark.parametrize("steps", [[Boom, "b"], [Boom, Boom], [Panic], ["a"]])
def test_errors_and_arguments_are_freed(steps: list[Any]) -> None:
    watched: list[weakref.ref[Any]] = []
    work = Attempts(*steps, wait_for=alone)

    def failing(thing: Thing) -> Any:
        try:
            return work()
        except BaseException as error:
            watched.append(weakref.ref(error))
            raise

    def once() -> None:
        thing = Thing()
        watched.append(weakref.ref(thing))
        with suppress(Boom, Panic):
            Hedge(60, None, failover=True, on=Boom, worker=Worker(grace=PATIENCE)).call(failing, thing)

    once()
    for _ in range(1000):  # the thread of an attempt drops the last references after it has woken the caller
        if not any(ref() for ref in watched):
            break
        threading.Event().wait(0.001)
    assert [ref() for ref in watched] == [None] * len(watched)


@pytest.mark.usefixtures(without_gc.__name__)
def test_a_context_that_an_attempt_leaves_behind_does_not_keep_the_arguments() -> None:
    """Such as that of a timer which the attempt has started."""
    contexts = list[Context]()

    def work(thing: Thing) -> None:
        contexts.append(copy_context())

    def once() -> weakref.ref[Thing]:
        thing = Thing()
        Hedge(60, None, worker=AT_ONCE).call(work, thing)
        return weakref.ref(thing)

    watched = once()
    for _ in range(1000):  # as above
        if watched() is None:
            break
        threading.Event().wait(0.001)
    assert watched() is None
    assert len(contexts) == 1
