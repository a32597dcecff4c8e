"""Timing of imports, each in a new interpreter, in alternation.

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

LIBRARIES = ("redouble", "tenacity", "stamina", "backoff", "pyresilience", "redress")

# The folders of the libraries; all other importable modules are those of Python.
FOLDERS = [str(Path(str(module.__file__)).parents[1]) for module in (redouble, tenacity)]

CHILD = """
import site, sys, time
sys.path += {folders!r}
started = time.perf_counter_ns()
import {library}
print(time.perf_counter_ns() - started)
print(*{{name.partition(".")[0] for name in sys.modules}})
"""


def race_imports(rounds: int) -> dict[str, Timing]:
    """Time ``import`` of every library, in nanoseconds."""
    taken: dict[str, list[float]] = {library: [] for library in LIBRARIES}
    for library in LIBRARIES:
        _imported(library)  # fills the bytecode cache and the disk cache
    for turn in range(rounds):
        start = turn % len(LIBRARIES)
        for library in LIBRARIES[start:] + LIBRARIES[:start]:
            taken[library].append(_imported(library)[0])
    return {library: Timing(min(times), median(times)) for library, times in taken.items()}


def unwanted() -> list[str]:
    """Return the third-party modules that ``import redouble`` loads, and asyncio if it is loaded."""
    own = {"redouble", "__main__"}
    loaded = set(_imported("redouble")[1])
    return sorted((loaded - own - sys.stdlib_module_names) | (loaded & {"asyncio"}))


def _imported(library: str) -> tuple[int, list[str]]:
    child = CHILD.format(folders=FOLDERS, library=library)
    run = subprocess.run(
        [sys.executable, "-I", "-S", "-c", child], capture_output=True, text=True, check=True
    )
    taken, modules = run.stdout.splitlines()
    return int(taken), modules.split()
