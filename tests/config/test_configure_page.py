"""The configuration page and the published schema agree with the loader."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from jsonschema import validate

from redouble.config import from_file, from_mapping, schema
from redouble.config._document import SECTIONS
from redouble.config._options import error_names as _names
from redouble.config._options.backoff import BACKOFFS, SHORT
from redouble.config._options.catalogue import BUDGETS, GATES, LAYERS, TABLES
from redouble.config._qubit_retry_compat import KEYS
from tests.support.snippets import run, snippets

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "how-to" / "configure.md").read_text("utf-8")
SCHEMA: dict[str, Any] = json.loads((DOCS / "reference" / "redouble.schema.json").read_text("utf-8"))
FILES = [snippet.text for snippet in snippets(PAGE) if snippet.language == "toml"]
VARIABLES = re.findall(r"^\| `(REDOUBLE_\w+)=([^`]+)` \| (.*) \|$", PAGE, re.MULTILINE)
CODE = re.compile("`([^`]+)`")


class Busy(Exception):
    """The exception that the page registers."""


@pytest.fixture(autouse=True)
def no_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin without registered names, and leave none behind."""
    monkeypatch.setattr(_names, "_known", _names.BUILT_IN)


def rows(heading: str) -> dict[str, str]:
    """Return the rows of a table: the rest of each row by the code in its first cell."""
    section = PAGE.partition(heading)[2].partition("\n\n")[0]
    return {
        CODE.findall(first)[0]: rest
        for first, rest in re.findall(r"^\| ([^|]+) \| (.*) ?\|$", section, re.MULTILINE)
        if CODE.match(first)
    }


def test_the_first_file_and_the_code_below_it_run_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "redouble.toml").write_text(FILES[0], "utf-8")
    monkeypatch.chdir(tmp_path)
    code = next(snippet for snippet in snippets(PAGE) if snippet.not_run == "it reads the file above")
    run(code, "docs/how-to/configure.md", {"__name__": __name__})


@pytest.mark.parametrize("text", FILES)
def test_every_file_on_the_page_can_be_loaded(text: str, tmp_path: Path) -> None:
    _names.register("shop.Busy", Busy)
    (tmp_path / "any.toml").write_text(text, "utf-8")
    inside = re.sub(r"^\[", "[tool.redouble.", text, flags=re.MULTILINE)
    (tmp_path / "pyproject.toml").write_text(inside, "utf-8")
    read = from_file(tmp_path / "any.toml").to_mapping()
    assert read
    assert from_file(tmp_path / "pyproject.toml").to_mapping() == read
    validate(tomllib.loads(text), SCHEMA)


@pytest.mark.parametrize(("variable", "text", "sets"), VARIABLES)
def test_every_variable_on_the_page_sets_something(variable: str, text: str, sets: str) -> None:
    _names.register("shop.Busy", Busy)
    files = [tomllib.loads(text) for text in FILES[:2]]
    document = {section: {**files[0].get(section, {}), **files[1].get(section, {})} for section in TABLES}
    before, after = from_mapping(document), from_mapping(document, environ={variable: text})
    assert before.to_mapping() != after.to_mapping(), sets


def test_every_section_and_every_type_is_on_the_page() -> None:
    described = rows("| section | what |\n|---|---|\n")
    assert [section.strip("[]").partition(".")[0] for section in described] == [
        "defaults",
        "policies",
        "budgets",
        "gates",
        "pipelines",
    ]
    assert {section.strip("[]").partition(".")[0] for section in described} == set(SECTIONS)
    assert set(CODE.findall(described["[gates.NAME]"])) == {"type", *GATES.tables}
    assert LAYERS.tables.keys() - GATES.tables.keys() <= set(CODE.findall(described["[pipelines.NAME]"]))
    assert set(CODE.findall(described["[budgets.NAME]"])) == {"type", *BUDGETS.tables}


def test_every_backoff_is_on_the_page() -> None:
    described = rows("| `type` | needs | may have |\n|---|---|---|\n")
    assert set(described) == set(BACKOFFS.tables)
    for name, rest in described.items():
        needed, more = rest.split("|")
        table = BACKOFFS.tables[name]
        assert CODE.findall(needed) == table.needed
        assert CODE.findall(more) == [key for key in table.defaults if key not in table.needed]
    assert re.search("All of them may have " + ".*?".join(f"`{key}`" for key in SHORT), PAGE, re.DOTALL)


def test_the_qubit_keys_on_the_page_are_keys_of_the_loader() -> None:
    section = PAGE.partition("## The keys of qubit-retry")[2].partition("\n## ")[0]
    for key in re.findall(r"^\| `(\w+)`", section, re.MULTILINE):
        assert key in KEYS


def test_the_published_schema_is_that_of_the_loader() -> None:
    now: Any = schema()
    proposed = now["$defs"]["on"]["anyOf"][0]["anyOf"][0]["enum"]
    known = SCHEMA["$defs"]["on"]["anyOf"][0]["anyOf"][0]["enum"]
    assert set(known) <= set(proposed)  # a newer Python has more exceptions
    text = json.dumps(now).replace(json.dumps(proposed), json.dumps(known))
    assert json.loads(text) == SCHEMA
