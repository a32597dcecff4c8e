"""The texts of failed attempts: bounded when they are recorded, each of them and all of a call together."""

from __future__ import annotations

import pickle
import tracemalloc
from typing import Any

import pytest

from redouble import Retry, report
from redouble._engine.options import MAX_TEXTS, SHORT_TEXT
from tests.support.fakes import Boom, Virtual, always, in_colour

MEGABYTE = 1_000_000


def policy(attempts: int | None, **options: Any) -> Retry:
    given: dict[str, Any] = {"on": Boom, "backoff": [0] * 5000, "clock": Virtual(), "give_up_after": 1e9}
    return Retry(attempts=attempts, **given | options)


def failing(colour: str, retrying: Retry, size: int, calls: int | None = None) -> Exception:
    """Make a call whose attempts fail with texts of this size, each another one; return its error."""
    made = 0

    def work() -> None:
        nonlocal made
        made += 1
        raise Boom(f"{made} " + "x" * size)

    async def awork() -> None:
        work()

    with pytest.raises(Boom) as caught:
        in_colour(colour, lambda: retrying.call(work), lambda: retrying.call(awork))
    return caught.value


def test_many_long_texts_take_little_memory(colour: str) -> None:
    tracemalloc.start()
    try:
        error = failing(colour, policy(400), MEGABYTE)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 3 * MEGABYTE  # the error itself, and its history
    found = report(error)
    assert found is not None
    texts = [record.error_text or "" for record in found.history]
    assert len(texts) == 400
    assert [int(text.split()[0]) for text in texts] == [*range(1, 401)]
    assert all(text.endswith(" ... [1000002 characters]") for text in texts[:9])
    assert sum(map(len, texts)) < 3 * MAX_TEXTS
    assert max(map(len, texts)) == len(texts[-1])
    assert len(pickle.dumps(found)) < MEGABYTE
    assert len(repr(found)) < MEGABYTE


def test_the_longest_history_is_bounded() -> None:
    """A call may make attempts for days: the last thousand and one are kept."""
    found = report(failing("sync", policy(3000), 5000))
    assert found is not None
    assert len(found.history) == 1001
    assert sum(len(record.error_text or "") for record in found.history) < 1000 * SHORT_TEXT + 2 * MAX_TEXTS


@pytest.mark.parametrize("size", [0, 1, SHORT_TEXT - 2, SHORT_TEXT, 4000])
def test_texts_of_usual_length_are_whole(colour: str, size: int) -> None:
    found = report(failing(colour, policy(3), size))
    assert found is not None
    assert [record.error_text for record in found.history] == [f"{n} " + "x" * size for n in (1, 2, 3)]


def test_short_texts_among_long_ones_are_whole() -> None:
    texts = ["short", *["y" * 5000] * 40]
    left = iter([*texts, *texts])

    def work() -> None:
        raise Boom(next(left))

    with pytest.raises(Boom) as caught:
        policy(82).call(work)
    found = report(caught.value)
    assert found is not None
    assert [record.number for record in found.history if record.error_text == "short"] == [1, 42]


def test_results_among_long_texts_are_kept() -> None:
    """A record of a result has no text."""
    left = iter([3, *["y" * 5000] * 40])

    def work() -> object:
        result = next(left)
        if isinstance(result, str):
            raise Boom(result)
        return result

    with pytest.raises(Boom) as caught:
        policy(41, until=always(False)).call(work)
    found = report(caught.value)
    assert found is not None
    assert found.history[0].error_text is None
    assert len(found.history) == 41


def test_the_message_of_a_retry_error_is_bounded(colour: str) -> None:
    def work() -> None:
        raise Boom("z" * MEGABYTE)

    async def awork() -> None:
        work()

    retrying = policy(2, wrap=True)
    outcome = in_colour(colour, lambda: retrying.run(work), lambda: retrying.run(awork))
    assert len(str(outcome.error)) < 5000
    assert len(repr(outcome)) < 50_000


def test_a_text_whose_length_cannot_be_taken() -> None:
    class Text(str):
        __slots__ = ()

        def __len__(self) -> int:
            raise ZeroDivisionError

    class Odd(Boom):
        def __str__(self) -> str:
            return Text("odd")

    def work() -> int:
        raise Odd

    outcome = policy(2).run(work)
    assert [record.error_text for record in outcome.report.history] == ["<no text: __str__ failed>"] * 2
