"""The options of `Retry`: each defined once, validated at construction, immutable.

An error names the option and what to write instead. The same holds for the checks at the end, which reject
options that a shape of code (a loop, a stream, blocking code) cannot honour.
"""

from __future__ import annotations

import random as chance
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from math import inf
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, cast

from redouble._engine.backoff import Backoff, reiterable
from redouble._failures.transient import transient
from redouble._failures.verdict import Kind, On, Rules, Until, as_rules, check_until, only_types
from redouble._internal.callables import display_name
from redouble._internal.lazy_dataclass import dataclass
from redouble._internal.public import public
from redouble._internal.validation import Duration, choice, hook, instance, integer, methods, number, seconds
from redouble._runtime.call_stack import limits as limits_of_calls
from redouble._runtime.clock import SYSTEM, Chance, Clock, ForeignClock, fast_reader
from redouble._telemetry.events import Observer
from redouble._telemetry.registry import Counts, counts_of, register

if TYPE_CHECKING:
    from dataclasses import field

    from redouble._engine.budgets.budget_protocol import Budget
    from redouble._engine.budgets.retries_in_flight import RetriesInFlight
    from redouble._engine.worker import Worker


@public("redouble")
@dataclass(frozen=True)
class Hints:
    """How to honour a delay that the server requests (``Retry-After``): the hint.

    mode: ``at_least`` waits for the backoff or the hint, whichever is longer; ``instead`` for the
    hint alone; ``ignore`` for the backoff alone.
    longest: give up at once if the hint is longer than this.
    over: let a hint add at most this to the backoff.
    spread: add up to this share of the hint at random, so that not all clients return at once.
    """

    mode: Literal["at_least", "instead", "ignore"] = "at_least"
    longest: Duration | None = None
    over: Duration | None = None
    spread: float = 0.1

    if TYPE_CHECKING:  # `longest` and `over` as numbers, for the engine: attributes, not fields
        _ceiling: float = field(init=False)
        _over_limit: float = field(init=False)

    def __post_init__(self) -> None:
        choice(self.mode, "Hints mode", "at_least", "instead", "ignore")
        for option, limit in (("longest", "_ceiling"), ("over", "_over_limit")):
            value = getattr(self, option)
            checked = None if value is None else seconds(value, f"Hints {option}")
            object.__setattr__(self, option, checked)
            object.__setattr__(self, limit, inf if checked is None else checked)
        number(self.spread, "Hints spread", 0, 1, "a number between 0 and 1, such as 0.1")


Delays: TypeAlias = Backoff | Iterable[Duration]

# How the first attempt of a call is made, since most calls need no second one:
# plain: the function is called, and a success needs nothing more;
# credited: the same, and a success credits the budget;
# started: the same, and the budget counts the start of the call too;
# counted, started and counted: the same as these two, and the budget counts the call as in flight;
# limited: the function is called within the limit that interrupts it, and a success needs nothing more;
# tracked: by a run, like every later attempt.
FirstAttempt: TypeAlias = Literal[
    "plain", "credited", "started", "counted", "started and counted", "limited", "tracked"
]

