"""The architecture: the order of the packages, imports and handlers, and what `import redouble` loads."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import redouble

pytestmark = pytest.mark.one_python

SOURCE = Path(redouble.__file__).parent
TESTS = Path(__file__).parents[1]
PACKAGE = "redouble"

# Bottom first. A module imports its own row and those above it in this list, never one below.
ORDER = (
    {"errors"},
    {"_internal", "_redaction"},
    {"_runtime"},
    {"_failures"},
    {"_telemetry"},
    {"_engine"},
    {"_drivers"},
    {"_layers"},
    {"__init__", "instruments", "presets", "pytest_plugin", "testing", "types"},
    {"_clients"},
    {"grpc", "http"},
    {"config"},
    {"llm"},
    {"aiohttp", "httpx", "httpx2", "requests"},
)

# An import for type checkers only may point the other way: the errors carry reports, which the engine makes.
UPWARD_FOR_TYPES = {("errors", "_engine/report")}
# An error whose last one cannot be pickled holds the repr of that without its secrets.
UPWARD = {("errors", "_redaction/rendering")}

OF_TIME = {"time", "asyncio", "trio"}
MAY_IMPORT_TIME = {
    "_layers/hedge/race_asyncio",
    "_layers/hedge/race_trio",
    "aiohttp",
    "grpc/_aio_call",
    "grpc/_request_stream",
    "http/_aiohttp_bodies",
    "testing/_virtual_clock",
    "testing/_virtual_loop",
}
FROM_OUTSIDE = {
    "_layers/hedge/race_trio": {"trio"},
    "_runtime/trio_backend": {"trio"},
    "aiohttp": {"aiohttp"},
    "http/_aiohttp_bodies": {"aiohttp"},
    "http/_httpx_transport": {"anyio"},
    "http/_requests_response_body": {"requests", "urllib3"},
    "http/_urllib3_sockets": {"urllib3"},
    "httpx": {"httpx"},
    "httpx2": {"httpx2"},
    "instruments/opentelemetry": {"opentelemetry"},
    "instruments/prometheus": {"prometheus_client"},
    "instruments/structlog": {"structlog"},
    "pytest_plugin": {"pytest"},
    "requests": {"requests", "urllib3"},
    "testing/_virtual_clock": {"trio"},
}

MODULES = sorted(path.relative_to(SOURCE).with_suffix("").as_posix() for path in SOURCE.rglob("*.py"))
FOLDERS = sorted({path.parent for path in SOURCE.rglob("*.py")} - {SOURCE})
PUBLIC = [
    module.removesuffix("/__init__")
    for module in MODULES
    if module != "__init__"
    and not any(part.startswith("_") for part in module.removesuffix("/__init__").split("/"))
]


@cache
def tree(module: str) -> ast.Module:
    return ast.parse((SOURCE / f"{module}.py").read_text("utf-8"))


@cache
def imports(module: str) -> tuple[tuple[str, bool], ...]:
    """Return every name that a module imports anywhere, and True if only for type checkers."""
    return tuple(_imports(module))


def _imports(module: str) -> Iterator[tuple[str, bool]]:
    for_types = {
        id(inner)
        for node in ast.walk(tree(module))
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for statement in node.body
        for inner in ast.walk(statement)
    }
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, id(node) in for_types
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{module}: write imports in full"
            for alias in node.names:
                yield f"{node.module}.{alias.name}", id(node) in for_types


def own_imports(module: str, *, for_types: bool) -> set[str]:
    """Return the modules of this package among them; a name of the package itself counts as `__init__`."""
    found: set[str] = set()
    for name, only_types in imports(module):
        package, *path = name.split(".")
        if package == PACKAGE and only_types is for_types:
            candidates = ("/".join(path), "/".join(path[:-1]), "/".join([*path[:-1], "__init__"]))
            found.add(next((candidate for candidate in candidates if candidate in MODULES), "__init__"))
    return found


def rank(module: str) -> int:
    package = module.partition("/")[0]
    return next(place for place, packages in enumerate(ORDER) if package in packages)


def upward(module: str, *, for_types: bool) -> set[tuple[str, str]]:
    return {
        (module, other)
        for other in own_imports(module, for_types=for_types)
        if rank(other) > rank(module) and module != "__init__"
    }


def test_every_package_has_its_place_in_the_order() -> None:
    packages = [package for packages in ORDER for package in packages]
    assert sorted(packages) == sorted({module.partition("/")[0] for module in MODULES})


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_one_way(module: str) -> None:
    assert upward(module, for_types=False) <= UPWARD
    assert upward(module, for_types=True) <= UPWARD_FOR_TYPES


def test_there_are_no_import_cycles() -> None:
    graph = {module: own_imports(module, for_types=False) - {module} for module in MODULES}
    try:
        order = list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))
    assert sorted(order) == MODULES


def test_a_folder_has_three_to_twelve_entries() -> None:
    entries = {
        folder.relative_to(SOURCE).as_posix(): sum(
            entry.is_dir() or (entry.suffix == ".py" and entry.stem != "__init__")
            for entry in folder.iterdir()
            if entry.name != "__pycache__"
        )
        for folder in FOLDERS
    }
    assert {name: count for name, count in entries.items() if not 3 <= count <= 12} == {}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(SOURCE)))
def test_the_init_of_a_private_package_is_a_docstring_alone(folder: Path) -> None:
    package = (folder / "__init__").relative_to(SOURCE).as_posix()
    private = any(part.startswith("_") for part in package.split("/")[:-1])
    assert ast.get_docstring(tree(package))
    assert not private or len(tree(package).body) == 1


@pytest.mark.parametrize("module", MODULES)
def test_only_the_runtime_imports_clocks_and_event_loops(module: str) -> None:
    found = {name.split(".")[0] for name, _ in imports(module)} & OF_TIME
    assert not found or module.startswith("_runtime/") or module in MAY_IMPORT_TIME


@pytest.mark.parametrize("module", MODULES)
def test_only_the_standard_library_is_imported(module: str) -> None:
    found = {name.split(".")[0] for name, _ in imports(module)} - sys.stdlib_module_names
    allowed = {"grpc"} if module.startswith("grpc/") else FROM_OUTSIDE.get(module, set[str]())
    assert found <= {PACKAGE, *allowed}


@pytest.mark.parametrize("module", MODULES)
def test_nothing_broader_than_exception_is_caught(module: str) -> None:
    unwrapped = ("_layers/hedge/race_trio", "BaseExceptionGroup")  # its exceptions are re-raised
    broad = [
        f"{module}:{node.lineno}"
        for node in ast.walk(tree(module))
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or "BaseException" in ast.unparse(node.type))
        and (module, node.type and ast.unparse(node.type)) != unwrapped
        and ast.unparse(node.body[-1]) != "raise"  # it is not caught, but something is undone
    ]
    broad += [
        f"{module}:{node.lineno}"
        for node in ast.walk(tree(module))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name | ast.Attribute)
        and ast.unparse(node.func).endswith("suppress")
        and "BaseException" in ast.unparse(node)
    ]
    assert not broad


@pytest.mark.parametrize("module", MODULES)
def test_every_module_has_a_docstring(module: str) -> None:
    assert ast.get_docstring(tree(module))


def test_no_two_classes_have_one_name() -> None:
    """So that a reader finds each class by its name."""
    places: dict[str, list[str]] = {}
    for module in MODULES:
        for node in tree(module).body:
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(module)
    assert {name: modules for name, modules in places.items() if len(modules) > 1} == SAME_NAME


# The same public names for two libraries.
SAME_NAME = {"AsyncTransport": ["httpx", "httpx2"], "Transport": ["httpx", "httpx2"]}


def imported_tests(path: Path) -> set[str]:
    """Return the imports of a file that name a test module or a conftest."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: write imports in full"
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return {
        name
        for name in names
        if any(part == "conftest" or part.startswith("test_") for part in name.split("."))
    }


