"""One row, one call: a script of outcomes, run in every colour from the same table.

The rows have the numbers of the facts. Nothing in the engine depends on the unit, so the milliseconds of a
fact are run as seconds, which keeps the arithmetic exact.

A limited row is run in virtual time, in which a sleep that exceeds its limit is cancelled. Only the wait for
a worker that does not end is real: such rows have limits of milliseconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest
import trio
from trio.testing import MockClock

from redouble import Backoff, Hints, Retry, RetryBudget, TokenBucket, Verdict, report
from redouble.testing import virtual_time
from tests.support.scripted import Bucket, Draws, Operation, Panic, Step, TimeView, Virtual, VirtualTimeView

T = TypeVar("T")

SYNC = ("sync", "thread")
ASYNC = ("asyncio", "trio")
EVERY = SYNC + ASYNC
WORKERS = ("worker", "worker-asyncio", "worker-trio")  # a blocking call on a worker, and awaited ones

HOOKS = ("before_attempt", "on_failure", "on_retry", "on_success", "on_give_up")
OBSERVED = ("events", "quota", "hints", "at", "retried", "cuts")  # results that only an observer sees
EXACT = (
    "elapsed",
    "work_elapsed",
    "now",
)  # not compared where a loop waits for a worker, because that wait is real

NONE = Backoff.constant(0)
INSTEAD = Hints(mode="instead", spread=0)


@dataclass
class CallResult:
    """The result of one call."""

    clock: TimeView
    operation: Operation
    budget: TokenBucket | RetryBudget | None = None
    value: object = None
    error: BaseException | None = None
    event_texts: list[str] = field(default_factory=list[str])
    events: list[Any] = field(default_factory=list[Any])
    quota: list[float] = field(default_factory=list[float])

    def words(self) -> dict[str, Any]:
        """Return the result by the keys that the rows use."""
        error, budget = self.error, self.budget
        found = None if error is None else report(error)
        words: dict[str, Any] = {
            "ok": self.value,
            "raises": None if error is None else str(error),
            "type": type(error),
            "same": self.operation.raised[-1:] == [error],
            "cause": error and error.__cause__ and str(error.__cause__),
            "context": error and error.__context__ and str(error.__context__),
            "last": getattr(error, "last", None),
            "calls": self.operation.calls,
            "waits": self.clock.waits,
            "sleeps": [wait for wait in self.clock.waits if wait],
            "now": self.clock.time,
            "events": self.event_texts,
            "quota": self.quota,
            "hints": [event.hint for event in self.events if event.what == "failure"],
            "at": [(event.what, event.elapsed) for event in self.events],
            "cuts": [
                (event.limit, event.error.seconds)
                for event in self.events
                if event.what == "failure" and event.limit
            ],
            "stopped": self.operation.was_cancelled,
            "next_delay": found.history[-1].delay if found and found.history else None,
            "took": found.history[-1].elapsed if found and found.history else None,
            "retried": [event.attempt for event in self.events if event.what == "retry"],
        }
        if budget is not None:
            words |= budget.snapshot()
        if isinstance(budget, Bucket):
            words |= {"trail": budget.trail, "spent": budget.spent}
        for word in ("reason", "attempts", "elapsed", "work_elapsed", "limit", "workers_left"):
            words[word] = getattr(found, word, None)
        return words


Extra = Callable[[Any, TimeView], None]


def takes(seconds: float, attempt: int | None = None) -> Extra:
    """Return an observer that takes time, on one attempt or on all."""

    def observer(event: Any, clock: TimeView) -> None:
        clock.time += seconds if attempt in (None, event.attempt) else 0

    return observer


def fails(event: Any, clock: TimeView) -> None:
    """Raise an error in an observer."""
    raise RuntimeError("this observer fails")


def answers(table: Mapping[str, Any]) -> Callable[[Exception], Any]:
    """Return a rule that looks up the error's text in a table; ``*`` is the default."""
    return lambda error: table.get(str(error), table.get("*"))


