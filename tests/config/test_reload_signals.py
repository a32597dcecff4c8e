"""Reloads during a reload, by signal handlers or other threads, are deferred: none is lost, none hangs."""

from __future__ import annotations

import signal
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from threading import Event, Thread, main_thread
from typing import Any

import pytest

from redouble._internal import reentrancy
from redouble._internal.locks import _after_fork
from redouble.config import _builder, _named_policy
from redouble.config import _reload as _live
from redouble.config._reload import Reload, load, policies, reload
from redouble.errors import ConfigError
from tests.support.bulkhead_callers import A_MINUTE, until
from tests.support.config.named_policies import policy_document
from tests.support.fakes import Boom
from tests.support.interruption import SignalHandler, ctrl_c


class WatchedEnviron(Mapping[str, str]):
    """An empty environment that runs one of the given callbacks each time it is read."""

    def __init__(self, *callbacks: Callable[[], object]) -> None:
        self.callbacks = list(callbacks)

    def __iter__(self) -> Iterator[str]:
        if self.callbacks:
            self.callbacks.pop(0)()
        return iter(())

    def __len__(self) -> int:
        return 1

    def __getitem__(self, key: str) -> str:
        raise KeyError(key)


@contextmanager
def on_signal(callback: Callable[[], object]) -> Generator[Callable[[], None]]:
    """Install a signal handler, and yield a function that raises the signal."""

    def handler(*_: object) -> None:
        callback()

    before = signal.signal(signal.SIGTERM, handler)
    try:
        yield lambda: signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_reload_during_a_reload_is_executed_after_it() -> None:
    results: list[Reload] = []
    with on_signal(lambda: results.append(reload(policy_document(9)))) as interrupt:
        load(policy_document(2), environ=WatchedEnviron(lambda: None, interrupt))
        assert reload(policy_document(3)) == Reload(("policies.payments",))
        assert results == [Reload()]
        assert policies("payments").attempts == 9


def test_a_reload_during_a_load_is_executed_after_it() -> None:
    """Even if the load fails."""
    load(policy_document(2))
    load(policy_document(3), environ=WatchedEnviron(lambda: reload(policy_document(9))))
    assert policies("payments").attempts == 9
    with pytest.raises(ConfigError, match="attempts"):
        load(policy_document(0), environ=WatchedEnviron(lambda: reload(policy_document(8))))
    assert policies("payments").attempts == 8


def test_a_load_during_a_load_in_the_same_thread_raises() -> None:
    def again() -> None:
        with pytest.raises(ConfigError, match=r"this thread is already loading a configuration"):
            load(policy_document(9))

    load(policy_document(2), environ=WatchedEnviron(again))
    assert policies("payments").attempts == 2


def test_a_name_or_function_added_during_a_reload_follows_it() -> None:
    """A signal handler may look up a name or decorate a function during a reload."""
    calls: list[int] = []
    joined: list[Any] = []

    def join() -> None:
        joined.append(policies("payments"))
        joined.append(policies("payments")(work))

    def work() -> None:
        calls.append(1)
        raise Boom

    load(policy_document(2), environ=WatchedEnviron(lambda: None, join))
    reload(policy_document(5))
    assert joined[0].attempts == 5
    with pytest.raises(Boom):
        joined[1]()
    assert len(calls) == 5


def test_a_name_added_during_a_failed_first_load_works_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    joined: list[Any] = []
    with pytest.raises(ConfigError, match="attempts"):
        load(policy_document(0), environ=WatchedEnviron(lambda: joined.append(policies("payments"))))
    with pytest.raises(ConfigError, match="no configuration is loaded yet"):
        joined[0].attempts  # noqa: B018
    assert not caplog.records
    load(policy_document(2))
    assert joined[0].attempts == 2


