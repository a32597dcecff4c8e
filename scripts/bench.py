"""Measure Redouble beside the hand-written loop and the other libraries: run it by `scripts/bench`."""

from __future__ import annotations

import argparse
import platform
import sys

from benchmarks.instructions import instructions
from benchmarks.suite import MODULES, measure
from benchmarks.table import block, markdown
from benchmarks.table_row import Row
from benchmarks.timing import QUICK, THOROUGH


def main() -> int:
    """Measure and print; with ``--check`` name the missed targets and fail."""
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke run of seconds: too short to quote")
    parser.add_argument("--markdown", action="store_true", help="print the table for the documentation")
    parser.add_argument("--instructions", action="store_true", help="count instructions, with valgrind")
    parser.add_argument("--check", action="store_true", help="fail if a target is missed, and name it")
    options = parser.parse_args()

    if not options.markdown:
        print(f"{platform.python_implementation()} {platform.python_version()}: best of many rounds")
    rows: list[Row] = []
    effort = QUICK if options.quick else THOROUGH
    for row in instructions(MODULES) if options.instructions else measure(effort):
        rows.append(row)
        if not options.markdown:
            print("\n".join(block(row)), flush=True)
    if options.markdown:
        print("\n".join(markdown(rows)))

    missed = [figure for row in rows for figure in row.missed()]
    if options.check:
        for figure in missed:
            print(f"missed: {figure}", file=sys.stderr)
    return 1 if options.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
