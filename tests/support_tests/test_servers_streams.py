"""The event streams of the misbehaving server: complete, truncated, or with an error event."""

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
    found = [event.partition("data: ")[2] for event in body.decode().split("\n\n")[:-1]]
    return [json.loads(data) if data.startswith("{") else data for data in found]


def word(event: Any) -> str:
    return event if isinstance(event, str) else event.get("type") or event.get("object")


def asked(server: Server, client: httpx2.Client, script: str, **said: object) -> bytes:
    """Send two requests on one connection, check that the bodies are equal, and return one."""
    answers = [client.post(server.url(script), json={"model": "m", "stream": True, **said}) for _ in range(2)]
    assert answers[0].content == answers[1].content
    return answers[0].content


@every_service
def test_a_complete_stream_ends_with_its_marker(server: Server, client: httpx2.Client, service: str) -> None:
    body = asked(server, client, service)
    found = events(body)
    assert [word(event) for event in found].index(ENDS[service]) == len(found) - 1
    assert (body.count(b'"Hello"'), body.count(b'" attempt"')) == (1, 1)  # each word is in one event


@pytest.mark.parametrize("service", ENDS)
@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_truncated_stream_ends_properly(
    server: Server, client: httpx2.Client, service: str, count: int
) -> None:
    found = events(asked(server, client, f"{service}~end={count}"))
    assert found == events(asked(server, client, service))[:count]


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
    ("error_type", "kind"),
    [("", "overloaded_error"), ("~error_type=api_error", "api_error")],
    ids=["itself", "error_type"],
)
def test_a_stream_may_contain_an_error_event(
    server: Server, client: httpx2.Client, service: str, error: Any, count: int, error_type: str, kind: str
) -> None:
    body = asked(server, client, f"{service}~error={count}{error_type}")
    assert events(body)[-1] == json.loads(json.dumps(error).replace("ERR", kind))
    assert events(body)[:-1] == events(asked(server, client, service))[:count]
    assert (b"event: error\n" in body) is (service in {"anthropic", "responses"})


@pytest.mark.parametrize("piece", [1, 2, 7, 100_000])
@pytest.mark.parametrize("drip", ["", "~drip=0"])
def test_a_stream_may_be_sent_in_pieces_of_any_size(
    server: Server, client: httpx2.Client, piece: int, drip: str
) -> None:
    whole = asked(server, client, "openai")
    with client.stream("POST", server.url(f"openai~stream~piece={piece}{drip}"), json={"model": "m"}) as got:
        pieces = list(got.iter_raw())
    assert pieces == [whole[start : start + piece] for start in range(0, len(whole), piece)]


@pytest.mark.parametrize("fault", ["end", "error"])
def test_end_and_error_truncate_an_answer_that_is_not_streamed(
    server: Server, client: httpx2.Client, fault: str
) -> None:
    answer = client.post(server.url(f"openai~{fault}=3"), json={})
    assert (answer.content, answer.headers["content-length"]) == (b'{"i', "3")


# ----------------------------------------------------------------------------------- usage


def test_a_chat_reports_its_usage_if_requested(server: Server, client: httpx2.Client) -> None:
    used = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    plain = client.post(server.url("openai~body=one two three"), json={}).json()
    assert plain["usage"] == used
    wish = {"stream_options": {"include_usage": True}}
    found = events(asked(server, client, "openai~body=one two three", **wish))
    assert [event.get("usage") for event in found[:-1]] == [None] * 5 + [used]
    assert found[-2]["choices"] == []
    for wish in ({}, {"stream_options": {"include_usage": False}}):
        assert b"usage" not in asked(server, client, "openai", **wish)


def test_a_message_reports_its_usage_at_its_start_and_end(server: Server, client: httpx2.Client) -> None:
    plain = client.post(server.url("anthropic~body=one two three"), json={}).json()
    assert plain["usage"] == {"input_tokens": 7, "output_tokens": 3}
    found = events(asked(server, client, "anthropic~body=one two three"))
    assert found[0]["message"]["usage"] == {"input_tokens": 7, "output_tokens": 1}
    assert found[-2]["usage"] == {"output_tokens": 3}


def test_a_response_reports_its_usage_at_its_end(server: Server, client: httpx2.Client) -> None:
    plain = client.post(server.url("responses~body=one two three"), json={"model": "m"}).json()
    found = events(asked(server, client, "responses~body=one two three"))
    assert plain == found[-1]["response"]
    assert (plain["usage"]["input_tokens"], plain["usage"]["output_tokens"]) == (7, 3)
    assert plain["output"][0]["content"][0]["text"] == "one two three"
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
