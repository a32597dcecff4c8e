"""Interruptions: an action that runs at one call or return in some modules, on the interrupted thread."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from types import FrameType, ModuleType
from typing import Any


@contextmanager
def interrupted(
    modules: Sequence[ModuleType], action: Callable[[], None], number: int
) -> Generator[list[bool]]:
    """Run ``action`` at one call or return in these modules, and yield a list that is empty until it has run.

    The calls and returns are numbered from 0. A test that tries all numbers should check that number 0
    exists: otherwise it names modules that do not run, and checks nothing.
    """
    files = {module.__file__ for module in modules}
    left, ran = [number], list[bool]()

    def watch(frame: FrameType, event: str, arg: Any) -> None:
        if ran or frame.f_code.co_filename not in files:
            return
        left[0] -= 1
        if left[0] < 0:
            ran.append(True)
            action()

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        yield ran
    finally:
        sys.setprofile(before)
