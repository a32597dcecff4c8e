"""Other entry points of an SDK: wrapped methods, and calls that would return an unguarded stream."""

from __future__ import annotations

import functools
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest

from tests.support.fakes import in_colour
from tests.support.llm.scripted_model import always, model_of


def method(client: object) -> Callable[..., str]:
    """Return a method that looks like one of an SDK."""

    class Completions:
        _client = client

        def create(self, **said: Any) -> str:
            return f"said {said['prompt']}"

    return Completions().create


def raw(create: Any) -> Callable[..., str]:
    """Wrap a method, as ``with_raw_response`` does."""

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


def test_a_wrapped_method_of_a_client_that_retries_is_refused(create: Any) -> None:
    assert model_of().call(raw(create(0)), prompt="this") == "raw: said this"
    with pytest.raises(TypeError, match=r"create retries by itself \(max_retries=2\)"):
        model_of().call(raw(create(2)), prompt="this")


def test_a_function_without_a_client_is_called(create: Any) -> None:
    def alone(**said: Any) -> str:
        return "said"

    alone.__module__ = "openai.helpers"
    assert model_of().call(alone) == "said"


@pytest.mark.parametrize("called", ["call", "decorated", "partial"])
def test_a_call_with_stream_true_raises(create: Any, called: str) -> None:
    ask = create(0)
    calls: dict[str, Callable[[], object]] = {
        "call": lambda: model_of().call(ask, stream=True),
        "decorated": lambda: model_of()(ask)(stream=True),
        "partial": lambda: model_of().call(
            functools.partial(functools.partial(ask, stream=True), prompt="x")
        ),
    }
    with pytest.raises(TypeError, match=r"^stream=True returns a stream: write model\.stream\(.*create, "):
        calls[called]()
    assert model_of().call(functools.partial(ask, stream=True), stream=False, prompt="this") == "said this"


def test_stream_true_is_accepted_for_other_functions() -> None:
    def ask(*, stream: bool = False) -> str:
        return f"all at once, {stream}"

    assert model_of()(ask)(stream=True) == "all at once, True"


# ----------------------------------------------------------------- unguarded streams


class Stream:
    """A stream of an SDK."""

    def __init__(self) -> None:
        self.closed = 0

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        return 1

    def close(self) -> None:
        self.closed += 1


class AsyncStream:
    """An async stream, whose ``close()`` a blocking call could not await."""

    def __aiter__(self) -> AsyncIterator[int]:
        return self

    async def __anext__(self) -> int:
        return 1

    async def close(self) -> None: ...


class Manager:
    """The result of ``messages.stream``: no request has been sent yet."""

    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...


@pytest.mark.parametrize("made", [Stream, AsyncStream, Manager, lambda: iter([1])])
def test_a_call_that_returns_a_stream_closes_it_and_raises(
    colour: str, made: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Manager, "__module__", "anthropic.lib.streaming")
    found: list[Any] = []

    def ask() -> Any:
        found.append(made())
        return found[0]

    async def aask() -> Any:
        return ask()

    async def waiting() -> None:
        await model_of(retry_if=always(True)).call(aask)

    said = r"ask returned a stream \(\w+\), which call\(\) does not guard: write model\.stream\(.*ask, "
    with pytest.raises(TypeError, match=said):
        in_colour(colour, lambda: model_of(retry_if=always(True)).call(ask), waiting)
    assert len(found) == 1
    assert getattr(found[0], "closed", 1) == 1


def test_other_context_managers_may_be_returned() -> None:
    """A function of the caller may return a file or a lock."""
    assert isinstance(model_of().call(Manager), Manager)
    assert model_of().call(lambda: [1, 2]) == [1, 2]


def test_the_name_of_the_model_is_passed_on(create: Any) -> None:
    """It is written once, in the `Model`; one that is passed stays."""

    class Completions:
        _client = SimpleNamespace(max_retries=0)

        def create(self, *, model: str = "none", prompt: str) -> str:
            return f"{model}: {prompt}"

    Completions.create.__module__ = "openai.resources"
    method = Completions().create
    assert model_of().call(method, prompt="hi") == "gpt-5: hi"
    assert model_of().call(method, model="gpt-4", prompt="hi") == "gpt-4: hi"
    assert model_of().call(functools.partial(method, model="o3"), prompt="hi") == "o3: hi"


def test_a_function_of_your_own_gets_no_name() -> None:
    def own(*, model: str = "none") -> str:
        return model

    assert model_of().call(own) == "none"


@pytest.mark.parametrize("aio", [False, True])
def test_an_async_client_is_known_before_its_stream_is_opened(create: Any, aio: bool) -> None:
    async def aclose() -> None: ...

    client = SimpleNamespace(max_retries=0, close=aclose if aio else always(None))
    found: Any = method(client)
    found.__func__.__module__ = "openai.resources"
    assert model_of().stream(found)._aio is aio
