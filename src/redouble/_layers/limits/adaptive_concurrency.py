"""AdaptiveConcurrency: as many calls at once as the service can take, found out by how long they take.

How many that is is decided in `_gradient` and `_windowed`; this file counts, and has the clock.

How many calls are under way, of how many: what every call behind an adaptive limit changes, unlocked.

From looking at ``inside`` to changing it there must be no call; see `_concurrency`, where that is done.
"""

from __future__ import annotations

import random as chance
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NoReturn, ParamSpec, TypeVar, get_args

from redouble._failures.transient import transient
from redouble._failures.verdict import FailureFilter, Kind, On
from redouble._internal.codegen import Template, compile_wrapper
from redouble._internal.locks import ForkSafe
from redouble._internal.public import public
from redouble._internal.validation import Duration, instance, integer, methods
from redouble._internal.validation import seconds as checked
from redouble._layers.analysis import Traits, WorstCase
from redouble._layers.gate import Gate, problem_outside_retry, task_error
from redouble._layers.layer import Layer
from redouble._layers.limits.limit_algorithms import Aimd, Gradient, LimitAlgorithm, Vegas
from redouble._layers.limits.limit_window import WindowedLimit
from redouble._runtime.ambient import ambient
from redouble._runtime.clock import SYSTEM, Chance, fast_reader
from redouble._telemetry.emit import emit_rejected
from redouble.errors import BulkheadFull

__all__ = ["AdaptiveConcurrency", "InFlight", "overloaded"]


class InFlight:
    """How many are ``inside``, of how many. A forked process has a new one: those calls go on elsewhere."""

    __slots__ = ("half", "inside", "limit", "skip", "timed")

    def __init__(self, limit: int) -> None:
        self.inside, self.skip, self.timed = 0, 0, 1
        self.resize(limit)

    def resize(self, limit: int) -> None:
        """Take on another limit."""
        self.limit, self.half = limit, (limit - 1) // 2


P = ParamSpec("P")
T = TypeVar("T")

By = Literal["gradient", "vegas", "aimd"]

OFTEN = 16  # calls that are timed in a window while there is room: they cannot raise the limit
FAR = 64  # calls from one that is timed to the next, at most
SIGNS = (Kind.throttled, Kind.timeout)

# From looking at `inside` to changing it there is no call: no other thread and no signal comes in between.
LIMITED = Template(
    "adaptive concurrency",
    """\
{async_}def limited({parameters}):
    redouble_room = redouble_gate._room
    if redouble_room.inside >= redouble_room.limit:
        redouble_refuse()
    redouble_room.inside += 1
    redouble_start, redouble_good = None, False
    try:
        redouble_room.skip -= 1
        if redouble_room.skip <= 0:
            redouble_under_way = redouble_room.inside
            redouble_start = redouble_system() if redouble_ambient else redouble_now()
        redouble_result = {await_}redouble_fn({arguments})
        redouble_good = True
    finally:
        redouble_room.inside -= 1
        if redouble_start is not None and redouble_good:
            redouble_saw(redouble_start, redouble_under_way)
        elif not redouble_good:
            redouble_failed(redouble_exception())
{check}    return redouble_result
""",
)


def overloaded(error: Exception, /) -> bool | None:
    """Say whether an error is a sign of too many calls: the default of ``on``."""
    verdict = transient(error)
    return True if verdict is not None and verdict.kind in SIGNS else None


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveConcurrencySettings:
    """The validated options of an `AdaptiveConcurrency`."""

    initial: int
    least: int
    most: int
    by: By
    window: float
    on: On
    slow: float
    relearn: float
    name: str | None
    random: Chance


