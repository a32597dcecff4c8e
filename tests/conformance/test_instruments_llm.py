"""Metrics and logs of calls of language models, according to llm-fiber's decision record."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import suppress
from dataclasses import replace
from itertools import cycle
from types import ModuleType
from typing import Any

import httpx
import httpx2
import pytest

import redouble.httpx
import redouble.httpx2
from redouble import Retry, llm
from redouble.instruments import logging as logs
from redouble.instruments import memory
from tests.conformance.flows import EVERY, in_colour
from tests.support.scripted import Virtual

URL = "http://model.test/v1/chat?key=secret"
LABELS = {"provider": "acme", "model": "small"}
TAKES = 0.25  # seconds for each attempt
DELAYS = (0.5, 1.0)

every_colour = pytest.mark.parametrize("colour", EVERY)
every_library = pytest.mark.parametrize("library", [httpx, httpx2], ids=["httpx", "httpx2"])
every_way = pytest.mark.parametrize("way", ["function", "client", "model"])


class Model:
    """A scripted language model, which responds with a status or not at all, and a policy for it."""

    def __init__(self, library: ModuleType, *answers: int | str) -> None:
        self.library: Any = library
        self.answers = cycle(answers)
        self.clock = Virtual()
        self.policy = Retry(attempts=3, backoff=DELAYS, clock=self.clock, name="chat", labels=LABELS)

    def guarded(self) -> llm.Model:
        """Return an `llm.Model` with the same policy, which adds the labels."""
        return llm.Model("acme", "small", policy=replace(self.policy, labels={}), worker=None)

    def answer(self, request: Any) -> Any:
        self.clock.time += TAKES
        answer = next(self.answers)
        if isinstance(answer, int):
            return self.library.Response(answer, request=request)
        raise getattr(self.library, answer)("lost", request=request)

    def ask(self, colour: str, way: str) -> None:
        """Call the model by a function that raises for a status, or by a client whose transport retries.

        The function may be called by a policy, or by an `llm.Model`.
        """
        wrapped = self.library.MockTransport(self.answer)
        ours = {httpx: redouble.httpx, httpx2: redouble.httpx2}[self.library]
        plain = way != "client"
        caller = self.policy if way == "function" else self.guarded()

        def call() -> None:
            transport = wrapped if plain else ours.Transport(self.policy, wrapped=wrapped)
            with self.library.Client(transport=transport) as client:
                get: Callable[[], Any] = lambda: client.get(URL)
                caller.call(lambda: get().raise_for_status()) if plain else get()

        async def acall() -> None:
            transport = wrapped if plain else ours.AsyncTransport(self.policy, wrapped=wrapped)
            async with self.library.AsyncClient(transport=transport) as client:

                async def get() -> Any:
                    answer = await client.get(URL)
                    return answer.raise_for_status() if plain else answer

                await (caller.call(get) if plain else get())

        in_colour(colour, call, acall)


REASONS = [
    (429, "rate_limit", "throttled"),
    (502, "http_5xx", "server"),
    (503, "http_5xx", "server"),
    (504, "http_5xx", "server"),
    ("ConnectTimeout", "timeout_connect", "timeout"),
    ("ReadTimeout", "timeout_read", "timeout"),
    ("ConnectError", "network", "network"),
    ("ReadError", "network", "network"),
]


@every_colour
@every_library
@every_way
@pytest.mark.parametrize(("answer", "reason", "kind"), REASONS)
def test_lf_adr_07_retries(
    colour: str,
    library: ModuleType,
    way: str,
    answer: int | str,
    reason: str,
    kind: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """LF-ADR-07: counted by provider, model and reason, which are also in the log record."""
    caplog.set_level(logging.DEBUG, "redouble")
    with logs.instrument(), memory.instrument() as metrics:
        Model(library, answer, answer, 200).ask(colour, way)
    assert metrics.series()["retries"] == {
        (("name", "chat"), ("reason", reason), ("provider", "acme"), ("model", "small")): 2
    }
    assert metrics.series()["calls"] == {
        (("name", "chat"), ("ok", "true"), ("provider", "acme"), ("model", "small")): 1
    }
    told: list[Any] = [one for one in caplog.records if one.levelno >= logging.INFO]
    assert [(one.attempt, one.delay, one.reason, one.kind, one.http_status) for one in told] == [
        (number, delay, reason, kind, answer if isinstance(answer, int) else None)
        for number, delay in enumerate(DELAYS, 1)
    ]
    for one in caplog.records:
        assert "secret" not in str(vars(one))


@every_colour
@every_library
@every_way
@pytest.mark.parametrize(
    ("answer", "attempts"), [(503, 3), (500, 1), ("ReadTimeout", 3), ("UnsupportedProtocol", 1)]
)
def test_lf_adr_07_errors(
    colour: str, library: ModuleType, way: str, answer: int | str, attempts: int
) -> None:
    """LF-ADR-07: counted by provider, model and code, which is the status or the type of the error."""
    attempts = 3 if (answer, way) == (500, "model") else attempts  # the table of a model retries every 5xx
    with (
        memory.instrument() as metrics,
        suppress(library.HTTPError),
    ):  # a client with redouble's transport returns the response
        Model(library, answer).ask(colour, way)
    assert metrics.series()["errors"] == {
        (("name", "chat"), ("code", str(answer)), ("provider", "acme"), ("model", "small")): 1
    }
    assert metrics.series()["calls"] == {
        (("name", "chat"), ("ok", "false"), ("provider", "acme"), ("model", "small")): 1
    }
    assert metrics.counter("attempts", **LABELS) == attempts


@every_colour
@every_library
@every_way
def test_lf_adr_07_latency(colour: str, library: ModuleType, way: str) -> None:
    """LF-ADR-07: the duration of calls in seconds (llm-fiber: milliseconds), including delays."""
    with memory.instrument() as metrics:
        Model(library, 503, "ReadTimeout", 200).ask(colour, way)
    whole = 3 * TAKES + sum(DELAYS)
    assert metrics.histogram("call_duration", name="chat", **LABELS) == (1, whole, whole, whole)
    assert metrics.histogram("attempt_duration", name="chat", **LABELS) == (3, 3 * TAKES, TAKES, TAKES)
    assert metrics.histogram("delay", name="chat", **LABELS) == (2, sum(DELAYS), *DELAYS)


@every_colour
@pytest.mark.parametrize("way", ["function", "model"])
def test_lf_adr_07_time_to_first_byte(colour: str, way: str) -> None:
    """LF-ADR-07: of a stream, from the start of the call to the first chunk."""
    model = Model(httpx, 503, 200)

    def chunks() -> Generator[str]:
        model.answer(httpx.Request("POST", URL)).raise_for_status()
        for chunk in "abc":
            yield chunk
            model.clock.time += TAKES

    async def achunks() -> AsyncGenerator[str]:
        for chunk in chunks():
            yield chunk

    caller = model.policy if way == "function" else model.guarded()
    read = caller(chunks)
    aread = caller(achunks)

    async def waiting() -> list[str]:
        return [chunk async for chunk in aread()]

    with memory.instrument() as metrics:
        assert in_colour(colour, lambda: list(read()), waiting) == list("abc")
    first = 2 * TAKES + DELAYS[0]
    whole = first + 3 * TAKES
    assert metrics.histogram("time_to_first_item", name="chat", **LABELS) == (1, first, first, first)
    assert metrics.histogram("call_duration", name="chat", **LABELS) == (1, whole, whole, whole)
