"""Show what Redouble and the other libraries do when a server misbehaves: run it by `scripts/peers`."""

from __future__ import annotations

import argparse
import logging
import sys
import warnings
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))  # where tests.support.servers is

from comparison.runner import run
from comparison.scenarios import SCENARIOS
from comparison.table import FAMILIES, OURS, table


def main() -> int:
    """Run all scenarios and print; with ``--check`` name Redouble's wrong results and fail."""
    parser = argparse.ArgumentParser(prog="scripts/peers", description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail if a result of Redouble is wrong")
    options = parser.parse_args()

    logging.disable()
    warnings.simplefilter("ignore")  # from other libraries, about their configuration here
    names = [name for family in FAMILIES for name in family]
    outcomes = {scenario.name: run(scenario, OURS if scenario.ours else names) for scenario in SCENARIOS}
    for family in FAMILIES:
        print("\n".join(table(family, outcomes)), end="\n\n")

    wrong = [
        f"{name}, {scenario.name}: {outcomes[scenario.name][name]}"
        for scenario in SCENARIOS
        for name in OURS
        if not scenario.right(outcomes[scenario.name][name])
    ]
    if options.check:
        for line in wrong:
            print(f"wrong: {line}", file=sys.stderr)
    return 1 if options.check and wrong else 0


if __name__ == "__main__":
    sys.exit(main())
