"""Counts the instructions of a call with valgrind's callgrind: unlike times, they differ little between runs.

``python -m benchmarks.instructions with_redouble two_failures 1000`` makes that many calls. Two such
processes with different counts run under callgrind; their difference is the cost of the calls alone.
"""

from __future__ import annotations

import gc
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from itertools import repeat

from benchmarks.table_row import Row
from benchmarks.timing import Timing, zero_sleeps_free
from benchmarks.workloads import Call

CALLGRIND = ("valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null")
FEW, MANY = 500, 2500  # calls; the specialising interpreter is warm long before the first count
SHAPES = {
    "defaults": "sync success, defaults",
    "block": "`for`/`with` block, success",
    "returning_block": "the same with `return` inside",
    "two_failures": "two failures, then success, no delay",
    "exhausted": "exhausted after three",
}


def instructions(modules: Mapping[str, str]) -> Iterator[Row]:
    """Count and yield the rows, one for each shape of a blocking call."""
    for shape, work in SHAPES.items():
        counted = {
            name: (_total(module, shape, MANY) - _total(module, shape, FEW)) / (MANY - FEW)
            for name, module in modules.items()
            if getattr(import_module(f"benchmarks.{module}").COMPETITOR, shape) is not None
        }
        timings = {name: Timing(count, count) for name, count in counted.items()}
        yield Row(work, timings, None, unit="instructions", about="instructions")


def _total(module: str, shape: str, count: int) -> int:
    """Return the instructions of a process that makes this many calls."""
    _run(module, shape, 1)  # else the first process under callgrind compiles the modules that have no cache
    process = _run(module, shape, count, *CALLGRIND)
    collected = re.search(r"Collected : (\d+)", process.stderr)
    if collected is None:
        raise RuntimeError(f"callgrind printed no count: {process.stderr}")
    return int(collected[1])


def _run(module: str, shape: str, count: int, *tool: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*tool, sys.executable, "-m", "benchmarks.instructions", module, shape, str(count)],
        cwd=sys.path[0],
        env={"PYTHONHASHSEED": "0", "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )


def main() -> None:
    """Make the calls, in this process."""
    module, shape, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    call: Call = getattr(import_module(f"benchmarks.{module}").COMPETITOR, shape)
    gc.disable()
    with zero_sleeps_free():
        for x in repeat(1, count):
            try:  # noqa: SIM105  suppress() would cost more than most calls
                call(x)
            except ConnectionError:
                pass


if __name__ == "__main__":
    main()
