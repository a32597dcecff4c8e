"""Reloading in the middle of reloading, by a signal or another thread: nothing is lost, and nothing hangs."""

from __future__ import annotations

import signal
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from threading import Event, Thread, main_thread
from typing import Any

import pytest

from redouble._internal.locks import _after_fork
from redouble.config import _reload as _live
from redouble.config._reload import ConfigStore, Reload, load, policies, reload
from redouble.errors import ConfigError
from tests.config.test_reload_in_flight import said
from tests.support.bulkhead_callers import A_MINUTE, until
from tests.support.fakes import Boom


@pytest.fixture(autouse=True)
def nothing_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin without a configuration, and leave none behind."""
    monkeypatch.setattr(_live, "LIVE", ConfigStore())


class Watched(Mapping[str, str]):
    """Variables: there are none, but somebody does something when they are looked at."""

    def __init__(self, *does: Callable[[], object]) -> None:
        self.does = list(does)

    def __iter__(self) -> Iterator[str]:
        if self.does:
            self.does.pop(0)()
        return iter(())

    def __len__(self) -> int:
        return 1

    def __getitem__(self, key: str) -> str:
        raise KeyError(key)


@contextmanager
def on_signal(does: Callable[[], object]) -> Generator[Callable[[], None]]:
    """Give a function that raises a signal, for which something is done."""

    def handler(*_: object) -> None:
        does()

    before = signal.signal(signal.SIGTERM, handler)
    try:
        yield lambda: signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_reload_in_the_middle_of_another_is_done_after_it() -> None:
    told: list[Reload] = []
    with on_signal(lambda: told.append(reload(said(9)))) as come:
        load(said(2), environ=Watched(lambda: None, come))
        assert reload(said(3)) == Reload(("policies.payments",))
        assert told == [Reload()]
        assert policies("payments").attempts == 9


def test_a_reload_in_the_middle_of_loading() -> None:
    """Also if what is loaded is wrong; and if it is the first one, there is nothing to reload."""
    load(said(2))
    load(said(3), environ=Watched(lambda: reload(said(9))))
    assert policies("payments").attempts == 9
    with pytest.raises(ConfigError, match="attempts"):
        load(said(0), environ=Watched(lambda: reload(said(8))))
    assert policies("payments").attempts == 8


def test_loading_in_the_middle_of_loading_is_refused() -> None:
    def again() -> None:
        with pytest.raises(ConfigError, match=r"this very thread is in the middle of loading one"):
            load(said(9))

    load(said(2), environ=Watched(again))
    assert policies("payments").attempts == 2


def test_who_joins_in_the_middle_is_not_forgotten() -> None:
    """A name that is used, or a function that is decorated, by a signal handler in the middle of a reload."""
    calls: list[int] = []
    joined: list[Any] = []

    def join() -> None:
        joined.append(policies("payments"))
        joined.append(policies("payments")(work))

    def work() -> None:
        calls.append(1)
        raise Boom

    load(said(2), environ=Watched(lambda: None, join))
    reload(said(5))
    assert joined[0].attempts == 5
    with pytest.raises(Boom):
        joined[1]()
    assert len(calls) == 5


def test_who_joins_in_the_middle_of_the_first_one_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    joined: list[Any] = []
    with pytest.raises(ConfigError, match="attempts"):
        load(said(0), environ=Watched(lambda: joined.append(policies("payments"))))
    with pytest.raises(ConfigError, match="no configuration is loaded yet"):
        joined[0].attempts  # noqa: B018
    assert not caplog.records
    load(said(2))
    assert joined[0].attempts == 2


def test_who_comes_while_another_thread_takes_long_leaves_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may wait for something that the thread has which a signal has brought here."""
    monkeypatch.setattr(_live, "MAX_WAIT", 0.001)
    here, go_on = Event(), Event()

    def stay() -> None:
        here.set()
        go_on.wait(A_MINUTE)

    load(said(2), environ=Watched(lambda: None, stay))
    thread = Thread(target=reload, args=[said(3)])
    thread.start()
    here.wait(A_MINUTE)
    assert reload(said(4)) == Reload()
    assert policies_now() == 2
    go_on.set()
    thread.join(A_MINUTE)
    assert policies_now() == 4


def policies_now() -> int | None:
    what = _live.LIVE._active
    return None if what is None else what.config.policies["payments"].attempts


def test_a_note_that_somebody_else_has_heeded() -> None:
    class Gone:
        """A queue from which another thread takes what there was."""

        def __init__(self) -> None:
            self.looks = 2

        def __bool__(self) -> bool:
            self.looks -= 1
            return self.looks > 0

        def pop(self) -> None:
            raise IndexError

    load(said(2))
    _live.LIVE._requests = Gone()  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue]
    assert reload(said(3)).ok


def test_the_last_note_that_says_something_is_heeded() -> None:
    def come() -> None:
        for source in (None, said(7), None, said(8), None):
            assert reload(source) == Reload()

    load(said(2), environ=Watched(lambda: None, come))
    assert reload(said(3)).ok
    assert policies("payments").attempts == 8
    assert not _live.LIVE._requests


def test_a_signal_while_we_wait_for_our_turn() -> None:
    """It does not wait in its turn, or many of them would wait on top of each other."""
    here, go_on, told = Event(), Event(), list[Reload]()

    def stay() -> None:
        here.set()
        go_on.wait(A_MINUTE)

    def come() -> None:
        told.append(reload(said(5)))
        go_on.set()

    def later() -> None:
        until(lambda: len(_live.LIVE._threads) == 2)
        signal.pthread_kill(main_thread().ident or 0, signal.SIGTERM)

    load(said(2), environ=Watched(lambda: None, stay))
    with on_signal(come):
        threads = [Thread(target=reload, args=[said(3)]), Thread(target=later)]
        threads[0].start()
        here.wait(A_MINUTE)
        threads[1].start()
        reload(said(4))
    for thread in threads:
        thread.join(A_MINUTE)
    assert told == [Reload()]
    assert policies_now() in (4, 5), "both have had their turn"


def test_an_exchange_that_is_interrupted_is_made_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """By Ctrl-C, say: the error comes out, and everything is exchanged."""
    budget: Any = load(said(2, budgets={"own": {}})).budgets["own"]
    payments, reconfigure = policies("payments"), budget.reconfigure

    def interrupted(other: object) -> None:
        monkeypatch.setattr(budget, "reconfigure", reconfigure)
        raise KeyboardInterrupt

    monkeypatch.setattr(budget, "reconfigure", interrupted)
    with pytest.raises(KeyboardInterrupt):
        reload(said(3, budgets={"own": {"ratio": 0.7}}))
    assert (payments.attempts, budget.ratio) == (3, 0.7)
    assert reload().changed == ()


def test_a_child_process_can_reload_what_its_parent_was_in_the_middle_of() -> None:
    """The thread that was at it does not exist there."""
    told: list[Reload] = []

    def forked() -> None:
        _after_fork()
        told.append(reload(said(5)))

    load(said(2), environ=Watched(lambda: None, forked))
    payments = policies("payments")
    reload(said(3))
    assert told == [Reload(("policies.payments",))]
    assert payments.attempts == 3
    assert reload(said(4)).ok