def test_no_module_imports_a_test_module_or_a_conftest() -> None:
    """Definitions that several test modules share are in `tests/support`; pytest provides the fixtures."""
    found = {path.relative_to(TESTS).as_posix(): imported_tests(path) for path in TESTS.rglob("*.py")}
    assert {path: names for path, names in found.items() if names} == {}


def test_a_marker_of_a_phase_is_written_out_in_its_test_module(pytestconfig: pytest.Config) -> None:
    """`pytest_ignore_collect` looks for this text; a test marked in another way would never run."""
    declared = {str(line).partition(":")[0] for line in pytestconfig.getini("markers")}
    markers = re.compile(r"(\S*)\bmark\.(quiet|stress|one_python)\b")
    modules = {path: path.read_text("utf-8") for path in TESTS.rglob("*.py")}
    found = [(path, match) for path, text in modules.items() for match in markers.finditer(text)]
    assert {match[2] for _, match in found} == {"quiet", "stress", "one_python"} <= declared
    assert [path for path, match in found if not match[1].endswith("pytest.")] == []
    assert [path for path, _ in found if not path.stem.startswith("test_")] == []


def test_the_types_are_shipped() -> None:
    assert (SOURCE / "py.typed").is_file()


# ----------------------------------------------------------------- a fresh interpreter


def fresh(code: str) -> list[str]:
    """Run code in its own interpreter, and return the lines it printed."""
    command = [sys.executable, "-I", "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  our own code
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_importing_the_package_loads_few_modules() -> None:
    loaded = fresh(
        "import sys; old = set(sys.modules); from redouble import retry; retry(print); "
        "print(*set(sys.modules) - old, sep='\\n')"
    )
    names = {name.split(".")[0] for name in loaded}
    assert PACKAGE in names
    assert names <= {PACKAGE, *sys.stdlib_module_names}
    everything = fresh("import sys, redouble; redouble.retry(print); print(*sys.modules, sep='\\n')")
    assert not {"asyncio", "trio", "logging", "socket", "ssl", "threading"} & set(everything)


@pytest.mark.parametrize("module", ["", *PUBLIC])
def test_public_modules_can_be_imported_alone(module: str) -> None:
    name = ".".join([PACKAGE, *module.split("/")]).rstrip(".")
    assert fresh(f"import {name}; print({name}.__name__)") == [name]


def test_a_retried_call_loads_no_event_loop() -> None:
    """Retrying blocking code until the attempts are exhausted needs neither asyncio nor logging."""
    code = """
import sys, redouble
policy = redouble.Retry(on=OSError, attempts=3, backoff=[0, 0])
def fail(): raise OSError("down")
assert policy.run(fail).report.attempts == 3
try:
    policy(fail)()
except OSError as error:
    assert redouble.report(error).attempts == 3
for attempt in policy:
    with attempt:
        if attempt.number < 2: fail()
@policy
def rows(): yield 1
assert list(rows()) == list(policy.stream(lambda: [1])) == [1]
class Door:
    def __enter__(self): return 1
    def __exit__(self, *_): pass
with policy.enter(Door) as entered: assert entered == 1
print(*{"asyncio", "trio", "logging", "socket", "ssl", "time"} & set(sys.modules))
"""
    assert fresh(code) == ["time"]
