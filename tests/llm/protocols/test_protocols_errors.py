"""Error events of a stream are recognised, with their most specific type."""

from __future__ import annotations

import copy
import gc
import json
import pickle
import weakref
from types import SimpleNamespace
from typing import Any

import pytest

from redouble._failures import codes
from redouble.llm._errors import ErrorEvent
from redouble.llm._protocols.builtin import protocol_factory
from redouble.llm._spend.usage import Usage
from tests.support.llm.provider_events import (
    FORMS,
    MESSAGE,
    RESPONSE,
    WIRE,
    Anything,
    chat,
    objectified,
    read,
)

OVERLOADED = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
LIMIT = {"type": "error", "code": "rate_limit_exceeded", "message": "Slow down", "sequence_number": 3}
FAILED = {
    "type": "response.failed",
    "response": {
        "error": {"code": "server_error", "message": "Oh"},
        "usage": {"input_tokens": 4, "output_tokens": 1},
    },
}
QUOTA = {"error": {"type": "insufficient_quota", "code": "insufficient_quota", "message": "You are broke"}}
every_form = pytest.mark.parametrize("form", FORMS)


@every_form
@pytest.mark.parametrize(
    ("before", "event", "kind", "message"),
    [
        ([], OVERLOADED, "overloaded_error", "overloaded_error: Overloaded"),
        (MESSAGE[:4], OVERLOADED, "overloaded_error", "overloaded_error: Overloaded"),
        ([], LIMIT, "rate_limit_exceeded", "rate_limit_exceeded: Slow down"),
        (RESPONSE[:2], LIMIT, "rate_limit_exceeded", "rate_limit_exceeded: Slow down"),
        ([], FAILED, "server_error", "server_error: Oh"),
        (RESPONSE[:3], FAILED, "server_error", "server_error: Oh"),
        (chat("a")[:2], QUOTA, "insufficient_quota", "insufficient_quota: You are broke"),
    ],
)
def test_an_error_event_is_returned_in_every_form(
    form: str, before: list[Any], event: dict[str, Any], kind: str, message: str
) -> None:
    protocol, errors = read(FORMS[form]([*before, event], done=False))
    assert [(error.type, str(error)) for error in errors] == [
        (kind, f"the stream reported an error: {message}")
    ]
    assert errors[0].said == (objectified(event) if form == "objects" else event)
    assert not protocol.ended


def test_the_usage_of_a_failed_response_is_read() -> None:
    protocol, _ = read([FAILED])
    assert protocol.usage == Usage(4, 1)


def test_of_several_errors_in_one_chunk_the_first_is_returned() -> None:
    body = "".join(f"data: {json.dumps(event)}\n\n" for event in (QUOTA, OVERLOADED, chat("a")[1]))
    protocol, errors = read([body])
    assert [error.type for error in errors] == ["insufficient_quota"]
    assert protocol.pieces == 1


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"type": "invalid_request_error", "code": "context_length_exceeded"}, "context_length_exceeded"),
        ({"type": "invalid_request_error", "code": None}, "invalid_request_error"),
        ({"type": "requests", "code": "rate_limit_exceeded"}, "rate_limit_exceeded"),
        ({"type": "server_error", "code": "something_new"}, "server_error"),
        ({"type": "insufficient_quota", "code": "rate_limit_exceeded"}, "insufficient_quota"),
        ({"type": "rate_limit_error", "code": "billing_error"}, "billing_error"),
        ({"code": 429}, "rate_limit_error"),
        ({"code": "429"}, "rate_limit_error"),
        ({"code": 408}, "timeout_error"),
        ({"code": 502, "status": "UNAVAILABLE"}, "api_error"),
        ({"code": 599}, "api_error"),
        ({"code": 529}, "overloaded_error"),
        ({"code": 400, "type": "BadRequestError"}, "400"),
        ({"code": 7, "type": "internal"}, "internal"),
        ({"code": "1234", "type": "internal"}, "1234"),
        ({"code": True}, None),
        ({"type": "error"}, None),
        ({"type": ["error"], "code": {}}, None),
        ({}, None),
    ],
)
def test_the_type_of_an_error_event(error: dict[str, Any], kind: str | None) -> None:
    """A type that `transient` knows is preferred; otherwise it is the most specific one."""
    _, errors = read([f"data: {json.dumps({'error': {**error, 'message': 'Oh'}})}\n\n"])
    assert [error.type for error in errors] == [kind]
    assert str(errors[0]) == "the stream reported an error: " + ("Oh" if kind is None else f"{kind}: Oh")


def test_a_status_in_an_error_event_is_classified_like_its_type() -> None:
    for status, verdict in codes.LLM_STATUSES.items():
        _, errors = read([{"error": {"code": status, "message": "Oh"}}])
        assert codes.LLM.get(errors[0].type or "") == verdict or verdict not in codes.LLM.values()


