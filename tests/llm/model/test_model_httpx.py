"""Calls through httpx2 itself: the header and the timeouts of its requests, and error statuses."""

from __future__ import annotations

import re
from typing import Any

import httpx2
import pytest

from redouble import report
from redouble.http import Idempotency
from redouble.llm import Model, Timeouts, current
from tests.support.fakes import in_colour
from tests.support.llm.scripted_model import model_of

HEADER = "Idempotency-Key"


class Service:
    """Responds with the given statuses, one after the other; the last one repeats."""

    def __init__(self, *statuses: int) -> None:
        self.statuses, self.requests = statuses, list[httpx2.Request]()

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        code = self.statuses[min(len(self.requests), len(self.statuses)) - 1]
        return httpx2.Response(code, json={"code": code})

    async def aanswer(self, request: httpx2.Request) -> httpx2.Response:
        return self(request)

    def post(self, colour: str, model: Model, **found: Any) -> Any:
        """Send a POST request through a model."""

        def blocking() -> Any:
            with httpx2.Client(transport=httpx2.MockTransport(self)) as client:
                return model.call(client.post, "http://model.test/", **found)

        async def waiting() -> Any:
            async with httpx2.AsyncClient(transport=httpx2.MockTransport(self.aanswer)) as client:
                return await model.call(client.post, "http://model.test/", **found)

        return in_colour(colour, blocking, waiting)


def test_an_error_status_is_a_failure(colour: str) -> None:
    """httpx2 returns such a response; the model raises `HTTPStatusError`."""
    service = Service(503, 429, 200)
    assert service.post(colour, model_of()).status_code == 200
    assert len(service.requests) == 3
    with pytest.raises(httpx2.HTTPStatusError) as caught:
        Service(404).post(colour, model_of())
    assert caught.value.response.json() == {"code": 404}
    found = report(caught.value)
    assert found is not None
    assert (found.reason, found.attempts) == ("stopped", 1)


def test_a_call_of_send_with_stream_true_raises() -> None:
    """A call would neither guard nor close the stream."""
    service = Service(503)
    with httpx2.Client(transport=httpx2.MockTransport(service)) as client:
        request = client.build_request("POST", "http://model.test/")
        with pytest.raises(
            TypeError, match=r"^stream=True returns a stream: write model\.stream\(Client\.send, "
        ):
            model_of().call(client.send, request, stream=True)
    assert service.requests == []


def test_the_idempotency_key_is_a_header_of_the_request(colour: str) -> None:
    service = Service(503, 200)
    keys = Idempotency(header="X-Key", make=lambda: "k-1")
    service.post(colour, model_of(idempotency=keys), headers={"x-team": "chat"})
    assert [request.headers["x-key"] for request in service.requests] == ["k-1", "k-1"]
    assert {request.headers["x-team"] for request in service.requests} == {"chat"}
    service.post(colour, model_of(idempotency=keys), headers={"X-KEY": "mine"})
    assert service.requests[-1].headers["x-key"] == "mine"


def test_the_request_has_the_timeouts_of_the_model(colour: str) -> None:
    service = Service(200)
    service.post(colour, model_of(timeouts=Timeouts(1, 2, 20)))
    timeout = service.requests[0].extensions["timeout"]
    assert (timeout["connect"], timeout["read"]) == (1, 2)


def test_current_returns_the_key_of_the_call() -> None:
    """A function of the caller may read it in every attempt."""
    keys: list[Any] = []

    def ask() -> str:
        call = current()
        keys.append((call.key, dict(call.headers)))
        if len(keys) < 3:
            raise ConnectionResetError
        return re.sub(r"\d", "", call.model)

    assert model_of(idempotency="auto").call(ask) == "gpt-"
    assert len({key for key, _ in keys}) == 1
    assert keys[0] == (keys[0][0], {HEADER: keys[0][0]})
    model_of().call(ask)
    assert keys[-1] == (None, {})
