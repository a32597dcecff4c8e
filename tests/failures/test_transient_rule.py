"""`transient` as an object: extending, comparing, pickling, its cache; and malformed errors."""

from __future__ import annotations

import builtins
import copy
import gc
import pickle
import sys
import threading
import weakref
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from math import nan
from types import ModuleType
from typing import Any
from urllib.error import URLError

import pytest

from redouble import Kind, Retry, Verdict, errors, transient
from redouble._failures.transient import Transient
from tests.support.fakes import UnhashableRule, always

BUSY = Verdict.retry(kind=Kind.server, reason="mine")


class Busy(Exception):
    """An error of a library."""


class Refused(Busy):
    """A subclass of it."""


NAME = f"{__name__}.Busy"


def seventeen(error: Exception) -> bool | None:
    return True if error.args[:1] == (17,) else None


# ------------------------------------------------------------------------------ with_


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (True, Verdict.retry()),
        (False, Verdict.stop()),
        (2.5, Verdict.retry(after=2.5)),
        (0, Verdict.retry(after=0)),
        (timedelta(minutes=1), Verdict.retry(after=60)),
        (BUSY, BUSY),
        (Verdict.accept(), Verdict.accept()),
        (always(BUSY), BUSY),
        (always(3), Verdict.retry(after=3)),
        (always(False), Verdict.stop()),
        (always(None), None),
    ],
)
@pytest.mark.parametrize("key", [Busy, NAME])
def test_every_form_of_an_answer(key: Any, answer: Any, expected: Verdict | None) -> None:
    rule = transient.with_({key: answer})
    for _ in range(2):
        assert rule(Busy()) == expected
        assert rule(Refused()) == expected
        assert rule(ValueError()) is None
        assert rule(TimeoutError()) == transient(TimeoutError())
    assert transient(Busy()) is None


def test_the_nearest_class_decides() -> None:
    rule = transient.with_({Busy: True, f"{__name__}.Refused": False})
    assert rule(Busy()) == Verdict.retry()
    assert rule(Refused()) == Verdict.stop()


def test_the_users_table_has_priority() -> None:
    assert transient.with_({Exception: False})(ConnectionResetError()) == Verdict.stop()
    assert transient.with_({OSError: BUSY})(ConnectionResetError()) == BUSY
    assert transient.with_({"builtins.OSError": BUSY})(PermissionError()) == BUSY


def test_a_function_that_returns_none_leaves_the_verdict_to_the_next() -> None:
    assert transient.with_({OSError: always(None)})(ConnectionResetError()) == transient(
        ConnectionResetError()
    )
    rule = transient.with_({Refused: seventeen, Busy: 5})
    assert rule(Refused(17)) == Verdict.retry()
    assert rule(Refused(18)) == Verdict.retry(after=5)
    assert transient.with_({OSError: always(None)})(OSError(11, "again")) is not None


def test_the_last_table_has_priority() -> None:
    rule = transient.with_({Refused: True}).with_({Busy: False})
    assert rule(Refused()) == Verdict.stop()
    rule = transient.with_({Busy: 1}).with_({Refused: seventeen})
    assert rule(Refused(17)) == Verdict.retry()
    assert rule(Refused()) == Verdict.retry(after=1)


def test_inner_errors_get_the_verdict_of_the_same_rule() -> None:
    rule = transient.with_({Busy: 7})
    kind = type("StatementError", (Exception,), {"__module__": "sqlalchemy.exc"})
    wrapped = kind("statement")
    vars(wrapped)["orig"] = Busy()
    assert rule(wrapped) == Verdict.retry(after=7)
    assert transient(wrapped) is None
    group = ExceptionGroup("all", [Busy(), ExceptionGroup("more", [Busy(), ConnectionRefusedError()])])
    found = rule(group)
    assert found is not None
    assert found.after == 7
    assert transient(group) is None
    assert transient.with_({Busy: False})(group) is None


def test_an_extended_transient_works_as_a_rule() -> None:
    assert (
        Retry(on=transient.with_({Busy: True}), attempts=3, backoff=[0, 0])
        .run(raising(Busy()))
        .report.attempts
        == 3
    )
    assert Retry(on=[transient, Busy], attempts=3, backoff=[0, 0]).run(raising(Busy())).report.attempts == 3
    stopped = Retry(on=[transient.with_({Busy: False}), Busy], backoff=[0]).run(raising(Busy()))
    assert stopped.report.attempts == 1


