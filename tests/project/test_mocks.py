"""Objects that have every attribute, such as mocks, are called; their attributes are not used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import AsyncMock, MagicMock, Mock

import pytest

from redouble import Retry, policy_of
from tests.support.fakes import ASYNC, Boom, Virtual, in_colour

MOCKS = [Mock, MagicMock]
BUSY: list[dict[str, Any]] = [{}, {"timeout": 9}]


class CatchAll:
    """An object that has every attribute, such as a proxy."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)

    def __call__(self, *args: object) -> Any:
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return CatchAll()


def policy(**options: Any) -> Retry:
    arguments: dict[str, Any] = {"on": Boom, "backoff": [1] * 9, "clock": Virtual()}
    return Retry(**arguments | options)


def operations() -> list[Callable[..., object]]:
    """Return callables that fail once."""
    return [CatchAll(Boom(), 3), *(make(side_effect=[Boom(), 3]) for make in MOCKS)]


@pytest.mark.parametrize("options", BUSY)
def test_mocks_are_plain_callables(options: dict[str, Any]) -> None:
    retrying = policy(**options)
    for operation in operations():
        assert retrying.call(operation, 1) == 3
    for operation in operations():
        assert retrying.run(operation).unwrap() == 3
    for operation in operations():
        decorated = retrying(operation)
        assert policy_of(decorated) is retrying
        assert policy_of(operation) is None
        assert decorated(1) == 3


@pytest.mark.parametrize("options", BUSY)
@pytest.mark.parametrize("colour", ASYNC)
def test_an_async_mock_is_a_coroutine_function(colour: str, options: dict[str, Any]) -> None:
    async def main() -> list[object]:
        retrying = policy(**options)
        mocks = [AsyncMock(side_effect=[Boom(), value]) for value in (1, 2, 3)]
        outcome = await retrying.run(mocks[2])
        return [await retrying.call(mocks[0]), await retrying(mocks[1])(), outcome.value]

    assert in_colour(colour, lambda: None, main) == [1, 2, 3]


@pytest.mark.parametrize("option", ["on", "until"])
def test_mocks_as_rules_are_called(option: str) -> None:
    """Their attribute ``judge`` is not used."""
    answers = [True] if option == "on" else [False, True]
    for rule in (CatchAll(*answers), Mock(side_effect=answers), MagicMock(side_effect=answers)):
        operation = CatchAll(Boom(), 3) if option == "on" else CatchAll(1, 3)
        assert policy(**{option: rule}).call(operation) == 3


def test_mocks_may_be_observers() -> None:
    observer = Mock()
    policy(on_retry=observer, on_success=CatchAll(None)).call(CatchAll(Boom(), 3))
    assert [call.args[0].what for call in observer.call_args_list] == ["retry"]


@pytest.mark.parametrize("option", ["on", "until", "on_retry"])
def test_an_async_mock_is_no_rule_and_no_observer(option: str) -> None:
    with pytest.raises(TypeError, match="is a coroutine function"):
        policy(**{option: AsyncMock()})
