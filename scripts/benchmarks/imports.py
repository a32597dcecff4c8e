"""Timing of imports, each in a new interpreter, in alternation: alone, and with one function decorated.

`import redouble` loads nothing else: a name loads what it needs when it is first used. So the second figure
is the one to compare with libraries that load everything at once.

The interpreters are isolated and run no ``.pth`` file, so that nothing of this environment is loaded before;
the modules that Python loads at every start (`site`, `os`) are loaded before the clock starts.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from statistics import median

import tenacity

import redouble
from benchmarks.timing import Timing

# The decorator of each library, as it is written for a function that is retried on any error.
DECORATORS = {
    "redouble": "redouble.retry",
    "tenacity": "tenacity.retry",
    "stamina": "stamina.retry(on=Exception)",
    "backoff": "backoff.on_exception(backoff.expo, Exception)",
    "pyresilience": "pyresilience.resilient(retry=pyresilience.RetryConfig())",
    "redress": "redress.retry",
}
LIBRARIES = tuple(DECORATORS)

# The folders of the libraries; all other importable modules are those of Python.
FOLDERS = [str(Path(str(module.__file__)).parents[1]) for module in (redouble, tenacity)]

CHILD = """
import site, sys, time
sys.path += {folders!r}
started = time.perf_counter_ns()
import {library}
{use}
print(time.perf_counter_ns() - started)
print(*{{name.partition(".")[0] for name in sys.modules}})
"""


def race_imports(rounds: int, *, decorate: bool) -> dict[str, Timing]:
    """Time ``import`` of every library in nanoseconds; with ``decorate``, also of one decorated function."""
    taken: dict[str, list[float]] = {library: [] for library in LIBRARIES}
    for library in LIBRARIES:
        _imported(library, decorate)  # fills the bytecode cache and the disk cache
    for turn in range(rounds):
        start = turn % len(LIBRARIES)
        for library in LIBRARIES[start:] + LIBRARIES[:start]:
            taken[library].append(_imported(library, decorate)[0])
    return {library: Timing(min(times), median(times)) for library, times in taken.items()}


def unwanted() -> list[str]:
    """Return the third-party modules that a function decorated with `retry` loads, and asyncio."""
    own = {"redouble", "__main__"}
    loaded = set(_imported("redouble", decorate=True)[1])
    return sorted((loaded - own - sys.stdlib_module_names) | (loaded & {"asyncio"}))


def _imported(library: str, decorate: bool) -> tuple[int, list[str]]:
    use = f"@{DECORATORS[library]}\ndef work(): ..." if decorate else ""
    child = CHILD.format(folders=FOLDERS, library=library, use=use)
    run = subprocess.run(
        [sys.executable, "-I", "-S", "-c", child], capture_output=True, text=True, check=True
    )
    taken, modules = run.stdout.splitlines()
    return int(taken), modules.split()
