"""The other doors of an SDK: methods that are wrapped, and streams that nobody would guard."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest
from asking import model_of


def method(client: object) -> Callable[..., str]:
    """Make a method that looks like one of an SDK's."""

    class Completions:
        _client = client

        def create(self, **said: Any) -> str:
            return f"said {said['prompt']}"

    return Completions().create


def raw(create: Any) -> Callable[..., str]:
    """Wrap it, as ``with_raw_response`` does."""

    @functools.wraps(create)
    def wrapped(**said: Any) -> str:
        return f"raw: {create(**said)}"

    return wrapped


@pytest.fixture
def create(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Callable[..., str]]:
    monkeypatch.setitem(sys.modules, "openai", SimpleNamespace(Timeout=httpx2.Timeout))

    def made(retries: int) -> Callable[..., str]:
        found: Any = method(SimpleNamespace(max_retries=retries))
        found.__func__.__module__ = "openai.resources"
        bound: Callable[..., str] = found
        return bound

    return made


def test_one_that_is_wrapped_is_refused_too(create: Any) -> None:
    assert model_of().call(raw(create(0)), prompt="this") == "raw: said this"
    with pytest.raises(TypeError, match=r"create retries by itself \(max_retries=2\)"):
        model_of().call(raw(create(2)), prompt="this")


def test_one_without_a_client_is_left_alone(create: Any) -> None:
    def alone(**said: Any) -> str:
        return "said"

    alone.__module__ = "openai.helpers"
    assert model_of().call(alone) == "said"


@pytest.mark.parametrize("called", ["call", "decorated", "partial"])
def test_a_stream_is_not_asked_for_by_a_call(create: Any, called: str) -> None:
    ask = create(0)
    calls: dict[str, Callable[[], object]] = {
        "call": lambda: model_of().call(ask, stream=True),
        "decorated": lambda: model_of()(ask)(stream=True),
        "partial": lambda: model_of().call(
            functools.partial(functools.partial(ask, stream=True), prompt="x")
        ),
    }
    with pytest.raises(TypeError, match=r"^stream=True gives a stream: write model\.stream\(.*create, "):
        calls[called]()
    assert model_of().call(functools.partial(ask, stream=True), stream=False, prompt="this") == "said this"


def test_a_function_of_yours_may_mean_something_else_by_it() -> None:
    def ask(*, stream: bool = False) -> str:
        return f"all at once, {stream}"

    assert model_of()(ask)(stream=True) == "all at once, True"
