"""Show retries: a flaky service called by three clients, then a brownout with and without a retry budget.

Nothing is faked: the services are real sockets on loopback, and every conclusion is computed from
measurements. The services' failures and the jitter are seeded, so that every run shows the same.
"""

from __future__ import annotations

import argparse
import os
import sys

from demonstration.brownout import brownout
from demonstration.client_comparison import compare_clients
from demonstration.giving_up import giving_up
from demonstration.scenario import FULL, QUICK
from demonstration.screen import Screen

INTERRUPTED = 130  # the exit status of a program that Ctrl-C has ended


def main() -> int:
    """Run both parts."""
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
        compare_clients(screen, calls=4 if quick else 12, pace=0.2 if quick else 1.0)
        giving_up(screen)
        brownout(screen, QUICK if quick else FULL)
    except KeyboardInterrupt:
        screen.show("", "Stopped.")
        return INTERRUPTED
    finally:
        screen.restore()
    return 0


if __name__ == "__main__":
    try:
        status = main()
    except BrokenPipeError:  # the reader has closed the pipe: scripts/demo | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 0
    sys.exit(status)
