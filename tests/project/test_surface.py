"""The public surface: the public names, their docstrings, and lazy imports."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import pickle
import re
import subprocess
import sys
from dataclasses import fields
from enum import Enum
from itertools import pairwise
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, ForwardRef, cast, get_overloads, get_type_hints

import pytest

import redouble
from redouble import Retry, errors, types

# fmt: off
PUBLIC = {
    "retry", "Retry", "Attempt", "AttemptRecord", "Outcome", "Report", "Backoff", "Hints", "Verdict",
    "Kind", "Reason", "Clock", "SYSTEM", "Layer", "Gate", "Pipeline", "Grant", "transient", "observe",
    "report", "policy_of", "variant", "deadline", "remaining", "current", "cancelled", "Timeout", "Worker",
    "errors",
    "RetryBudget", "TokenBucket", "Bulkhead", "CircuitBreaker", "Fallback", "RateLimit", "AdaptiveRate",
    "AdaptiveConcurrency", "Throttle", "Hedge", "Chaos", "Keyed", "bind", "stats", "policies", "redact",
    "hide", "priority", "Coalesce",
}
# fmt: on

SOURCE = Path(redouble.__file__).parent
MODULES = [
    ".".join(["redouble", *path.relative_to(SOURCE).with_suffix("").parts]).removesuffix(".__init__")
    for path in sorted(SOURCE.rglob("*.py"))
    if path.stem != "__init__"
    or "/_" not in str(path.parent.relative_to(SOURCE.parent))  # these hold no names
]
IN_PUBLIC = [module for module in MODULES if "._" not in module]
CLASSES = [name for name in redouble.__all__ if inspect.isclass(getattr(redouble, name))]


def in_order(name: str) -> tuple[int, str]:
    """Order names as linters do: constants, then classes, then the rest."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)


# ------------------------------------------------------------------------------- names


@pytest.mark.parametrize("module", IN_PUBLIC)
def test_all_is_sorted_and_exists(module: str) -> None:
    found = importlib.import_module(module)
    names: list[str] = found.__all__
    assert names == sorted(set(names), key=in_order)
    assert [name for name in names if not hasattr(found, name)] == []


def test_the_public_names() -> None:
    assert set(redouble.__all__) == PUBLIC


def test_the_package_has_no_other_public_attributes() -> None:
    """In a fresh interpreter: importing a public submodule makes it an attribute too."""
    code = "import redouble; print(*(name for name in dir(redouble) if name[0] != '_'))"
    command = [sys.executable, "-I", "-c", code]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: S603  our own
    assert set(printed.split()) == set(redouble.__all__)


def test_submodules_are_imported_on_first_access() -> None:
    """In a fresh interpreter, after `import redouble` only."""
    names = ["config", "http", "instruments", "presets", "testing", "types"]
    asked = [f"redouble.{name}" for name in names] + ["redouble.instruments.logging"]
    command = [sys.executable, "-I", "-c", f"import redouble; print({', '.join(asked)})"]
    subprocess.run(command, capture_output=True, check=True)  # noqa: S603  our own
    for module in (redouble, importlib.import_module("redouble.instruments")):
        with pytest.raises(AttributeError, match=f"module '{module.__name__}' has no attribute 'nothing'"):
            module.nothing  # noqa: B018


def test_a_star_import_gives_the_surface() -> None:
    namespace: dict[str, object] = {}
    exec("from redouble import *", namespace)  # noqa: S102  a star import is allowed at module level only
    assert namespace.keys() - {"__builtins__"} == set(redouble.__all__)


@pytest.mark.parametrize("name", CLASSES)
def test_public_members_of_classes_have_docstrings(name: str) -> None:
    kind: type = getattr(redouble, name)
    undescribed = [
        attribute
        for attribute, value in vars(kind).items()
        if not attribute.startswith("_")
        and callable(getattr(value, "__func__", value))
        and not inspect.isclass(value)
        and not inspect.getdoc(getattr(kind, attribute))
    ]
    assert undescribed == []


# -------------------------------------------------------------------------- docstrings


