"""The options of `Retry`: each written once, checked when made, never changed.

What is wrong is said here, at construction, with the option's name and what to write instead. What
the options do is not known here.
"""

from __future__ import annotations

import inspect
import random as chance
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from math import inf
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from redouble._backoff import Backoff, fresh
from redouble._budget import Budget
from redouble._events import Event
from redouble._time import SYSTEM, Borrowed, Chance, Clock, Duration, seconds
from redouble._transient import transient
from redouble._verdict import Kind, On, Rules, Until, as_rules, check_until, only_types

__all__ = ["Delays", "Hints", "Options"]

Delays: TypeAlias = Backoff | Iterable[float]
Observer: TypeAlias = Callable[[Event], object]

DEFAULT_BACKOFF = Backoff.exponential(0.2).maximum(2).full_jitter()
HOOKS = ("before_attempt", "on_success", "on_failure", "on_retry", "on_give_up")


@dataclass(frozen=True, kw_only=True)
class Hints:
    """How to treat a delay asked for by the other side.

    mode: ``at_least`` waits for the backoff or the hint, whichever is longer; ``instead`` for the
    hint alone; ``ignore`` for the backoff alone.
    longest: give up at once when asked to wait longer than this.
    over: let a hint add at most this to the backoff.
    spread: add up to this share of the hint by chance, so that not everybody returns at once.
    """

    mode: Literal["at_least", "instead", "ignore"] = "at_least"
    longest: Duration | None = None
    over: Duration | None = None
    spread: float = 0.1

    # The same as numbers, for the engine.
    ceiling: float = field(init=False, repr=False, compare=False)
    most_over: float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.mode not in ("at_least", "instead", "ignore"):
            raise ValueError(f"Hints mode={self.mode!r}: write 'at_least', 'instead' or 'ignore'")
        for option, number in (("longest", "ceiling"), ("over", "most_over")):
            value = getattr(self, option)
            checked = None if value is None else seconds(value, f"Hints {option}")
            object.__setattr__(self, option, checked)
            object.__setattr__(self, number, inf if checked is None else checked)
        if isinstance(self.spread, bool) or not isinstance(self.spread, int | float):
            raise TypeError(f"Hints spread={self.spread!r}: write a number between 0 and 1, such as 0.1")
        if not 0 <= self.spread <= 1:
            raise ValueError(f"Hints spread={self.spread!r}: write a number between 0 and 1, such as 0.1")


@dataclass(frozen=True, kw_only=True, repr=False)
class Options:
    """Everything one can say about retrying."""

    on: On = transient
    until: Until | None = None
    attempts: int | None = 4
    backoff: Delays | Mapping[Kind | None, Delays] = DEFAULT_BACKOFF
    give_up_after: Duration | None = 30.0
    timeout: Duration | None = None
    work_timeout: Duration | None = None
    hints: Hints = Hints()
    budget: Budget | None = None
    before_attempt: Observer | None = None
    on_success: Observer | None = None
    on_failure: Observer | None = None
    on_retry: Observer | None = None
    on_give_up: Observer | None = None
    nested: Literal["warn", "stop", "allow"] = "warn"
    wrap: bool = False
    name: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    clock: Clock = SYSTEM
    random: Chance = chance

    # Worked out once, for the engine and the drivers.
    rules: Rules = field(init=False, compare=False)
    types: tuple[type[Exception], ...] | None = field(init=False, compare=False)
    recipe: Backoff | Mapping[Kind | None, Backoff] = field(init=False, compare=False)
    limit: float = field(init=False, compare=False)
    work_limit: float = field(init=False, compare=False)
    time: Clock = field(init=False, compare=False)
    silent: bool = field(init=False, compare=False)
    plain: bool = field(init=False, compare=False)

    def __post_init__(self) -> None:
        put = lambda option, value: object.__setattr__(self, option, value)  # noqa: E731  frozen, but not yet
        put("rules", as_rules(self.on))
        put("types", only_types(self.rules))
        if isinstance(self.on, list):
            put("on", tuple(self.on))
        if self.until is not None:
            check_until(self.until)
        _check_attempts(self.attempts)
        if isinstance(self.backoff, Mapping):
            put("backoff", _by_kind(self.backoff))
            put("recipe", {kind: Backoff.of(delays) for kind, delays in self.backoff.items()})
        else:
            put("backoff", fresh(self.backoff, "backoff"))
            put("recipe", Backoff.of(self.backoff))
        for option in ("give_up_after", "timeout", "work_timeout"):
            if (value := getattr(self, option)) is not None:
                put(option, seconds(value, option))
        if self.attempts is None and self.give_up_after is None and self.timeout is None and self.work_timeout is None:
            raise ValueError("attempts=None would retry for ever: set a time limit too, such as give_up_after=30")
        _check_type("hints", self.hints, Hints, "Hints(...), such as Hints(longest=60)")
        _check_methods("budget", self.budget, ("start", "failed", "spend", "credit", "refund"))
        for option in HOOKS:
            _check_hook(option, getattr(self, option))
        if self.nested not in ("warn", "stop", "allow"):
            raise ValueError(f"nested={self.nested!r}: write 'warn', 'stop' or 'allow'")
        _check_type("wrap", self.wrap, bool, "True or False")
        _check_type("name", self.name, str | None, "a text, or None to use the function's name")
        put("labels", _labels(self.labels))
        _check_methods("clock", self.clock, ("now", "sleep"))
        _check_methods("random", self.random, ("random",))

        put("limit", min(inf if x is None else x for x in (self.timeout, self.give_up_after)))
        put("work_limit", inf if self.work_timeout is None else self.work_timeout)
        put("time", self.clock if isinstance(self.clock, Clock) else Borrowed(self.clock))
        put("silent", all(getattr(self, option) is None for option in HOOKS))
        # Plain: a call that succeeds at once has nothing to tell, to credit or to check.
        put(
            "plain",
            self.until is None
            and self.budget is None
            and self.before_attempt is None
            and self.on_success is None
            and not self.wrap
            and self.timeout is None
            and self.limit > 0
            and self.work_timeout != 0,
        )

    def __hash__(self) -> int:
        # Rules, budgets and labels may be unhashable; equal policies agree on these anyway.
        return hash((self.attempts, self.give_up_after, self.timeout, self.work_timeout, self.nested, self.wrap, self.name))

    def __repr__(self) -> str:
        said: list[str] = []
        for option in fields(self):
            value = getattr(self, option.name)
            default = {} if option.name == "labels" else option.default
            if option.init and default is not MISSING and value != default:
                spelled = getattr(value, "__qualname__", None) or repr(dict(value) if option.name == "labels" else value)
                said.append(f"{option.name}={spelled}")
        return f"{type(self).__name__}({', '.join(said)})"


