"""The reference: replaces marked paragraphs of a page by the docstrings of the names in them.

A page of the reference is plain Markdown that can be read by itself. Above a paragraph that lists names it
has

    <!-- names: redouble.errors -->

and the site shows the signatures and docstrings of these names instead of the paragraph. In the same way the
paragraph below ``<!-- module: redouble.errors -->`` is replaced by the docstring of the module. There are two
output formats: directives of Sphinx for the site, and Markdown.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import NamedTuple

from documentation.entries import Entry, entry, full_name, public

MARKER = re.compile(
    r"^<!-- (?P<what>module|names): (?P<module>[\w.]+) -->\n(?P<text>(?:.+\n)+)", re.MULTILINE
)
NAME = re.compile(r"`(\w+)`")
OPTION = re.compile(r"(?P<names>\w+(?:, \w+)*): (?P<text>.*)")
SINGLE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
WORD = re.compile(r"""("[^"]*"|'[^']*')|(?<![\w.])(?<!= )([A-Z]\w+)""")


class Marker(NamedTuple):
    """A marked paragraph: of a module, or of some names in it."""

    module: str
    names: list[str] | None


def markers(page: str) -> list[Marker]:
    """Return all marked paragraphs of a page."""
    return [_marker(found) for found in MARKER.finditer(page)]


def _marker(found: re.Match[str]) -> Marker:
    return Marker(found["module"], NAME.findall(found["text"]) if found["what"] == "names" else None)


def for_site(page: str) -> str:
    """Fill in the docstrings as directives of Sphinx."""
    return _filled(page, lambda marker: _fenced(_directives(marker)))


def for_readers(page: str) -> str:
    """Fill in the docstrings as Markdown."""
    return _filled(page, lambda marker: "\n".join(_markdown(marker)))


def _filled(page: str, text: Callable[[Marker], str]) -> str:
    return MARKER.sub(lambda found: text(_marker(found)) + "\n", page)


def _entries(marker: Marker) -> list[Entry]:
    module = marker.module
    if module not in public():
        raise LookupError(f"there is no public module {module}: {', '.join(public())}")
    missing = sorted(set(marker.names or []) - set(public()[module]))
    if missing:
        raise LookupError(f"{module} has no {', '.join(missing)}")
    return [entry(module, name) for name in marker.names or []]


# -------------------------------------------------------------------------------- for Sphinx


def _fenced(lines: Iterable[str]) -> str:
    return "\n".join(["``````{eval-rst}", *lines, "``````"])


def _directives(marker: Marker) -> Iterator[str]:
    if marker.names is None:
        yield from ["", f".. py:module:: {marker.module}", ""]
        yield from _linked(_module_doc(marker.module))
        return
    yield from ["", f".. py:currentmodule:: {marker.module}", ""]
    for described in _entries(marker):
        yield from _directive(described)


def _module_doc(module: str) -> list[str]:
    return (inspect.getdoc(import_module(module)) or "").splitlines()


def _directive(described: Entry) -> Iterator[str]:
    if described.kind == "module":
        yield from [f":py:mod:`{described.name}`", f"    {described.doc.partition('.')[0]}.", ""]
        return
    kind, flags = described.kind, list[str]()
    if kind in ("classmethod", "staticmethod"):
        kind, flags = "method", [f":{kind}:"]
    if described.is_async:
        flags.append(":async:")
    if described.type:
        flags.append(f":type: {_qualified(described.type)}")
    if described.value:
        value = (
            f":canonical: {_qualified(described.value)}" if kind == "type" else f":value: {described.value}"
        )
        flags.append(value)
    first, *more = (described.name + _qualified(signature) for signature in described.signatures)
    indent = " " * (len(kind) + len(".. py:::") + 1)
    yield f".. py:{kind}:: {first}"
    yield from (indent + signature for signature in more)
    yield from (f"   {flag}" for flag in flags)
    yield ""
    if described.bases:
        bases = ", ".join(_link(base) for base in described.bases)
        yield from [f"   Bases: {bases}", ""]
    for line in _linked(_with_options(described, _definition)):
        yield f"   {line}" if line else ""
    yield ""
    for member in described.members:
        yield from (f"   {line}" if line else "" for line in _directive(member))


