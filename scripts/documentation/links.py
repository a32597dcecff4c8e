"""Checks the built site: every link has a target, and nothing is loaded from other hosts."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}
NOT_LOADED = ("canonical", "author", "license", "help")


class PageParser(HTMLParser):
    """The parser of one page: its anchors, its links and the resources that it loads."""

    def __init__(self) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.loaded: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Record the anchors, the link or the resource of a tag."""
        values = {name: value for name, value in attrs if value is not None}
        self.anchors.update(values[name] for name in ("id", "name") if name in values)
        if tag in LOADED and values.get("rel") not in NOT_LOADED and (address := values.get(LOADED[tag])):
            self.loaded.add(address)
        elif tag == "a" and "href" in values:
            self.links.add(values["href"])


def read(page: Path) -> PageParser:
    """Parse one page."""
    parser = PageParser()
    parser.feed(page.read_text("utf-8"))
    return parser


def broken(site: Path) -> Iterator[str]:
    """Yield the broken links, each with its page."""
    pages = {page.resolve(): read(page) for page in sorted(site.rglob("*.html"))}
    for page, parser in pages.items():
        where = page.relative_to(site.resolve()).as_posix()
        for address in sorted(parser.links | parser.loaded):
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                if address in parser.loaded and parts.scheme != "data":
                    yield f"{where}: loads {address} from another host"
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            if not target.is_file() or not target.is_relative_to(site.resolve()):
                yield f"{where}: {address} has no target"
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                yield f"{where}: {address} points to an anchor that its page does not have"
