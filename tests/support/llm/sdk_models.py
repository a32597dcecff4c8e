"""Calls of language models through an `llm.Model`, with each SDK and its own HTTP client.

    with opened("anthropic-trio") as client:
        result = client.stream(llm.Model("anthropic", "m"), server.url("503,anthropic"))
        assert result.text == "Hello from attempt 2"

The interface is blocking, and the same for all SDKs. Only for tests/libraries, where these are installed.
"""

from __future__ import annotations

import gc
import importlib
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from anyio import wait_all_tasks_blocked
from anyio.from_thread import BlockingPortal, start_blocking_portal

import redouble
from redouble import Report, Retry, llm
from tests.support.llm.sdk_clients import KEY, PROMPT
from tests.support.servers import Server, black_hole, value

# fmt: off
__all__ = [
    "ASYNC",
    "HELLO",
    "IGNORE_UNCLOSED_GENERATORS",
    "KEY",
    "PROMPT",
    "SDKS",
    "STREAMS",
    "USAGE",
    "SdkClient",
    "SdkModelResult",
    "Server",
    "black_hole",
    "call_and_collect",
    "called",
    "every_stream",
    "every_way",
    "model",
    "opened",
    "value",
    "words",
]
# fmt: on

KINDS = {"openai": "openai", "responses": "openai", "anthropic": "anthropic"}  # the endpoint, and its SDK
LOOPS = ("asyncio", "trio")
ASYNC = [f"{kind}-{loop}" for kind in KINDS for loop in LOOPS]
SDKS = [*KINDS, *ASYNC]
CLASSES = {"openai": "OpenAI", "anthropic": "Anthropic"}
# The SDKs and the HTTP client below them do not close their async generators when a stream ends early. They
# leave these to the garbage collector, with or without redouble, and Trio warns.
IGNORE_UNCLOSED_GENERATORS = pytest.mark.filterwarnings(
    r"ignore:Async generator '(openai|anthropic|httpx2|httpcore2)\.:ResourceWarning"
)
AT_ONCE = [0] * 9
HELLO = "Hello from attempt"
USAGE = llm.Usage(7, 4)  # that the server reports for every question and answer
LONG = 30.0  # seconds; never reached
STREAMS = ["stream", "manager"]

every_way = pytest.mark.parametrize("how", ["call", *STREAMS])
every_stream = pytest.mark.parametrize("how", STREAMS)


@dataclass
class SdkModelResult:
    """The outcome of one call for its caller."""

    text: str = ""
    error: Any = None
    chunks: list[Any] = field(default_factory=list[Any])
    usage: llm.Usage | None = None

    @property
    def outcome(self) -> str:
        """The text of the answer, or else the name of the error."""
        return self.text if self.error is None else type(self.error).__name__

    def report(self) -> Report:
        """Return the report of the error."""
        found = redouble.report(self.error)
        assert found is not None, "there is no report"
        return found


def model(provider: str = "someone", **options: Any) -> llm.Model:
    """Return a model without delays, and with a long timeout."""
    policy = options.pop("policy", None) or Retry(backoff=AT_ONCE, **options.pop("retry", {}))
    given: dict[str, Any] = {"timeouts": LONG, **options}
    return llm.Model(provider, "m", policy=policy, **given)