DEFAULT_BACKOFF = Backoff.exponential(0.2).maximum(2).full_jitter()
DEFAULT_HINTS = Hints()
GIVE_UP_AFTER = 30.0
NO_LABELS: Mapping[str, str] = MappingProxyType({})
LIMITS = ("give_up_after", "timeout", "work_timeout")  # each of these bounds the length of a call
MAX_RECORDS = 1000  # attempts in a report: a policy may retry for days
SHORT_TEXT = 256  # characters of the text of an error that is recorded as it is
MAX_TEXTS = 65_536  # characters of all longer texts of a call
HOOKS = ("before_attempt", "on_success", "on_failure", "on_retry", "on_give_up")


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of a retry policy."""

    on: On = transient
    until: Until | None = None
    attempts: int | None = 4
    backoff: Delays | Mapping[Kind, Delays] | Mapping[Kind | None, Delays] = DEFAULT_BACKOFF
    give_up_after: Duration | None = GIVE_UP_AFTER
    timeout: Duration | None = None
    attempt_timeout: Duration | None = None
    work_timeout: Duration | None = None
    hints: Hints = DEFAULT_HINTS
    budget: Budget | None = None
    worker: Worker | None = None
    before_attempt: Observer | None = None
    on_success: Observer | None = None
    on_failure: Observer | None = None
    on_retry: Observer | None = None
    on_give_up: Observer | None = None
    nested: Literal["warn", "stop", "allow"] = "warn"
    wrap: bool = False
    name: str | None = None
    labels: Mapping[str, str] = NO_LABELS
    clock: Clock = SYSTEM
    random: Chance = chance

    limits_each_call = False  # without an annotation, which would make it an option
    """True if a subclass overrides `attempts_of_call`, which is called only then."""

    # Derived from the options once, for the engine and the drivers. These are attributes and not fields, so
    # that `dataclasses.fields` lists the options only.
    if TYPE_CHECKING:
        _rules: Rules = field(init=False)
        _types: tuple[type[Exception], ...] | None = field(init=False)
        _recipe: Backoff | Mapping[Kind | None, Backoff] = field(init=False)
        _limit: float = field(init=False)
        _work_limit: float = field(init=False)
        _time: Clock = field(init=False)
        _now: Callable[[], float] = field(init=False)
        _anow: Callable[[], float] = field(init=False)
        _total: float = field(init=False)
        _attempt_limit: float = field(init=False)
        _interrupt_limit: float = field(init=False)
        _stated_limit: float = field(init=False)
        _has_hooks: bool = field(init=False)
        _first: FirstAttempt = field(init=False)
        _afirst: FirstAttempt = field(init=False)
        _counts: Counts | None = field(init=False)
        _credits: bool = field(init=False)
        _in_flight: RetriesInFlight | None = field(init=False)
        _max_attempts: float = field(init=False)
        _tracked: bool = field(init=False)
        _make_delays: Callable[[], Iterator[float]] | None = field(init=False)

    def __post_init__(self) -> None:
        self._set("_rules", as_rules(self.on))
        self._set("_types", only_types(self._rules))
        on: object = self.on
        self._set("on", tuple(cast("list[object]", on)) if isinstance(on, list) else on)
        if self.until is not None:
            check_until(self.until)
        if self.attempts is not None:
            integer(
                self.attempts,
                "attempts",
                1,
                "a whole number, 1 for no retries (the first attempt counts), or None",
            )
        self._set("_recipe", _recipe(self.backoff))
        self._set(
            "backoff",
            self._recipe if isinstance(self.backoff, Mapping) else reiterable(self.backoff, "backoff"),
        )
        for option in (*LIMITS, "attempt_timeout"):
            if (value := getattr(self, option)) is not None:
                self._set(option, seconds(value, option))
        if self.attempt_timeout == 0:
            raise ValueError("attempt_timeout=0: no attempt could succeed; write more, or None for no limit")
        if self.attempts is None and all(getattr(self, option) is None for option in LIMITS):
            raise ValueError(
                "attempts=None would retry for ever: set a time limit too, such as give_up_after=30"
            )
        instance(self.hints, "hints", Hints, "Hints(...), such as Hints(longest=60)")
        if isinstance(cast("object", self.budget), int | float):
            raise TypeError(f"budget={self.budget!r}: write a budget, such as RetryBudget(ratio=0.2)")
        self._set("_credits", False)
        self._set("_in_flight", None)
        if self.budget is not None:
            methods(self.budget, "budget", ("start", "failed", "spend", "credit", "refund"))
            from redouble._engine.budgets.budget_protocol import BudgetTraits, traits_of  # noqa: PLC0415  only if used

            traits = "BudgetTraits(...), or leave it out"
            instance(traits_of(self.budget), "budget.traits", BudgetTraits, traits)
            self._set("_credits", traits_of(self.budget).credits)
            self._set("_in_flight", traits_of(self.budget).in_flight)
        if self.worker is not None:
            from redouble._engine.worker import check_worker  # noqa: PLC0415  imported only if used

            check_worker(self.worker, "worker")
        for option in HOOKS:
            if (value := getattr(self, option)) is not None:
                hook(value, option)
        choice(self.nested, "nested", "warn", "stop", "allow")
        instance(self.wrap, "wrap", bool, "True or False")
        instance(self.name, "name", str | None, "a text, or None to use the function's name")
        self._set("labels", _labels(self.labels))
        self._set("_counts", None if self.name is None else counts_of(self.name))
        methods(self.clock, "clock", ("now", "sleep"))
        methods(self.random, "random", ("random",))
        clock: object = self.clock
        self._set("_time", clock if isinstance(clock, Clock) else ForeignClock(self.clock))
        self._set("_now", fast_reader(self._time, aio=False))
        self._set("_anow", fast_reader(self._time, aio=True))
        self._derive()
        register(self, "policies")

    def _derive(self) -> None:
        """Derive what the engine and the drivers read in every call."""
        options = (self.timeout, self.give_up_after, self.work_timeout, self.attempt_timeout)
        limits = [inf if limit is None else limit for limit in options]
        self._set("_limit", min(limits[:2]))
        self._set("_total", limits[0])
        self._set("_work_limit", limits[2])
        self._set("_attempt_limit", limits[3])
        # The limit of a first attempt where it can be interrupted: `give_up_after` interrupts nothing.
        self._set("_interrupt_limit", min(limits[0], *limits[2:]))
        # The limit of the whole call for code inside that asks. The default of `give_up_after` does not
        # count: it interrupts nothing, and is around code that runs for hours, too. The same seconds do if
        # they were written: then they are another object.
        self._set("_stated_limit", limits[0] if self.give_up_after is GIVE_UP_AFTER else min(limits[:2]))
        limits_of_calls.exist |= min(self._stated_limit, self._interrupt_limit) < inf
        self._set("_max_attempts", inf if self.attempts is None else self.attempts)
        recipe = self._recipe
        self._set("_make_delays", recipe.factory(self.random) if isinstance(recipe, Backoff) else None)
        tracked = (self.until, self.budget, self._counts, self.work_timeout)
        self._set("_tracked", self._max_attempts > MAX_RECORDS or any(x is not None for x in tracked))
        self._set("_has_hooks", any(getattr(self, option) is not None for option in HOOKS))
        self._set("_first", self._first_attempt(aio=False))
        self._set("_afirst", self._first_attempt(aio=True))

    def _first_attempt(self, *, aio: bool) -> FirstAttempt:
        """Decide how the first attempt is made, in blocking or in async code."""
        hooks = (self.before_attempt, self.on_success)
        if self.until is not None or hooks != (None, None) or 0 in (self._limit, self._interrupt_limit):
            return "tracked"
        worker = self.worker
        if aio:
            limited, inline = self._interrupt_limit < inf, True
        else:
            limited = worker is not None or self.attempt_timeout is not None
            inline = worker is not None and worker.kind == "thread" and worker._slots is None
            inline = inline and self.clock is SYSTEM
        if limited:
            return "limited" if inline and self.budget is None else "tracked"
        if self.budget is None:
            return "plain"
        from redouble._engine.budgets.budget_protocol import traits_of  # noqa: PLC0415  imported only if used

        starts = traits_of(self.budget).counts_starts
        if self._in_flight is not None:
            return "started and counted" if starts else "counted"
        if starts:
            return "started"
        return "credited" if self._credits else "plain"

    def attempts_of_call(self, now: float) -> float:  # noqa: ARG002  for subclasses
        """Return the most attempts of a call that has failed for the first time."""
        return self._max_attempts

    def _set(self, field: str, value: object) -> None:
        object.__setattr__(self, field, value)  # the dataclass is frozen

    def __hash__(self) -> int:
        # Only some options are hashed, because rules, budgets and labels may be unhashable.
        return hash(
            (self.attempts, self.give_up_after, self.timeout, self.work_timeout, self.wrap, self.name)
        )

    def __repr__(self) -> str:
        changed = [f"{name}={_format_value(value)}" for name, value in self._changed().items()]
        return f"{type(self).__name__}({', '.join(changed)})"

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        changed: dict[str, Any] = {name: _picklable(value) for name, value in self._changed().items()}
        if self.give_up_after is not GIVE_UP_AFTER:
            changed["give_up_after"] = self.give_up_after  # written, even if it equals the default
        return (partial(type(self), **changed), ())

    def __deepcopy__(self, memo: object) -> Self:
        return self  # a value that never changes; its budget is shared by identity

    def _changed(self) -> dict[str, object]:
        """Return the options that differ from their defaults."""
        from dataclasses import MISSING, fields  # noqa: PLC0415  takes long to import

        changed: dict[str, object] = {}
        for option in fields(self):
            value = getattr(self, option.name)
            default = option.default if option.default_factory is MISSING else option.default_factory()
            if value != default:
                changed[option.name] = value
        return changed


# The TypeError for an unknown option then names the class that users know.
Options.__init__.__qualname__ = "Retry.__init__"


def _picklable(value: object) -> object:
    return dict(cast("Mapping[object, object]", value)) if isinstance(value, MappingProxyType) else value


def _format_value(value: object) -> str:
    if isinstance(value, tuple):
        return "[" + ", ".join(_format_value(item) for item in cast("tuple[object, ...]", value)) + "]"
    return getattr(value, "__qualname__", None) or repr(_picklable(value))


def _labels(labels: object) -> Mapping[str, str]:
    if not isinstance(labels, Mapping):
        raise TypeError(f"labels={labels!r}: write a mapping of text to text, such as {{'team': 'payments'}}")
    checked = dict(cast("Mapping[str, str]", labels))
    for key, value in checked.items():
        instance(key, "labels: key", str, "a text")
        instance(value, f"labels[{key!r}]", str, "a text")
    return MappingProxyType(checked)


def _recipe(backoff: object) -> Backoff | Mapping[Kind | None, Backoff]:
    if not isinstance(backoff, Mapping):
        return Backoff.of(reiterable(backoff, "backoff"))
    recipes: dict[Kind | None, Backoff] = {}
    for kind, delays in cast("Mapping[Any, object]", backoff).items():
        if kind is not None and kind not in list(Kind):
            raise ValueError(
                f"backoff has a key {kind!r}: write a Kind ({', '.join(Kind)}), or None for the rest"
            )
        recipes[None if kind is None else Kind(kind)] = Backoff.of(reiterable(delays, f"backoff[{kind!r}]"))
    if None not in recipes and len(recipes) < len(Kind):
        raise ValueError("backoff by kind needs a None key too, for the kinds it does not name")
    return MappingProxyType(recipes)


def refuse_until(policy: Options, why: str) -> None:
    """Reject a rule for results where there is no result."""
    if policy.until is not None:
        raise TypeError(
            f"until= judges a result, and {why}: leave it out of this policy, or use policy.call(fn, ...)"
        )


def refuse_unlimited(policy: Options, fn: object) -> None:
    """Reject a limit that cannot interrupt blocking code without a worker."""
    if policy.attempt_timeout is not None and policy.worker is None:
        raise TypeError(
            f"attempt_timeout= cannot stop {display_name(fn)}, which blocks: add worker=Worker() to run it "
            "on a thread, or await policy.acall(...). timeout= and give_up_after= need no worker, but do not "
            "interrupt an attempt"
        )


def refuse_limits(policy: Options, what: str) -> None:
    """Reject a worker, and limits that need one, where the blocking code is not a single call."""
    for option in ("worker", "attempt_timeout"):
        if getattr(policy, option) is not None:
            raise TypeError(
                f"{option}= is for whole calls, and {what} runs in the thread that started it: leave it "
                "out of this policy, or put the work into a function for policy.call(fn, ...)"
            )
