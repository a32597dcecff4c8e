"""Variables that override a document: ``REDOUBLE_PAYMENTS_ATTEMPTS=5``, ``REDOUBLE_GATES_DB_LIMIT=20``.

The name of a variable is, in capitals, the name of a table followed by a key in it. The text of the variable
is converted to the value that a document would have there, which is then parsed like the rest of the
document. So this module handles names and keys, and not the meaning of options. It never reads `os.environ`:
the caller passes a mapping.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias, cast

from redouble.config._document_path import DocPath, as_table, nearest, short_repr
from redouble.config._options.catalogue import BUDGETS, DEFAULTS, GATES, RETRY
from redouble.config._options.values import Value
from redouble.errors import ConfigError

__all__ = ["apply_variables"]

PREFIX = "REDOUBLE_"

Sections: TypeAlias = Mapping[str, Mapping[str, object]]
Owner: TypeAlias = tuple[str, ...]  # the path of a table: its section, and its name if the section has names


class Target(NamedTuple):
    """The option that a variable sets: its keys below the table, and the kind of its value."""

    keys: tuple[str, ...]
    kind: Value


def apply_variables(sections: Sections, environ: Mapping[str, str]) -> tuple[Sections, Mapping[str, str]]:
    """Return the sections with the variables applied, and the name of the variable that set each path."""
    ours = _our_variables(environ)
    if not ours:
        return sections, {}
    changed: dict[str, dict[str, object]] = {section: dict(tables) for section, tables in sections.items()}
    named = _owners_by_prefix(sections)
    variables: dict[str, str] = {}
    for variable in sorted(ours, key=_order):
        resolved = _resolve(variable, named, changed)
        if resolved is not None:
            owner, target = resolved
            _set(changed, owner, target, environ[variable], variable, variables)
    return changed, variables


def _our_variables(environ: object) -> list[str]:
    """Return the names of the variables with our prefix; raise `TypeError` unless all are strings."""
    wanted = "write a mapping of texts to texts, such as os.environ, or None"
    if not isinstance(environ, Mapping):
        raise TypeError(f"environ={short_repr(environ)}: {wanted}")
    variables = cast("Mapping[object, object]", environ)
    ours: list[str] = []
    for name in variables:
        if not isinstance(name, str):
            raise TypeError(f"environ has {short_repr(name)}: {wanted}")
        if name.startswith(PREFIX):
            if not isinstance(variables[name], str):
                raise TypeError(f"environ has {name}={short_repr(variables[name])}: {wanted}")
            ours.append(name)
    return ours


def _order(variable: str) -> tuple[bool, bool, str]:
    # Defaults first, because policies build on them; then types, because the valid keys depend on the type.
    return (not variable.startswith(f"{PREFIX}DEFAULTS_"), not variable.endswith("_TYPE"), variable)


def _variable_form(name: str) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in name).upper()


def _owners_by_prefix(sections: Sections) -> dict[str, list[Owner]]:
    """Return the tables that a variable may refer to, by the prefix that names them."""
    named: dict[str, list[Owner]] = {"DEFAULTS": [("defaults",)]}
    for section, before in (("policies", ""), ("budgets", "BUDGETS_"), ("gates", "GATES_")):
        for name in sections[section]:
            named.setdefault(before + _variable_form(name), []).append((section, name))
    return named


def _resolve(
    variable: str, named: Mapping[str, list[Owner]], sections: Sections
) -> tuple[Owner, Target] | None:
    """Return the table and option that a variable sets: of the longest matching name with such an option."""
    words = variable.removeprefix(PREFIX).split("_")
    if words[0] == "POLICIES" and "POLICIES" not in named:
        short = "_".join(words[1:])
        raise ConfigError(
            f"variables of policies have no prefix POLICIES_: write {PREFIX}{short}", path=variable
        )
    unknown: ConfigError | None = None
    table_exists = False
    for count in range(len(words) - 1, 0, -1):
        name, option = "_".join(words[:count]), "_".join(words[count:])
        fits: list[tuple[Owner, Target]] = []
        for owner in named.get(name, ()):
            table_exists = True
            table = _table_of(sections, owner)
            kinds = _kinds(owner, table)
            target = _find_target(kinds, None, option, table)
            if target is not None:
                fits.append((owner, target))
            elif unknown is None and option and len(kinds) > 1:
                hint = nearest(option, map(_variable_form, kinds))
                unknown = ConfigError(f"{'.'.join(owner)} has no option {option}; {hint}", path=variable)
        if len(fits) > 1:
            owners = " and ".join(".".join(owner) for owner, _ in fits)
            raise ConfigError(f"this name fits {owners}: rename one of them", path=variable)
        if fits:
            return fits[0]
    if unknown is not None:
        raise unknown
    if not table_exists:
        _reject_misspelled(variable, words, named)
    return None  # it is not ours, or its table has no known type, which `parse` will reject


def _reject_misspelled(variable: str, words: list[str], named: Mapping[str, object]) -> None:
    """Raise `ConfigError` if a variable ends with a known option but names no existing table."""
    kinds = {"GATES": GATES.every(), "BUDGETS": BUDGETS.every()}.get(words[0], RETRY.kinds())
    for count in range(len(words)):
        name, option = "_".join(words[:count]), "_".join(words[count:])
        if _find_target(kinds, None, option, None) is not None:
            if not name:
                message = f"name the owner of the option: {PREFIX}DEFAULTS_{option} sets it for all policies"
            else:
                message = f"the configuration has nothing named {name}; {nearest(name, named)}"
            raise ConfigError(message, path=variable)


def _kinds(owner: Owner, table: object) -> Mapping[str, Value]:
    match owner[0]:
        case "defaults":
            return DEFAULTS.kinds()
        case "policies":
            return RETRY.kinds()
        case section:
            return (GATES if section == "gates" else BUDGETS).keys(table)


def _find_target(kinds: Mapping[str, Value], other: Value | None, rest: str, there: object) -> Target | None:
    """Return the option among ``kinds`` that the rest of a variable name spells, or None."""
    table = as_table(there) or {}
    for key, kind in kinds.items():
        word = _variable_form(key)
        if rest == word:
            return Target((key,), kind)
        if rest.startswith(word + "_"):
            inner = _find_target(kind.keys(), kind.other(), rest[len(word) + 1 :], table.get(key))
            if inner is not None:
                return Target((key, *inner.keys), inner.kind)
    if other is None or not rest:
        return None
    alike = (key for key in table if _variable_form(key) == rest)
    return Target((next(alike, rest.lower()),), other)


def _table_of(sections: Sections, owner: Owner) -> object:
    return sections[owner[0]] if len(owner) == 1 else sections[owner[0]].get(owner[1])


def _set(
    sections: dict[str, dict[str, object]],
    owner: Owner,
    target: Target,
    text: str,
    variable: str,
    variables: dict[str, str],
) -> None:
    table = as_table(_table_of(sections, owner))
    if table is None:
        return  # `parse` will reject it
    node = dict(table)
    if owner == ("defaults",):
        sections["defaults"] = node
    else:
        sections[owner[0]][owner[1]] = node
    usual = sections["defaults"] if owner[0] == "policies" else {}
    path = owner
    for key in target.keys[:-1]:
        path = (*path, key)
        value: object = node.get(key, usual.get(key))
        if value is None:
            variables.setdefault(DocPath(path).path, variable)
        table = as_table({} if value is None else value)
        if table is None:
            raise ConfigError(
                f"{DocPath(path).path} is {short_repr(value)}, which has no keys", path=variable
            )
        node[key] = inner = dict(table)
        node, usual = inner, {}
    node[target.keys[-1]] = target.kind.text(text)
    variables[DocPath((*owner, *target.keys)).path] = variable
