"""The calls around a hedged call, for its extra attempts, which run on call stacks of their own.

They are looked up when the first extra attempt starts: a call without one pays nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from types import CodeType
from typing import Any

from redouble._runtime.backend import backend
from redouble._runtime.call_stack import EnclosingCall, calls_in, variables_of


def calls_around(task: Any, coroutine: object, code: CodeType, call: object) -> Iterator[EnclosingCall]:
    """Yield the calls around a hedged call whose task is suspended, innermost first.

    coroutine: that of the task.
    code: of the method that runs the hedged call, in the chain of coroutines that the task runs.
    call: the object that this method belongs to.
    """
    own = calls_in(coroutine, lambda frame: frame.f_code is code and variables_of(frame)["self"] is call)
    return chain(own, chain.from_iterable(map(calls_in, backend().awaiting_tasks(task))))