@pytest.mark.parametrize("name", redouble.__all__)
def test_every_public_name_has_a_docstring(name: str) -> None:
    thing = getattr(redouble, name)
    own = (type, FunctionType, ModuleType)  # an instance is described by its class
    described: object = thing if isinstance(thing, own) else cast("object", type(thing))
    assert described.__doc__
    first = described.__doc__.splitlines()[0]
    assert first.endswith((".", "::")), f"{name}: the first line is a sentence"
    assert not first.startswith(f"{name}("), f"{name}: dataclasses makes up a docstring, write one"


@pytest.mark.parametrize("name", [n for n in types.__all__ if inspect.isclass(getattr(types, n))])
def test_every_public_type_has_a_docstring(name: str) -> None:
    assert getattr(types, name).__doc__


def test_retry_describes_every_option_in_order() -> None:
    """Paragraphs of the docstring begin with the options they are about, as `name:` or `name, name:`."""
    entries = re.findall(r"^([a-z_]+(?:, [a-z_]+)*): ", inspect.getdoc(Retry) or "", re.MULTILINE)
    described = [option for entry in entries for option in entry.split(", ")]
    assert described == [field.name for field in fields(Retry)]


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.usefixtures("redouble_time")
def test_examples_in_docstrings_run(module: str) -> None:
    found = importlib.import_module(module)
    for name in getattr(found, "__all__", ()):
        getattr(found, name)  # some are loaded on first access
    output: list[str] = []
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS)
    for example in doctest.DocTestFinder(exclude_empty=True).find(found, module):
        runner.run(example, out=output.append)
    assert runner.failures == 0, "".join(output)


def test_there_are_examples() -> None:
    found = [example for example in doctest.DocTestFinder().find(redouble) if example.examples]
    assert {example.name for example in found} >= {"redouble", "redouble.Backoff", "redouble.Retry"}


# --------------------------------------------------------- where users import it from


def written(*kinds: type) -> list[tuple[str, str]]:
    """Return the exports of these kinds, each once, with the first public module that exports it."""
    found: dict[int, tuple[str, str]] = {}
    for module in IN_PUBLIC:
        for name in importlib.import_module(module).__all__:
            thing: object = getattr(sys.modules[module], name)
            if isinstance(thing, kinds):
                home = "redouble.errors" if name in errors.__all__ else module
                found.setdefault(id(thing), (home, name))
    return sorted(found.values())


PUBLIC_CLASSES = written(type)
PUBLIC_FUNCTIONS = written(FunctionType)


@pytest.mark.parametrize(("module", "name"), PUBLIC_CLASSES + PUBLIC_FUNCTIONS)
def test_the_module_of_a_public_object_is_public(module: str, name: str) -> None:
    """In reprs and pickles too, so that neither depends on the defining module."""
    thing: Any = getattr(sys.modules[module], name)
    assert (thing.__module__, thing.__qualname__) == (module, name)
    assert pickle.loads(pickle.dumps(thing)) is thing
    assert b"._" not in pickle.dumps(thing)
    shown = repr(thing)
    if isinstance(thing, type) and not issubclass(thing, Enum):
        assert f"{module}.{name}'>" in shown


@pytest.mark.parametrize(("module", "name"), PUBLIC_CLASSES + PUBLIC_FUNCTIONS)
def test_the_annotations_of_public_objects_can_be_resolved(module: str, name: str) -> None:
    unknown = {  # imported for type checkers only
        "Retry": "Budget",  # and Worker
        "redouble_events": "Event",
        "redouble_time": "VirtualClock",
    }
    thing = getattr(sys.modules[module], name)
    if name in unknown:
        with pytest.raises(NameError, match=unknown[name]):
            get_type_hints(thing)
    else:
        hints = get_type_hints(thing)
        assert not [name for name, hint in hints.items() if isinstance(hint, str | ForwardRef)]


def test_overloads_of_public_functions_are_found() -> None:
    assert len(get_overloads(redouble.remaining)) == 2
    assert all(stub.__module__ == "redouble" for stub in get_overloads(redouble.remaining))


# ---------------------------------------------------------------------- the error tree

LINE = re.compile(r"^    (?P<stem>(?:│   |    )*)(?P<branch>[├└]── )?(?P<name>[A-Z]\w+)(?P<words>.*)$")


