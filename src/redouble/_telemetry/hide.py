"""Patterns and names of secrets that a program adds to those that Redouble hides by itself."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import cast

from redouble._internal.locks import ForkSafeLock
from redouble._internal.public import public
from redouble._redaction.rules import Rule, added, names_rule
from redouble._telemetry.bound_fields import Handle

_lock = ForkSafeLock()


@public("redouble.types")
class Hiding(Handle):
    """The handle of `redouble.hide`: call it, `remove()` it, or use it in a ``with`` to hide no longer."""

    __slots__ = ("_rules",)

    def __init__(self, rules: tuple[Rule, ...]) -> None:
        self._rules = rules
        with _lock.rlock:
            added.rules = (*added.rules, *rules)

    def remove(self) -> None:
        """Hide these no longer; a second call does nothing."""
        with _lock.rlock:
            added.rules = tuple(rule for rule in added.rules if not any(rule is own for own in self._rules))


@public("redouble")
def hide(*patterns: str | re.Pattern[str], names: Collection[str] = ()) -> Hiding:
    """Hide more in the texts that Redouble writes, from now on: what one of the patterns matches.

    >>> import redouble
    >>> with redouble.hide(r"acme_[0-9a-f]{8,}", names=["pin"]):
    ...     redouble.redact("acme_0123456789 was refused, CARD_PIN: 4711")
    'REDACTED was refused, CARD_PIN: REDACTED'

    patterns: regular expressions for a text of a few thousand characters at most. If one has groups, the last
        group that matched is hidden, else the whole match.
    names: names of fields whose values are hidden, in any case and after any prefix.
    """
    if isinstance(names, str) or not isinstance(names, Collection):
        raise TypeError(f"hide names={names!r}: write a list of names, such as ['pin']")
    if not patterns and not names:
        raise ValueError("hide() hides nothing: write patterns, or names=[...]")
    rules = [Rule(("",), _compiled(pattern)) for pattern in patterns]
    each: Collection[object] = names
    for name in each:
        if not isinstance(name, str) or not name.strip():
            raise ValueError(f"hide names: {name!r}: write the name of a field, such as 'pin'")
        rules.append(names_rule(name.lower(), re.escape(name)))
    return Hiding(tuple(rules))


def _compiled(pattern: object) -> re.Pattern[str]:
    """Return the compiled pattern; refuse one that is none, or that matches nothing at all."""
    if not isinstance(getattr(pattern, "pattern", pattern), str):
        raise TypeError(f"hide({pattern!r}): write a regular expression for texts, such as r'acme_[0-9a-f]+'")
    try:
        compiled = re.compile(cast("str | re.Pattern[str]", pattern))
    except re.error as error:
        raise ValueError(f"hide({pattern!r}): this is no regular expression: {error}") from None
    if compiled.search("") is not None:
        raise ValueError(
            f"hide({pattern!r}): it matches an empty text, so it would hide nothing: write + for *"
        )
    return compiled
