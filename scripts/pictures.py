"""Draw the pictures of the strategies from runs of the real layers in virtual time."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from os.path import relpath
from pathlib import Path

from drawing.gallery import FOLDER, differing, drawn, write


def main(arguments: Sequence[str] | None = None, folder: Path = FOLDER) -> int:
    """Draw all pictures, or with ``--check`` compare them with the files."""
    parser = argparse.ArgumentParser(prog="scripts/pictures", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if one is out of date")
    check: bool = parser.parse_args(arguments).check

    logging.getLogger("redouble").addHandler(logging.NullHandler())  # a breaker logs that it opens
    pictures = drawn()
    if not check:
        write(pictures, folder)
        print(f"drawn: {len(pictures)} pictures in {relpath(folder)}")
    problems = list(differing(pictures, folder))
    for problem in problems:
        print(f"{problem}: run scripts/pictures and look at it", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
