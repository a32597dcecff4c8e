"""The usage is read under each field name that providers use."""

from __future__ import annotations

from math import nan
from types import SimpleNamespace
from typing import Any

import pytest

from redouble.llm._protocols.fields import usage_of
from redouble.llm._spend.usage import Usage
from tests.support.llm.provider_events import chat, objectified, read_without_errors


@pytest.mark.parametrize(
    ("fields", "usage"),
    [
        ({"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}, Usage(5, 2)),
        ({"prompt_tokens": 5, "total_tokens": 5}, Usage(5, 0)),
        ({"input_tokens": 5, "output_tokens": 2}, Usage(5, 2)),
        ({"input_tokens": 5, "cache_read_input_tokens": 10, "output_tokens": 2}, Usage(15, 2, 10)),
        ({"cache_creation_input_tokens": 10, "cache_read_input_tokens": None}, Usage(10, 0)),
        ({"output_tokens": 2}, Usage(0, 2)),
        (
            {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 4}, "completion_tokens": 1},
            Usage(9, 1, 4),
        ),
        (
            {"input_tokens": 9, "input_tokens_details": {"cached_tokens": 4}, "output_tokens": 1},
            Usage(9, 1, 4),
        ),
        ({"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}}, Usage(3, 0, 3)),
        ({"prompt_tokens": 3, "prompt_tokens_details": None}, Usage(3, 0)),
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
def test_usage_of_reads_the_known_fields(fields: Any, usage: Usage | None) -> None:
    assert usage_of({"usage": fields}) == usage
    assert usage_of(SimpleNamespace(usage=objectified(fields))) == usage


@pytest.mark.parametrize("result", [None, "text", b"bytes", 5, [], {}, object()])
def test_usage_of_a_result_without_usage_is_none(result: object) -> None:
    assert usage_of(result) is None


def test_a_usage_in_a_chunk_is_a_running_total() -> None:
    """It may be repeated with each chunk, and a field may be missing."""
    reports = [
        {"prompt_tokens": 9, "completion_tokens": 1},
        None,
        {"completion_tokens": 4},
        {"prompt_tokens": 0},
    ]
    assert read_without_errors([{**chat("a")[1], "usage": report} for report in reports]).usage == Usage(9, 4)
