"""What language models read: ``llms.txt``, facts and a list of the pages, and ``llms-full.txt``, all of them.

The head of ``llms.txt``, which ends where its first section begins, is written by hand. The sections are made
from the index pages, as the navigation of the site is; llmstxt.org says what they look like.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from documentation.pages import DOCS, ROOT, Page, below, listed, sections
from documentation.reference import for_readers

FILE = ROOT / "llms.txt"
SKIPPABLE = "decisions/"  # what may be left out where space is short stands under "Optional"


def renewed(text: str, docs: Path = DOCS) -> str:
    """Keep the head of an ``llms.txt`` and make its sections anew."""
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
    """Put all pages into one text, the reference filled in."""
    paths = ["index.md", *(page.path for page in listed(docs))]
    return "\n".join(f"<!-- docs/{path} -->\n\n{readable(path, docs)}" for path in dict.fromkeys(paths))


def readable(path: str, docs: Path = DOCS) -> str:
    """Return one page as Markdown, the reference filled in."""
    return for_readers((docs / path).read_text("utf-8"))


def publish(site: Path) -> None:
    """Put both files into the site, and each page as Markdown beside its HTML, for the links to lead to."""
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