def _check_attempts(attempts: object) -> None:
    if attempts is None:
        return
    if isinstance(attempts, bool) or not isinstance(attempts, int):
        raise TypeError(f"attempts={attempts!r}: write a whole number, or None for no limit")
    if attempts < 1:
        raise ValueError(f"attempts={attempts!r}: the first attempt counts too, so write 1 for no retries")


def _check_type(option: str, value: object, kind: Any, wanted: str) -> None:
    if not isinstance(value, kind):
        raise TypeError(f"{option}={value!r}: write {wanted}")


def _check_methods(option: str, value: object, methods: tuple[str, ...]) -> None:
    if value is None and option == "budget":
        return
    missing = [m for m in methods if not callable(getattr(value, m, None))]
    if missing or isinstance(value, type):
        lacks = f"it is a class: write {value.__name__}(...)" if isinstance(value, type) else f"it has no {missing[0]}()"
        raise TypeError(f"{option}={value!r} is not a {option}: {lacks}")


def _check_hook(option: str, hook: object) -> None:
    if hook is None:
        return
    if not callable(hook):
        raise TypeError(f"{option}={hook!r}: write a function of one event")
    if inspect.iscoroutinefunction(hook) or inspect.iscoroutinefunction(getattr(hook, "__call__", None)):  # noqa: B004
        raise TypeError(
            f"{option}={getattr(hook, '__qualname__', hook)} is a coroutine function and would never run: "
            "observers are plain functions, also in async code"
        )


def _labels(labels: object) -> Mapping[str, str]:
    if not isinstance(labels, Mapping):
        raise TypeError(f"labels={labels!r}: write a mapping of text to text, such as {{'team': 'payments'}}")
    for key, value in labels.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"labels={{{key!r}: {value!r}}}: write text for both")
    return MappingProxyType(dict(labels))


def _by_kind(backoffs: Mapping[Any, object]) -> Mapping[Kind | None, Delays]:
    checked: dict[Kind | None, Delays] = {}
    for kind, delays in backoffs.items():
        if kind is not None and kind not in Kind:
            raise ValueError(f"backoff has a key {kind!r}: write a Kind ({', '.join(Kind)}) or None for the rest")
        checked[None if kind is None else Kind(kind)] = fresh(delays, f"backoff[{kind!r}]")
    if None not in checked and len(checked) < len(Kind):
        raise ValueError("backoff by kind needs a None key too, for the kinds it does not name")
    return MappingProxyType(checked)
