"""What is known of the call that is being made: for whoever makes it, and for the caller's rules."""

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
from redouble._telemetry.binding import Value
from redouble.llm._spend.account import Account
from redouble.llm._timeouts import Timeouts, limit_of

__all__ = ["Call", "CallContext", "Context", "RetryIf", "current"]


T = TypeVar("T")


@public("redouble.llm")
class Context(NamedTuple):
    """What a ``retry_if`` is told of the call: whose it is, what was bound to it, whether it is a stream."""

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
    headers: what carries that to the provider.
    """

    provider: str
    model: str
    timeouts: Timeouts
    stream: bool = False
    key: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])

    _account: Account | None = field(init=False, default=None, repr=False, compare=False)
    _until: float = field(init=False, repr=False, compare=False)  # when all of it is over
    _now: Callable[[], float] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        now = context_clock()
        object.__setattr__(self, "_now", now)
        object.__setattr__(self, "_until", now() + limit_of(self.timeouts.total))

    def _begins(self) -> None:
        """Take in that an attempt begins."""
        if self._account is not None:
            self._account.begins()

    def _answered(self, answer: T) -> T:
        """Take in what came of it, and return that."""
        if self._account is not None:
            self._account.answered(answer)
        return answer

    @property
    def timeout(self) -> dict[str, float | None]:
        """What an HTTP client is to be told now: ``httpx2.Timeout(**call.timeout)``."""
        return self.timeouts.within(max(0.0, self.left()), stream=self.stream)

    def left(self) -> float:
        """Tell the seconds until all of it is over, by its own limit or by the deadline of the context."""
        return min(self._until - self._now(), time_left() if ambient.active else inf)


CURRENT: ContextVar[Call | None] = ContextVar("redouble_llm_call", default=None)


class CallContext:
    """Makes a call known to what is called inside; a class, because each chunk of a stream comes by here."""

    __slots__ = ("_before", "_call")

    def __init__(self, call: Call) -> None:
        self._call = call

    def __enter__(self) -> None:
        self._before = CURRENT.set(self._call)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        try:
            CURRENT.reset(self._before)
        except (
            ValueError
        ):  # its loop was closed meanwhile, and this is another context, that knows nothing of it
            return


@public("redouble.llm")
def current() -> Call:
    """Return the call that this code is an attempt of: for functions that make requests themselves.

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