@public("redouble")
class AdaptiveConcurrency(ForkSafe, Gate):
    """Let as many calls in at once as the service answers without making them wait for each other.

    Calls beyond that get `BulkheadFull`, at once. The limit goes by how long calls take: it grows while
    they take no longer than they do when few are under way, and shrinks when they do. It does not grow as
    long as fewer than half of it are under way.

    initial, least, most: where the limit begins, and between what it stays.
    by: how it is told: ``"gradient"`` by the ratio of the shortest time to the latest; ``"vegas"`` by how
        many calls seem to wait for each other; ``"aimd"`` by failures alone, one more while there are none.
    window: how many seconds of calls make for one change.
    on: which errors are signs of overload and lower the limit: by default timeouts, and being throttled.
        Other errors say nothing.
    slow: for ``"aimd"``, calls that take longer than this many seconds lower the limit too.
    relearn: how often, in seconds, to find out anew how long calls take when few are under way.
    name: what it is called in its errors.
    """

    def __init__(
        self,
        initial: int = 20,
        least: int = 1,
        most: int = 1000,
        by: By = "gradient",
        window: Duration = 1,
        on: On = overloaded,
        *,
        slow: Duration = 5,
        relearn: Duration = 60,
        name: str | None = None,
        random: Chance = chance,
    ) -> None:
        if callable(initial):
            raise TypeError("write @AdaptiveConcurrency(), with brackets: it is no decorator without them")
        super().__init__()
        numbers = {"least": least, "initial": initial, "most": most}
        for option, value in numbers.items():
            integer(value, f"AdaptiveConcurrency {option}", 1, "how many calls at once, 1 or more")
        if not least <= initial <= most:
            raise ValueError(f"AdaptiveConcurrency {numbers}: write least <= initial <= most")
        if by not in get_args(By):
            raise ValueError(f"AdaptiveConcurrency by={by!r}: write 'gradient', 'vegas' or 'aimd'")
        spans = {"window": checked(window, "AdaptiveConcurrency window")}
        spans |= {"slow": checked(slow, "AdaptiveConcurrency slow")}
        spans |= {"relearn": checked(relearn, "AdaptiveConcurrency relearn")}
        if not all(spans.values()):
            raise ValueError(f"AdaptiveConcurrency {spans}: write more than 0 seconds")
        self._drops = FailureFilter(on, "AdaptiveConcurrency")
        instance(name, "AdaptiveConcurrency name", str | None, "a text, or None")
        methods(random, "random", ("random",))
        self.settings = AdaptiveConcurrencySettings(
            initial=initial, least=least, most=most, by=by, on=on, name=name, random=random, **spans
        )
        self.name = name
        self.register("limits")
        way: LimitAlgorithm = (
            {"gradient": Gradient, "vegas": Vegas}[by]() if by != "aimd" else Aimd(spans["slow"])
        )
        self._windowed = WindowedLimit(
            way, initial, least, most, spans["window"], spans["relearn"], SYSTEM.now(), random.random
        )
        self._room = InFlight(initial)
        self._now = fast_reader(SYSTEM, aio=False)

    @property
    def _kept_by_wrapper(self) -> bool:
        return True

    @property
    def limit(self) -> int:
        """How many calls may be inside at once, as of now."""
        return self._room.limit

    def admit(self, now: float, /) -> tuple[InFlight, float, int]:
        """Let a call in, or raise `BulkheadFull`."""
        room = self._room
        if room.inside >= room.limit:
            self._refuse()
        room.inside += 1
        return room, now, room.inside

    def ended(self, ticket: tuple[InFlight, float, int], error: BaseException | None, now: float, /) -> None:
        """Learn how a call ended."""
        room, started, under_way = ticket
        room.inside -= 1
        if error is None:
            self._saw(started, under_way, now)
        else:
            self._failed(error, now)

    def snapshot(self) -> Mapping[str, float]:
        """Tell the ``limit``, and how many calls are inside (``in_use``)."""
        room = self._room
        return {"limit": room.limit, "in_use": room.inside}

    def around(self, fn: Callable[P, T], /) -> Callable[P, T]:
        """Return ``fn`` behind the limit."""
        return self._shaped(fn, is_async=False)

    def around_async(self, fn: Callable[P, Awaitable[T]], /) -> Callable[P, Coroutine[Any, Any, T]]:
        """Return ``fn`` behind the limit, for a coroutine function."""
        return self._shaped(fn, is_async=True)

    def _shaped(self, fn: Callable[..., Any], *, is_async: bool) -> Callable[..., Any]:
        return compile_wrapper(
            fn,
            LIMITED,
            is_async=is_async,
            gate=self,
            refuse=self._refuse,
            saw=self._saw,
            failed=self._failed,
            ambient=ambient.active,
            system=SYSTEM.now,
            now=fast_reader(SYSTEM, aio=False),
            exception=task_error if is_async else sys.exception,
        )

    def _saw(self, started: float, under_way: int, now: float | None = None) -> None:
        if now is None:
            now = SYSTEM.now() if ambient.active else self._now()
        room, windowed = self._room, self._windowed
        if windowed.since <= now < windowed.edge and started <= now:
            room.skip = 0 if under_way > room.half else room.timed
            windowed.add(now - started, under_way, now)
        else:
            self._note(max(0.0, now - started), under_way, now, dropped=False)

    def _failed(self, error: BaseException | None, now: float | None = None) -> None:
        if self._drops.is_failure(error):
            self._note(None, self._room.inside, SYSTEM.now() if now is None else now, dropped=True)

    def _note(self, seconds: float | None, under_way: int, now: float, *, dropped: bool) -> None:
        room, windowed = self._room, self._windowed
        room.skip = 0 if under_way > room.half else room.timed
        if self._owned_by_this_thread():
            return  # a signal has come in the middle of this very thing
        with self._lock:
            timed = windowed.saw(seconds, under_way, now, dropped=dropped)
            if timed:
                room.timed = max(1, min(FAR, room.timed * timed // OFTEN))
                room.resize(windowed.limit)

    def _refuse(self) -> NoReturn:
        limit = self._room.limit
        whose = "the adaptive limit" if self.name is None else f"the adaptive limit {self.name}"
        calls = "1 call is" if limit == 1 else f"{limit} calls are"
        says = f"{whose} is reached: {calls} inside, which is what the service takes"
        raise emit_rejected(BulkheadFull(says, limit=limit, wait=0), "adaptive_concurrency", self.name)

    def describe(self) -> str:
        return f"as many at once as the service takes, {self._room.limit} so far"

    def lint(self, outer: tuple[Layer, ...], inner: tuple[Layer, ...], worst: WorstCase, /) -> Iterator[str]:
        del outer, worst
        return problem_outside_retry(self, inner, "it takes the delays between attempts for a slow service")

    def traits(self) -> Traits:
        # The other algorithms depend on latency, not on errors.
        return Traits(handles=self.settings.on if self.settings.by == "aimd" else None, shared=(self,))

    def _after_fork(self) -> None:
        super()._after_fork()
        self._room = InFlight(self._room.limit)

    def __repr__(self) -> str:
        named = "" if self.name is None else f", name={self.name!r}"
        return f"AdaptiveConcurrency(by={self.settings.by!r}, limit={self._room.limit}{named})"
