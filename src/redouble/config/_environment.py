"""Variables that override a document: ``REDOUBLE_POLICIES__PAYMENTS__ATTEMPTS=5``.

The name of a variable is a path of the document in capitals, with ``__`` between its elements. Each element
is a key with one ``_`` for all characters between its letters and digits, or the number of an item of a list,
from 0. The text of the variable becomes a
value of the document, which the type of the option there converts. So this module does not depend on the
options. It never reads `os.environ`: the caller passes a mapping.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeAlias, cast

from redouble._internal.validation import instance, nearest
from redouble.config._document_path import DocPath, as_table, short_repr
from redouble.config._options.values import VariableText
from redouble.errors import ConfigError

PREFIX, DELIMITER = "REDOUBLE_", "__"

Sections: TypeAlias = Mapping[str, Mapping[str, object]]


def apply_variables(sections: Sections, environ: Mapping[str, str]) -> tuple[Sections, Mapping[str, str]]:
    """Return the sections with the variables applied, and the name of the variable that set each path."""
    wanted = "a mapping of texts to texts, such as os.environ, or None"
    instance(environ, "environ", Mapping, wanted)
    changed: dict[str, dict[str, object]] = {section: dict(tables) for section, tables in sections.items()}
    variables: dict[str, str] = {}
    for variable in sorted(environ, key=str):  # those of the defaults precede those of policies
        instance(variable, "environ: a name", str, wanted)
        if not variable.startswith(PREFIX):
            continue
        instance(environ[variable], f"environ[{variable!r}]", str, wanted)
        first, *elements = variable.removeprefix(PREFIX).split(DELIMITER)
        if elements and first.lower() in sections:
            text = VariableText(environ[variable].strip())
            _apply(changed, first.lower(), elements, text, variable, variables)
        else:
            _reject_misspelled(variable, first if elements else None, sections)
    return changed, variables


def _element(key: str) -> str:
    return re.sub(r"[\W_]+", "_", key).strip("_").upper()


def _items(value: object) -> list[object]:
    """Return the items of a list; of anything else there are none."""
    return cast("list[object]", value) if isinstance(value, list) else []


def _apply(
    sections: dict[str, dict[str, object]],
    section: str,
    elements: list[str],
    text: VariableText,
    variable: str,
    variables: dict[str, str],
) -> None:
    node: Any = sections  # a table, or a list
    key: Any = section
    place = DocPath((section,))
    for depth, element in enumerate(elements):
        # A policy without this option inherits the table whose key is set.
        usual = sections["defaults"].get(key) if (section, depth) == ("policies", 2) else None
        value: object = node[key] if isinstance(key, int) else node.get(key, usual)
        if value is None:
            variables.setdefault(place.path, variable)
        items = _items(value)
        if element in map(str, range(len(items))):
            node[key] = node = [*items]
            key, place = int(element), place.under(element)
            continue
        table = as_table({} if value is None else value)
        if table is None:
            missing = f"item {element}" if items and element.isdecimal() else "keys"
            raise place.error(f"{short_repr(value)} has no {missing}, and {variable} sets one")
        node[key] = node = dict(table)
        alike = [key for key in node if _element(key) == element]
        if len(alike) > 1:
            both = " and ".join(place.under(key).path for key in alike)
            raise ConfigError(f"this name fits {both}: rename one of them", path=variable)
        if not (alike or depth or section == "defaults"):
            hint = nearest(element, map(_element, node))
            raise ConfigError(f"[{section}] has nothing named {short_repr(element)}; {hint}", path=variable)
        key = alike[0] if alike else element.lower()
        place = place.under(key)
    node[key], variables[place.path] = text, variable


def _reject_misspelled(variable: str, section: str | None, sections: Sections) -> None:
    """Raise `ConfigError` for a variable whose name is close to a path; ignore others, which are not ours."""
    names = [section.upper() for section in sections]
    if section is not None:
        hint = nearest(section, names)
        raise ConfigError(f"the document has no section {short_repr(section)}; {hint}", path=variable)
    owners = (*names, *map(_element, sections["policies"]))
    if variable.startswith(tuple(f"{PREFIX}{owner}_" for owner in owners)):
        example = f"{PREFIX}POLICIES__PAYMENTS__ATTEMPTS"
        raise ConfigError(f"write {DELIMITER} between the elements of the path: {example}", path=variable)
