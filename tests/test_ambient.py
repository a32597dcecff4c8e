"""The one flag that every successful call reads."""

from __future__ import annotations

from redouble import observe
from redouble._ambient import Ambient, ambient


def test_the_ambient_flag_is_counted() -> None:
    flag = Ambient()
    seen = [bool(flag.active)]
    for users in (1, 1, -1, -1):
        flag.hold(users)
        seen.append(bool(flag.active))
    assert seen == [False, True, True, True, False]


def test_observers_hold_it_up() -> None:
    before = list(ambient.active)
    first, second = observe(print), observe(print)
    assert ambient.active
    first.remove()
    assert ambient.active
    second.remove()
    assert ambient.active == before
