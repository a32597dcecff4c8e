"""Scripted calls: one row of a table in every shape of a call, in one colour."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from redouble import Hints, Retry, report, types
from tests.support.call_shapes import ASYNC_SHAPES, SHAPES, AsyncShape, Shape
from tests.support.fakes import Call, Ledger, Operation, Script, Virtual, in_colour, steps
from tests.support.streams import HOOKS


@dataclass
class Drive:
    """Makes a scripted call in every shape, checks that all shapes agree, and returns the result."""

    colour: str

    def __call__(self, script: Script, *, silent: bool = True, **options: Any) -> Call:
        """Run ``script``; the options are those of `Retry`, with factories for ``budget`` and ``clock``.

        Each shape is run with observers, and, if they change nothing (``silent``), without.
        """
        every: dict[str, Call] = {}
        variants = (False, True) if silent else (True,)

        def blocking() -> None:
            for shape, make in SHAPES.items():
                for observed in variants:
                    one = _ScriptedCall(script, options, observed)
                    if shape != "loop" or one.policy.until is None:
                        every[f"{shape}, observed={observed}"] = one.seen(make)

        async def waiting() -> None:
            for shape, make in ASYNC_SHAPES.items():
                for observed in variants:
                    one = _ScriptedCall(script, options, observed)
                    if shape != "loop" or one.policy.until is None:
                        every[f"{shape}, observed={observed}"] = await one.aseen(make)

        in_colour(self.colour, blocking, waiting)
        first = every["call, observed=True"]
        for shape, call in every.items():
            seen, expected = vars(call), vars(first)
            if not shape.endswith("observed=True"):
                expected = {**expected, "events": seen["events"]}  # without observers there is no record
            assert seen == expected, shape  # strict: a row may omit fields, a shape may not
        return first


class _ScriptedCall:
    """One scripted call."""

    def __init__(self, script: Script, options: dict[str, Any], observed: bool) -> None:
        arguments: dict[str, Any] = {"on": Exception, "backoff": [0] * 99, "hints": Hints(spread=0)} | options
        self.clock: Virtual = arguments.pop("clock", Virtual)()
        self.budget: Ledger | None = arguments.pop("budget", lambda: None)()
        self.operation = Operation(steps(script), self.clock)
        self.events: list[str] = []
        self.observed = observed
        for hook in HOOKS if observed else ():
            arguments[hook] = self._recorder(arguments.get(hook))
        self.policy = Retry(**arguments, clock=self.clock, budget=self.budget)

    def _recorder(
        self, extra: Callable[[types.Event, Virtual], None] | None
    ) -> Callable[[types.Event], None]:
        def observer(event: types.Event) -> None:
            self.events.append(f"{event.what}:{event.attempt}")
            if extra is not None:
                extra(event, self.clock)

        return observer

    def seen(self, shape: Shape) -> Call:
        try:
            return self._call(value=shape(self.policy, self.operation))
        except BaseException as error:
            return self._call(error=error)

    async def aseen(self, shape: AsyncShape) -> Call:
        try:
            return self._call(value=await shape(self.policy, self._coloured))
        except BaseException as error:
            return self._call(error=error)

    async def _coloured(self) -> object:
        return self.operation()

    def _call(self, value: object = None, error: BaseException | None = None) -> Call:
        found = None if error is None else report(error)
        assert self.budget is None or self.budget.times == sorted(self.budget.times)
        return Call(
            value=value,
            raises=None if error is None else type(error),
            reason=None if found is None else found.reason,
            attempts=self.operation.calls,
            sleeps=[wait for wait in self.clock.waits if wait],
            limit=None if found is None else found.limit,
            ledger=None if self.budget is None else ", ".join(self.budget.lines),
            events=" ".join(self.events) if self.observed else None,
        )
