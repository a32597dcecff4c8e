"""The configuration of Sphinx: plain Markdown in, no syntax of its own in the pages.

What Sphinx has to know and the pages do not say, the order of the pages and the reference, is added to
their text as they are read.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Protocol

from documentation.pages import INDEXES, sections
from documentation.reference import for_site

project = "Redouble"
release = metadata.version("redouble")
extensions = ["myst_parser"]
root_doc = "index"
nitpicky = False  # types of the standard library are named, and are not ours to describe

html_theme = "furo"
html_title = "Redouble"
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
html_permalinks_icon = "#"
smartquotes = False  # the site says what the files say, letter by letter

# Markdown as GitHub reads it: what is special to MyST would look odd there.
myst_heading_anchors = 6
myst_disable_syntax = ["myst_role", "myst_line_comment", "myst_target", "myst_block_break"]

python_use_unqualified_type_names = True
maximum_signature_line_length = 90
add_module_names = False
toc_object_entries_show_parents = "hide"
default_role = "literal"


class Application(Protocol):
    """What is used of Sphinx here."""

    def connect(self, event: str, callback: Callable[[object, str, list[str]], None], /) -> int:
        """Have something called."""
        ...


def setup(app: Application) -> None:
    """Read the pages through `complete`."""
    app.connect("source-read", complete)


def complete(app: object, page: str, source: list[str]) -> None:  # noqa: ARG001  Sphinx passes itself
    """Add to a page what only the site needs."""
    source[0] = for_site(source[0]) + toctrees(f"{page}.md")


def toctrees(page: str) -> str:
    """Tell Sphinx the order of the pages that an index page lists."""
    text = ""
    if Path(page).name in INDEXES:
        for section in sections(page):
            pages = "\n".join("/" + listed.path.removesuffix(".md") for listed in section.pages)
            caption = f":caption: {section.heading}\n" if section.heading else ""
            text += f"\n```{{toctree}}\n:hidden:\n{caption}\n{pages}\n```\n"
    return text
