"""The page about what is tested names tests that exist."""

from __future__ import annotations

import re

import pytest

from tests.support.snippets import ROOT

pytestmark = pytest.mark.one_python

PAGE = ROOT / "docs" / "explanation" / "what-is-tested.md"
NAMED = sorted(set(re.findall(r"`((?:tests|scripts)/[\w/.]+)[ `]", PAGE.read_text("utf-8"))))


@pytest.mark.parametrize("path", NAMED)
def test_every_named_test_exists(path: str) -> None:
    found = ROOT / path
    assert found.is_file() or any(found.rglob("test_*.py"))


def test_every_row_names_a_test() -> None:
    rows = re.findall(r"^\| .+ \| .+ \| (.+) \|$", PAGE.read_text("utf-8"), re.MULTILINE)
    assert len(rows) > 30
    assert [row for row in rows if "`" not in row] == ["tests"] * 4
