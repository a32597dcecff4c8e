"""What one error says: whether it counts, for layers that have an option ``on``; and when to come back.

The rules are the same as a policy's: types, functions, judges, or a list of these.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from redouble._verdict import Ended, On, Verdict, as_rules, judge, only_types
from redouble.errors import Rejected

__all__ = ["Failures", "told_when"]


class Failures:
    """What counts as a failure."""

    __slots__ = ("_rules", "_types", "on")

    def __init__(self, on: On, whose: str) -> None:
        if on in ((), []):
            raise ValueError(f"{whose} on={on!r} is empty, so nothing would count: name an exception type")
        if isinstance(cast("object", on), int | float):
            raise TypeError(f"{whose} on={on!r}: write an exception type or a rule, or name the number")
        self._rules = as_rules(on)
        self._types = only_types(self._rules)
        self.on = on

    def count(self, error: Exception) -> bool | None:
        """Say whether an error counts; None if no rule has an opinion."""
        if self._types is not None:
            return True if issubclass(type(error), self._types) else None
        verdict = self.verdict(error)
        return None if verdict is None else verdict.action == "retry"

    def verdict(self, error: Exception) -> Verdict | None:
        """Return what the rules say of an error: "retry" is that it counts."""
        return judge(self._rules, error, lambda error: Ended(1, error))

    def heard(self, error: BaseException | None) -> bool | None:
        """Say the same of how a call ended; a cancellation, or a refusal further in, has nothing to say."""
        if error is None:
            return False
        if not isinstance(error, Exception) or isinstance(error, Rejected):
            return None
        return self.count(error)

    def covers(self, other: On) -> bool:
        """Say whether all that the other ``on`` names counts here too, as far as that can be told."""
        rules = as_rules(other)
        if self._rules == rules:
            return True
        types = only_types(rules)
        if self._types is None:
            return False
        return Exception in self._types or (
            types is not None and all(issubclass(kind, self._types) for kind in types)
        )


def told_when(verdict: Verdict, error: object) -> Verdict:
    """Take the time a gate asks for as a hint, also where a mere type says that its error is retried."""
    after: object = getattr(error, "retry_after", None)
    if verdict.action != "retry" or isinstance(after, bool) or not isinstance(after, int | float):
        return verdict
    return replace(verdict, after=after) if after == after else verdict  # noqa: PLR0124  NaN
