"""See retries at work: a flaky service called three ways, then a brownout with and without restraint.

Nothing is faked: the services are real sockets on loopback, and every verdict is computed from what was
measured. The services' luck and the jitter are seeded, so that every run tells the same story.
"""

from __future__ import annotations

import argparse
import os
import sys

from demonstration.brownout import brownout
from demonstration.giving_up import giving_up
from demonstration.screen import Screen
from demonstration.three_ways import three_ways
from demonstration.weather import FULL, QUICK

INTERRUPTED = 130  # what a shell expects of a program that Ctrl-C has ended


def main() -> int:
    """Tell both stories."""
    parser = argparse.ArgumentParser(
        prog="scripts/demo",
        description=__doc__,
        epilog="NO_COLOR, TERM=dumb, pipes and terminals without Unicode are respected.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="a run of seconds: too short to show the point")
    quick: bool = parser.parse_args().quick

    screen = Screen(sys.stdout, os.environ)
    try:
        three_ways(screen, calls=4 if quick else 12, pace=0.2 if quick else 1.0)
        giving_up(screen)
        brownout(screen, QUICK if quick else FULL)
    except KeyboardInterrupt:
        screen.say("", "Stopped.")
        return INTERRUPTED
    finally:
        screen.restore()
    return 0


if __name__ == "__main__":
    try:
        status = main()
    except BrokenPipeError:  # whoever reads has seen enough: scripts/demo | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 0
    sys.exit(status)
