"""The architecture: who may import whom, what nobody may catch, and what `import redouble` costs."""

from __future__ import annotations

import ast
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
PACKAGE = "redouble"

# Bottom first. A module may import its own floor and those below, never one above; a new module has to
# be given its place here.
FLOORS: dict[str, set[str]] = {
    "time and errors": {
        *("errors", "_asyncio", "_trio", "_timer", "_taskgroup", "_backend", "_time", "_deadline"),
        *("_callable", "_check", "_log", "_ambient", "_ways", "_bell", "_bound", "_handle", "_missing"),
    },
    "parts": {
        *("_backoff", "_verdict", "_grant", "_events", "_report", "_options", "_hints", "_worker"),
        *("_budget", "_bucket", "_recent", "_hosts", "_kept", "_shared", "_failure", "_places", "_entry"),
        *("_terms", "_period", "_circuit", "_desk", "_news", "_watch", "_telling", "_register", "_stats"),
        *("_transient", "_python", "_known", "_reading", "_codes", "_retry_after"),
        *("_http_date", "_quota", "_redact", "_throttling", "_line", "_flow", "_cubic", "_tally"),
        *("_gradient", "_windowed", "_load", "_contest", "_closing", "_stakes"),
        *("_race", "_race_asyncio", "_race_trio", "_attempted", "_faults", "_room"),
    },
    "workers": {"_threads", "_processes", "_pool", "_child", "_wire"},
    "engine": {"_nested", "_ending", "_state", "_limits", "_run", "_commit"},
    "layer": {
        "_cleanup",
        "_function",
        "_standin",
        "_source",
        "_items",
        "_layer",
        "_gate",
        "_shape",
        "_worst",
        "_explain",
    },
    "layers": {
        *("_bulkhead", "_breaker", "_guarded", "_fallback", "_retried"),
        *("_attempt", "_refused", "_drive", "_call", "_block", "_stream", "_resume", "_enter"),
        *("_retry", "_decorate", "_timeout"),
        *("_waiting", "_counted", "_ratelimit", "_adaptive", "_throttle", "_concurrency", "_hedge"),
        *("_chaos", "_table", "_keys", "_keyed"),
    },
    "configuration": {
        *(f"config/_{name}" for name in ("config", "delays", "document", "environment", "file", "gates")),
        *(f"config/_{name}" for name in ("live", "named", "names", "numbers", "policies", "qubit", "turns")),
        *(f"config/_{name}" for name in ("schema", "successor", "table", "tagged", "values", "wrong")),
        "config/__init__",
    },
    "instruments": {
        *(f"instruments/_{name}" for name in ("schema", "reading", "measure", "words")),
        *(f"instruments/{name}" for name in ("logging", "memory", "prometheus", "structlog", "__init__")),
        "instruments/opentelemetry",
    },
    "for tests": {"_switch", "_virtual", "_turned", "_script", "testing", "pytest_plugin"},
    "surface": {"types", "presets", "__init__"},
    "http": {
        *("http/_rule", "http/_body", "http/_idempotency", "http/_options", "http/_plan", "http/_exchange"),
        *("http/_permit", "http/_story", "http/_client", "http/_host"),
        "http/__init__",
    },
    "language models": {
        *(
            f"llm/_{name}"
            for name in ("account", "allowance", "allowances", "answer", "anthropic", "calling")
        ),
        *(f"llm/_{name}" for name in ("context", "dialect", "errors", "fitted", "flow", "guard", "model")),
        *(f"llm/_{name}" for name in ("openai", "opening", "protocol", "protocols", "reservation", "said")),
        *(f"llm/_{name}" for name in ("settings", "spend", "sse", "table", "timeouts", "usage")),
        "llm/__init__",
    },
    "clients": {
        *("http/_sockets", "http/_urllib3", "http/_answer", "http/_received", "http/_family"),
        *("http/_transport", "http/_httpx", "http/_requests", "http/_aiohttp", "http/_aiohttp_bodies"),
        *("aiohttp", "httpx", "httpx2", "requests"),
        *(
            f"grpc/_{name}"
            for name in (
                "aio",
                "aio_call",
                "aio_reading",
                "answer",
                "attempt",
                "cut",
                "details",
                "errors",
                "future",
            )
        ),
        *(
            f"grpc/_{name}"
            for name in ("interceptors", "native", "over", "permit", "requests", "service_config")
        ),
        *("grpc/_stream", "grpc/_terms", "grpc/__init__"),
    },
}
ORDER = list(FLOORS)