def test_a_reload_that_waits_too_long_for_another_thread_is_deferred(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait is bounded: the reloading thread may wait for a lock of the code that a signal interrupted."""
    monkeypatch.setattr(_live, "MAX_WAIT", 0.001)
    entered, unblock = Event(), Event()

    def block() -> None:
        entered.set()
        unblock.wait(A_MINUTE)

    load(policy_document(2), environ=WatchedEnviron(lambda: None, block))
    thread = Thread(target=reload, args=[policy_document(3)])
    thread.start()
    entered.wait(A_MINUTE)
    assert reload(policy_document(4)) == Reload()
    assert active_attempts() == 2
    unblock.set()
    thread.join(A_MINUTE)
    assert active_attempts() == 4


def active_attempts() -> int | None:
    what = _live.LIVE._active
    return None if what is None else what.config.policies["payments"].attempts


def test_a_request_that_another_thread_has_executed_is_skipped() -> None:
    class EmptiedQueue:
        """A queue that another thread empties between the check and the acquisition of the lock."""

        def __init__(self) -> None:
            self.looks = 2

        def __bool__(self) -> bool:
            self.looks -= 1
            return self.looks > 0

        def append(self, request: object) -> None:
            assert request

    load(policy_document(2))
    _live.LIVE._deferred = EmptiedQueue()  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue]
    assert reload(policy_document(3)) == Reload()


def test_the_last_deferred_request_with_a_source_is_executed() -> None:
    def interrupt() -> None:
        for source in (None, policy_document(7), None, policy_document(8), None):
            assert reload(source) == Reload()

    load(policy_document(2), environ=WatchedEnviron(lambda: None, interrupt))
    assert reload(policy_document(3)).ok
    assert policies("payments").attempts == 8
    assert not _live.LIVE._deferred


def test_a_reload_waits_for_the_one_of_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its result is its own, whichever thread has executed it."""
    monkeypatch.setattr(_live, "MAX_WAIT", A_MINUTE)
    entered, unblock = Event(), Event()

    def block() -> None:
        entered.set()
        unblock.wait(A_MINUTE)

    def unblock_when_waiting() -> None:
        until(lambda: bool(_live.LIVE._deferred))
        unblock.set()

    load(policy_document(2), environ=WatchedEnviron(lambda: None, block))
    threads = [Thread(target=reload, args=[policy_document(3)]), Thread(target=unblock_when_waiting)]
    for thread in threads:
        thread.start()
    entered.wait(A_MINUTE)
    result = reload(policy_document(4))
    for thread in threads:
        thread.join(A_MINUTE)
    assert result == Reload(("policies.payments",))
    assert active_attempts() == 4


def test_repeated_requests_for_the_same_source_are_one() -> None:
    """A signal handler that finds such a request does not wait."""
    reads: list[int] = []

    def interrupt() -> None:
        assert [reload() for _ in range(9)] == [Reload()] * 9

    environ = WatchedEnviron(lambda: None, interrupt, *(lambda: reads.append(1) for _ in range(9)))
    load(policy_document(2), environ=environ)
    assert reload(policy_document(3)).ok
    assert len(reads) == 1


def test_a_reload_by_a_signal_handler_waits_for_the_lock_only_briefly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The interrupted thread waits already: with many signals, many handlers would wait on one stack."""
    monkeypatch.setattr(_live, "MAX_WAIT", 0.001)
    entered, unblock, results = Event(), Event(), list[Reload]()

    def block() -> None:
        entered.set()
        unblock.wait(A_MINUTE)

    def interrupt() -> None:
        results.append(reload(policy_document(5)))
        unblock.set()

    load(policy_document(2), environ=WatchedEnviron(lambda: None, block))
    thread = Thread(target=reload, args=[policy_document(3)])
    with on_signal(interrupt):
        thread.start()
        entered.wait(A_MINUTE)
        killer = Thread(target=signal.pthread_kill, args=[main_thread().ident or 0, signal.SIGTERM])
        killer.start()
        load(policy_document(4))
        until(lambda: bool(results))
    for one in (thread, killer):
        one.join(A_MINUTE)
    assert results == [Reload()]
    assert active_attempts() in (4, 5), "both have been executed"


@pytest.mark.parametrize("before", [lambda: None, _after_fork], ids=["interrupted", "forked"])
def test_after_an_interrupted_reload_the_deferred_one_is_executed(before: Callable[[], None]) -> None:
    """Ctrl-C is raised, the lock is free, and no request is lost."""

    def interrupt() -> None:
        before()
        _live.LIVE._request(policy_document(9), [])
        raise KeyboardInterrupt

    load(policy_document(2), environ=WatchedEnviron(lambda: None, interrupt))
    with pytest.raises(KeyboardInterrupt):
        reload(policy_document(3))
    assert active_attempts() == 9
    assert reload(policy_document(4)) == Reload(("policies.payments",))


def test_an_interrupted_exchange_is_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C during the exchange is raised, and the whole configuration has been replaced."""
    budget: Any = load(policy_document(2, budgets={"own": {}})).budgets["own"]
    payments, reconfigure = policies("payments"), budget.reconfigure

    def interrupted(other: object) -> None:
        monkeypatch.setattr(budget, "reconfigure", reconfigure)
        raise KeyboardInterrupt

    monkeypatch.setattr(budget, "reconfigure", interrupted)
    with pytest.raises(KeyboardInterrupt):
        reload(policy_document(3, budgets={"own": {"ratio": 0.7}}))
    assert (payments.attempts, budget.ratio) == (3, 0.7)
    assert reload().changed == ()


def test_a_child_process_can_reload_although_its_parent_was_reloading() -> None:
    """The reloading thread does not exist in the child process."""
    results: list[Reload] = []

    def forked() -> None:
        _after_fork()
        results.append(reload(policy_document(5)))

    load(policy_document(2), environ=WatchedEnviron(lambda: None, forked))
    payments = policies("payments")
    reload(policy_document(3))
    assert results == [Reload(("policies.payments",))]
    assert payments.attempts == 3
    assert reload(policy_document(4)).ok


FILES: set[str | None] = {_live.__file__, _named_policy.__file__, reentrancy.__file__}


def at_every_point(
    action: Callable[[], object], work: Callable[[], object], check: Callable[[], None]
) -> None:
    """Run ``work`` again and again, each time interrupted by ``action`` at the next point, and ``check``."""
    number, more = 0, True
    while more:
        number += 1
        load(policy_document(2), environ=None)
        files = FILES | {_builder.__file__} if action is ctrl_c else FILES  # a point is cheap there
        handler = SignalHandler(files, action, number, everywhere=action is not ctrl_c)
        more = handler.interrupt(work, KeyboardInterrupt)
        check()
    assert number > 10


@pytest.mark.parametrize("work", [reload, load], ids=["reload", "load"])
def test_a_reload_by_a_signal_handler_at_any_point_is_executed(work: Callable[..., object]) -> None:
    payments = policies("payments")

    def check() -> None:
        assert payments.attempts == active_attempts() in (3, 9)
        assert not _live.LIVE._deferred

    at_every_point(lambda: reload(policy_document(9)), lambda: work(policy_document(3)), check)


@pytest.mark.parametrize("work", [reload, load], ids=["reload", "load"])
def test_ctrl_c_at_any_point_leaves_the_old_or_the_new_configuration(work: Callable[..., object]) -> None:
    payments = policies("payments")

    def check() -> None:
        assert payments.attempts == active_attempts() in (2, 3)
        assert reload(policy_document(4)) == Reload(("policies.payments",))
        assert payments.attempts == active_attempts() == 4

    at_every_point(ctrl_c, lambda: work(policy_document(3)), check)


def test_a_name_that_a_reload_interrupts_at_any_point_follows_it() -> None:
    added: list[Any] = []

    def check() -> None:
        assert added.pop().attempts == active_attempts()

    at_every_point(lambda: reload(policy_document(9)), lambda: added.append(policies("payments")), check)
