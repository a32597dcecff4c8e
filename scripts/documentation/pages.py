"""The pages and their order, from the lists of the index pages.

``docs/index.md`` lists pages under its headings, one per item: ``- [Title](page.md): what it is for``. A
listed page that is an index itself (``index.md``, ``README.md``) lists the pages of its folder in the same
way. So the plain files show the same navigation as the site.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
INDEXES = ("index.md", "README.md")

ITEM = re.compile(
    r"^- \[(?P<title>(?:[^\[\]]|\[[^\]]*\])+)\]\((?P<link>[^)\s:#]+\.md)\)(?P<what>.*(?:\n  .*)*)",
    re.MULTILINE,
)
HEADING = re.compile(r"^## +(?P<text>.+?) *$", re.MULTILINE)


class Page(NamedTuple):
    """A listed page: its path below ``docs``, its title and its description in the list."""

    path: str
    title: str
    what: str


class Section(NamedTuple):
    """A heading of an index page, and the pages listed under it."""

    heading: str
    pages: list[Page]


def sections(index: str, docs: Path = DOCS) -> list[Section]:
    """Parse the lists of an index page, one section per heading; items above the first have no heading."""
    text = (docs / index).read_text("utf-8")
    found: list[Section] = []
    starts = [(0, "")] + [(heading.end(), heading["text"]) for heading in HEADING.finditer(text)]
    ends = [heading.start() for heading in HEADING.finditer(text)] + [len(text)]
    for (start, heading), end in zip(starts, ends, strict=True):
        pages = [_page(item, index, docs) for item in ITEM.finditer(text, start, end)]
        if pages:
            found.append(Section(heading, pages))
    return found


def _page(item: re.Match[str], index: str, docs: Path) -> Page:
    path = ((docs / index).parent / item["link"]).resolve()
    what = " ".join(item["what"].split()).lstrip(":, ")
    return Page(path.relative_to(docs.resolve()).as_posix(), item["title"], what)


def listed(docs: Path = DOCS) -> Iterator[Page]:
    """Yield the pages in order of the navigation, each index before its pages, without the landing page."""
    for section in sections("index.md", docs):
        for page in section.pages:
            yield page
            yield from below(page, docs)


def below(page: Page, docs: Path = DOCS) -> list[Page]:
    """Return the pages that an index page lists; an empty list for other pages."""
    if Path(page.path).name not in INDEXES:
        return []
    return [inner for section in sections(page.path, docs) for inner in section.pages]
