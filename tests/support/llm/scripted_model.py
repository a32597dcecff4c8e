"""A scripted language model, and every way to call it, in every colour.

A step of the script is an error to raise or the answer to return: for a stream, a list of chunks. An error
among the chunks is raised in its turn. The last step repeats.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest
import trio
from trio.testing import MockClock

from redouble import Report, Retry, report
from redouble.llm import Model, Usage
from redouble.testing import virtual_time
from tests.support.fakes import in_colour

AT_ONCE = Retry(backoff=[0] * 9)
LABELS = {"provider": "openai", "model": "gpt-5"}


def model_of(**options: Any) -> Model:
    """Return a model that retries without a delay."""
    arguments: dict[str, Any] = {"policy": AT_ONCE, **options}
    return Model("openai", "gpt-5", **arguments)


def always(answer: Any) -> Any:
    """Return a function that returns ``answer`` for all arguments."""

    def answers(*_: object, **__: object) -> Any:
        return answer

    return answers


def text_chunk(text: str, *, finish: str | None = None, usage: Usage | None = None) -> dict[str, Any]:
    """Return a chunk in the format of OpenAI."""
    chunk: dict[str, Any] = {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]}
    if usage is not None:
        chunk["usage"] = {"prompt_tokens": usage.input, "completion_tokens": usage.output}
    return chunk


def status(code: int, headers: dict[str, str] | None = None, body: bytes = b"{}") -> httpx2.HTTPStatusError:
    """Return the error of a response whose body was read."""
    request = httpx2.Request("POST", "http://model.test/")
    answer = httpx2.Response(code, headers=headers, content=body, request=request)
    return httpx2.HTTPStatusError(f"status {code}", request=request, response=answer)


class Service:
    """A language model that follows a script.

    inside: called in each attempt and after each chunk; its results are in ``seen``.
    """

    def __init__(self, *script: Any) -> None:
        self.script = script or ("ok",)
        self.calls = 0
        self.closed = 0
        self.inside: Callable[[], object] = lambda: None
        self.seen: list[Any] = []

    def _step(self) -> Any:
        self.calls += 1
        self.seen.append(self.inside())
        step = self.script[min(self.calls, len(self.script)) - 1]
        if isinstance(step, BaseException):
            raise step
        return step

    def ask(self, *args: object, **kwargs: object) -> Any:
        """Answer in blocking code."""
        return self._step()

    async def aask(self, *args: object, **kwargs: object) -> Any:
        """Answer in async code."""
        return self._step()

    def chunks(self, *args: object, **kwargs: object) -> Generator[Any]:
        """Yield an answer, chunk by chunk."""
        try:
            for chunk in self._step():
                if isinstance(chunk, BaseException):
                    raise chunk
                yield chunk
                self.seen.append(self.inside())
        finally:
            self.closed += 1

    async def achunks(self, *args: object, **kwargs: object) -> AsyncGenerator[Any]:
        """Yield an answer in async code."""
        try:
            for chunk in self._step():
                if isinstance(chunk, BaseException):
                    raise chunk
                yield chunk
                self.seen.append(self.inside())
        finally:
            self.closed += 1


@dataclass
class ModelOutcome:
    """The outcome of one call."""

    value: Any = None
    error: Any = None
    delays: list[float] = field(default_factory=list[float])

    @property
    def report(self) -> Report:
        """The report of a call that failed."""
        found = report(self.error)
        assert found is not None, f"{self.error!r} has no report"
        return found


CallService = Callable[[Model, Service, tuple[object, ...], dict[str, object]], Any]


async def _all(stream: Any) -> list[Any]:
    return [chunk async for chunk in stream]


BLOCKING: dict[str, CallService] = {
    "call": lambda model, service, args, kwargs: model.call(service.ask, *args, **kwargs),
    "function": lambda model, service, args, kwargs: model(service.ask)(*args, **kwargs),
    "stream": lambda model, service, args, kwargs: list(model.stream(service.chunks, *args, **kwargs)),
    "generator": lambda model, service, args, kwargs: list(model(service.chunks)(*args, **kwargs)),
}
WAITING: dict[str, CallService] = {
    "call": lambda model, service, args, kwargs: model.call(service.aask, *args, **kwargs),
    "function": lambda model, service, args, kwargs: model(service.aask)(*args, **kwargs),
    "stream": lambda model, service, args, kwargs: _all(model.stream(service.achunks, *args, **kwargs)),
    "generator": lambda model, service, args, kwargs: _all(model(service.achunks)(*args, **kwargs)),
}
CALLS, STREAMS = ("call", "function"), ("stream", "generator")
every_shape = pytest.mark.parametrize("shape", BLOCKING)
every_call = pytest.mark.parametrize("shape", CALLS)
every_stream = pytest.mark.parametrize("shape", STREAMS)


def run_in_virtual_time(
    colour: str, blocking: Callable[[], Any], waiting: Callable[[], Awaitable[Any]]
) -> tuple[Any, list[float]]:
    """Run ``blocking`` or ``waiting`` in virtual time, and return its result and the delays."""

    async def main() -> Any:
        return await waiting()

    with virtual_time() as clock:
        if colour == "trio":
            value = trio.run(main, clock=MockClock(autojump_threshold=0))
        else:
            within = copy_context()
            value = in_colour(colour, lambda: within.run(blocking), main)
    return value, clock.delays


def ask(
    colour: str, shape: str, model: Model, service: Service, *args: object, **kwargs: object
) -> ModelOutcome:
    """Call the service through the model, in one of the shapes."""

    def blocking() -> ModelOutcome:
        try:
            return ModelOutcome(BLOCKING[shape](model, service, args, kwargs))
        except Exception as error:
            return ModelOutcome(error=error)

    async def waiting() -> ModelOutcome:
        try:
            return ModelOutcome(await WAITING[shape](model, service, args, kwargs))
        except Exception as error:
            return ModelOutcome(error=error)

    seen, delays = run_in_virtual_time(colour, blocking, waiting)
    assert isinstance(seen, ModelOutcome)
    seen.delays = delays
    return seen


def text_of(shape: str, text: str) -> Any:
    """Return an answer with this text: as a whole, or as chunks."""
    return (
        [text_chunk(letter) for letter in text] + [text_chunk("", finish="stop")]
        if shape in STREAMS
        else text
    )