@dataclass(frozen=True)
class Flow:
    """One row: a script, options, and the expected results; only the given ones are compared.

    ``total`` is a limit for the whole call: ``timeout`` where nothing can be cancelled, else
    ``give_up_after``. ``rules`` precede the default rule, which retries every error; ``preset`` makes the
    policy, with its own rules. ``limited``: attempts are cancelled by limits, asleep or on a worker.
    """

    fact: str
    script: Sequence[Step]
    expected: Mapping[str, Any]
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    colours: tuple[str, ...] = EVERY
    limited: bool = False

    def policy(self, colour: str, seen: CallResult, *, observed: bool) -> Retry:
        arguments = dict(self.options)
        scripted: Callable[[object], Verdict | None] = lambda _: seen.operation.step.verdict
        extra: Mapping[str, Extra] = arguments.pop("observers", {})
        rules: Sequence[Any] = arguments.pop("rules", ())
        total: float | None = arguments.pop("total", None)
        if total is not None:
            arguments["timeout" if self.limited or colour in SYNC else "give_up_after"] = total
        if any(step.verdict is not None and step.error is None for step in self.script):
            judged: Callable[[object], Verdict | bool] = lambda value: scripted(value) or True
            arguments["until"] = judged
        if "budget" in arguments:
            arguments["budget"] = arguments["budget"]()
        for hook in HOOKS if observed else ():
            arguments[hook] = _recorder(seen, extra.get(hook))
        arguments.setdefault("on", [scripted, *rules, Exception])
        if "random" in arguments:
            arguments["random"] = Draws(*arguments["random"])
        make: Callable[..., Retry] = arguments.pop("preset", Retry)
        defaults: dict[str, Any] = {"backoff": NONE, "give_up_after": None, "hints": Hints(spread=0)}
        if make is not Retry:
            defaults = {}
        if isinstance(seen.clock, Virtual):
            defaults["clock"] = seen.clock
        policy = make(**(defaults | arguments))
        if isinstance(policy.budget, TokenBucket | RetryBudget):
            seen.budget = policy.budget
        return policy


def flow(
    fact: str, *script: Step, expected: Mapping[str, Any], colours: tuple[str, ...] = EVERY, **options: Any
) -> Flow:
    return Flow(fact, script, expected, options, colours)


def limited(
    fact: str, *script: Step, expected: Mapping[str, Any], colours: tuple[str, ...] = ASYNC, **options: Any
) -> Flow:
    return Flow(fact, script, expected, options, colours, limited=True)


def in_every_colour(flows: Iterable[Flow]) -> pytest.MarkDecorator:
    """Parametrize a test by colour and row."""
    rows = [pytest.param(colour, row, id=f"{row.fact}-{colour}") for row in flows for colour in row.colours]
    return pytest.mark.parametrize(("colour", "row"), rows)


def check(colour: str, row: Flow) -> None:
    """Run a row and compare the expected results: with observers, and without if they have no effect."""
    unknown = EXACT if colour in WORKERS[1:] else ()
    expected = {word: said for word, said in row.expected.items() if word not in unknown}
    words = drive(colour, row).words()
    assert {word: words[word] for word in expected} == expected
    if "observers" not in row.options:
        words = drive(colour, row, observed=False).words()
        silent = {word: said for word, said in expected.items() if word not in OBSERVED}
        assert {word: words[word] for word in silent} == silent


def drive(colour: str, row: Flow, *, observed: bool = True) -> CallResult:
    """Make the call of a row in one colour; without ``observed``, a decorated function without observers."""
    if not row.limited:
        return _drive(colour, row, Virtual(), observed)
    with virtual_time() as clock:
        return _drive(colour, row, VirtualTimeView(clock), observed)


def _drive(colour: str, row: Flow, clock: TimeView, observed: bool) -> CallResult:
    seen = CallResult(clock, Operation(row.script, clock))
    policy = row.policy(colour, seen, observed=observed)

    def call() -> None:
        try:
            seen.value = policy.call(seen.operation) if observed else policy(seen.operation)()
        except (Exception, Panic) as error:
            seen.error = error

    async def acall() -> None:
        try:
            if colour in WORKERS:
                seen.value = await policy.acall(seen.operation)
            else:
                operation = seen.operation.later if row.limited else _async(seen.operation)
                seen.value = await (policy.call(operation) if observed else policy(operation)())
        except (Exception, Panic) as error:
            seen.error = error

    try:
        in_colour(colour, call, acall, MockClock(autojump_threshold=0) if row.limited else None)
    finally:
        seen.operation.release()
    return seen


def in_colour(
    colour: str,
    blocking: Callable[[], T],
    waiting: Callable[[], Awaitable[T]],
    trio_clock: MockClock | None = None,
) -> T:
    """Run the function for this colour, and return its value."""

    async def main() -> T:
        return await waiting()

    match colour:
        case "sync" | "worker":
            return blocking()
        case "thread":
            with ThreadPoolExecutor(1) as pool:
                return pool.submit(blocking).result()
        case "asyncio" | "worker-asyncio":
            return asyncio.run(main())
        case _:
            return trio.run(main, clock=trio_clock)


def _async(operation: Operation) -> Callable[[], Any]:
    async def coloured() -> object:
        return operation()

    return coloured


def _recorder(seen: CallResult, extra: Extra | None) -> Callable[[Any], None]:
    def observer(event: Any) -> None:
        seen.events.append(event)
        match event.what:
            case "before_attempt":
                seen.event_texts.append(f"before:{event.attempt}")
            case "retry":
                seen.event_texts.append(f"retry:{event.attempt}:{event.delay:g}")
            case "give_up":
                seen.event_texts.append(f"error:{event.reason}")
            case what:
                seen.event_texts.append(f"{what}:{event.attempt}")
        if seen.budget is not None and event.what in ("retry", "success", "give_up"):
            seen.quota.append(seen.budget.snapshot().get("tokens", 0))
        if extra is not None:
            extra(event, seen.clock)

    return observer