def raising(error: Exception) -> Callable[[], object]:
    def operation() -> object:
        raise error

    return operation


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_the_error_of_a_function_is_raised(depth: int) -> None:
    """Also if the function judges an error inside an error inside another."""

    def broken(error: Exception) -> bool:
        raise LookupError("mine")

    rule = transient.with_({Busy: broken})
    caused = URLError(Busy())
    error = [Busy(), ExceptionGroup("one", [Busy()]), ExceptionGroup("one", [caused])][depth]
    with pytest.raises(LookupError, match="mine") as caught:
        try:
            raise error
        except Exception as raised:
            rule(raised)
    assert caught.value.__context__ is error
    assert not caught.value.__suppress_context__
    with pytest.raises(TypeError, match="answered 'yes': write True"):
        transient.with_({Busy: always("yes")})(error)


async def coroutine(error: Exception) -> bool:
    return True


@pytest.mark.parametrize(
    ("table", "kind", "message"),
    [
        (None, TypeError, r"with_\(None\): write a mapping, such as"),
        ([Busy], TypeError, "write a mapping"),
        ({3: True}, TypeError, "key 3: write an exception type, or its full name as a text"),
        ({int: True}, TypeError, "key <class 'int'>: write an exception type"),
        ({list[int]: True}, TypeError, "write an exception type"),
        ({Busy(): True}, TypeError, "write an exception type"),
        ({KeyboardInterrupt: True}, ValueError, "KeyboardInterrupt is never retried"),
        ({"Busy": True}, ValueError, "key 'Busy': write the full name, such as 'mylib.errors.Busy'"),
        ({"": True}, ValueError, "write the full name"),
        ({"mylib..Busy": True}, ValueError, "write the full name"),
        ({".Busy": True}, ValueError, "write the full name"),
        ({NAME: None}, TypeError, "is given None: write True, False, a number of seconds, a Verdict, or a"),
        ({NAME: "yes"}, TypeError, "is given 'yes'"),
        ({NAME: OSError}, TypeError, "is given <class 'OSError'>"),
        ({NAME: UnhashableRule()}, TypeError, "is given <"),
        ({NAME: nan}, ValueError, "write a number of seconds"),
        ({NAME: coroutine}, TypeError, "is given a coroutine function: rules are plain functions"),
        ({NAME: partial(coroutine)}, TypeError, "is given a coroutine function"),
    ],
)
def test_invalid_tables_are_refused(table: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        transient.with_(table)


# ------------------------------------------------------- repr, equality and pickling


def test_the_repr_of_transient() -> None:
    assert repr(transient) == "transient"
    rule = transient.with_({Busy: True, "mylib.Full": 2.5}).with_({OSError: seventeen})
    assert repr(rule) == "transient.with_({Busy: True, 'mylib.Full': 2.5}).with_({OSError: seventeen})"
    assert repr(Retry(on=rule)) == f"Retry(on={rule!r})"
    assert repr(Retry(on=[Busy, transient])) == "Retry(on=[Busy, transient])"
    assert repr(Retry(on=transient)) == "Retry()"


def test_transient_is_equal_by_value_and_hashable() -> None:
    one, other = transient.with_({Busy: True}), transient.with_({Busy: True})
    assert one == other
    assert hash(one) == hash(other)
    assert Retry(on=one) == Retry(on=other)
    assert one != transient
    assert one != transient.with_({Busy: 1})  # True means retry, 1 means one second
    assert transient.with_({Busy: True}).with_({OSError: 1}) != transient.with_({OSError: 1}).with_(
        {Busy: True}
    )
    assert Transient() == transient
    assert transient != "transient"
    assert hash(transient.with_({Busy: Unhashable()})) == hash(one)
    assert transient.with_({}) == transient
    assert repr(transient.with_({})) == "transient"


class Unhashable:
    """A rule without a hash."""

    __hash__ = None  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]

    def __call__(self, error: Exception) -> bool:
        return True


def test_the_table_is_copied() -> None:
    table: dict[Any, Any] = {Busy: True}
    rule = transient.with_(table)
    table[Busy] = False
    assert rule(Busy()) == Verdict.retry()
    assert repr(rule) == "transient.with_({Busy: True})"


def pickled(thing: object) -> Any:
    return pickle.loads(pickle.dumps(thing))


@pytest.mark.parametrize("copied", [pickled, copy.copy, copy.deepcopy])
def test_transient_can_be_pickled_and_copied(copied: Callable[[Any], Any]) -> None:
    assert copied(transient) is transient
    rule = transient.with_({Busy: 2.5}).with_({NAME: seventeen, Refused: False})
    assert copied(rule) == rule
    assert copied(rule)(Refused()) == Verdict.stop()
    assert copied(Retry(on=rule)) == Retry(on=rule)


# ------------------------------------------------------------------------------- cache


def test_the_cache_keeps_no_class_alive() -> None:
    rule = transient.with_({Busy: True})
    kind = type("Fleeting", (Busy,), {})
    assert rule(kind()) == Verdict.retry()
    assert transient(kind()) is None
    gone, known = weakref.ref(kind), len(rule._cache)
    del kind
    gc.collect()
    assert gone() is None
    assert len(rule._cache) == known - 1


