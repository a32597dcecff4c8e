"""Coalesce: concurrent identical calls share one.

The first call of a key runs the function, in its own task or thread and in its own context. The others wait
for it. If the first call is cancelled or interrupted, no other can continue it, so all waiting calls start
again: the first of them calls the function, and the others wait for that one. So no hand-over can be lost.

Rule 1: a flight is marked as ended before anything else happens at its end, and no call waits for an ended
        flight. A waiter is added before it checks that, and the flight reads its waiters after it was marked;
        without a GIL both under the lock. In every order one of them observes the other.
Rule 2: an entry of an ended flight that an interruption left in the table is dropped by the next call.
Rule 3: a flight is recorded in the context of its call before it is in the table. So a signal handler or a
        finaliser that makes the same call on the same thread never waits for the call that it interrupts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator, Hashable, Mapping
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeVar
from weakref import WeakValueDictionary

from redouble._engine.per_call import check_arguments
from redouble._internal.callables import UsageError, display_name, lazy_kind
from redouble._internal.codegen import compile_wrapper
from redouble._internal.locks import ForkSafe, gil
from redouble._internal.public import public
from redouble._internal.validation import format_seconds
from redouble._layers.analysis import Traits, WorstCase, combined_traits
from redouble._layers.layer import AsyncGeneratorFunction, Layer, Layers
from redouble._layers.results.call_key import (
    KEY,
    check_key,
    function_of,
    key_of_arguments,
    key_templates,
    unhashable,
)
from redouble._layers.results.flight import LEADING, Flight, FlightTable, duplicate
from redouble._runtime.backend import backend, cancel_after, in_event_loop, task_cancelled
from redouble._runtime.clock import SYSTEM
from redouble._runtime.deadline import async_wait_limit, wait_limit
from redouble._runtime.thread_waker import ThreadWaker
from redouble._telemetry.emit import emit_layer
from redouble._telemetry.observers import watch
from redouble.errors import AttemptTimeout

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")

COALESCED = key_templates(
    "coalesced call",
    f"""\
{{async_}}def coalesced({{parameters}}):
    redouble_key = {KEY}
    while True:
        try:
            redouble_flight = redouble_get(redouble_key)
        except redouble_TypeError as redouble_error:
            raise redouble_unhashable(redouble_error) from redouble_error
        if redouble_flight is not None:
            redouble_shared = {{await_}}redouble_join(redouble_table, redouble_key, redouble_flight)
            if redouble_shared:
                return redouble_flight.value
            if redouble_shared is None:
                redouble_result = {{await_}}redouble_fn({{arguments}})
                {{check}}
                return redouble_result
            continue
        redouble_flight = redouble_Flight()
        try:
            redouble_flight.enter()
            if redouble_setdefault(redouble_key, redouble_flight) is not redouble_flight:
                continue
            redouble_result = {{await_}}redouble_fn({{arguments}})
            {{check}}
            redouble_flight.value = redouble_result
            redouble_flight.landed = True
            return redouble_result
        except redouble_Exception as redouble_error:
            redouble_fail(redouble_flight, redouble_error)
            raise
        finally:
            redouble_flight.ended = True
            try:
                redouble_end(redouble_table, redouble_key, redouble_flight)
            except redouble_BaseException:
                redouble_end(redouble_table, redouble_key, redouble_flight)
                raise
            finally:
                redouble_flight = None
