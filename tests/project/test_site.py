"""The site: no page is forgotten, every public name is in the reference, llms.txt is up to date.

`scripts/docs` builds the site and fails on any warning and any dead link. These tests check what can be
checked without Sphinx.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.support.snippets import links, run, snippets

pytestmark = pytest.mark.one_python

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PATHS = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))


def of_scripts(module: str) -> Any:
    """Import a module of `scripts/documentation`."""
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        return import_module(f"documentation.{module}")
    finally:
        sys.path.remove(str(ROOT / "scripts"))


conf, entries, linking, llms, pages, reference = map(
    of_scripts, ("conf", "entries", "links", "llms", "pages", "reference")
)


def text_of(path: str) -> str:
    return (DOCS / path).read_text("utf-8")


# ----------------------------------------------------------------------------- the pages


def test_every_page_is_in_the_navigation_once() -> None:
    listed = Counter(page.path for page in pages.listed())
    assert sorted(listed) == [path for path in PATHS if path != "index.md"]
    assert set(listed.values()) == {1}


@pytest.mark.parametrize("path", PATHS)
def test_pages_are_plain_markdown_that_stays_inside_docs(path: str) -> None:
    text = text_of(path)
    assert text.startswith("# ")
    assert not re.search(r"^ *(`{3,}\{|:::|\.\. )", text, re.MULTILINE), (
        "a directive, which GitHub does not know"
    )
    outside = [
        link
        for link in links(text)
        if ":" not in link
        and not ((DOCS / path).parent / link.partition("#")[0]).resolve().is_relative_to(DOCS)
    ]
    assert outside == [], "such links work on GitHub only"


def test_the_configuration_adds_what_sphinx_needs() -> None:
    source = [text_of("index.md")]
    conf.complete(None, "index", source)
    for page in pages.sections("index.md"):
        assert f":caption: {page.heading}\n" in source[0]
        assert all(f"\n/{listed.path.removesuffix('.md')}\n" in source[0] for listed in page.pages)
    source = [text_of("decisions/README.md")]
    conf.complete(None, "decisions/README", source)
    assert "```{toctree}\n:hidden:\n\n/decisions/0001-one-pure-engine\n" in source[0]
    source = [text_of("conformance.md")]
    conf.complete(None, "conformance", source)
    assert source == [text_of("conformance.md")]


# ------------------------------------------------------------------------- the reference

PLACES = [
    (path, place)
    for path in PATHS
    if path.startswith("reference/")
    for place in reference.markers(text_of(path))
]


@pytest.mark.parametrize("module", entries.public())
def test_every_public_module_has_its_page_with_every_name(module: str) -> None:
    assert len([path for path, place in PLACES if place.module == module and place.names is None]) == 1
    named = [name for _, place in PLACES if place.module == module for name in place.names or ()]
    assert sorted(named) == sorted(import_module(module).__all__)
    assert len({path for path, place in PLACES if place.module == module}) == 1


NAMES = [(module, name) for module, names in entries.public().items() for name in names]


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_every_public_name_has_a_description(module: str, name: str) -> None:
    described = entries.entry(module, name)
    assert described.value if described.kind == "type" else described.doc
    page = f"<!-- names: {module} -->\n`{name}`\n"
    assert name in reference.for_site(page)
    assert name in reference.for_readers(page)
    assert " at 0x" not in reference.for_site(page)
    assert str(ROOT) not in reference.for_site(page)


@pytest.mark.parametrize("name", ["Retry", "Hints", "Worker"])
def test_every_option_has_a_description(name: str) -> None:
    items = re.findall(
        r"^- (`.+?`): .", reference.for_readers(f"<!-- names: redouble -->\n`{name}`\n"), re.MULTILINE
    )
    assert re.findall(r"`(\w+)`", ", ".join(items)) == list(entries.entry("redouble", name).parameters)


@pytest.mark.parametrize(
    ("module", "name", "kind", "signatures"),
    [
        ("redouble", "report", "function", ["(exc: object, /) -> Report | None"]),
        ("redouble", "retry", "function", ["(**options) -> Retry", "(fn: F, /) -> F"]),
        ("redouble", "Grant", "class", ["(cost: float, wait: float = 0.0)"]),
        ("redouble", "Pipeline", "class", ["(*layers: Layer)"]),
        ("redouble", "Backoff", "class", [""]),
        ("redouble", "Kind", "class", [""]),
        ("redouble", "SYSTEM", "data", [""]),
        (
            "redouble.errors",
            "Rejected",
            "exception",
            ["(message: str = '', *, retry_after: float | None = None)"],
        ),
        ("redouble.errors", "WorkerFailed", "exception", [""]),
        (
            "redouble.errors",
            "AttemptTimeout",
            "exception",
            ["(message: str = '', *, limit: Limit | None = None, seconds: float | None = None)"],
        ),
        (
            "redouble",
            "Timeout",
            "class",
            [
                (
                    "(seconds: Duration | Callable[..., Duration], worker: Worker | None = None, *, "
                    "multiple: float | None = None, quantile: float = 0.99, least: Duration = 0.01, "
                    "initial: Duration | None = None, minimum: int | None = None)"
                )
            ],
        ),
        ("redouble", "remaining", "function", ["() -> float | None", "(default: T) -> float | T"]),
        ("redouble.testing", "recorded", "function", ["() -> Switch[list[Event]]"]),
        ("redouble.types", "Answer", "type", [""]),
        ("redouble.types", "Judge", "class", [""]),
    ],
)
def test_signatures_are_shown_as_in_the_source(
    module: str, name: str, kind: str, signatures: list[str]
) -> None:
    described = entries.entry(module, name)
    assert (described.kind, list(described.signatures)) == (kind, signatures)


def test_defaults_are_shown_as_in_the_source() -> None:
    (signature,) = entries.entry("redouble", "Retry").signatures
    for default in (
        "on: On = transient,",
        "= Backoff.exponential(0.2, 2).maximum(2).full_jitter(),",
        "hints: Hints = Hints(),",
        "labels: Mapping[str, str] = {},",
        "clock: Clock = SYSTEM,",
        "random: Chance = random)",
    ):
        assert default in signature


def test_public_members_are_listed() -> None:
    def members(module: str, name: str) -> list[str]:
        return [member.name for member in entries.entry(module, name).members]

    assert members("redouble", "Outcome") == ["unwrap"]
    assert members("redouble", "Report") == ["late", "next_delay"]
    assert members("redouble", "Kind") == ["network", "timeout", "throttled", "server", "client", "unknown"]
    assert members("redouble", "Gate") == ["clock", "ends_with_head", "admit", "ended", "refusal", "traits"]
    hooks = {"name", "describe", "traits", "worst_case", "lint", "snapshot", "register"}
    assert hooks | {"can_reconfigure", "reconfigure"} <= set(members("redouble", "Layer"))
    assert members("redouble.types", "WorstCase") == ["within", "after"]
    assert {"call", "run"} <= set(members("redouble", "Retry"))
    assert "on" not in members("redouble", "Retry")
    assert entries.entry("redouble", "Backoff").members[0].kind == "classmethod"
    clock = {
        member.name: member.is_async for member in entries.entry("redouble.testing", "VirtualClock").members
    }
    assert (clock["sleep"], clock["asleep"]) == (False, True)
    assert entries.entry("redouble.errors", "DeadlineExceeded").bases == ("RetryError", "TimeoutError")
    assert entries.entry("redouble", "Retry").bases[-1] == "Layer"


def test_docstrings_are_converted_to_rst_for_sphinx() -> None:
    page = reference.for_site("Before\n\n<!-- names: redouble -->\n`Hints`,\n`Gate`\n\nAfter\n")
    assert page.startswith("Before\n\n``````{eval-rst}\n")
    assert page.endswith("\n``````\n\nAfter\n")
    for line in (
        ".. py:currentmodule:: redouble",
        ".. py:class:: Gate",
        "   Bases: :py:obj:`Layer <redouble.Layer>`",
        "   ``longest``\n       give up at once if the hint is longer than this.",
        "   .. py:attribute:: clock\n      :type: redouble.Clock\n      :value: SYSTEM",
    ):
        assert f"\n{line}\n" in page
    assert (
        "or raises :py:obj:`Rejected <redouble.errors.Rejected>`, and records how the call ended.\n" in page
    )
    assert "longest: redouble.types.Duration | None = None" in page


def test_literal_blocks_are_not_converted() -> None:
    page = reference.for_site("<!-- module: redouble.errors -->\nWords.\n")
    assert ".. py:module:: redouble.errors\n" in page
    assert "`until` did not accept the last result;" in page  # in the drawn tree, a literal block
    assert "Words." not in page


def test_docstrings_are_converted_to_markdown() -> None:
    page = reference.for_readers("<!-- names: redouble -->\n`Backoff`, `Kind`, `Retry`, `errors`\n")
    for lines in (
        "### `redouble.Backoff`\n",
        "#### `redouble.Backoff.constant`\n",
        "```pycon\n>>> list(Backoff.exponential(0.1).maximum(0.5).take(4))\n[0.1, 0.2, 0.4, 0.5]\n```\n",
        "class Kind(StrEnum)\n    network = 'network'\n",
        "or around a block:\n\n    for attempt in policy:\n",
        "`redouble.errors`: The exceptions of Redouble.\n",
    ):
        assert lines in page


@pytest.mark.parametrize("page", ["<!-- names: redouble -->\n`Rety`\n", "<!-- names: redoubt -->\n`Retry`\n"])
def test_an_unknown_name_raises(page: str) -> None:
    with pytest.raises(LookupError, match=r"redouble has no Rety|no public module redoubt"):
        reference.for_site(page)


# ------------------------------------------------------------------------------ llms.txt

LLMS = (ROOT / "llms.txt").read_text("utf-8")


def test_llms_txt_is_up_to_date() -> None:
    assert llms.renewed(LLMS) == LLMS, "run scripts/docs"


def test_llms_txt_lists_every_page_and_nothing_else() -> None:
    listed = Counter(links(LLMS))
    assert sorted(listed) == [f"docs/{path}" for path in PATHS if path != "index.md"]
    assert set(listed.values()) == {1}


def test_llms_txt_has_the_expected_format() -> None:
    head, *sections = LLMS.split("\n## ")
    assert re.match(r"# Redouble\n\n> .+\n(> .+\n)*\n", head)
    assert head.count("\n# ") == 0
    for section in sections:
        assert re.fullmatch(r".+\n\n(- \[.+\]\(\S+\)(: .+)?\n)+\n?", section)


def test_the_snippets_of_llms_txt_run() -> None:
    found = list(snippets(LLMS))
    assert found
    for snippet in found:
        run(snippet, "llms.txt", {"__name__": "llms"})


def test_every_link_of_the_published_llms_txt_has_a_target(tmp_path: Path) -> None:
    llms.publish(tmp_path)
    index = (tmp_path / "llms.txt").read_text("utf-8")
    assert sorted(links(index)) == [path for path in PATHS if path != "index.md"]
    assert all((tmp_path / link).is_file() for link in links(index))
    everything = (tmp_path / "llms-full.txt").read_text("utf-8")
    assert all(f"<!-- docs/{path} -->\n\n# " in everything for path in PATHS)
    assert "\n<!-- names:" not in everything
    assert "`redouble.Retry.call`" in everything


# ----------------------------------------------------------------- these tests can fail


def test_lists_are_read_with_their_headings(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "index.md").write_text(
        "# Title\n\n[no item](no.md)\n\n- [`One` [1]](one.md): first,\n  and more\n\n"
        "## Empty\n\n## Two\n\n- [Inner](inner/README.md)\n- [Afar](https://example.org/far.md)\n"
    )
    (tmp_path / "inner" / "README.md").write_text(
        "# Inner\n\n- [Three](three.md), the third\n- [Up](../up.md)\n"
    )
    (tmp_path / "one.md").write_text("# One\n")
    assert pages.sections("index.md", tmp_path) == [
        ("", [("one.md", "`One` [1]", "first, and more")]),
        ("Two", [("inner/README.md", "Inner", "")]),
    ]
    assert [page.path for page in pages.listed(tmp_path)] == [
        "one.md",
        "inner/README.md",
        "inner/three.md",
        "up.md",
    ]


def test_dead_links_of_a_site_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<a href="b.html#there">1</a><a href="b.html#gone">2</a><a href="c.html">3</a><a href="#self">4</a>'
        '<p id="self"><a href="https://example.org">5</a><a href="../out.html">6</a>'
        '<a href="a%20b.txt#x">7</a><script src="https://example.org/x.js"></script>'
        '<link rel="stylesheet" href="gone.css"><img src="data:,">'
        '<link rel="canonical" href="https://example.org/">'
    )
    (tmp_path / "b.html").write_text('<a name="there" href="a.html#self"></a>')
    (tmp_path / "a b.txt").write_text("")
    (tmp_path.parent / "out.html").write_text("")
    assert list(linking.broken(tmp_path)) == [
        "a.html: ../out.html has no target",
        "a.html: b.html#gone points to an anchor that its page does not have",
        "a.html: c.html has no target",
        "a.html: gone.css has no target",
        "a.html: loads https://example.org/x.js from another host",
    ]