def test_a_new_class_at_the_address_of_an_old_one_is_not_confused() -> None:
    """The cache is keyed by address."""
    rule = transient.with_({Refused: True})
    assert rule(Refused()) == Verdict.retry()
    for error in (Busy(), ExceptionGroup("one", [Busy()])):
        rule._cache[id(Busy)] = rule._cache[id(Refused)]
        assert rule(error) is None


def test_verdicts_on_many_threads() -> None:
    kinds = [type(f"Reset{n}", (ConnectionResetError,), {}) for n in range(200)]
    rule, wrong = transient.with_({Busy: True}), list[object]()
    start = threading.Barrier(8)

    def judge() -> None:
        start.wait()
        wrong.extend(kind for kind in kinds if rule(kind()) != transient(ConnectionResetError()))

    threads = [threading.Thread(target=judge) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(rule._cache) == len(kinds)


def test_the_table_of_libraries_is_loaded_lazily(monkeypatch: pytest.MonkeyPatch) -> None:
    """A built-in error opens no file; a table that could not be loaded is loaded the next time."""
    imported, broken = builtins.__import__, True

    def fail_to_import(name: str, *args: Any) -> ModuleType:
        if name == "redouble._failures.known_errors" and broken:
            raise OSError(24, "Too many open files")
        return imported(name, *args)

    monkeypatch.setattr(builtins, "__import__", fail_to_import)
    rule = Transient()
    timeout = type("TimeoutException", (TimeoutError,), {"__module__": "httpx"})
    read = type("ReadTimeout", (timeout,), {"__module__": "httpx"})
    assert rule(TimeoutError()) == transient(TimeoutError())
    assert rule(errors.Rejected("closed")) is not None
    assert rule(read()) == transient(TimeoutError())
    assert rule(Busy()) is None
    broken = False
    assert rule(read()) == Verdict.retry(kind=Kind.timeout, reason="timeout_read")
    assert "redouble._failures.known_errors" in sys.modules


# -------------------------------------------------------------------- malformed errors


class Unreadable(OSError):
    @property
    def errno(self) -> int:  # type: ignore[override]  # pyright: ignore[reportIncompatibleVariableOverride]
        raise RuntimeError("no number")


class Mute(OSError):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Closed(OSError):
    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(f"no {name}")


class Strange(type):
    """A metaclass whose classes have no readable name."""

    def __getattribute__(cls, name: str) -> Any:
        if name == "__qualname__":
            raise RuntimeError("no name")
        return super().__getattribute__(name)


class Nameless(ConnectionError, metaclass=Strange):
    """An error whose class has no readable name."""


class Unhashed(type):
    __hash__ = None  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]

    def __eq__(cls, other: object) -> bool:
        raise RuntimeError("not to be compared")


class Placeless(ConnectionError, metaclass=Unhashed):
    """An error whose class is not hashable."""


@pytest.mark.parametrize("made", [Unreadable, Mute, Closed, Nameless], ids=["errno", "str", "all", "name"])
def test_errors_that_cannot_be_read_are_not_transient(made: Callable[[], Exception]) -> None:
    for _ in range(2):
        assert transient(made()) is None
        assert transient(ExceptionGroup("one", [made()])) is None


def test_a_class_without_a_hash_has_the_verdict_of_its_parent() -> None:
    assert transient(Placeless()) == transient(ConnectionError())
    assert transient.with_({ConnectionError: 3})(Placeless()) == Verdict.retry(after=3)


def test_groups_may_be_of_any_depth_and_width() -> None:
    deep: ExceptionGroup[Exception] = ExceptionGroup("one", [ConnectionResetError()])
    for _ in range(5000):
        deep = ExceptionGroup("one more", [deep])
    found = transient(deep)
    assert found is not None
    assert found.kind is Kind.network
    wide: ExceptionGroup[Exception] = ExceptionGroup("one", [ConnectionResetError()])
    for _ in range(200):
        wide = ExceptionGroup("twice", [wide, wide])
    assert transient(wide) == found


def test_a_base_exception_is_not_transient() -> None:
    interrupt: Any = KeyboardInterrupt()
    assert transient(interrupt) is None


class Own(ExceptionGroup[Exception]):
    """A subclass of ExceptionGroup."""


def test_subclasses_of_groups_are_searched() -> None:
    error: Exception = ConnectionResetError()
    for _ in range(5):
        error = Own("one", [error])
    assert transient(error) is not None
    for _ in range(500):
        error = Own("one", [error, error])  # each member is inspected once, however often it occurs
    assert transient(error) is not None
