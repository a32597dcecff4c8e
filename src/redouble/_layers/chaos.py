"""Chaos: injected failures, delays and results, to test the layers around them.

Chaos is the innermost layer: the layers outside cannot distinguish its faults from those of the service.
"""

from __future__ import annotations

import random as chance
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator, Mapping
from copy import copy
from functools import partial
from random import Random
from typing import Any, ParamSpec, TypeAlias, TypeVar, cast

from redouble._drivers.opened_stream import StreamOwner, aopen_first
from redouble._drivers.stream_function import wrap_stream
from redouble._internal.callables import display_name, lazy_kind, reject_awaitable
from redouble._internal.locks import SharedByIdentity
from redouble._internal.public import public
from redouble._internal.validation import UNSET, Duration, instance, number
from redouble._internal.validation import seconds as checked
from redouble._layers.analysis import Traits, WorstCase
from redouble._layers.layer import AsyncGeneratorFunction, Layer, Layers
from redouble._runtime.clock import SYSTEM

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")

Fault: TypeAlias = "Exception | type[Exception] | Callable[[], Exception]"

MESSAGE = "injected by Chaos"


@public("redouble")
class Chaos(SharedByIdentity, Layer):
    """Make a share of the calls go wrong, on purpose: they wait, and then fail, or return something else.

    fault: what to raise instead of calling: an exception type, an exception, or a function that makes one.
    latency: how many seconds to wait first, or a function that returns them. Without a fault or a result, the
        function is called after that.
    result: what to return instead of calling, or a function that makes it.
    rate: the share of the calls that this happens to, from 0 to 1.
    seed: the seed of the random numbers, for the same calls each time.
    switch: True if it is on, or a function that returns True or False, called for every call.

    Put it innermost, below the layers that it is to test: `Pipeline.check` reports any other place.
    """

    _kept_by_wrapper = True

    def __init__(
        self,
        *,
        fault: Fault | None = None,
        latency: Duration | Callable[[], Duration] | None = None,
        result: Any = UNSET,
        rate: float = 0.1,
        seed: int | None = None,
        switch: bool | Callable[[], bool] = True,
        name: str | None = None,
    ) -> None:
        if fault is None and latency is None and result is UNSET:
            raise ValueError("Chaos(): write what goes wrong, such as fault=ConnectionError, or latency=2")
        if fault is not None and result is not UNSET:
            raise ValueError("Chaos(fault=..., result=...): one layer does one of them; use two Chaos layers")
        self._fault = None if fault is None else _exception_factory(fault)
        self._latency = latency if latency is None or callable(latency) else checked(latency, "Chaos latency")
        self._result = result
        self._rate = number(rate, "Chaos rate", 0, 1, "a share from 0 to 1, such as 0.1")
        instance(seed, "Chaos seed", int | None, "a whole number, or None")
        functions = {"fault": fault, "latency": latency, "switch": switch, "result": result}
        for option, value in functions.items():
            if (kind := lazy_kind(value)) is not None:
                raise TypeError(f"Chaos {option}={display_name(value)} is {kind}: write a plain function")
        if not callable(switch):
            instance(switch, "Chaos switch", bool, "True, False, or a function that returns one")
        self.name = name
        self.switch: bool | Callable[[], bool] = switch
        self._draw = chance.random if seed is None else Random(seed).random  # noqa: S311  no secret
        self._hit_count = 0
        self.register("layers")

    def snapshot(self) -> Mapping[str, float]:
        """Return how many calls it ``hit``, at which ``rate``, and whether it is ``on``."""
        return {"hit": self._hit_count, "rate": self._rate, "on": self._on()}

    def around(self, fn: Callable[P, T], /) -> Callable[P, T]:
        """Return ``fn`` with faults in a share of its calls."""

        def faulty(*args: P.args, **kwargs: P.kwargs) -> T:
            if self._hits():
                if seconds := self._latency_seconds():
                    SYSTEM.sleep(seconds)
                if (result := self._replacement()) is not UNSET:
                    return cast("T", result)
            return reject_awaitable(fn, fn(*args, **kwargs))

        return faulty

    def around_async(self, fn: Callable[P, Awaitable[T]], /) -> Callable[P, Coroutine[Any, Any, T]]:
        """Return ``fn`` with faults in a share of its calls, for a coroutine function."""

        async def faulty(*args: P.args, **kwargs: P.kwargs) -> T:
            if self._hits():
                if seconds := self._latency_seconds():
                    await SYSTEM.asleep(seconds)
                if (result := self._replacement()) is not UNSET:
                    return cast("T", result)
            return await fn(*args, **kwargs)

        return faulty

    def around_stream(self, fn: Callable[P, Generator[T, S, Any]], /) -> Callable[P, Generator[T, S, Any]]:
        """Return ``fn`` with faults before the first item of some streams, for a generator function."""
        self._refuse_result(fn)
        opened = self.around(fn)

        def faulty(*args: P.args, **kwargs: P.kwargs) -> Generator[T, S, Any]:
            return (yield from opened(*args, **kwargs))

        return faulty

    def around_async_stream(self, fn: AsyncGeneratorFunction[P, T, S], /) -> AsyncGeneratorFunction[P, T, S]:
        """Return ``fn`` with faults before the first item of some calls, for an async generator function."""
        self._refuse_result(fn)
        faulty = self.around_async(aopen_first)
        return wrap_stream(fn, lambda make: StreamOwner(partial(faulty, make)))

    def _on(self) -> bool:
        switch = self.switch
        return bool(switch() if callable(switch) else switch)

    def _hits(self) -> bool:
        hit = self._on() and self._draw() < self._rate
        self._hit_count += hit
        return hit

    def _latency_seconds(self) -> float:
        latency = self._latency
        return checked(latency() if callable(latency) else latency or 0.0, "Chaos latency")

    def _replacement(self) -> Any:
        """Raise the fault, or return the result that replaces a call; `UNSET` if the function is called."""
        if self._fault is not None:
            error: object = self._fault()
            if not isinstance(error, Exception):
                raise TypeError(
                    f"Chaos fault={display_name(self._fault)} made {error!r}, which is no Exception"
                )
            raise error
        return self._result() if callable(self._result) else self._result

    def _refuse_result(self, fn: object) -> None:
        if self._result is not UNSET:
            raise TypeError(
                f"Chaos result= cannot replace {display_name(fn)}, a generator: use fault= or latency="
            )

    def describe(self) -> str:
        parts = [("late", self._latency is not None), ("failing", self._fault is not None)]
        parts.append(("replaced", self._result is not UNSET))
        return f"{100 * self._rate:.3g} % of the calls " + " and ".join(word for word, used in parts if used)

    def traits(self) -> Traits:
        return Traits(shared=(self,))

    def lint(self, outer: Layers, inner: Layers, worst: WorstCase, /) -> Iterator[str]:  # noqa: ARG002
        others = [type(layer).__name__ for layer in inner if not isinstance(layer, Chaos)]
        if others:
            yield (
                f"Chaos outside {others[0]}: the layers inside it never see its failures, so they are "
                "not tested; put it innermost"
            )

    def __repr__(self) -> str:
        return self._repr(f"rate={self._rate:g}")


