"""The links of the built site: each leads to a page and a place on it, and nothing is loaded from afar."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}
NOT_LOADED = ("canonical", "author", "license", "help")


class Reader(HTMLParser):
    """Reads one page: the places on it, where it points to, and what it loads."""

    def __init__(self) -> None:
        super().__init__()
        self.places: set[str] = set()
        self.links: set[str] = set()
        self.loaded: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what a tag says."""
        said = {name: value for name, value in attrs if value is not None}
        self.places.update(said[name] for name in ("id", "name") if name in said)
        if tag in LOADED and said.get("rel") not in NOT_LOADED and (address := said.get(LOADED[tag])):
            self.loaded.add(address)
        elif tag == "a" and "href" in said:
            self.links.add(said["href"])


def read(page: Path) -> Reader:
    """Read one page."""
    reader = Reader()
    reader.feed(page.read_text("utf-8"))
    return reader


def broken(site: Path) -> Iterator[str]:
    """Name every link that leads nowhere, with its page."""
    pages = {page.resolve(): read(page) for page in sorted(site.rglob("*.html"))}
    for page, reader in pages.items():
        where = page.relative_to(site.resolve()).as_posix()
        for address in sorted(reader.links | reader.loaded):
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                if address in reader.loaded and parts.scheme != "data":
                    yield f"{where}: loads {address} from elsewhere"
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            if not target.is_file() or not target.is_relative_to(site.resolve()):
                yield f"{where}: {address} leads nowhere"
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].places:
                yield f"{where}: {address} leads to a page without that place"