class SdkClient:
    """The open client of an SDK."""

    def __init__(self, name: str, raw: Any, run: Callable[..., Any]) -> None:
        self.kind, _, self.loop = name.partition("-")
        self.sdk = KINDS[self.kind]
        self.raw, self._run = raw, run

    def client(self, url: str, **options: Any) -> Any:
        """Return the client for an address, with the same connections."""
        path = "v1" if self.sdk == "openai" else ""
        return self.raw.with_options(base_url=url + path, **options)

    def script(self, script: str) -> str:
        """Return a script in which ``OK`` is replaced by a step that answers in the protocol of the SDK."""
        return script.replace("OK", self.kind)

    def opener(self, client: Any, how: str) -> tuple[Any, dict[str, Any]]:
        """Return the method that sends a question, and its arguments.

        how: ``call``, ``stream``, or ``manager`` for the context manager of a stream.
        """
        question: dict[str, Any] = {"model": "m"}
        if self.kind == "responses":
            endpoint = client.responses
            question["input"] = PROMPT
        else:
            endpoint = client.chat.completions if self.kind == "openai" else client.messages
            question["messages"] = [{"role": "user", "content": PROMPT}]
        if self.kind == "anthropic":
            question["max_tokens"] = 9
        if how == "manager":
            return endpoint.stream, question
        return endpoint.create, question | ({"stream": True} if how == "stream" else {})

    def usage_options(self) -> dict[str, Any]:
        """Return the options with which a stream reports its usage."""
        return {"stream_options": {"include_usage": True}} if self.kind == "openai" else {}

    def ask(
        self,
        how: str,
        model: llm.Model,
        url: str,
        *,
        most: int | None = None,
        client: Any = None,
        **arguments: Any,
    ) -> SdkModelResult:
        """Send a question and return the outcome; a `BaseException` that is no `Exception` is raised.

        most: how many chunks of a stream are read before it is closed.
        """
        fn, question = self.opener(client or self.client(url), how)
        result = SdkModelResult()
        work: Callable[..., Any] = self._acall if self.loop else self._call
        if how != "call":
            work = self._astream if self.loop else self._stream
        self._run(work, result, model, fn, {**question, **arguments}, most)
        return result

    def call(self, model: llm.Model, url: str, **arguments: Any) -> SdkModelResult:
        """Send a question that is answered as a whole."""
        return self.ask("call", model, url, **arguments)

    def stream(self, model: llm.Model, url: str, **arguments: Any) -> SdkModelResult:
        """Send a question that is answered as a stream."""
        return self.ask("stream", model, url, **arguments)

    def run(self, fn: Callable[..., Any], *args: Any) -> Any:
        """Run a function of the client's colour, on the client's event loop if it has one."""
        return self._run(fn, *args)

    def _call(self, result: SdkModelResult, model: llm.Model, fn: Any, question: Any, _: object) -> None:
        try:
            result.chunks.append(model.call(fn, **question))
            result.text = words(result.chunks[0])
        except Exception as error:
            result.error = error

    async def _acall(
        self, result: SdkModelResult, model: llm.Model, fn: Any, question: Any, _: object
    ) -> None:
        try:
            result.chunks.append(await model.call(fn, **question))
            result.text = words(result.chunks[0])
        except Exception as error:
            result.error = _without_frames(error)

    def _stream(
        self, result: SdkModelResult, model: llm.Model, fn: Any, question: Any, most: int | None
    ) -> None:
        try:
            with model.stream(fn, **question) as answer:
                for chunk in answer:
                    result.chunks.append(chunk)
                    result.text += words(chunk)
                    if len(result.chunks) == most:
                        break
            result.usage = answer.usage
        except Exception as error:
            result.error = error

    async def _astream(
        self, result: SdkModelResult, model: llm.Model, fn: Any, question: Any, most: int | None
    ) -> None:
        try:
            async with model.stream(fn, **question) as answer:
                async for chunk in answer:
                    result.chunks.append(chunk)
                    result.text += words(chunk)
                    if len(result.chunks) == most:
                        break
            result.usage = answer.usage
        except Exception as error:
            result.error = _without_frames(error)


@contextmanager
def opened(name: str, **options: Any) -> Generator[SdkClient]:
    """Open a client of one of `SDKS`, and close it in the end."""
    kind, _, loop = name.partition("-")
    make = getattr(importlib.import_module(KINDS[kind]), ("Async" if loop else "") + CLASSES[KINDS[kind]])
    arguments: dict[str, Any] = {"api_key": KEY, "max_retries": 0, **options}
    if not loop:
        with make(**arguments) as raw:
            yield SdkClient(name, raw, called)
        return
    with start_blocking_portal(loop) as portal, portal.wrap_async_context_manager(make(**arguments)) as raw:
        yield SdkClient(name, raw, partial(call_and_collect, portal) if loop == "trio" else portal.call)


def called(fn: Callable[..., Any], *args: Any) -> Any:
    """Call a function."""
    return fn(*args)


def call_and_collect(portal: BlockingPortal, fn: Callable[..., Any], *args: Any) -> Any:
    """Run a call, and then the garbage collector on the thread of its event loop.

    Otherwise Trio could warn about an async generator while pytest sets up the warning filters of the next
    test.
    """
    gc.disable()
    try:
        return portal.call(fn, *args)
    finally:
        portal.call(gc.collect)
        portal.call(wait_all_tasks_blocked)  # closing a generator may leave another one
        gc.enable()


def _without_frames(error: BaseException) -> BaseException:
    """Remove the tracebacks of an error, its causes and contexts: they keep async generators alive."""
    left: list[BaseException | None] = [error]
    while left:
        if (one := left.pop()) is not None and one.__traceback__ is not None:
            one.__traceback__ = None
            left += [one.__cause__, one.__context__]
    return error


def words(found: Any) -> str:
    """Return the text of an answer, a chunk or an event, of any SDK."""
    kind: str = getattr(found, "type", "")
    if kind == "message":
        return "".join(block.text for block in found.content)
    if kind == "content_block_delta":
        return found.delta.text or ""
    if kind == "response.output_text.delta":
        return found.delta or ""
    if getattr(found, "object", "") == "response":
        return str(found.output_text)
    chunk = found.chunk if kind == "chunk" else found
    messages = [getattr(choice, "message", None) or choice.delta for choice in getattr(chunk, "choices", ())]
    return "".join(one.content or "" for one in messages)
