"""Show what Redouble and the other libraries do when a server misbehaves: run it by `scripts/peers`."""

from __future__ import annotations

import argparse
import logging
import sys
import warnings
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))  # where tests.support.servers is

from comparison.running import run
from comparison.scenarios import SCENARIOS
from comparison.table import FAMILIES, OURS, table


def main() -> int:
    """Run everything, print, and say with ``--check`` what of ours went wrong."""
    parser = argparse.ArgumentParser(prog="scripts/peers", description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail if something of ours is wrong")
    options = parser.parse_args()

    logging.disable()
    warnings.simplefilter("ignore")  # theirs, about how they are used here
    names = [name for family in FAMILIES for name in family]
    seen = {scenario.name: run(scenario, names) for scenario in SCENARIOS}
    for family in FAMILIES:
        print("\n".join(table(family, seen)), end="\n\n")

    wrong = [
        f"{name}, {scenario.name}: {seen[scenario.name][name]}"
        for scenario in SCENARIOS
        for name in OURS
        if not scenario.right(seen[scenario.name][name])
    ]
    if options.check:
        for line in wrong:
            print(f"wrong: {line}", file=sys.stderr)
    return 1 if options.check and wrong else 0


if __name__ == "__main__":
    sys.exit(main())
