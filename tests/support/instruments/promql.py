"""A checker for the PromQL of the dashboard and the alerts: parses a query and reports its mistakes.

A query is type-checked against the exported series, which are an argument: each series must exist and have
the used labels, counters need a rate and gauges have none, and both sides of a division have the same labels.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

__all__ = ["QueryError", "QueryType", "Series", "parse"]

Series: TypeAlias = Mapping[str, frozenset[str]]  # the labels of each series

TOKEN = re.compile(
    r'\s*("[^"]*"|\[(?:\$__rate_interval|[0-9]+[smhd])\]|[0-9]+(?:\.[0-9]+)?|[A-Za-z_]\w*|=~|!~|!=|==|>=|<='
    r"|[=(){},/*+<>-])\s*"
)
WORD = re.compile(r"[A-Za-z_]\w*")
SUMS = ("_total", "_bucket", "_sum", "_count")  # suffixes of counters
OVER_TIME = {"rate": True, "max_over_time": False}  # True if the function is for counters
AGGREGATIONS = ("max", "min", "sum")
OPERATORS = ("/", "*", "+", "-", ">", "<", ">=", "<=", "==")
MATCHES = ("=", "!=", "=~", "!~")


class QueryError(ValueError):
    """A query with a mistake."""


class QueryType(NamedTuple):
    """The type of an expression: its series, and the labels of its result (None for a plain number)."""

    series: frozenset[str]
    labels: frozenset[str] | None


def parse(query: str, exported: Series) -> QueryType:
    """Parse a query, and return its type."""
    parser = _Parser(_tokens(query), exported)
    labels = parser.expression()
    parser.expect("")
    return QueryType(frozenset(parser.series), labels)


def _tokens(query: str) -> list[str]:
    tokens, position = list[str](), 0
    while position < len(query):
        found = TOKEN.match(query, position)
        if found is None:
            raise QueryError(f"cannot be read: {query[position:]}")
        tokens.append(found[1])
        position = found.end()
    return tokens


class _Parser:
    """The parser of one query."""

    def __init__(self, tokens: list[str], exported: Series) -> None:
        self._tokens, self._exported = [*tokens, ""], exported
        self.series: set[str] = set()

    def expect(self, *tokens: str) -> str:
        if self._tokens[0] not in tokens:
            raise QueryError(f"{tokens} is due, not {self._tokens}")
        return self._tokens.pop(0)

    def expression(self) -> frozenset[str] | None:
        left = self._term()
        while self._tokens[0] in OPERATORS:
            operator = self._tokens.pop(0)
            right = self._term()
            if left is not None and right is not None and left != right:
                raise QueryError(f"{sorted(left)} {operator} {sorted(right)}: nothing would match")
            left = right if left is None else left
        return left

    def _term(self) -> frozenset[str] | None:
        word = self._tokens.pop(0)
        if word.replace(".", "").isdigit():
            return None
        if word == "(":
            return self._closed(self.expression)
        if word in AGGREGATIONS:
            return self._aggregated()
        if word in OVER_TIME:
            self.expect("(")
            return self._closed(lambda: self._selected(self._tokens.pop(0), OVER_TIME[word]))
        if word in ("topk", "histogram_quantile"):
            return self._with_number(word)
        return self._selected(word, None)

    def _closed(self, inside: Callable[[], frozenset[str] | None]) -> frozenset[str] | None:
        found = inside()
        self.expect(")")
        return found

    def _aggregated(self) -> frozenset[str]:
        self.expect("by")
        self.expect("(")
        names = self._names(")")
        self.expect("(")
        labels = self._closed(self.expression) or frozenset()
        if not names <= labels:
            raise QueryError(f"by {sorted(names)}: there is only {sorted(labels)}")
        return names

    def _with_number(self, word: str) -> frozenset[str]:
        self.expect("(")
        if self._term() is not None:
            raise QueryError(f"{word} of what is no number")
        self.expect(",")
        labels = self._closed(self.expression) or frozenset()
        if word == "topk":
            return labels
        if "le" not in labels:
            raise QueryError(f"{word} without le: {sorted(labels)}")
        return labels - {"le"}

    def _selected(self, series: str, is_counter: bool | None) -> frozenset[str]:
        """Parse a series; ``is_counter`` is the kind of metric that a range is for, None without a range."""
        if series not in self._exported:
            raise QueryError(f"nobody exports {series}")
        if (is_counter is True) != series.endswith(SUMS):
            raise QueryError(f"{series}: counters have a rate, and gauges have none")
        self.series.add(series)
        labels = self._exported[series]
        if self._tokens[0] == "{":
            self._tokens.pop(0)
            matched = self._names("}", values=True)
            if not matched <= labels:
                raise QueryError(f"{series} has no label {sorted(matched - labels)}")
        if is_counter is not None and not self._tokens.pop(0).startswith("["):
            raise QueryError(f"{series} needs a range")
        return labels

    def _names(self, end: str, *, values: bool = False) -> frozenset[str]:
        names = set[str]()
        while True:
            name = self._tokens.pop(0)
            if WORD.fullmatch(name) is None:
                raise QueryError(f"{name} is no label")
            names.add(name)
            if values:
                self.expect(*MATCHES)
                if not self._tokens.pop(0).startswith('"'):
                    raise QueryError(f"{name} of what is no text")
            if self.expect(",", end) == end:
                return frozenset(names)
