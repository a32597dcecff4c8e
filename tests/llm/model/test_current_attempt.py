"""`llm.current()` inside a function that a model calls: the attempt, and the time left."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

import redouble
from redouble import Retry, llm
from redouble.llm import Model, Timeouts
from redouble.testing import virtual_time

POLICY = Retry(on=ConnectionError, attempts=3, backoff=[2, 2], name="ask", labels={"team": "a"}, timeout=20)


def model(**options: float) -> Model:
    return Model("acme", "m-1", policy=POLICY, timeouts=Timeouts(**options))


def test_it_has_what_current_returns() -> None:
    seen: list[tuple[object, ...]] = []

    def ask() -> str:
        call, same = llm.current(), redouble.current()
        assert same is not None
        assert (call.attempt, call.attempts, call.name) == (*same[:2], same.name)
        assert call.labels == same.labels
        seen.append((call.attempt, call.attempts, call.remaining, call.name, call.labels["team"]))
        if len(seen) == 1:
            raise ConnectionError
        return "answer"

    async def aask() -> str:
        return ask()

    expected = [(1, 3, 10, "ask", "a"), (2, 3, 8, "ask", "a")]
    with virtual_time():
        assert model(total=10).call(ask) == "answer"
        assert seen == expected
        seen.clear()
        assert asyncio.run(model(total=10).call(aask)) == "answer"
        assert seen == expected


def test_a_call_that_has_not_begun_has_no_attempt() -> None:
    call = llm.Call("acme", "m-1", Timeouts(total=None))
    assert (call.attempt, call.attempts, call.name, dict(call.labels)) == (0, None, "", {})
    assert call.remaining is None


def test_limits_around_the_model_count() -> None:
    with virtual_time():

        @redouble.retry(timeout=5)
        def outer() -> tuple[float, float | None]:
            return model(total=60).call(lambda: (llm.current().left(), llm.current().remaining))

        assert outer() == (5, 5)


@pytest.mark.parametrize("option", ["timeout", "give_up_after"])
@pytest.mark.parametrize("shape", ["stream", "generator", "call"])
def test_limits_of_a_stream_around_the_model_end_at_the_first_chunk(shape: str, option: str) -> None:
    """Those of a call do not."""
    options: dict[str, Any] = {option: 5, "attempts": 1}
    policy, seen = Retry(**options), list[float | None]()

    with virtual_time() as clock:

        def source() -> Iterator[int]:
            for number in range(3):
                seen.append(llm.current().remaining)
                yield number
                clock.advance(4)

        def chunks() -> Iterator[int]:
            yield from model(total=60).stream(source)

        def opened() -> Iterator[int]:
            return policy.stream(chunks) if shape == "stream" else policy(chunks)()

        if shape == "call":
            with pytest.raises(TimeoutError):
                policy.call(lambda: list(chunks()))
            assert seen == [5, 1, 0]
        else:
            assert list(opened()) == [0, 1, 2]
            assert seen == [5, 26, 26]  # the next chunk may take 30 seconds
