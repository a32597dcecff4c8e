"""The page about conformance: its claims match the tests."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
PAGE = (HERE.parents[1] / "docs" / "conformance.md").read_text(encoding="utf-8")
TESTS = "".join(path.read_text(encoding="utf-8").replace("_", "-").lower() for path in HERE.glob("test_*.py"))
FACT = re.compile(r"\b(?:q-[a-z]\d\d|[ns]-\d\d|(?:kt|py|hw|lf)-[a-z0-9]+-\d\d)\b")


def is_tested(fact: str) -> bool:
    return re.sub(r"[_.]", "-", fact).lower() in TESTS.replace(".", "-")


def suites() -> list[str]:
    listed = PAGE.partition("tested by suite:")[2].partition("\n\n")[0]
    return re.findall(r"`([^`]+)`", listed)


def test_the_number_of_facts() -> None:
    """The numbers of ids in the tests, and of suites that the page names, equal those on the page."""
    claimed = re.search(r"\*\*(\d+) facts are tested", PAGE)
    assert claimed is not None
    assert [suite for suite in suites() if not is_tested(suite)] == []
    assert int(claimed[1]) == len(set(FACT.findall(TESTS))) + len(suites())


def test_every_deviation_is_tested() -> None:
    """Each id in the table of deviations is the id of a test."""
    rows = PAGE.partition("## Deviations")[2].partition("## Not yet")[0].splitlines()
    ids = [fact for row in rows if row.startswith("| ") for fact in row.split("|")[1].strip().split(", ")]
    assert len(ids) > 30
    assert [fact for fact in ids if fact != "id" and not is_tested(fact)] == []
