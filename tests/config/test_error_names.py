"""Exceptions and rules by name: built-in and registered names; nothing is ever imported by name."""

from __future__ import annotations

import builtins
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

import redouble
from redouble import errors, transient
from redouble.config import from_mapping, policy, register, to_mapping
from redouble.config._options.catalogue import LAYERS
from redouble.errors import ConfigError
from redouble.http import rule
from tests.support.fakes import always


class Busy(Exception):
    """An exception of the application."""


class Full(Exception):
    """Another exception of the application."""


class Known:
    """A rule with a `judge` method."""

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
    ("value", "on"),
    [
        ("ConnectionError", ConnectionError),
        ("Exception", Exception),
        ("IOError", OSError),
        ("ExceptionGroup", ExceptionGroup),
        ("transient", transient),
        ("http", rule()),
        ("AttemptTimeout", errors.AttemptTimeout),
        ("Rejected", errors.Rejected),
        ("CircuitOpen", errors.CircuitOpen),
        ("BulkheadFull", errors.BulkheadFull),
        ("WorkersBusy", errors.WorkersBusy),
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
def test_a_name_stands_for_an_exception_or_a_rule(value: Any, on: object) -> None:
    made = policy({"on": value})
    assert made.on == on
    assert policy(to_mapping(made)) == made


def test_built_in_exceptions_are_known_by_name() -> None:
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
def test_cancellation_cannot_be_retried_by_name(name: str) -> None:
    with pytest.raises(ConfigError, match="is never retried"):
        policy({"on": name})


@pytest.mark.parametrize(
    ("value", "message"),
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
def test_an_unknown_name_raises(value: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as raised:
        policy({"on": value})
    assert raised.value.path == "on"


def is_ready(answer: object) -> bool:
    return answer == "ready"


register("names.ready", is_ready)
WITH_UNTIL = [tag for tag, table in LAYERS.tables.items() if "until" in table.options]


@pytest.mark.parametrize("layer", WITH_UNTIL)
@pytest.mark.parametrize(
    ("name", "until"),
    [("http", rule()), ("names.ready", is_ready), ("names.patient", patient), ("names.judge", JUDGE)],
)
def test_a_name_stands_for_a_rule_for_results(layer: str, name: str, until: object) -> None:
    needed: dict[str, Any] = {"fallback": {"value": 1}, "stale_fallback": {"max_age": 1}}
    table = {"type": layer, "until": name, **needed.get(layer, {})}
    made = from_mapping({"pipelines": {"a": {"layers": [table]}}}).pipelines["a"].layers[0]
    assert getattr(getattr(made, "settings", made), "until") == until  # noqa: B009  of several types
    assert to_mapping(made)["until"] == name


def test_every_layer_with_a_rule_for_results_takes_its_name() -> None:
    assert [tag for tag, table in LAYERS.tables.items() if "until" in table.defaults] == WITH_UNTIL
    assert {"circuit_breaker", "retry"} <= set(WITH_UNTIL)


def test_the_rule_for_http_judges_results() -> None:
    breaker: Any = from_mapping(
        {"gates": {"a": {"type": "circuit_breaker", "failures": 2, "until": "http"}}}
    ).gates["a"]
    for status in (503, 404, 503, 500):
        assert breaker.call(httpx2.Response, status).status_code == status
    assert breaker.state == "open"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("htttp", "^until: 'htttp' is not known; write 'http', or name your own rule with redouble.config"),
        ("transient", "'transient' judges errors, and until judges results: write 'http', or your own rule"),
        ("OSError", "'OSError' judges errors"),
        ("names.Busy", "'names.Busy' judges errors"),
        ("names.both", "'names.both' judges errors"),
        ("os.system", "is not known"),
        (["http"], "write the name of a rule in quotes"),
        (True, "write the name of a rule in quotes"),
        (None, "write the name of a rule in quotes"),
    ],
)
def test_what_is_no_rule_for_results_raises(value: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as raised:
        policy({"until": value})
    assert raised.value.path == "until"


def test_gates_accept_the_same_names() -> None:
    made = from_mapping({"gates": {"a": {"type": "circuit_breaker", "on": ["names.Busy", "OSError"]}}})
    assert made.to_mapping()["gates"] == {"a": {"type": "circuit_breaker", "on": ["names.Busy", "OSError"]}}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        *(
            (name, "has a meaning already")
            for name in ("ConnectionError", "transient", "Rejected", "SystemExit")
        ),
        *((name, "write a name such as 'Busy'") for name in ("", "a b", "a..b", ".a", "1a", "a-b", 5, None)),
    ],
)
def test_register_refuses_reserved_and_malformed_names(name: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        register(name, Busy)


def test_a_name_cannot_be_registered_for_two_objects() -> None:
    register("names.Busy", Busy)
    register("names.both", (Busy, Full))
    with pytest.raises(ConfigError, match=r"names\.Busy.*the name of .*Busy.* already; choose another name"):
        register("names.Busy", Full)
    with pytest.raises(ConfigError, match="already"):
        register("names.both", (Full, Busy))


@pytest.mark.parametrize("on", [5, "OSError", KeyboardInterrupt, (), [], int, (OSError, 5)])
def test_register_refuses_what_a_policy_would_refuse(on: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="on="):
        register("names.wrong", on)


def test_many_threads_may_register_at_once() -> None:
    kinds = {f"names.many{i}": type(f"Many{i}", (Exception,), {}) for i in range(200)}
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(register, kinds.keys(), kinds.values()))
    assert all(policy({"on": name}).on is kind for name, kind in kinds.items())


def test_an_unregistered_rule_cannot_be_written() -> None:
    anonymous = type("Anonymous", (Exception,), {})
    rules: list[Any] = [anonymous, always(True), [OSError, Known()]]
    for on in rules:
        with pytest.raises(ConfigError, match=r"^on: .* has no name in documents.*register") as raised:
            to_mapping(redouble.Retry(on=on))
        assert raised.value.path == "on"


def test_a_class_that_only_has_the_name_of_an_exception_is_not_written() -> None:
    with pytest.raises(ConfigError, match="has no name"):
        to_mapping(redouble.Retry(on=type("OSError", (Exception,), {})))


def test_nested_tuples_are_written_as_one_list() -> None:
    made = redouble.Retry(on=[(OSError, KeyError), transient])
    assert to_mapping(made) == {"on": ["OSError", "KeyError", "transient"]}
