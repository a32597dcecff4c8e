"""Time for Trio. Imported only once Trio has been imported by somebody else."""

from trio import current_time as now
from trio import sleep
from trio.lowlevel import in_trio_task as running

__all__ = ["cancelling", "now", "running", "sleep"]


def cancelling() -> bool:
    """Return False: Trio delivers a cancellation again at every checkpoint, so no wait outlives it."""
    return False
