"""The fenced blocks and the links of a Markdown page, and running a block.

A block that is not run has its reason above it:

    <!-- not run: it needs a server -->

A block of text right below a snippet is the expected output. A line of it that is indented by two spaces
continues the line above.
"""

from __future__ import annotations

import ast
import asyncio
import doctest
import inspect
import io
import re
import sys
import textwrap
from collections.abc import Iterator
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import NamedTuple

from redouble.testing import virtual_time

ROOT = Path(__file__).parents[2]

FENCE = re.compile(
    r"(?P<before>[^\n]*\n?)^(?P<indent>[ ]*)(?P<marks>`{3,}|~{3,})(?P<language>[^\n]*)\n"
    r"(?P<text>.*?)^[ ]*(?P=marks)[ ]*$",
    re.MULTILINE | re.DOTALL,
)
NOT_RUN = re.compile(r"<!-- not run:(?P<reason>.*)-->")
SHOWN = re.compile(r"\s*^```text\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
GOES_ON = re.compile(r"\n {2}(?=\S)")
RUN = ("python", "pycon")


class Snippet(NamedTuple):
    language: str
    line: int
    text: str
    not_run: str | None
    prints: str | None  # the output shown below it


def snippets(page: str) -> Iterator[Snippet]:
    """Yield all fenced blocks of a page."""
    for found in FENCE.finditer(page):
        refusal = NOT_RUN.search(found["before"])
        shown = SHOWN.match(page, found.end())
        yield Snippet(
            language=found["language"].strip(),
            line=page.count("\n", 0, found.start("text")) + 1,
            text=textwrap.dedent(found["text"]),
            not_run=None if refusal is None else refusal["reason"].strip(),
            prints=None if shown is None else GOES_ON.sub(" ", shown["text"]),
        )


def run(snippet: Snippet, path: str, namespace: dict[str, object]) -> None:
    """Run a snippet in virtual time, unless it uses virtual time itself, and check its output."""
    out = sys.stdout if snippet.prints is None else io.StringIO()
    time = nullcontext() if "virtual_time" in snippet.text else virtual_time()
    with redirect_stdout(out), time:
        really_run(snippet, path, namespace)
    if isinstance(out, io.StringIO):
        assert out.getvalue() == snippet.prints, f"{path}:{snippet.line} prints something else"


def really_run(snippet: Snippet, path: str, namespace: dict[str, object]) -> None:
    """Run a snippet, with tracebacks that show the line of the page; top-level `await` is allowed."""
    if ">>> " in snippet.text:
        example = doctest.DocTestParser().get_doctest(snippet.text, {}, path, path, snippet.line - 1)
        example.globs = namespace
        doctest.DebugRunner(optionflags=doctest.ELLIPSIS).run(example, clear_globs=False)
        return
    source = "\n" * (snippet.line - 1) + snippet.text
    code = compile(source, ROOT / path, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    awaited = eval(code, namespace)  # noqa: S307  our own documentation
    if inspect.iscoroutine(awaited):
        asyncio.run(awaited)


LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(\s*<?([^)\s>]+)>?[^)]*\)|^\[[^\]]+\]:\s+(\S+)", re.MULTILINE)
CODE = re.compile(r"(`+)(?:(?!\1).)+?\1")


def links(page: str) -> list[str]:
    """Return the targets of the links of a page, except those in code."""
    text = CODE.sub("`code`", FENCE.sub("", page))
    return [first or second for first, second in LINK.findall(text)]
