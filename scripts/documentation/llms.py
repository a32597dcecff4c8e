"""The files for language models: ``llms.txt``, facts and a list of pages, and ``llms-full.txt``, all pages.

The head of ``llms.txt``, up to its first section, is written by hand. The sections are generated from the
index pages, like the navigation of the site; llmstxt.org defines their format.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from documentation.pages import DOCS, ROOT, Page, below, listed, sections
from documentation.reference import for_readers

FILE = ROOT / "llms.txt"
SKIPPABLE = "decisions/"  # pages under the heading "Optional"


def renewed(text: str, docs: Path = DOCS) -> str:
    """Return an ``llms.txt`` with the same head and regenerated sections."""
    head = text.partition("\n## ")[0].rstrip()
    return "\n".join([head, *_sections(docs)]) + "\n"


def _sections(docs: Path) -> Iterator[str]:
    for section in sections("index.md", docs):
        yield from ["", f"## {section.heading}", ""]
        for page in section.pages:
            yield _item(page)
            yield from (_item(inner) for inner in below(page, docs) if not inner.path.startswith(SKIPPABLE))
    optional = [
        page
        for page in listed(docs)
        if page.path.startswith(SKIPPABLE) and page.path != f"{SKIPPABLE}README.md"
    ]
    if optional:
        yield from ["", "## Optional", "", *map(_item, optional)]


def _item(page: Page) -> str:
    return f"- [{page.title}](docs/{page.path})" + (f": {page.what}" if page.what else "")


def everything(docs: Path = DOCS) -> str:
    """Return all pages as one text, with the reference filled in."""
    paths = ["index.md", *(page.path for page in listed(docs))]
    return "\n".join(f"<!-- docs/{path} -->\n\n{readable(path, docs)}" for path in dict.fromkeys(paths))


def readable(path: str, docs: Path = DOCS) -> str:
    """Return one page as Markdown, with the reference filled in."""
    return for_readers((docs / path).read_text("utf-8"))


def publish(site: Path) -> None:
    """Write both files into the site, and each page as Markdown beside its HTML, as their links expect."""
    (site / "llms.txt").write_text(FILE.read_text("utf-8").replace("](docs/", "]("), "utf-8")
    (site / "llms-full.txt").write_text(everything(), "utf-8")
    for page in ("index.md", *(page.path for page in listed())):
        copy = site / page
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(readable(page), "utf-8")
    for picture in (*DOCS.rglob("*.svg"), *DOCS.rglob("*.json")):
        copy = site / picture.relative_to(DOCS)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(picture.read_bytes())
