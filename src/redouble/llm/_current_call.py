"""`Call`: the logical call in progress. `Context`: the part of it that a ``retry_if`` receives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from math import inf
from types import MappingProxyType, TracebackType
from typing import NamedTuple, TypeAlias, TypeVar

from redouble._internal.public import public
from redouble._runtime.ambient import ambient
from redouble._runtime.clock import context_clock
from redouble._runtime.deadline import time_left
from redouble._telemetry.bound_fields import Value
from redouble.llm._spend.account import Account
from redouble.llm._timeouts import Timeouts, limit_of

__all__ = ["Call", "CallContext", "Context", "RetryIf", "current"]


T = TypeVar("T")


@public("redouble.llm")
class Context(NamedTuple):
    """The call that a ``retry_if`` decides on; ``bound`` holds the values of `redouble.bind`."""

    provider: str
    model: str
    bound: Mapping[str, Value] = MappingProxyType({})
    stream: bool = False


RetryIf: TypeAlias = Callable[[Exception, int, Context], bool | None]


@public("redouble.llm")
@dataclass(frozen=True)
class Call:
    """One logical call, the same in all of its attempts.

    key: its idempotency key, if it has one.
    headers: the headers that send the key to the provider.
    """

    provider: str
    model: str
    timeouts: Timeouts
    stream: bool = False
    key: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])

    _account: Account | None = field(init=False, default=None, repr=False, compare=False)
    _ends_at: float = field(init=False, repr=False, compare=False)  # a time of ``_now``
    _now: Callable[[], float] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        now = context_clock()
        object.__setattr__(self, "_now", now)
        object.__setattr__(self, "_ends_at", now() + limit_of(self.timeouts.total))

    def _start_attempt(self) -> None:
        """Reserve the spend of another attempt."""
        if self._account is not None:
            self._account.start_attempt()

    def _record_answer(self, answer: T) -> T:
        """Record the usage of an answer, and return the answer."""
        if self._account is not None:
            self._account.record_answer(answer)
        return answer

    @property
    def timeout(self) -> dict[str, float | None]:
        """The time limits for an HTTP client from now on: ``httpx2.Timeout(**call.timeout)``."""
        return self.timeouts.within(max(0.0, self.left()), stream=self.stream)

    def left(self) -> float:
        """Return the seconds until its total limit or the deadline of the context, whichever is earlier."""
        return min(self._ends_at - self._now(), time_left() if ambient.active else inf)


CURRENT: ContextVar[Call | None] = ContextVar("redouble_llm_call", default=None)


class CallContext:
    """Sets the current call (a context variable). Not a generator, because it is entered once per chunk."""

    __slots__ = ("_call", "_token")

    def __init__(self, call: Call) -> None:
        self._call = call

    def __enter__(self) -> None:
        self._token = CURRENT.set(self._call)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        try:
            CURRENT.reset(self._token)
        except ValueError:  # the event loop was closed meanwhile, and this runs in another context
            return


@public("redouble.llm")
def current() -> Call:
    """Return the call that the running code is an attempt of: for functions that make requests themselves.

    >>> from redouble import llm
    >>> model = llm.Model("openai", "gpt-5", idempotency="auto")
    >>> @model
    ... def ask(prompt: str) -> str:
    ...     return f"{prompt}, under one key: {len(llm.current().headers)} header"
    >>> ask("once more")
    'once more, under one key: 1 header'
    """
    call = CURRENT.get()
    if call is None:
        raise LookupError("current() is for functions that an llm.Model calls: there is no call here")
    return call