def drawing() -> list[tuple[int, str, str, str]]:
    """Parse the lines of the tree: depth, branch, name, words."""
    lines = [
        LINE.match(line) for line in (errors.__doc__ or "").splitlines() if re.match("    [A-Z│├└ ]", line)
    ]
    assert lines
    assert None not in lines, "a line of the drawing cannot be read"
    return [
        (len(line["stem"]) // 4 + bool(line["branch"]), line["branch"] or "", line["name"], line["words"])
        for line in lines
        if line
    ]


def drawn() -> dict[str, tuple[str | None, str]]:
    """Return the parent and the description of every class in the tree."""
    above: list[str] = []
    found: dict[str, tuple[str | None, str]] = {}
    for depth, _, name, words in drawing():
        del above[depth:]
        found[name] = (above[-1] if above else None, words)
        above.append(name)
    return found


OWN = {
    name: kind
    for name, kind in vars(errors).items()
    if inspect.isclass(kind) and issubclass(kind, errors.RedoubleError)
}


def parent(kind: type[errors.RedoubleError]) -> str | None:
    ours = [base.__name__ for base in kind.__bases__ if issubclass(base, errors.RedoubleError)]
    return ours[0] if ours else None


def test_the_drawn_error_tree_is_the_class_hierarchy() -> None:
    assert {name: above for name, (above, _) in drawn().items()} == {
        name: parent(kind) for name, kind in OWN.items()
    }
    assert set(errors.__all__) == {*OWN, "Reason"}


def test_the_branches_of_the_error_tree_are_drawn_correctly() -> None:
    """The last child has a corner, all others a fork, and vertical lines stay in their column."""
    lines = drawing()
    for index, (depth, branch, name, _) in enumerate(lines):
        following = next((d for d, *_ in lines[index + 1 :] if d <= depth), 0)
        assert branch == ("" if depth == 0 else "├── " if following == depth else "└── "), name
    assert all(after[0] <= before[0] + 1 for before, after in pairwise(lines))


@pytest.mark.parametrize("name", sorted(OWN))
def test_the_error_tree_names_bases_and_attributes_correctly(name: str) -> None:
    """Other base classes follow "also a", attributes begin with a dot."""
    kind, words = OWN[name], drawn()[name][1]
    announced = set(re.findall(r"also an? (\w+)", words))
    foreign = {base.__name__ for base in kind.__bases__ if not issubclass(base, errors.RedoubleError)}
    assert announced == foreign - {"Exception"}
    assert kind.__doc__
    instance = kind("message")
    assert [dotted for dotted in re.findall(r"\.(\w+)", words) if not hasattr(instance, dotted)] == []
    assert "message" in str(instance)


# ---------------------------------------------------------------------------- lazy imports

# What a function decorated with `retry` does not need, whether its calls succeed or fail.
LAZY_PACKAGES = """
    _clients _drivers.workers _layers.breaker _layers.hedge _layers.limits
    aiohttp config grpc http httpx httpx2 instruments llm presets requests testing types
"""
LAZY_MODULES = """
    _drivers.async_generator _drivers.context_managers _drivers.stream_function
    _drivers.streams
    _engine.budgets.budget_protocol _engine.budgets.retry_budget _engine.budgets.token_bucket _engine.worker
    _failures.error_readers _failures.known_errors _failures.retry_after
    _layers.analysis _layers.chaos _layers.results.fallback _layers.gate _layers.keyed _layers.retry.analysis
    _layers.timeout.timeout _runtime.asyncio_backend _runtime.loop_waker _runtime.thread_waker
    _runtime.trio_backend _redaction.rules _redaction.text _redaction.url _telemetry.hide _telemetry.stats
"""
LAZILY_LOADED = f"""
import pickle, sys
before = set(sys.modules)
import redouble
assert [name for name in sys.modules if name.startswith("redouble")] == ["redouble"]
assert {{"Timeout", "Worker", "Hedge", "Keyed"}} <= set(dir(redouble))

@redouble.retry
def works():
    return 3

decorated = {{name for name in sys.modules if name.startswith("redouble")}}
lazy = [f"redouble.{{name}}" for name in {(LAZY_PACKAGES + LAZY_MODULES).split()!r}]
assert not decorated & set(lazy)
# These take longest to import, and nothing but a few rarely used features needs them.
slow = {{"ast", "asyncio", "dataclasses", "inspect", "linecache", "logging"}}
assert not slow & (set(sys.modules) - before)

@redouble.retry(on=KeyError, backoff=[0])
def fails():
    raise KeyError

works()
try:
    fails()
except KeyError:
    pass
# Importing needs a file descriptor, and a failing program may have run out of them.
assert decorated == {{name for name in sys.modules if name.startswith("redouble")}}

assert redouble.Throttle is vars(redouble)["Throttle"]
limit = redouble.Timeout(2, worker=redouble.Worker(grace=1))
assert pickle.loads(pickle.dumps(limit)) == limit
assert pickle.loads(pickle.dumps(redouble.Worker)) is redouble.Worker is vars(redouble)["Worker"]
from importlib.util import find_spec
assert [name for name in lazy if find_spec(name) is None] == []  # a wrong name would check nothing
"""
LOADED_BY_THREADS = """
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
import redouble

names = redouble.__all__
start = Barrier(len(names))

def load(name):
    start.wait()
    return getattr(redouble, name)

with ThreadPoolExecutor(len(names)) as pool:
    loaded = list(pool.map(load, names))
assert [name for name, found in zip(names, loaded) if found is not getattr(redouble, name)] == []
"""


def imported(node: ast.Module | ast.If) -> dict[str, str]:
    """Return the names that a module, or a block of it, imports from other modules."""
    statements = [statement for statement in node.body if isinstance(statement, ast.ImportFrom)]
    return {alias.name: str(statement.module) for statement in statements for alias in statement.names}


def test_the_table_of_lazy_names_is_complete() -> None:
    """Type checkers see the same names, and each entry imports its object."""
    tree = ast.parse((SOURCE / "__init__.py").read_text("utf-8"))
    (for_types,) = (node for node in tree.body if isinstance(node, ast.If))
    assert imported(for_types) == {**redouble._LAZY, "errors": "redouble"}
    for name, module in redouble._LAZY.items():
        assert vars(importlib.import_module(module))[name] is getattr(redouble, name)
    assert {*redouble._LAZY, "errors"} == set(redouble.__all__)
    names = ["aiohttp", "config", "errors", "grpc", "http", "httpx", "httpx2", "instruments", "llm"]
    modules = [*names, "presets", "requests", "testing", "types"]
    assert sorted([*redouble._MODULES, *redouble._CLIENTS]) == modules


def test_modules_are_loaded_on_first_use_and_none_by_a_failure() -> None:
    command = [sys.executable, "-I", "-c", LAZILY_LOADED]
    subprocess.run(command, check=True)  # noqa: S603  our own


def test_threads_may_load_names_at_the_same_time() -> None:
    """No import cycle, so no two threads wait for each other's modules."""
    command = [sys.executable, "-I", "-c", LOADED_BY_THREADS]
    subprocess.run(command, check=True, timeout=60)  # noqa: S603  our own


def test_lazy_names_are_listed_before_they_are_loaded() -> None:
    assert set(redouble.__all__) <= set(dir(redouble))
    assert {name for name in dir(redouble) if not name.startswith("_")} == set(redouble.__all__)
    assert "__doc__" in dir(redouble)


def test_an_unknown_name_raises() -> None:
    with pytest.raises(AttributeError, match=r"^module 'redouble' has no attribute 'Timeouts'$"):
        getattr(redouble, "Timeouts")  # noqa: B009  a type checker would report the attribute
    with pytest.raises(ImportError, match="Timeouts"):
        exec("from redouble import Timeouts", {})  # noqa: S102  in a namespace of its own


@pytest.mark.parametrize("client", ["aiohttp", "grpc", "httpx", "httpx2", "requests"])
def test_a_client_must_be_imported_explicitly(client: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(redouble, client, raising=False)
    with pytest.raises(
        AttributeError, match=rf"has no attribute '{client}': write `import redouble\.{client}`$"
    ):
        getattr(redouble, client)
