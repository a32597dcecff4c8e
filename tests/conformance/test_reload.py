"""Reloading a configuration while calls run: the facts about Kevlar."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from redouble import policies
from redouble.config import _reload as _live
from redouble.config import load, reload
from redouble.config._reload import ConfigStore
from redouble.instruments import memory
from tests.conformance.flows import EVERY, in_colour

every_colour = pytest.mark.parametrize("colour", EVERY)
every_mistake = pytest.mark.parametrize(
    ("wrong", "path"),
    [
        ({"policies": {"users": {"attempts": 0}}}, "policies.users.attempts"),
        ({"policies": {"users": {"atempts": 9}}}, "policies.users.atempts"),
        ({"policies": {"users": {"attempts": 9, "on": "os.system"}}}, "policies.users.on"),
        ({"policies": {"others": {"attempts": 9}}}, "policies.users"),
        ({"policies": {"users": {"attempts": 9}}, "gates": {"db": {"type": "dor"}}}, "gates.db.type"),
        ("nowhere.toml", "nowhere.toml"),
    ],
    ids=["value", "key", "code", "name", "elsewhere", "file"],
)


@pytest.fixture(autouse=True)
def nothing_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin without a configuration, and leave none behind."""
    monkeypatch.setattr(_live, "LIVE", ConfigStore())


def document(attempts: int, version: str) -> dict[str, Any]:
    policy = {"attempts": attempts, "on": "LookupError", "backoff": [0] * 9, "labels": {"version": version}}
    return {"policies": {"users": policy}}


class Caller:
    """A failing function with the policy `users`; its first call runs ``meanwhile`` between two attempts."""

    def __init__(self, colour: str, meanwhile: Callable[[], object]) -> None:
        self.colour = colour
        self.meanwhile: list[Callable[[], object]] = [meanwhile]
        users = policies("users")
        self.blocking, self.waiting = users(self.fail), users(self.afail)
        self.calls = 0

    def fail(self) -> None:
        self.calls += 1
        if self.meanwhile:
            self.meanwhile.pop()()
        raise LookupError

    async def afail(self) -> None:
        self.fail()

    def attempts(self) -> int:
        """Make a call, and return the number of attempts."""
        self.calls = 0
        with pytest.raises(LookupError):
            in_colour(self.colour, self.blocking, self.waiting)
        return self.calls


@every_colour
@every_mistake
def test_pipeline_kevlar_validation_an_invalid_reload(
    colour: str, wrong: Any, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """pipeline.kevlar_validation: the last valid one stays for all calls, and the error is logged."""
    load(document(3, "good"), environ=None)
    results: list[Any] = []
    caller = Caller(colour, lambda: results.append(reload(wrong)))
    with memory.instrument() as metrics:
        assert [caller.attempts(), caller.attempts()] == [3, 3]
    assert metrics.counter("attempts") == metrics.counter("attempts", version="good") == 6
    [[changed, error]] = results
    assert (changed, error.path) == ((), path)
    [record] = caplog.records
    assert (record.name, record.levelno) == ("redouble", logging.ERROR)
    assert str(error) in record.getMessage()


@every_colour
def test_pipeline_kevlar_validation_calls_in_flight(colour: str) -> None:
    """pipeline.kevlar_validation: calls in flight keep their policy; later ones use the new one."""
    load(document(3, "old"), environ=None)
    caller = Caller(colour, lambda: reload(document(5, "new")))
    with memory.instrument() as metrics:
        assert [caller.attempts(), caller.attempts()] == [3, 5]
    assert [metrics.counter("attempts", version=version) for version in ("old", "new")] == [3, 5]
    assert [metrics.counter("calls", version=version) for version in ("old", "new")] == [1, 1]


@every_colour
def test_pipeline_kevlar_validation_a_valid_reload_after_an_invalid_one(colour: str) -> None:
    """pipeline.kevlar_validation: nothing of the invalid one is left."""
    load(document(3, "old"), environ=None)

    def twice() -> None:
        assert not reload(document(0, "bad")).ok
        assert reload(document(5, "new")).changed == ("policies.users",)

    caller = Caller(colour, twice)
    assert [caller.attempts(), caller.attempts()] == [3, 5]
