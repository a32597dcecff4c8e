"""The pages and their order: what the index pages list, and nothing else.

``docs/index.md`` lists pages under its headings, one per item: ``- [Title](page.md): what it is for``. A page
in that list that is an index itself (``index.md``, ``README.md``) lists those of its folder in the same way.
So the navigation is what a reader of the plain files sees, too. This file knows nothing of the site.
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
    """A page in a list: its path below ``docs``, and how the list introduces it."""

    path: str
    title: str
    what: str


class Section(NamedTuple):
    """A heading of an index page, and the pages listed under it."""

    heading: str
    pages: list[Page]


def sections(index: str, docs: Path = DOCS) -> list[Section]:
    """Read what an index page lists, heading by heading; what stands above all headings has none."""
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
    """Walk through the navigation, each index before its pages; the landing page is not in it."""
    for section in sections("index.md", docs):
        for page in section.pages:
            yield page
            yield from below(page, docs)


def below(page: Page, docs: Path = DOCS) -> list[Page]:
    """Return the pages that an index page lists; none for any other page."""
    if Path(page.path).name not in INDEXES:
        return []
    return [inner for section in sections(page.path, docs) for inner in section.pages]
