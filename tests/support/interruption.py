"""Something that comes in between: at any call or return in some files, on the very thread that is there."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def coming(inside: Collection[str], between: Callable[[], None], moment: int) -> Generator[list[bool]]:
    """Do something at so many calls and returns in these files; tell whether it came to that."""
    left, came = [moment], list[bool]()

    def watch(frame: FrameType, event: str, arg: Any) -> None:
        if came or frame.f_code.co_filename not in inside:
            return
        left[0] -= 1
        if left[0] < 0:
            came.append(True)
            between()

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        yield came
    finally:
        sys.setprofile(before)
