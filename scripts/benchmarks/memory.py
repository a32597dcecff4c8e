"""The memory of waiting calls, measured in one process per competitor.

``python -m benchmarks.memory with_redouble asleep 100000`` starts that many calls under asyncio, waits until
all are asleep in backoff (``limited``: until all wait in the called function), and prints the growth of
resident memory per call in bytes. Then it cancels all of them, and prints the number of objects that only the
garbage collector could free.
"""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import CoroutineType, FrameType, GeneratorType

from benchmarks.workloads import HOUR, AsyncCall, Competitor, endless


def grown_by(module: str, shape: str, count: int) -> tuple[float, int]:
    """Measure in a new process: bytes per call, and objects left in reference cycles."""
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks.memory", module, shape, str(count)],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=True,
    )
    size, cycles = run.stdout.split()
    return float(size), int(cycles)


def resident() -> int:
    """Return the resident memory of this process in bytes."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def grown(call: AsyncCall, count: int) -> float:
    """Start calls that wait, return the memory per call, and cancel them."""
    tasks = {asyncio.create_task(call(0))}  # imports and caches of a first call do not count
    await asyncio.sleep(0.01)
    before = resident()
    tasks.update([asyncio.create_task(call(x)) for x in range(count)])
    for _ in range(5):
        await asyncio.sleep(0)
    after = resident()
    if any(task.done() for task in tasks):
        raise AssertionError("these were to wait")
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    return (after - before) / count


def is_left(obj: object) -> bool:
    """Return True if an object belongs to a call: its error, its frame, or an object of Redouble."""
    if isinstance(obj, FrameType | CoroutineType | GeneratorType | ConnectionError):
        return True
    return type(obj).__module__.partition(".")[0] == "redouble"


def main() -> None:
    """Measure, in this process."""
    module, shape, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    competitor: Competitor = import_module(f"benchmarks.{module}").COMPETITOR
    gc.collect()
    gc.disable()
    call = competitor.asleep
    if shape == "limited" and competitor.limited is not None:
        call = competitor.limited(endless, HOUR)
    size = asyncio.run(grown(call, count))
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    print(size, sum(is_left(obj) for obj in gc.garbage))


if __name__ == "__main__":
    main()