""",
)


@dataclass(frozen=True, slots=True)
class CoalesceSettings:
    """The validated options of a `Coalesce`."""

    key: Callable[..., Hashable] | None
    name: str | None


@public("redouble")
class Coalesce(ForkSafe, Layer):
    """Concurrent identical calls share one (single flight): for functions that only read.

    While a call is in flight, calls of the same function with the same arguments wait for it, and get its
    result, the same object, or a copy of its error. Nothing is remembered: the next call after the end calls
    the function again. The function runs in the task or thread, and in the context, of the first call. If
    that one is cancelled or interrupted, or fails because its own deadline has passed, the next caller takes
    over: it calls the function again. A caller that stops waiting leaves the others alone. None waits past
    its own deadline.

    key: a function of the arguments: calls with equal keys are the same call. None: the arguments are the
        key, so they must be hashable.
    name: its name in events and metrics.

    A call that shared the outcome of another emits the event ``coalesced``.
    """

    _kept_by_wrapper = True

    def __init__(self, key: Callable[..., Hashable] | None = None, *, name: str | None = None) -> None:
        super().__init__()
        if key is not None and (kind := lazy_kind(key)) is not None:
            text = f"Coalesce key={display_name(key)} is {kind}: write a plain function"
            raise TypeError(f"{text}. If this was meant as a decorator, write @Coalesce(), with brackets")
        check_key(key, "Coalesce key")
        self.settings = CoalesceSettings(key, name)
        self._tables: WeakValueDictionary[Hashable, FlightTable] = WeakValueDictionary()  # by function
        self.name = name
        self.register("layers")

    @property
    def key(self) -> Callable[..., Hashable] | None:
        """The function that computes the key of a call; None: its arguments are the key."""
        return self.settings.key

    def snapshot(self) -> Mapping[str, float]:
        """Return how many calls are ``in_flight``, and how many are ``waiting`` for one of these."""
        with self._lock:
            flights = [flight for table in [*self._tables.values()] for flight in [*table.values()]]
        return {"in_flight": len(flights), "waiting": sum(len(flight.waiters) for flight in flights)}

    def around(self, fn: Callable[P, T], /) -> Callable[P, T]:
        """Return ``fn``, with identical concurrent calls as one."""
        return self._compile(fn, is_async=False)

    def around_async(self, fn: Callable[P, Awaitable[T]], /) -> Callable[P, Coroutine[Any, Any, T]]:
        """Return ``fn``, with identical concurrent calls as one, for a coroutine function."""
        return self._compile(fn, is_async=True)

    def around_stream(self, fn: Callable[P, Generator[T, S, Any]], /) -> Callable[P, Generator[T, S, Any]]:
        self._refuse_stream(fn)

    def around_async_stream(self, fn: AsyncGeneratorFunction[P, T, S], /) -> AsyncGeneratorFunction[P, T, S]:
        self._refuse_stream(fn)

    def _refuse_stream(self, fn: object) -> NoReturn:
        raise TypeError(
            f"Coalesce cannot share {display_name(fn)}, a generator, whose items only one caller can read: "
            "write a function that returns a list"
        )

    if not TYPE_CHECKING:  # pragma: no branch  so that type checkers reject `with`

        def __enter__(self) -> NoReturn:
            raise TypeError("Coalesce cannot share a `with` block, which has no result: decorate a function")

        def __exit__(self, *_: object) -> None:
            """Exist, so that `with` reaches the message above."""

        async def __aenter__(self) -> NoReturn:
            self.__enter__()

        async def __aexit__(self, *_: object) -> None:
            """Exist, so that `async with` reaches the message above."""

    def _compile(self, fn: Callable[..., Any], *, is_async: bool) -> Callable[..., Any]:
        key = self.key
        if key is not None:
            check_arguments("Coalesce key", key, fn)

        def not_hashable(error: TypeError) -> UsageError:
            return unhashable("Coalesce", key, fn, error)

        table = self._table_of(fn)
        return compile_wrapper(
            fn,
            COALESCED[key is not None],
            is_async=is_async,
            key_of=key or key_of_arguments,
            table=table,
            get=table.get,
            setdefault=table.setdefault,
            join=self._ajoin if is_async else self._join,
            Flight=Flight,
            fail=self._afail if is_async else self._fail,
            end=self._end,
            unhashable=not_hashable,
            TypeError=TypeError,
            BaseException=BaseException,
        )

    def _table_of(self, fn: Callable[..., Any]) -> FlightTable:
        """Return the flights of a function: one table for all its wrappers, since ``call`` makes more."""
        function = function_of(fn)
        with self._lock:
            table = self._tables.get(function)
            if table is None:
                self._tables[function] = table = FlightTable()
            return table

    # ------------------------------------------------------------------------- the call in flight

    def _fail(self, flight: Flight, error: Exception) -> None:
        """Share the error of the call in flight, unless its own deadline has passed."""
        if wait_limit(None) > 0:
            self._land(flight, error)

    def _afail(self, flight: Flight, error: Exception) -> None:
        """Share the error of the call in flight, unless its deadline has passed, or it is being cancelled."""
        if not task_cancelled(error) and async_wait_limit() > 0:
            self._land(flight, error)

    def _land(self, flight: Flight, error: Exception) -> None:
        flight.error = duplicate(error)  # now, because layers outside will change it
        flight.landed = True

    def _end(self, table: FlightTable, key: Hashable, flight: Flight) -> None:
        """End a flight, which is marked as ended already, and wake the calls that wait; may be repeated."""
        flight.leave()
        with self._lock:
            waiters = [*flight.waiters.values()]
        try:
            self._drop(table, key, flight)
        finally:
            for wake in waiters:
                wake()

    def _drop(self, table: FlightTable, key: Hashable, flight: Flight) -> bool:
        """Remove a flight from its table, if it is still there; return False: the call has to start again."""
        with self._lock:
            if table.get(key) is flight:
                table.pop(key, None)  # a signal handler that made the same call may have removed it
        return False

    # --------------------------------------------------------------------------- calls that wait

    def _join(self, table: FlightTable, key: Hashable, flight: Flight) -> bool | None:
        """Wait for a flight, blocking this thread; return True if it has a value, or raise its error.

        Return False if the call has to start again, and None if it cannot wait and calls the function itself.
        """
        if flight.ended:
            return self._drop(table, key, flight)
        if flight.is_around() or in_event_loop():
            return None
        started = SYSTEM.now() if watch.by_event["coalesced"] else None
        seconds, waker = wait_limit(None), ThreadWaker()
        try:
            if self._enqueue(flight, waker, waker.wake):
                waker.wait_by_clock(seconds)
        finally:
            flight.waiters.pop(waker, None)
        return self._outcome(table, key, flight, started, seconds)

    async def _ajoin(self, table: FlightTable, key: Hashable, flight: Flight) -> bool | None:
        """Wait for a flight in async code; return True if it has a value, or raise its error.

        Return False if the call has to start again, and None if it would wait for itself.
        """
        if flight.ended:
            return self._drop(table, key, flight)
        if LEADING.get() is not None and flight.is_around():
            return None
        started = SYSTEM.now() if watch.by_event["coalesced"] else None
        seconds, (wake, woken) = async_wait_limit(), backend().direct_waker()
        try:
            if self._enqueue(flight, wake, wake):
                if seconds == inf:
                    await woken()
                else:
                    with cancel_after(seconds):
                        await woken()
        finally:
            flight.waiters.pop(wake, None)
        return self._outcome(table, key, flight, started, seconds)

    def _enqueue(self, flight: Flight, waiter: object, wake: Callable[[], object]) -> bool:
        """Add a waiter; return False if the flight has ended, and nothing will wake it."""
        if gil.enabled:
            flight.waiters[waiter] = wake
        else:
            with self._lock:
                flight.waiters[waiter] = wake
        return not flight.ended

    def _outcome(
        self, table: FlightTable, key: Hashable, flight: Flight, started: float | None, seconds: float
    ) -> bool:
        """Return True if a flight has a value, raise a copy of its error, or return False if it has neither.

        started: when the call began to wait, if there is an observer; else None.
        seconds: how long it could wait.
        """
        if not flight.ended:
            raise AttemptTimeout(
                f"an identical call in flight took longer than {format_seconds(seconds)}: the deadline",
                limit="deadline",
                seconds=seconds,
            )
        if not flight.landed:
            return self._drop(table, key, flight)
        if started is not None:
            elapsed = SYSTEM.now() - started
            emit_layer("coalesced", "coalesce", self.name, elapsed=elapsed, error=flight.error)
        if flight.error is not None:
            raise duplicate(flight.error)
        return True

    def _after_fork(self) -> None:
        super()._after_fork()
        for table in [*self._tables.values()]:
            table.clear()  # these calls are in flight in the parent

    # ------------------------------------------------------------------------------------- hooks

    def traits(self) -> Traits:
        """Return the traits: calls get the result of another one, and it must not occur twice."""
        return Traits(shared=(self,), shares_results=True)

    def worst_case(self, inner: WorstCase, /) -> WorstCase:
        """Return the worst case of a call that waits for one which is cancelled, and then takes over."""
        return inner._replace(seconds=inner.seconds * 2)

    def lint(self, outer: Layers, inner: Layers, worst: WorstCase, /) -> list[str]:  # noqa: ARG002
        problems = list[str]()
        around = combined_traits(outer)
        if around.retries:
            problems.append(
                "Coalesce inside Retry: if a shared call fails, every caller retries it, and spends from the "
                "budget; put it outside"
            )
        if around.concurrent:
            problems.append(
                "Coalesce inside Hedge: the extra call waits for the one that is late, so it never wins; put "
                "it outside"
            )
        return problems

    def can_reconfigure(self, other: Coalesce, /) -> bool:
        """Return True if the key is the same: there is nothing else to change."""
        return bool(self.key == other.key)

    def reconfigure(self, other: Coalesce, /) -> None:
        """Keep the calls in flight: there is nothing to change."""

    def describe(self) -> str:
        same = "arguments" if self.key is None else f"{display_name(self.key)}()"
        return f"one call at a time for the same {same}, which others that come meanwhile share"

    def __repr__(self) -> str:
        return self._repr(*(() if self.key is None else (display_name(self.key),)))
