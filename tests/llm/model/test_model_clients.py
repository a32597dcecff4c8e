"""Known clients receive the time limits and the key of a call, unless the caller passes its own.

The SDKs themselves are called in tests/libraries; the functions here only look like theirs.
"""

from __future__ import annotations

import functools
import sys
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest

from redouble.llm import Model, Timeouts
from redouble.llm._sdks import ModelFunction
from tests.support.fakes import in_colour
from tests.support.llm.scripted_model import model_of

HEADER = "Idempotency-Key"


class Messages:
    """A resource of an SDK, whose methods send requests."""

    def __init__(self, retries: Any = 0) -> None:
        self._client = type("OpenAI", (), {"max_retries": retries})()
        self.received: list[dict[str, Any]] = []

    def create(self, *, timeout: Any = None, extra_headers: Any = None, **more: Any) -> str:
        self.received.append({"timeout": timeout, "extra_headers": extra_headers, **more})
        if len(self.received) == 1 and more.get("fails"):
            raise ConnectionResetError
        return "said"

    async def acreate(self, *, timeout: Any = None, extra_headers: Any = None, **more: Any) -> str:  # noqa: ASYNC109
        return self.create(timeout=timeout, extra_headers=extra_headers, **more)

    def decorated(self, **options: Any) -> Any:
        """Return a coroutine without being a coroutine function, like the async methods of the SDKs."""
        return self.acreate(**options)

    decorated.__wrapped__ = acreate  # type: ignore[attr-defined]  # pyright: ignore[reportFunctionMemberAccess]

    def bare(self) -> str:
        self.received.append({})
        return "said"


@pytest.fixture(params=["openai", "anthropic"])
def messages(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Messages:
    """Return a resource whose methods seem to belong to an SDK."""
    monkeypatch.setitem(sys.modules, request.param, SimpleNamespace(Timeout=httpx2.Timeout))
    for method in ("create", "acreate", "decorated", "bare"):
        monkeypatch.setattr(getattr(Messages, method), "__module__", f"{request.param}.resources")
    return Messages()


def called(colour: str, model: Model, it: Messages, **options: Any) -> Any:
    async def waiting() -> Any:
        return await model.call(it.decorated, **options)

    return in_colour(colour, lambda: model.call(it.create, **options), waiting)


def test_a_client_receives_the_timeout_and_the_key(colour: str, messages: Messages) -> None:
    model = model_of(idempotency="auto", timeouts=Timeouts(3, 7, 20))
    assert called(colour, model, messages, fails=True) == "said"
    first, second = messages.received
    assert (first["timeout"].connect, first["timeout"].read) == (3, 7)
    assert list(first["extra_headers"]) == [HEADER]
    assert first["extra_headers"] == second["extra_headers"]  # the same key in all attempts of a call
    called(colour, model, messages)
    assert messages.received[2]["extra_headers"] != first["extra_headers"]  # another key for another call


def test_options_of_the_caller_win(colour: str, messages: Messages) -> None:
    model = model_of(idempotency="auto")
    options = {"timeout": 9, "extra_headers": {HEADER.lower(): "order-7", "x-team": "chat"}}
    called(colour, model, messages, **options)
    assert messages.received == [options]
    called(colour, model, messages, extra_headers={"x-team": "chat"})
    assert messages.received[1]["extra_headers"].keys() == {HEADER, "x-team"}
    called(colour, model_of(), messages, extra_headers=None)
    assert messages.received[2]["extra_headers"] is None


def test_options_of_a_partial_win(messages: Messages) -> None:
    inner = functools.partial(messages.create, timeout=9, extra_headers={HEADER: "a"})
    model_of(idempotency="auto").call(functools.partial(inner, extra_headers={HEADER: "b"}))
    assert messages.received == [{"timeout": 9, "extra_headers": {HEADER: "b"}}]


def test_a_function_without_these_parameters_receives_nothing(messages: Messages) -> None:
    model_of(idempotency="auto").call(messages.bare)
    assert messages.received == [{}]


def test_a_function_without_a_signature_is_called_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    class Odd:
        __module__ = "httpx2"
        __signature__ = "none"

        def __call__(self) -> str:
            return "said"

    assert model_of(idempotency="auto").call(Odd()) == "said"


def test_is_async_recognises_decorated_async_methods(messages: Messages) -> None:
    assert ModelFunction(messages.decorated).is_async()
    assert ModelFunction(messages.acreate).is_async()
    assert ModelFunction(functools.partial(messages.decorated, timeout=3)).is_async()
    assert not ModelFunction(messages.create).is_async()
    assert not ModelFunction(lambda: messages.decorated(timeout=3)).is_async()


def test_a_method_that_returns_a_coroutine_is_awaited(messages: Messages) -> None:
    """Although it is no coroutine function itself."""

    async def main() -> None:
        assert await model_of()(messages.decorated)(timeout=4) == "said"

    in_colour("asyncio", lambda: None, main)
    assert messages.received == [{"timeout": 4, "extra_headers": None}]


@pytest.mark.parametrize("way", ["call", "stream", "decorated", "partial"])
def test_a_client_that_retries_by_itself_is_refused(messages: Messages, way: str) -> None:
    model, create = model_of(), Messages(2).create
    made: dict[str, Any] = {
        "call": lambda: model.call(create),
        "stream": lambda: model.stream(create),
        "decorated": lambda: model(create),
        "partial": lambda: model.call(functools.partial(create)),
    }
    with pytest.raises(
        TypeError, match=r"create.* retries by itself \(max_retries=2\), so attempts would mul"
    ):
        made[way]()


@pytest.mark.parametrize("retries", [0, None, "many"])
def test_a_client_without_retries_is_accepted(messages: Messages, retries: Any) -> None:
    assert model_of().call(Messages(retries).create) == "said"


def test_an_unknown_function_receives_nothing() -> None:
    received: list[dict[str, Any]] = []

    def ask(**options: Any) -> None:
        received.append(options)

    model_of(idempotency="auto").call(ask, model="m")
    assert received == [{"model": "m"}]