# These look up, and only for the eyes of a type checker.
FOR_TYPES_ONLY = {
    ("errors", "_report"),
    ("_ending", "_state"),
    *(("__init__", name) for name in ("_breaker", "_bucket", "_budget", "_bulkhead", "_fallback")),
    *(("__init__", name) for name in ("_adaptive", "_chaos", "_concurrency", "_hedge", "_keyed")),
    *(("__init__", name) for name in ("_ratelimit", "_throttle")),
    *((layer, "_worst") for layer in ("_waiting", "_hedge", "_chaos", "_throttle", "_concurrency")),
    *((driver, "_race") for driver in ("_race_asyncio", "_race_trio")),
    ("__init__", "_stats"),
    ("__init__", "config/_live"),
    ("__init__", "_timeout"),
    ("__init__", "_worker"),
    ("_attempt", "_threads"),
    ("_attempt", "_worker"),
    ("_options", "_worker"),
    *((layer, "_verdict") for layer in ("_layer", "_retry")),
    *((layer, "_worst") for layer in ("_layer", "_retry", "_timeout", "_breaker", "_bulkhead", "_fallback")),
    ("_explain", "_layer"),
    ("_guarded", "_breaker"),
    *(("_standin", name) for name in ("_verdict", "_worst")),
    *(("config/_named", name) for name in ("_enter", "_resume")),
    ("_retry", "_enter"),
    ("_retry", "_resume"),
    ("pytest_plugin", "testing"),
    ("pytest_plugin", "types"),
}

OF_TIME = {"time", "asyncio", "trio"}
MAY_IMPORT_TIME = {
    "_time",
    "_asyncio",
    "_timer",
    "_taskgroup",
    "_trio",
    "_race_asyncio",
    "_race_trio",
    "_virtual",
    "_turned",
    "aiohttp",
    "http/_aiohttp",
    "grpc/_aio_call",
    "grpc/_aio_reading",
    "grpc/_requests",
}
FROM_OUTSIDE = {
    "_trio": {"trio"},
    "_race_trio": {"trio"},
    "_virtual": {"trio"},
    "pytest_plugin": {"pytest"},
    "aiohttp": {"aiohttp"},
    "httpx": {"httpx"},
    "httpx2": {"httpx2"},
    "requests": {"requests", "urllib3"},
    "http/_aiohttp": {"aiohttp"},
    "http/_aiohttp_bodies": {"aiohttp"},
    **{module: {"anyio"} for module in ("http/_family", "http/_httpx", "http/_received")},
    "instruments/opentelemetry": {"opentelemetry"},
    "instruments/prometheus": {"prometheus_client"},
    "instruments/structlog": {"structlog"},
    "http/_requests": {"requests", "urllib3"},
    "http/_urllib3": {"urllib3"},
    **{
        f"grpc/_{module}": {"grpc"}
        for module in ("aio", "aio_call", "aio_reading", "answer", "details", "errors", "interceptors")
    },
    **{
        f"grpc/_{module}": {"grpc"}
        for module in ("future", "native", "over", "permit", "service_config", "stream", "_init__")
    },
}

MODULES = sorted(path.relative_to(SOURCE).with_suffix("").as_posix() for path in SOURCE.rglob("*.py"))
PUBLIC = [m for m in MODULES if not any(part.startswith("_") for part in m.split("/"))]


