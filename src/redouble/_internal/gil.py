"""Whether Python has a global interpreter lock (GIL), and so how shared objects count.

With the GIL an idle gate counts without a lock: there is no call between reading a number and storing it, so
no other thread can run in between. Without it the same statements run under the lock of the gate. A gate
looks at the flag when it is made, or when it decorates a function.
"""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["gil"]


class Gil:
    """The global interpreter lock; ``enabled``: False on a free-threaded build, and in tests of one."""

    __slots__ = ("enabled",)

    def __init__(self) -> None:
        system: Any = sys
        self.enabled: bool = not hasattr(sys, "_is_gil_enabled") or system._is_gil_enabled()


gil = Gil()
