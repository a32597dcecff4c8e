"""What is retried, by name: built-in names and registered ones, and never anything imported."""

from __future__ import annotations

import builtins
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import redouble
from redouble import errors, transient
from redouble.config import from_mapping, policy, register, to_mapping
from redouble.errors import ConfigError
from tests.support.fakes import always


class Busy(Exception):
    """Something of a program's own."""


class Full(Exception):
    """Another one."""


class Known:
    """A judge."""

    def judge(self, ended: Any) -> bool:
        return True


def patient(error: Exception) -> bool:
    return isinstance(error, Busy)


JUDGE = Known()

register("names.Busy", Busy)
register("names.both", (Busy, Full))
register("names.patient", patient)
register("names.judge", JUDGE)
register("names.listed", [Full, patient])


@pytest.mark.parametrize(
    ("said", "on"),
    [
        ("ConnectionError", ConnectionError),
        ("Exception", Exception),
        ("IOError", OSError),
        ("ExceptionGroup", ExceptionGroup),
        ("transient", transient),
        ("AttemptTimeout", errors.AttemptTimeout),
        ("Rejected", errors.Rejected),
        ("CircuitOpen", errors.CircuitOpen),
        ("BulkheadFull", errors.BulkheadFull),
        ("RateLimited", errors.RateLimited),
        ("names.Busy", Busy),
        ("names.both", (Busy, Full)),
        ("names.patient", patient),
        ("names.judge", JUDGE),
        ("names.listed", (Full, patient)),
        (["transient"], (transient,)),
        (["transient", "names.both", "OSError"], (transient, (Busy, Full), OSError)),
    ],
)
def test_names(said: Any, on: object) -> None:
    made = policy({"on": said})
    assert made.on == on
    assert policy(to_mapping(made)) == made


def test_every_built_in_exception_has_its_name() -> None:
    kinds = [kind for kind in vars(builtins).values() if isinstance(kind, type) and kind.__name__[0] != "_"]
    for kind in kinds:
        if issubclass(kind, Exception):
            assert policy({"on": kind.__name__}).on is kind
        elif issubclass(kind, BaseException):
            with pytest.raises(ConfigError, match="is never retried: cancellation, Ctrl-C and exits belong"):
                policy({"on": ["OSError", kind.__name__]})
        else:
            with pytest.raises(ConfigError, match=r"^on: .* is not known"):
                policy({"on": kind.__name__})


@pytest.mark.parametrize("name", ["CancelledError", "asyncio.CancelledError", "trio.Cancelled"])
def test_cancellation_has_no_name(name: str) -> None:
    with pytest.raises(ConfigError, match="is never retried"):
        policy({"on": name})


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("ConectionError", "^on: 'ConectionError' is not known; did you mean 'ConnectionError'"),
        ("names.Bussy", "did you mean 'names.Busy'"),
        (
            "os.system",
            "write a built-in exception or 'transient', or name your own with redouble",
        ),
        ("redouble.errors", "is not known"),
        ("RetryError", "is not known"),
        ("print", "is not known"),
        ("x" * 500, r"^on: 'xxx.*\.\.\..* is not known"),
        ("", "is not known"),
        ([], "the list is empty, so nothing would count"),
        (["OSError", 5], "5: write a name in quotes"),
        ([["OSError"]], "write a name in quotes"),
        (5, "write a name, or a list of names"),
        (None, "write a name, or a list of names"),
        ({"OSError": 1}, "write a name, or a list of names"),
        (True, "write a name, or a list of names"),
    ],
)
def test_what_has_no_name(said: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=told) as refused:
        policy({"on": said})
    assert refused.value.path == "on"


def test_gates_know_the_same_names() -> None:
    made = from_mapping({"gates": {"a": {"type": "circuit_breaker", "on": ["names.Busy", "OSError"]}}})
    assert made.to_mapping()["gates"] == {"a": {"type": "circuit_breaker", "on": ["names.Busy", "OSError"]}}


@pytest.mark.parametrize(
    ("name", "told"),
    [
        *(
            (name, "has a meaning already")
            for name in ("ConnectionError", "transient", "Rejected", "SystemExit")
        ),
        *((name, "write a name such as 'Busy'") for name in ("", "a b", "a..b", ".a", "1a", "a-b", 5, None)),
    ],
)
def test_names_that_cannot_be_given(name: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        register(name, Busy)


def test_a_name_stands_for_one_thing() -> None:
    register("names.Busy", Busy)
    register("names.both", (Busy, Full))
    with pytest.raises(ConfigError, match=r"names\.Busy.*stands for .*Busy.* already; choose another name"):
        register("names.Busy", Full)
    with pytest.raises(ConfigError, match="already"):
        register("names.both", (Full, Busy))


@pytest.mark.parametrize("on", [5, "OSError", KeyboardInterrupt, (), [], int, (OSError, 5)])
def test_only_what_a_policy_takes_can_be_named(on: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="on="):
        register("names.wrong", on)


def test_many_threads_may_register() -> None:
    kinds = {f"names.many{i}": type(f"Many{i}", (Exception,), {}) for i in range(200)}
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(register, kinds.keys(), kinds.values()))
    assert all(policy({"on": name}).on is kind for name, kind in kinds.items())


def test_what_has_no_name_cannot_be_written() -> None:
    anonymous = type("Anonymous", (Exception,), {})
    rules: list[Any] = [anonymous, always(True), [OSError, Known()]]
    for on in rules:
        with pytest.raises(ConfigError, match=r"^on: .* has no name in documents.*register") as refused:
            to_mapping(redouble.Retry(on=on))
        assert refused.value.path == "on"


def test_an_impostor_is_not_taken_for_what_it_is_called() -> None:
    with pytest.raises(ConfigError, match="has no name"):
        to_mapping(redouble.Retry(on=type("OSError", (Exception,), {})))


def test_nested_tuples_are_written_as_one_list() -> None:
    made = redouble.Retry(on=[(OSError, KeyError), transient])
    assert to_mapping(made) == {"on": ["OSError", "KeyError", "transient"]}
