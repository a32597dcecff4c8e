"""The event streams of the misbehaving server: complete, ended too soon, or with an error."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from tests.support.servers import Server

SERVICES = ("openai", "anthropic", "responses")
ENDS = {"openai": "[DONE]", "anthropic": "message_stop", "responses": "response.completed", "sse": "[DONE]"}

every_service = pytest.mark.parametrize("service", SERVICES)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


@pytest.fixture(scope="module")
def client() -> Iterator[httpx2.Client]:
    with httpx2.Client(trust_env=False) as opened:
        yield opened


def events(body: bytes) -> list[Any]:
    """Return the data of each event, parsed if it is JSON."""
    assert not body or body.endswith(b"\n\n")
    told = [event.partition("data: ")[2] for event in body.decode().split("\n\n")[:-1]]
    return [json.loads(data) if data.startswith("{") else data for data in told]


def word(event: Any) -> str:
    return event if isinstance(event, str) else event.get("type") or event.get("object")


def asked(server: Server, client: httpx2.Client, script: str, **said: object) -> bytes:
    """Send two requests on one connection, which a proper end leaves reusable; return the bodies."""
    answers = [client.post(server.url(script), json={"model": "m", "stream": True, **said}) for _ in range(2)]
    assert answers[0].content == answers[1].content
    return answers[0].content


@every_service
def test_a_stream_says_at_its_end_that_it_is_complete(
    server: Server, client: httpx2.Client, service: str
) -> None:
    body = asked(server, client, service)
    told = events(body)
    assert [word(event) for event in told].index(ENDS[service]) == len(told) - 1
    assert (body.count(b'"Hello"'), body.count(b'" attempt"')) == (1, 1)  # words, each in an event


@pytest.mark.parametrize("service", ENDS)
@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_stream_may_end_properly_though_it_is_not_complete(
    server: Server, client: httpx2.Client, service: str, count: int
) -> None:
    told = events(asked(server, client, f"{service}~end={count}"))
    assert told == events(asked(server, client, service))[:count]


@pytest.mark.parametrize(
    ("service", "error"),
    [
        ("openai", {"error": {"type": "ERR", "message": "It said ERR", "param": None, "code": None}}),
        ("sse", {"error": {"type": "ERR", "message": "It said ERR", "param": None, "code": None}}),
        ("anthropic", {"type": "error", "error": {"type": "ERR", "message": "It said ERR"}}),
        (
            "responses",
            {"type": "error", "code": "ERR", "message": "It said ERR", "param": None, "sequence_number": 99},
        ),
    ],
)
@pytest.mark.parametrize("count", [0, 2])
@pytest.mark.parametrize(
    ("said", "kind"), [("", "overloaded_error"), ("~said=api_error", "api_error")], ids=["itself", "said"]
)
def test_a_stream_may_tell_of_an_error(
    server: Server, client: httpx2.Client, service: str, error: Any, count: int, said: str, kind: str
) -> None:
    body = asked(server, client, f"{service}~error={count}{said}")
    assert events(body)[-1] == json.loads(json.dumps(error).replace("ERR", kind))
    assert events(body)[:-1] == events(asked(server, client, service))[:count]
    assert (b"event: error\n" in body) is (service in {"anthropic", "responses"})


@pytest.mark.parametrize("piece", [1, 2, 7, 100_000])
@pytest.mark.parametrize("drip", ["", "~drip=0"])
def test_a_stream_may_come_in_pieces_cut_anywhere(
    server: Server, client: httpx2.Client, piece: int, drip: str
) -> None:
    whole = asked(server, client, "openai")
    with client.stream("POST", server.url(f"openai~stream~piece={piece}{drip}"), json={"model": "m"}) as got:
        pieces = list(got.iter_raw())
    assert pieces == [whole[start : start + piece] for start in range(0, len(whole), piece)]


@pytest.mark.parametrize("fault", ["end", "error"])
def test_a_plain_answer_has_no_events_and_is_a_short_one(
    server: Server, client: httpx2.Client, fault: str
) -> None:
    answer = client.post(server.url(f"openai~{fault}=3"), json={})
    assert (answer.content, answer.headers["content-length"]) == (b'{"i', "3")


# ----------------------------------------------------------------------------------- usage


def test_a_chat_tells_its_usage_to_who_asks_for_it(server: Server, client: httpx2.Client) -> None:
    used = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    plain = client.post(server.url("openai~body=one two three"), json={}).json()
    assert plain["usage"] == used
    wish = {"stream_options": {"include_usage": True}}
    told = events(asked(server, client, "openai~body=one two three", **wish))
    assert [event.get("usage") for event in told[:-1]] == [None] * 5 + [used]
    assert told[-2]["choices"] == []
    for wish in ({}, {"stream_options": {"include_usage": False}}):
        assert b"usage" not in asked(server, client, "openai", **wish)


def test_a_message_tells_its_usage_at_its_start_and_at_its_end(server: Server, client: httpx2.Client) -> None:
    plain = client.post(server.url("anthropic~body=one two three"), json={}).json()
    assert plain["usage"] == {"input_tokens": 7, "output_tokens": 3}
    told = events(asked(server, client, "anthropic~body=one two three"))
    assert told[0]["message"]["usage"] == {"input_tokens": 7, "output_tokens": 1}
    assert told[-2]["usage"] == {"output_tokens": 3}


def test_a_response_tells_its_usage_when_it_is_complete(server: Server, client: httpx2.Client) -> None:
    plain = client.post(server.url("responses~body=one two three"), json={"model": "m"}).json()
    told = events(asked(server, client, "responses~body=one two three"))
    assert plain == told[-1]["response"]
    assert (plain["usage"]["input_tokens"], plain["usage"]["output_tokens"]) == (7, 3)
    assert plain["output"][0]["content"][0]["text"] == "one two three"
    assert [event["sequence_number"] for event in told] == list(range(len(told)))
