"""Timeout: a time limit as a layer, around a whole pipeline or around each attempt inside a `Retry`.

Async functions are cancelled; blocking ones run on a worker.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, fields
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, cast

from redouble._drivers.attempt_timeout import run_on_worker
from redouble._drivers.opened_stream import StreamOwner, aopen_first
from redouble._drivers.stream_function import wrap_stream
from redouble._engine.per_call import argument_function, check_arguments, check_request
from redouble._engine.worker import Worker, check_worker, describe_worker
from redouble._internal.callables import callable_kind, display_name
from redouble._internal.public import public
from redouble._internal.validation import Duration, format_seconds, integer, number, positive_seconds, seconds
from redouble._layers.analysis import (
    BlockingWorstCase,
    NoBlockingCode,
    Traits,
    WorstCase,
    combined_traits,
    interrupts_blocking_code,
)
from redouble._layers.layer import AsyncGeneratorFunction, Layer, Layers
from redouble._layers.timeout.timed_call import TimeoutCall, Timing, read_call
from redouble._runtime.backend import cancel_after
from redouble._runtime.call_stack import holds_call, limits
from redouble._runtime.deadline import deadline_left
from redouble.errors import AttemptTimeout, WorkerStillRunning

if TYPE_CHECKING:
    from dataclasses import field

    from redouble._layers.timeout.learned_limit import LearnedLimit

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")


QUANTILE, LEAST = 0.99, 0.01  # the defaults of a learned limit
LEARNING = ("quantile", "least", "initial", "minimum")  # options of a learned limit
MORE = ("multiple", *LEARNING)


@public("redouble")
@dataclass(frozen=True)
class Timeout(Layer):
    """Raise `AttemptTimeout` if a call takes longer than ``seconds``, or than the deadline allows.

    An async function is cancelled, an async generator has to yield its first item in time. A blocking
    function needs a ``worker`` to run on; if it is still running there after the worker's grace period,
    `WorkerStillRunning` is raised.

    seconds: the limit; or a function of the arguments of the call that returns it. In a client its argument
        is the request.
    worker: where blocking functions run.
    multiple: makes the limit a learned one: that many times the time that most recent calls stay under, at
        most ``seconds``. A call that was cut off counts as one that took at least as long.
    quantile: which share of the recent calls that is.
    least: the shortest learned limit.
    initial: the limit before there were enough calls; None: ``seconds``.
    minimum: how many calls are enough; None: as many as the quantile needs, 100 for 0.99.
    """

    _kept_by_wrapper = True

    seconds: Duration | Callable[..., Duration]
    worker: Worker | None = None
    _: KW_ONLY
    multiple: float | None = None
    quantile: float = QUANTILE
    least: Duration = LEAST
    initial: Duration | None = None
    minimum: int | None = None

    if TYPE_CHECKING:
        _function: Callable[..., Duration] | None = field(init=False)
        _learned: LearnedLimit | None = field(init=False)

    def __post_init__(self) -> None:
        function = None
        if callable(self.seconds):
            if isinstance(self.seconds, type) or callable_kind(self.seconds) != "plain":
                raise TypeError("write @Timeout(2), with the seconds: it is no decorator without them")
            function = argument_function(self.seconds, "Timeout seconds", "seconds, or a function")
        else:
            limit = seconds(self.seconds, "Timeout seconds")
            if not limit:
                raise ValueError("Timeout(0): no call could succeed; write more seconds, or leave it out")
            self._set("seconds", limit)
        if self.worker is not None:
            check_worker(self.worker, "Timeout worker")
        self._set("_function", function)
        self._set("_learned", self._make_learned())
        limits.exist = True

    def _make_learned(self) -> LearnedLimit | None:
        """Validate the options of a learned limit and return it; None without ``multiple``."""
        if self.multiple is None:
            for name, value in self._changed().items():
                if name in LEARNING:
                    raise ValueError(f"Timeout {name}={value!r} is for a learned limit: write multiple= too")
            return None
        if callable(self.seconds):
            raise TypeError(
                "Timeout multiple= and a function as seconds: write either; a learned limit needs its bound"
            )
        multiple = number(self.multiple, "Timeout multiple", 1, 1e6, "how many times, 1 or more, such as 3")
        quantile = number(self.quantile, "Timeout quantile", 0.5, 0.9999, "a share from 0.5, such as 0.99")
        least = positive_seconds(self.least, "Timeout least", "0.05")
        initial = self._limit if self.initial is None else seconds(self.initial, "Timeout initial")
        if not least <= initial <= self._limit:
            bounds = f"least={least:g}, initial={initial:g}, seconds={self._limit:g}"
            raise ValueError(f"Timeout {bounds}: write least <= initial <= seconds")
        if self.minimum is not None:
            integer(self.minimum, "Timeout minimum", 1, "how many calls, 1 or more, such as 100")
        self._set("least", least)
        if self.initial is not None:
            self._set("initial", initial)
        from redouble._layers.timeout.learned_limit import LearnedLimit  # noqa: PLC0415  only if used

        return LearnedLimit(multiple, quantile, least, self._limit, initial, self.minimum)

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)  # the dataclass is frozen

    def _changed(self) -> dict[str, object]:
        """Return the options of a learned limit that differ from their defaults."""
        options = {field.name: (getattr(self, field.name), field.default) for field in fields(self)}
        return {name: value for name, (value, default) in options.items() if value != default}

    def check_request(self) -> None:
        """Raise TypeError if the limit is a function that cannot be called with the request of a client."""
        if self._function is not None:
            check_request("Timeout seconds", self._function)

    def limit_of(self, *args: Any, **kwargs: Any) -> float:
        """Return the limit of a call with these arguments."""
        if self._learned is not None:
            return self._learned.seconds
        if self._function is None:
            return self._limit
        limit = self._function(*args, **kwargs)
        return seconds(limit, f"Timeout seconds={display_name(self._function)}(...)")

    def timed(self, now: Callable[[], float]) -> Timing:
        """Return a ``with`` that records how long the call inside takes; without time left there is none."""
        return Timing(None if self._learned is None or deadline_left() <= 0 else self._learned, now)

    def snapshot(self) -> Mapping[str, float]:
        """Return the current ``limit``; of a function there is none."""
        return {} if self._function is not None else {"limit": self.limit_of()}

    def around(self, fn: Callable[P, T], /) -> Callable[P, T]:
        """Return ``fn`` limited, on a worker."""
        worker, name = self.worker, display_name(fn)
        if worker is None:
            raise TypeError(
                f"Timeout cannot stop {name}, which blocks: write Timeout({self._shown}, worker=Worker()) to "
                "run it on a thread"
            )

        def limited(*args: P.args, **kwargs: P.kwargs) -> T:
            return call_on_worker(TimeoutCall(self._limit, name), worker, fn, *args, **kwargs)

        def varying(*args: P.args, **kwargs: P.kwargs) -> T:
            call = TimeoutCall(self.limit_of(*args, **kwargs), name)
            with self.timed(call.refresh_now):
                return call_on_worker(call, worker, fn, *args, **kwargs)

        return varying if self._varies(fn) else limited

    def around_async(self, fn: Callable[P, Awaitable[T]], /) -> Callable[P, Coroutine[Any, Any, T]]:
        """Return ``fn`` limited, for a coroutine function."""
        name = display_name(fn)
        if not self._varies(fn):
            return self._limited(fn, name)

        async def varying(*args: P.args, **kwargs: P.kwargs) -> T:
            call = TimeoutCall(self.limit_of(*args, **kwargs), name)
            return await self._call_within(call, fn, *args, **kwargs)

        return varying

    def around_stream(self, fn: Callable[P, Generator[T, S, Any]], /) -> Callable[P, Generator[T, S, Any]]:
        raise TypeError(
            f"Timeout cannot limit {display_name(fn)}, a generator that blocks: write an async generator, or "
            "a function that returns a list, with worker=Worker()"
        )

    def around_async_stream(self, fn: AsyncGeneratorFunction[P, T, S], /) -> AsyncGeneratorFunction[P, T, S]:
        """Return ``fn`` limited until its first item, for an async generator function."""
        if self._varies(fn):
            varying = partial(self._open_varying, display_name(fn))
            return wrap_stream(fn, lambda make: StreamOwner(partial(varying, make)))
        opened = self._limited(aopen_first, display_name(fn))
        return wrap_stream(fn, lambda make: StreamOwner(partial(opened, make)))

    def _limited(self, fn: Callable[P, Awaitable[T]], name: str) -> Callable[P, Coroutine[Any, Any, T]]:
        async def limited(*args: P.args, **kwargs: P.kwargs) -> T:
            call = TimeoutCall(self._limit, name)
            if allowed := call.time_left():
                limit = cancel_after(allowed)  # a variable, for `read_call`
                with limit:
                    return await fn(*args, **kwargs)
            raise call.expired()

        return limited

    async def _open_varying(self, name: str, make: partial[Any]) -> Any:
        """Open a stream; ``make`` has the arguments of its function."""
        call = TimeoutCall(self.limit_of(*make.args, **make.keywords), name)
        return await self._call_within(call, aopen_first, make)

    async def _call_within(
        self, call: TimeoutCall, fn: Callable[..., Awaitable[T]], /, *args: Any, **kwargs: Any
    ) -> T:
        with self.timed(call.refresh_now):
            if allowed := call.time_left():
                limit = cancel_after(allowed)  # a variable, for `read_call`
                with limit:
                    return await fn(*args, **kwargs)
            raise call.expired()

    def can_reconfigure(self, other: Self, /) -> bool:
        """Return True if both limits are learned, on the same worker: another limit has no state to keep."""
        return self._learned is not None and other._learned is not None and self.worker == other.worker

    def reconfigure(self, other: Self, /) -> None:
        """Adopt the bounds of another learned limit, and keep the latencies."""
        for name in ("seconds", *MORE):
            self._set(name, getattr(other, name))
        cast("LearnedLimit", self._learned).reconfigure(cast("LearnedLimit", other._learned))

    def _varies(self, fn: Callable[..., Any]) -> bool:
        """Return True if the limit depends on the call; raise TypeError if its function does not fit."""
        if self._function is not None:
            check_arguments("Timeout seconds", self._function, fn)
        return self._function is not None or self._learned is not None

    def describe(self) -> str:
        workers = "" if self.worker is None else describe_worker(self.worker)
        if self._function is not None:
            return f"at most {display_name(self._function)}(...) seconds{workers}"
        if self.multiple is None:
            return f"at most {format_seconds(self._limit)}{workers}"
        now = format_seconds(self.limit_of())
        return (
            f"at most {self.multiple:g} times what {100 * self.quantile:g} % of the calls take, from "
            f"{format_seconds(cast('float', self.least))} to {format_seconds(self._limit)}, currently "
            f"{now}{workers}"
        )

    def worst_case(self, inner: WorstCase, /) -> WorstCase:
        if self.worker is not None:
            wait = self.worker._longest_wait if self.worker.kind == "process" else 0.0
            return inner.within(self._limit + self.worker._grace).after(wait)
        limited = inner.within(self._limit)
        return NoBlockingCode(*limited) if isinstance(inner, BlockingWorstCase) else limited

    def traits(self) -> Traits:
        shared = () if self.worker is None or self.worker.limit is None else (self.worker,)
        return Traits(time_limit=self._limit, each_call_limit=self._limit, shared=shared)

    def lint(self, outer: Layers, inner: Layers, worst: WorstCase, /) -> Iterator[str]:  # noqa: ARG002
        if self.worker is not None:  # for blocking code
            outer = tuple(filter(interrupts_blocking_code, outer))
        limit = combined_traits(outer).time_limit
        shortest = self._limit if self.multiple is None else cast("float", self.least)
        if self._function is None and limit <= shortest:
            yield (
                f"Timeout({self._shown}) inside a limit of {format_seconds(limit)}: the limit is always "
                "reached first, so this Timeout never ends a call, and no retry follows it"
            )

    @property
    def _limit(self) -> float:
        return inf if callable(self.seconds) else cast("float", self.seconds)  # a timedelta was converted

    @property
    def _shown(self) -> str:
        return display_name(self._function) if self._function is not None else f"{self._limit:g}"

    def __repr__(self) -> str:
        more = [f"{name}={value!r}" for name, value in self._changed().items() if name in MORE]
        limit = self.seconds if self._function is None else display_name(self._function)
        return f"Timeout({', '.join([f'seconds={limit}', f'worker={self.worker!r}', *more])})"


holds_call("limited", Timeout.around.__code__.co_filename, read_call)
holds_call("_call_within", Timeout.around.__code__.co_filename, read_call)


def call_on_worker(
    call: TimeoutCall, worker: Worker, fn: Callable[..., T], /, *args: Any, **kwargs: Any
) -> T:
    """Call a blocking function on a worker, within a limit."""
    if not call.time_left():
        raise call.expired()
    try:
        result: T = run_on_worker(call, worker, fn, *args, **kwargs)
    except AttemptTimeout as error:
        if call.stuck:
            raise WorkerStillRunning(f"{error}, and its worker is still running") from error
        raise
    return result
