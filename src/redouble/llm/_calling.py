"""One logical call of a model: its key, its time and its allowance, from before the first attempt on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from redouble._clients.idempotency import Idempotency
from redouble._engine.report import STAMP, Report
from redouble._internal.callables import spelled
from redouble.errors import Reason
from redouble.llm._account import Account, reserved
from redouble.llm._context import Being, Call, current
from redouble.llm._errors import SpendRefused
from redouble.llm._fitted import Fitted
from redouble.llm._said import usage_of
from redouble.llm._spend import Spend
from redouble.llm._usage import Price, Usage

__all__ = ["Asked", "Asking", "aattempting", "attempting", "opening"]

P = ParamSpec("P")
T = TypeVar("T")


class Asking:
    """What all calls of a model begin with."""

    def __init__(
        self,
        call: Callable[..., Call],
        keys: Idempotency,
        labels: Mapping[str, str],
        spend: tuple[Spend, object, Price | None] | None,
        usage: Callable[[Any], Usage | None] | None,
    ) -> None:
        self._call, self._keys, self._labels = call, keys, labels
        self._spend = spend
        self._usage = usage or usage_of

    def begin(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], *, stream: bool
    ) -> tuple[Call, Account | None]:
        """Begin a call: it has a key of its own, its time counts, and what it may take is reserved."""
        key = self._keys.key() if self._keys.auto else None  # before: it may fail
        account = self._reserved(name, args, kwargs)
        headers = {} if key is None else {self._keys.header: key}
        call = self._call(stream=stream, key=key, headers=headers)
        object.__setattr__(call, "_account", account)
        return call, account

    def _reserved(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Account | None:
        if self._spend is None:
            return None
        spend, reserve, price = self._spend
        try:
            return Account(spend, price, reserved(reserve, args, kwargs), self._usage)
        except SpendRefused as error:
            report = Report(Reason.stopped, 0, 0.0, 0.0, name=name, labels=dict(self._labels))
            vars(error)[STAMP] = report
            raise


class Asked:
    """One call that is not a stream, in a ``with``."""

    def __init__(self, begun: tuple[Call, Account | None]) -> None:
        call, self._account = begun
        self._being = Being(call)

    def __enter__(self) -> None:
        self._being.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        if self._account is not None:
            self._account.close()
        self._being.__exit__(kind, error, tb)


def attempting(fn: Callable[P, T]) -> Callable[P, T]:
    """Return what makes one attempt at a call."""
    fitted = Fitted(fn)

    def attempted(*args: Any, **kwargs: Any) -> Any:
        this = current()
        this._begins()
        return this._answered(fitted.good(fn(*args, **fitted.keywords(kwargs, this))))

    attempted.__qualname__ = spelled(fn)
    return attempted


def aattempting(fn: Callable[P, Awaitable[T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Return what makes one attempt at a call."""
    fitted = Fitted(fn)

    async def attempted(*args: Any, **kwargs: Any) -> Any:
        this = current()
        this._begins()
        return this._answered(fitted.good(await fn(*args, **fitted.keywords(kwargs, this))))

    attempted.__qualname__ = spelled(fn)
    return attempted


def opening(fn: Callable[P, T]) -> Callable[P, T]:
    """Return what opens a stream, in either colour; whoever reads it looks at its status, and closes it."""
    fitted = Fitted(fn)

    def opened(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **fitted.keywords(kwargs, current()))

    opened.__qualname__ = spelled(fn)
    return opened
