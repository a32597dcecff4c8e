"""One blocking interface to the clients of each SDK, on top of redouble's transports.

    with sdk("anthropic-httpx2-trio", server.url("503,anthropic"), Retry(attempts=2)) as model:
        result = model.ask(stream=True)
        assert result.text == "Hello from attempt 2"

The name is that of an SDK, followed by that of an HTTP client of `tests.support.http.clients`. Only for
tests/libraries, where the SDKs are installed.
"""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import pytest

import redouble
from redouble import Layer, Report
from redouble._clients.idempotency_key import Keys
from tests.support.http.clients import Client, client
from tests.support.servers import Server, refused_port, value

# fmt: off
__all__ = [
    "KEY",
    "PROMPT",
    "SDKS",
    "Model",
    "SdkResult",
    "Server",
    "every_sdk",
    "model_of",
    "question_for",
    "refused_port",
    "script_of",
    "sdk",
    "value",
]
# fmt: on

SDKS = (
    "openai-httpx2",
    "openai-httpx2-asyncio",
    "openai-httpx2-trio",
    "openai-httpx",
    "openai-httpx-asyncio",
    "openai-httpx-trio",
    "anthropic-httpx2",
    "anthropic-httpx2-asyncio",
    "anthropic-httpx2-trio",
)
# At the end of a stream openai leaves its async generators to the garbage collector, with or without
# redouble, and Trio warns.
IGNORE_UNCLOSED_GENERATORS = pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning")
every_sdk = pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=IGNORE_UNCLOSED_GENERATORS if name.startswith("openai") else ())
        for name in SDKS
    ],
)
KEY = "sk-not-to-be-told"
PROMPT = "not to be told either"


@dataclass
class SdkResult:
    """The outcome of one call for its caller, and the responses that the HTTP client received."""

    text: str = ""
    error: Any = None
    answers: list[Any] = field(default_factory=list[Any])

    @property
    def outcome(self) -> str:
        """The text of the answer, or else the name of the error."""
        return self.text if self.error is None else type(self.error).__name__

    @property
    def cause(self) -> Any:
        """The error of the HTTP client, which the SDK raised as it is or from which it raised its own."""
        ours = redouble.report(self.error) is None
        return self.error.__cause__ if ours else self.error

    def report(self) -> Report:
        """Return the report of the last response or, without one, of the error."""
        broke = self.error is not None and not hasattr(self.error, "response")
        found = redouble.report(self.cause if broke else self.answers[-1])
        assert found is not None, "there is no report"
        return found


class Model:
    """A language model behind the client of an SDK."""

    def __init__(self, name: str, http: Client, raw: Any, responses: list[Any]) -> None:
        self.raw, self._responses = raw, responses
        self.run = http.run
        self._aio = "-asyncio" in name or "-trio" in name

    def ask(
        self,
        *,
        stream: bool = False,
        within: float | None = None,
        around: Layer | None = None,
        **arguments: Any,
    ) -> SdkResult:
        """Send a question and return the outcome; a `BaseException` that is no `Exception` is raised.

        within: a `redouble.deadline` around the call.
        around: a policy around the call.
        arguments: for the SDK, such as ``extra_headers``.
        """
        limit = nullcontext() if within is None else redouble.deadline(within)
        create, words = model_of(self.raw)
        question = {**question_for(self.raw), **({"stream": True} if stream else {}), **arguments}
        call = create if around is None else self._around(around, create)
        result = SdkResult()
        self._responses.clear()
        self.run(self._aask if self._aio else self._ask, result, limit, call, words, question)
        result.answers = [*self._responses]
        return result

    def _around(self, policy: Layer, create: Callable[..., Any]) -> Callable[..., Any]:
        async def acreate(**question: Any) -> Any:
            return await create(**question)  # `create` is no coroutine function, but returns a coroutine

        def call(**question: Any) -> Any:
            return policy.call(acreate if self._aio else create, **question)

        return call

    def _ask(self, result: SdkResult, limit: Any, call: Any, words: Any, question: dict[str, Any]) -> None:
        try:
            with limit:
                answer = call(**question)
                for item in answer if "stream" in question else [answer]:
                    result.text += words(item)
        except Exception as error:
            result.error = error

    async def _aask(
        self, result: SdkResult, limit: Any, call: Any, words: Any, question: dict[str, Any]
    ) -> None:
        try:
            with limit:
                answer = await call(**question)
                if "stream" not in question:
                    result.text += words(answer)
                    return
                async for item in answer:
                    result.text += words(item)
        except Exception as error:
            result.error = error


@contextmanager
def sdk(
    name: str,
    url: str,
    policy: Layer | None = None,
    *,
    idempotency: Keys = "auto",
    bare: bool = False,
    **options: Any,
) -> Generator[Model]:
    """Open a client of one of `SDKS`, with redouble's transport unless ``bare``, and close it in the end.

    options: of the SDK's client, which retries only if they include ``max_retries``.
    """
    theirs, _, below = name.partition("-")
    responses: list[Any] = []
    hook = _async_recorder(responses) if "-" in below else responses.append
    ours: dict[str, Any] = {"idempotency": idempotency, "bare": bare, "event_hooks": {"response": [hook]}}
    with client(below, policy, **ours) as http:
        arguments: dict[str, Any] = {"api_key": KEY, "max_retries": 0, **options}
        make = getattr(importlib.import_module(theirs), _class_of(theirs, aio="-" in below))
        path = "v1" if theirs == "openai" else ""
        yield Model(name, http, make(base_url=url + path, http_client=http.raw, **arguments), responses)


def script_of(name: str, script: str) -> str:
    """Return a script in which ``OK`` is replaced by a step that answers in the protocol of the SDK."""
    return script.replace("OK", name.partition("-")[0])


def question_for(raw: Any) -> dict[str, Any]:
    """Return the arguments of a question."""
    question: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": PROMPT}]}
    return question if hasattr(raw, "chat") else question | {"max_tokens": 9}


def model_of(raw: Any) -> tuple[Callable[..., Any], Callable[[Any], str]]:
    """Return the method that sends a question, and the function that extracts the text of an answer."""
    if hasattr(raw, "chat"):
        return raw.chat.completions.create, _openai_words
    return raw.messages.create, _anthropic_words


def _openai_words(found: Any) -> str:
    choice = found.choices[0]
    content: str | None = (getattr(choice, "message", None) or choice.delta).content
    return content or ""


def _anthropic_words(found: Any) -> str:
    if found.type == "message":
        return "".join(block.text for block in found.content)
    return found.delta.text if found.type == "content_block_delta" else ""


def _class_of(theirs: str, *, aio: bool) -> str:
    return ("Async" if aio else "") + {"openai": "OpenAI", "anthropic": "Anthropic"}[theirs]


def _async_recorder(responses: list[Any]) -> Callable[[Any], Awaitable[None]]:
    async def hook(response: Any) -> None:
        responses.append(response)

    return hook