def _linked(lines: Iterable[str]) -> Iterator[str]:
    """Turn each `Name` that is public into a link, and others into code, except in literal blocks."""
    literal: int | None = None
    for line in lines:
        indent = len(line) - len(line.lstrip())
        if literal is not None and line and indent <= literal:
            literal = None
        yield (
            line
            if literal is not None or line.startswith(">>> ")
            else SINGLE.sub(lambda found: _link(found[1]), line)
        )
        if line.endswith("::"):
            literal = indent


def _link(name: str) -> str:
    full = full_name(name)
    if full is None:
        return f"``{name}``"
    return f":py:mod:`{full}`" if full in public() else f":py:obj:`{name} <{full}>`"


def _qualified(signature: str) -> str:
    """Qualify the public types of a signature; the site shows the last part with a link.

    Defaults are plain text to Sphinx and stay unchanged.
    """

    def qualify(found: re.Match[str]) -> str:
        return found[0] if found[1] else full_name(found[2]) or found[0]

    return WORD.sub(qualify, signature)


def _definition(names: str, text: list[str]) -> Iterator[str]:
    yield from ["", ", ".join(f"``{name}``" for name in names.split(", "))]
    yield from (f"    {line}" for line in text)


# ------------------------------------------------------------------------------- as Markdown


def _markdown(marker: Marker) -> Iterator[str]:
    if marker.names is None:
        yield from [*_plain(_module_doc(marker.module)), ""]
    for described in _entries(marker):
        yield from _chapter(described, f"{marker.module}.{described.name}", "###")


def _chapter(described: Entry, name: str, marks: str) -> Iterator[str]:
    if described.kind == "module":
        yield from [f"`{described.name}`: {described.doc.partition('.')[0]}.", ""]
        return
    yield from [f"{marks} `{name}`", ""]
    yield "```python"
    for signature in described.signatures:
        bases = f"({', '.join(described.bases)})" if described.bases else ""
        if described.kind in ("class", "exception"):
            yield f"class {described.name}{bases}" + (f"  # {described.name}{signature}" if signature else "")
        elif described.kind == "type":
            yield f"{described.name} = {described.value}"
        elif described.type or described.value:
            typed = f": {described.type}" if described.type else ""
            yield f"{described.name}{typed}" + (f" = {described.value}" if described.value else "")
        else:
            yield f"{'async def' if described.is_async else 'def'} {described.name}{signature}"
    yield from (f"    {member.name} = {member.value}" for member in described.members if _is_constant(member))
    yield from ["```", ""]
    yield from _plain(_with_options(described, _item))
    for member in described.members:
        if not _is_constant(member):
            yield from _chapter(member, f"{name}.{member.name}", marks + "#")


def _is_constant(member: Entry) -> bool:
    return member.kind == "attribute" and not member.type


def _plain(lines: Iterable[str]) -> Iterator[str]:
    """Convert a docstring to Markdown: fence doctests, and shorten ``::`` above indented code to a colon."""
    inside = False
    for line in lines:
        if line.startswith(">>> ") and not inside:
            yield "```pycon"
            inside = True
        elif not line and inside:
            yield "```"
            inside = False
        yield line.removesuffix(":") if line.endswith("::") else line
    yield from ["```"] if inside else []
    yield ""


def _item(names: str, text: list[str]) -> Iterator[str]:
    first, *more = text
    yield f"- {', '.join(f'`{name}`' for name in names.split(', '))}: {first}"
    yield from (f"  {line}" for line in more)


# ------------------------------------------------------------------------------ of docstrings


def _with_options(described: Entry, form: Callable[[str, list[str]], Iterator[str]]) -> Iterator[str]:
    """Yield the lines of a docstring, with descriptions of options (``name: text``) formatted by ``form``."""
    option: tuple[str, list[str]] | None = None
    for line in described.doc.splitlines():
        found = OPTION.fullmatch(line)
        starts = found is not None and set(found["names"].split(", ")) <= set(described.parameters)
        if option is not None and (starts or not line):
            yield from form(*option)
            option = None
        if found is not None and starts:
            option = (found["names"], [found["text"]])
        elif option is not None:
            option[1].append(line.strip())
        else:
            yield line
    if option is not None:
        yield from form(*option)
