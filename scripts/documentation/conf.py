"""The configuration of Sphinx for pages in plain Markdown, without MyST's own syntax.

The navigation and the reference, which the pages do not contain, are added to their text as Sphinx reads
them.
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
nitpicky = False  # types of the standard library are named without a target

html_theme = "furo"
html_title = "Redouble"
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
html_permalinks_icon = "#"
smartquotes = False  # the site shows the characters of the files

# Markdown as GitHub renders it, which does not know MyST's syntax.
myst_heading_anchors = 6
myst_disable_syntax = ["myst_role", "myst_line_comment", "myst_target", "myst_block_break"]

python_use_unqualified_type_names = True
maximum_signature_line_length = 90
add_module_names = False
toc_object_entries_show_parents = "hide"
default_role = "literal"


class Application(Protocol):
    """The part of Sphinx's application that is used here."""

    def connect(self, event: str, callback: Callable[[object, str, list[str]], None], /) -> int:
        """Register a callback for an event."""
        ...


def setup(app: Application) -> None:
    """Register `complete` for every page."""
    app.connect("source-read", complete)


def complete(app: object, page: str, source: list[str]) -> None:  # noqa: ARG001  Sphinx passes itself
    """Add the reference and the navigation to a page."""
    source[0] = for_site(source[0]) + toctrees(f"{page}.md")


def toctrees(page: str) -> str:
    """Return the toctrees of an index page, in the order of its lists."""
    text = ""
    if Path(page).name in INDEXES:
        for section in sections(page):
            pages = "\n".join("/" + listed.path.removesuffix(".md") for listed in section.pages)
            caption = f":caption: {section.heading}\n" if section.heading else ""
            text += f"\n```{{toctree}}\n:hidden:\n{caption}\n{pages}\n```\n"
    return text