@pytest.mark.parametrize(
    ("event", "kind", "message"),
    [
        ("event: error\ndata: Overloaded\n\n", None, "Overloaded"),
        ("event: error\ndata: [1]\n\n", None, "[1]"),
        ("event: error\ndata\n\n", None, "no details"),
        (
            'event: error\ndata: {"message": "Oh", "code": "server_error"}\n\n',
            "server_error",
            "server_error: Oh",
        ),
        ('event: error\ndata: {"type": "server_error"}\n\n', "server_error", "server_error"),
        ('data: {"error": "Oh", "error_type": "overloaded"}\n\n', "overloaded", "overloaded: Oh"),
        ('data: {"error": true, "message": "Oh"}\n\n', None, "Oh"),
        ('data: {"error": ["Oh"]}\n\n', None, "no details"),
        ('data: {"error": {"code": 503}}\n\n', "api_error", "api_error"),
        ('data: {"type": "response.failed", "response": {"error": null}}\n\n', None, "response.failed"),
        ('data: {"type": "response.failed"}\n\n', None, "response.failed"),
        ('data: {"error": "' + "x" * 600 + '"}\n\n', None, "x" * 497 + "..."),
    ],
)
@pytest.mark.parametrize("name", ["auto", "openai", "anthropic", "sse"])
def test_error_events_over_the_wire_are_recognised(
    name: str, event: str, kind: str | None, message: str
) -> None:
    _, errors = read([event.encode()], name)
    assert [(error.type, str(error)) for error in errors] == [
        (kind, f"the stream reported an error: {message}")
    ]


def test_an_event_too_long_to_keep_is_recognised_by_its_name() -> None:
    _, errors = read([b"event: error\ndata: " + b"x" * (1 << 21) + b"\n\n"])
    assert [(error.type, str(error)) for error in errors] == [
        (None, "the stream reported an error: no details")
    ]
    protocol, _ = read([b"event: message_stop\ndata: " + b"x" * (1 << 21) + b"\n\n"])
    assert (protocol.known, protocol.ended) == (True, True)


@pytest.mark.parametrize("value", ["null", "false", '""', "{}", "[]", "0"])
@pytest.mark.parametrize("name", ["auto", "openai", "anthropic", "sse"])
def test_an_empty_error_field_is_no_error(name: str, value: str) -> None:
    assert read([f'data: {{"error": {value}, "message": "Oh"}}\n\n'], name)[1] == []


@pytest.mark.parametrize(
    "chunk",
    [
        {"value": 1, "error": "not found"},
        {"error": True},
        {"error": {"reason": 5}},
        {"type": "error"},
        {"step": 2, "error": {"message": "tool failed"}},
        {"type": "error", "data": "tool failed"},
        SimpleNamespace(type="error", data="tool failed"),
        SimpleNamespace(error="not found"),
        SimpleNamespace(error=ValueError("no")),
        SimpleNamespace(error=SimpleNamespace(message="no")),
        SimpleNamespace(type="error"),
        Anything(),
        {"type": "response.steer.failed", "error": {"message": "no"}},
        {"type": "message_start", "error": {"message": "no"}},
        {"type": "content_block_start", "error": {"message": "no"}},
    ],
)
def test_an_ambiguous_chunk_is_no_error(chunk: object) -> None:
    assert read([chunk])[1] == []


@pytest.mark.parametrize("name", ["openai", "anthropic"])
def test_with_a_named_protocol_an_ambiguous_chunk_is_an_error(name: str) -> None:
    assert [str(error) for error in read([{"error": "Oh"}], name)[1]] == ["the stream reported an error: Oh"]
    assert read([SimpleNamespace(error=SimpleNamespace(message="Oh"))], name)[1]
    assert read([SimpleNamespace(type="error")], name)[1]
    assert read([Anything()], name)[1] == []


@pytest.mark.parametrize("form", WIRE)
def test_an_error_event_after_the_end_is_returned(form: str) -> None:
    protocol, errors = read([*FORMS[form](chat("a"), done=True), *FORMS[form]([QUOTA], done=False)])
    assert (protocol.ended, [error.type for error in errors]) == (True, ["insufficient_quota"])


def test_an_error_event_can_be_copied_and_pickled() -> None:
    (error,) = read([OVERLOADED])[1]
    for twin in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert isinstance(twin, ErrorEvent)
        assert (str(twin), twin.type, twin.said) == (str(error), error.type, error.said)


def test_a_protocol_does_not_keep_a_chunk_alive() -> None:
    class Chunk:
        type = "error"
        message = "Oh"

    made = protocol_factory("auto")
    assert made is not None
    protocol, chunk = made(), Chunk()
    gc.disable()
    try:
        left = weakref.ref(chunk)
        assert protocol.read(chunk) is not None
        del chunk
        assert left() is None
    finally:
        gc.enable()
