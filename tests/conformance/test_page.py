"""The page about conformance: its claims match the tests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conformance.observables import OBSERVABLES, ROW_WORDS, asserted, asserts

HERE = Path(__file__).parent
PAGE = (HERE.parents[1] / "docs" / "conformance.md").read_text(encoding="utf-8")
TESTS = "".join(path.read_text(encoding="utf-8").replace("_", "-").lower() for path in HERE.glob("test_*.py"))
FACT = re.compile(r"\b(?:q-[a-z]\d\d|[ns]-\d\d|(?:kt|py|hw|lf)-[a-z0-9]+-\d\d)\b")


def is_tested(fact: str) -> bool:
    return re.sub(r"[_.]", "-", fact).lower() in TESTS.replace(".", "-")


def suites() -> list[str]:
    listed = PAGE.partition("tested by suite:")[2].partition("\n\n")[0]
    return re.findall(r"`([^`]+)`", listed)


def partly() -> dict[str, set[str]]:
    """Return the facts of which the page says that a part is not asserted, with that part."""
    rows = PAGE.partition("## Tested in part")[2].partition("\n## ")[0].splitlines()
    cells = [row.split("|") for row in rows if re.match(r"\| [A-Z]+-", row)]
    return {fact.strip(): set(re.findall(r"`(\w+)`", names)) for _, fact, names, *_ in cells}


def test_the_number_of_facts() -> None:
    """The numbers of ids in the tests, and of suites that the page names, equal those on the page."""
    claimed = re.search(r"\*\*(\d+) facts are tested[^*]*\*\*, and (\d+) in part", PAGE)
    assert claimed is not None
    assert [suite for suite in suites() if not is_tested(suite)] == []
    numbers = len(set(FACT.findall(TESTS))) + len(suites()) - len(partly()), len(partly())
    assert (int(claimed[1]), int(claimed[2])) == numbers


def test_every_observable_is_asserted_or_listed() -> None:
    """Of the facts about a call: the page lists what no test asserts, and nothing else."""
    found = asserted()
    missing = {fact: names - found[fact] for fact, names in OBSERVABLES.items() if names - found[fact]}
    assert partly() == missing
    assert [fact for fact in OBSERVABLES if not is_tested(fact)] == []


def test_a_dropped_observable_is_noticed() -> None:
    """A row asserts what its words say, and a declaration names observables of its fact only."""
    assert "next_delay" in asserted()["Q-R14"]
    assert not ROW_WORDS["next_delay"] & {"reason", "attempts", "calls", "sleeps", "hints"}
    with pytest.raises(ValueError, match=r"Q-R14 has no \['nothing'\]"):
        asserts("Q-R14", "nothing")


def test_every_deviation_is_tested() -> None:
    """Each id in the table of deviations is the id of a test."""
    rows = PAGE.partition("## Deviations")[2].partition("## Tested in part")[0].splitlines()
    ids = [fact for row in rows if row.startswith("| ") for fact in row.split("|")[1].strip().split(", ")]
    assert len(ids) > 30
    assert [fact for fact in ids if fact != "id" and not is_tested(fact)] == []