def _exception_factory(fault: Any) -> Callable[[], Exception]:
    """Return a function that makes a new exception each time: a raised one collects tracebacks and notes."""
    factories: list[Callable[[], Any]]
    if isinstance(fault, Exception):
        factories = [partial(_copy_of, fault)]
    elif isinstance(fault, BaseException) or not callable(fault):
        raise TypeError(f"Chaos fault={fault!r}: write an exception, its type, or a function that makes one")
    elif not isinstance(fault, type):
        return cast("Callable[[], Exception]", fault)
    elif not issubclass(cast("type[object]", fault), Exception):
        raise TypeError(f"Chaos fault={fault.__name__}: write a subclass of Exception")
    else:
        factories = [partial(fault, MESSAGE), fault]
    for make in factories:
        if _makes_exception(make):
            return make
    name = display_name(fault)
    raise TypeError(
        f"Chaos fault={name} cannot be made without arguments: write a function, lambda: {name}(...)"
    )


def _copy_of(error: Exception) -> Exception:
    copied = copy(error)
    if hasattr(copied, "__notes__"):
        copied.__notes__ = list(copied.__notes__)  # a shallow copy shares the list
    return copied


def _makes_exception(make: Callable[[], Any]) -> bool:
    try:
        return isinstance(make(), Exception)
    except Exception:
        return False
