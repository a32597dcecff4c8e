"""The usage is read by any of the names in use."""

from __future__ import annotations

from math import nan
from types import SimpleNamespace
from typing import Any

import pytest

from redouble.llm._protocols.fields import usage_of
from redouble.llm._spend.usage import Usage
from tests.support.llm.provider_events import chat, heard, objectified


@pytest.mark.parametrize(
    ("said", "usage"),
    [
        ({"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}, Usage(5, 2)),
        ({"prompt_tokens": 5, "total_tokens": 5}, Usage(5, 0)),
        ({"input_tokens": 5, "output_tokens": 2}, Usage(5, 2)),
        ({"input_tokens": 5, "cache_read_input_tokens": 10, "output_tokens": 2}, Usage(15, 2)),
        ({"cache_creation_input_tokens": 10, "cache_read_input_tokens": None}, Usage(10, 0)),
        ({"output_tokens": 2}, Usage(0, 2)),
        ({"prompt_tokens": 0, "completion_tokens": 0}, Usage(0, 0)),
        ({"prompt_tokens": -1, "completion_tokens": 2.0}, None),
        ({"prompt_tokens": True, "completion_tokens": "2"}, None),
        ({"prompt_tokens": 2**53, "completion_tokens": nan}, None),
        ({}, None),
        (None, None),
        ("12", None),
        ([12], None),
    ],
)
def test_the_tokens_of_an_answer(said: Any, usage: Usage | None) -> None:
    assert usage_of({"usage": said}) == usage
    assert usage_of(SimpleNamespace(usage=objectified(said))) == usage


@pytest.mark.parametrize("result", [None, "text", b"bytes", 5, [], {}, object()])
def test_an_answer_that_does_not_say(result: object) -> None:
    assert usage_of(result) is None


def test_a_report_counts_from_the_start() -> None:
    """It may be repeated with each chunk, and leave something out."""
    reports = [
        {"prompt_tokens": 9, "completion_tokens": 1},
        None,
        {"completion_tokens": 4},
        {"prompt_tokens": 0},
    ]
    assert heard([{**chat("a")[1], "usage": report} for report in reports]).usage == Usage(9, 4)
