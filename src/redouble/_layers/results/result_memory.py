"""The last good result of each call, and the wrapper that answers with it instead of an error."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

from redouble._internal.reentrancy import ReentrancySafe
from redouble._layers.results.call_key import KEY, key_templates

REMEMBERED = key_templates(
    "fallback to a stale result",
    f"""\
{{async_}}def remembered({{parameters}}):
    redouble_key = redouble_checked(redouble_function, {KEY})
    try:
        redouble_result = {{await_}}redouble_fn({{arguments}})
        {{check}}
    except redouble_Exception as redouble_error:
        redouble_found = redouble_instead(redouble_key, redouble_error)
        if redouble_found is None:
            raise
        return redouble_answer(redouble_found, redouble_error)
    return redouble_judge(redouble_key, redouble_result)
""",
)


class GoodResult(NamedTuple):
    """A good result, and when the call returned it."""

    value: Any
    at: float


class ResultMemory(ReentrancySafe):
    """The last good result of each key: at most ``most``, none older than ``max_age`` seconds.

    A signal handler, or the finaliser of a result that is forgotten, may store one meanwhile.
    """

    def __init__(self, most: int, max_age: float) -> None:
        super().__init__()
        self._results: dict[Hashable, GoodResult] = {}  # oldest first
        self._most, self._max_age = most, max_age

    def __len__(self) -> int:
        return len(self._results)

    def store(self, key: Hashable, value: object, now: float) -> None:
        """Remember a result in place of the earlier one; forget those that are too old or too many."""
        self._run_exclusively(self._store, key, GoodResult(value, now))

    def _store(self, key: Hashable, result: GoodResult) -> None:
        self._results.pop(key, None)
        self._results[key] = result
        self._forget(result.at)

    def find(self, key: Hashable, now: float) -> GoodResult | None:
        """Return the result of a key, or None if there is none that is young enough."""
        found = self._results.get(key)
        return None if found is None or now - found.at > self._max_age else found

    def resize(self, most: int, max_age: float, now: float) -> None:
        """Change the limits, and forget the results beyond them."""
        self._run_exclusively(self._resize, most, max_age, now)

    def _resize(self, most: int, max_age: float, now: float) -> None:
        self._most, self._max_age = most, max_age
        self._forget(now)

    def _forget(self, now: float) -> None:
        while self._results:
            oldest, result = next(iter(self._results.items()))
            if len(self._results) <= self._most and now - result.at <= self._max_age:
                return
            del self._results[oldest]