@cache
def tree(module: str) -> ast.Module:
    return ast.parse((SOURCE / f"{module}.py").read_text("utf-8"))


@cache
def imports(module: str) -> tuple[tuple[str, bool], ...]:
    """Everything a module imports, wherever it does so, and whether that is for types only."""
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
    """Our own modules among them; a name from the package itself counts as `__init__`."""
    found: set[str] = set()
    for name, only_types in imports(module):
        package, *path = name.split(".")
        if package == PACKAGE and only_types is for_types:
            known = [candidate for candidate in ("/".join(path), "/".join(path[:-1])) if candidate in MODULES]
            found.add(known[0] if known else "__init__")
    return found


def floor(module: str) -> int:
    return next((ORDER.index(name) for name, modules in FLOORS.items() if module in modules), -1)


def test_every_module_has_its_place() -> None:
    placed = [module for modules in FLOORS.values() for module in modules]
    assert sorted(placed) == MODULES


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_down_only(module: str) -> None:
    up = {
        f"{module} -> {other}"
        for other in own_imports(module, for_types=False)
        if floor(other) > floor(module)
    }
    assert not up


def test_no_module_imports_itself_in_a_circle() -> None:
    graph = {module: own_imports(module, for_types=False) for module in MODULES}
    try:
        order = list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))
    assert sorted(order) == MODULES


def test_imports_for_types_only_are_listed() -> None:
    found = {(module, other) for module in MODULES for other in own_imports(module, for_types=True)}
    assert found == FOR_TYPES_ONLY


@pytest.mark.parametrize("module", MODULES)
def test_time_enters_in_one_place_only(module: str) -> None:
    found = {name.split(".")[0] for name, _ in imports(module)} & OF_TIME
    assert not found or module in MAY_IMPORT_TIME


@pytest.mark.parametrize("module", MODULES)
def test_only_the_standard_library_is_imported(module: str) -> None:
    found = {name.split(".")[0] for name, _ in imports(module)} - sys.stdlib_module_names
    assert found <= {PACKAGE, *FROM_OUTSIDE.get(module, ())}


@pytest.mark.parametrize("module", MODULES)
def test_nothing_broader_than_exception_is_caught(module: str) -> None:
    broad = [
        f"{module}:{node.lineno}"
        for node in ast.walk(tree(module))
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or "BaseException" in ast.unparse(node.type))
        and (module, node.type and ast.unparse(node.type))
        != ("_race_trio", "BaseExceptionGroup")  # unwrapped
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
def test_files_are_short_and_say_what_they_are_for(module: str) -> None:
    assert len((SOURCE / f"{module}.py").read_text("utf-8").splitlines()) <= 250
    assert ast.get_docstring(tree(module))


def test_the_types_are_shipped() -> None:
    assert (SOURCE / "py.typed").is_file()


# ----------------------------------------------------------------- a fresh interpreter


def fresh(code: str) -> list[str]:
    """Run code in an interpreter of its own and return the lines it printed."""
    command = [sys.executable, "-I", "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  our own code
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_importing_it_loads_little() -> None:
    loaded = fresh(
        "import sys; old = set(sys.modules); import redouble; print(*set(sys.modules) - old, sep='\\n')"
    )
    names = {name.split(".")[0] for name in loaded}
    assert PACKAGE in names
    assert names <= {PACKAGE, *sys.stdlib_module_names}
    everything = fresh("import sys, redouble; print(*sys.modules, sep='\\n')")
    assert not {"asyncio", "trio", "logging", "socket", "ssl"} & set(everything)


@pytest.mark.parametrize("module", ["", *PUBLIC])
def test_public_modules_can_be_imported_alone(module: str) -> None:
    name = ".".join([PACKAGE, *module.split("/")]).rstrip(".")
    assert fresh(f"import {name}; print({name}.__name__)") == [name]


def test_a_retried_call_loads_no_event_loop() -> None:
    """Retrying in blocking code, to the bitter end, needs neither asyncio nor logging."""
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
