"""RateLimit: a fixed rate of calls, by interval or by window; others wait in a FIFO queue or are rejected."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from math import inf
from typing import Any, Self

from redouble._engine.per_call import PerCall
from redouble._failures.error_readers import status_and_headers
from redouble._failures.retry_after import quota, response_hint
from redouble._internal.callables import display_name
from redouble._internal.codegen import Template
from redouble._internal.public import public
from redouble._internal.validation import Duration, choice, instance, integer, number
from redouble._internal.validation import seconds as checked
from redouble._layers.gate import Wrapper, describe_others
from redouble._layers.limits.level_events import LevelEvents
from redouble._layers.limits.rate.cost import Cost, CostError, checked_cost, cost_function, cost_option
from redouble._layers.limits.rate.ranked_queue import RankedWaitQueue
from redouble._layers.limits.rate.settings import WINDOWS, RateLimitSettings, Window
from redouble._layers.limits.rate.wait_queue import Demand, WaitingGate, WaitQueue
from redouble._layers.limits.shares import (
    PriorityOption,
    Shares,
    describe_shares,
    same_function,
    shares_option,
)
from redouble._runtime.clock import SYSTEM
from redouble._telemetry.emit import emit_rejected
from redouble._telemetry.observers import watch
from redouble.errors import RateLimited

MAX_PAUSE = 3600.0  # seconds: a server that asks for more is mistaken, or hostile
MAX_CALLS = 10**9  # the largest rate, and the largest burst
TOO_MANY_REQUESTS = 429
SLOWING = (403, TOO_MANY_REQUESTS, 503)  # the statuses of answers whose `Retry-After` means all calls

# Between reading and writing `fast_arrival_time` there is no call: see rule 2 of the pacing module.
FAST_PATH = """\
    redouble_moment = redouble_system() if redouble_ambient else redouble_now()
    if redouble_pacer.fast_arrival_time <= redouble_moment:
        redouble_pacer.fast_arrival_time = redouble_moment + redouble_pacer.interval
    elif redouble_pacer.fast_arrival_time - redouble_pacer.slack <= redouble_moment:
        redouble_pacer.fast_arrival_time += redouble_pacer.interval
    else:
        {await_}redouble_wait()
"""
PACED = Template(
    "rate limit",
    f"""\
{{async_}}def paced({{parameters}}):
{FAST_PATH}\
    redouble_result = {{await_}}redouble_fn({{arguments}})
    {{check}}
    return redouble_result
""",
)
FOLLOWING = PACED.derive(
    "rate limit",
    (
        "    redouble_result = {await_}redouble_fn({arguments})\n    {check}\n",
        """\
    try:
        redouble_result = {await_}redouble_fn({arguments})
        {check}
    except redouble_Exception as redouble_error:
        redouble_follow(redouble_error)
        raise
    redouble_follow(redouble_result)
""",
    ),
)
# What a call costs is computed first: what the function raises comes out before anything is taken.
BY_COST = (FAST_PATH, "    {await_}redouble_wait(*redouble_per_call({arguments}))\n")
TEMPLATES = {  # by `following`, and whether the cost is a function
    (False, False): PACED,
    (True, False): FOLLOWING,
    (False, True): PACED.derive("rate limit by cost", BY_COST),
    (True, True): FOLLOWING.derive("following rate limit by cost", BY_COST),
}


@public("redouble")
class RateLimit(WaitingGate):
    """A rate limit: ``rate`` calls begin in ``per`` seconds, evenly spaced; after a pause ``burst`` at once.

    In any t seconds at most ``rate / per * t + burst`` calls begin, in all threads and event loops together;
    with ``window="sliding"`` at most ``rate`` in any ``per`` seconds, all at once if need be. Other calls
    wait in a FIFO queue for up to ``wait`` seconds (None: as long as it takes, 0: not at all). A call that
    cannot be admitted in time raises `RateLimited` at once, with ``retry_after``. A blocking call on the
    thread of a running event loop never waits, because it would stop the loop.

    For more than some hundred calls a second set a burst: timers are late by up to a millisecond, and without
    a burst that time is lost.

    window: None: evenly spaced, with a burst. "sliding": count the calls of the last ``per`` seconds,
        exactly. "fixed": count those of windows that follow one another from the first call on; up to twice
        the rate may begin around the end of one.
    cost: how much of the rate a call uses, 1 if not given: a number, or a function of its arguments. 0 is
        free; the most is ``burst``, with a window ``rate``. A call never overtakes one that costs more.
    following: apply the server's own limits, as the headers of each response or error state them: see
        `follow`.
    shares: guaranteed shares of the rate by class of call, the highest class first, such as
        ``{"interactive": 0.6, "batch": 0.1}``. What a class leaves idle others borrow; when calls wait, a
        class below its share is next, and then the highest one.
    priority: the class of a call that `redouble.priority` gives none, or a function of its arguments.
    name: the name of the limit in its errors.
    """

    def __init__(
        self,
        rate: float,
        per: Duration = 1,
        burst: int = 1,
        wait: Duration | None = None,
        *,
        window: Window | None = None,
        cost: Cost = 1,
        following: bool = False,
        shares: Mapping[str, float] | None = None,
        priority: PriorityOption = None,
        name: str | None = None,
    ) -> None:
        if callable(rate):
            raise TypeError("write @RateLimit(10), with the rate: it is no decorator without it")
        rate = number(rate, "RateLimit rate", 1e-9, MAX_CALLS, "calls, from 1e-9 to 1e9, such as 10")
        per = checked(per, "RateLimit per")
        if not per:
            raise ValueError("RateLimit per=0: write the seconds that the rate is for, such as 1")
        integer(burst, "RateLimit burst", 1, "1 or more: how many may begin at once")
        if burst > MAX_CALLS or not 1e-12 < per / rate < 1e12:
            given = f"RateLimit({rate:g}, per={per:g}, burst=...)"
            raise ValueError(
                f"{given}: write a rate that a clock can measure, and a burst of up to {MAX_CALLS:g}"
            )
        wait = None if wait is None else checked(wait, "RateLimit wait")
        if window is not None:
            choice(window, "RateLimit window", *WINDOWS)
            if burst != 1:
                raise ValueError(
                    f"RateLimit burst={burst}: leave it out, a window has all of its rate at once"
                )
        instance(following, "RateLimit following", bool, "True or False")
        self._shares = shares_option(shares, priority, "RateLimit")
        self.settings = RateLimitSettings(
            rate=rate,
            per=per,
            burst=burst,
            wait=wait,
            window=window,
            cost=cost_option(cost, "RateLimit cost"),
            following=following,
            shares=None if self._shares is None else self._shares.shares,
            priority=priority,
            name=name,
        )
        self.settings.check_cost()
        self.name = name
        self._per_call = per_call_demand(self.settings.cost, self._shares)
        self._pacer = self.settings.new_pacer()
        self._level = LevelEvents("rate_limit", self._pacer.rate(SYSTEM.now()))
        arguments = self._pacer, wait, self._rejection, self._admitted_late
        self._wait_queue = (
            WaitQueue(*arguments) if self._shares is None else RankedWaitQueue(*arguments, self._shares)
        )
        self.register("limits")

    ends_with_head = True  # a permit is used up when a call begins

    @property
    def rate(self) -> float:
        """The number of calls that may begin in ``per`` seconds."""
        return self.settings.rate

    @property
    def per(self) -> float:
        """The period of the rate, in seconds."""
        return self.settings.per

    @property
    def burst(self) -> int:
        """The number of calls that may begin at once after a pause."""
        return self.settings.burst

    def acquire(self, cost: float = 1, /) -> None:
        """Take permits, as many as the cost, for something that is no call: wait, or raise `RateLimited`."""
        self._wait_queue.enter(checked_cost(cost, "RateLimit acquire"))

    async def aacquire(self, cost: float = 1, /) -> None:
        """Take permits, as many as the cost, for something that is no call: wait, or raise `RateLimited`."""
        await self._wait_queue.aenter(checked_cost(cost, "RateLimit acquire"))

    def _demand(self, per_call: Demand | None) -> Demand:
        """Return the cost of a call; a block has no arguments, so a function cannot compute one."""
        cost = self.settings.cost
        if per_call is not None:
            return per_call
        if callable(cost):
            raise CostError(
                f"RateLimit cost={display_name(cost)} needs the arguments of a call, which a block has not: "
                "write limit.acquire(cost), or async `await limit.aacquire(cost)`"
            )
        return (cost,)

    def follow(self, answer: object, /) -> None:
        """Apply the server's own limits, as stated by a response, an error, or headers.

        No call passes during the ``Retry-After`` of a 429, 503 or 403, nor while a quota is used up. The rest
        of a quota (``RateLimit``, ``RateLimit-Remaining`` with ``RateLimit-Reset``, ``x-ratelimit-*``) is
        spread over the time until its reset, whatever the status. These headers can only slow calls down, and
        for an hour at most. A ``Retry-After`` with another status does not concern the rate: in a 202 it says
        when to ask for the result. Headers, and an error, without a status count as those of a 429.
        """
        headers, status = _headers_and_status(answer)
        if headers is None and (hasattr(answer, "items") or type(answer) in (list, tuple)):
            headers, status = answer, TOO_MANY_REQUESTS
        self._apply_headers(headers, status)

    def _follow(self, answer: object) -> None:
        """Apply the limits in the headers of a call's result, which may be of any type."""
        self._apply_headers(*_headers_and_status(answer))

    def _apply_headers(self, headers: object, status: object) -> None:
        if headers is None:
            return
        now = SYSTEM.now()
        calls, seconds = quota(headers) or (None, 0.0)
        if calls:
            share = min(1.0, MAX_PAUSE / seconds)
            self._wait_queue.update_pacer(
                self._pacer.spread, max(1, int(calls * share)), seconds * share, now
            )
        asked = response_hint(headers, status) if isinstance(status, int) and status in SLOWING else None
        pause = max(asked or 0.0, seconds if calls == 0 else 0.0)
        if pause:
            self._wait_queue.update_pacer(self._pacer.pause, min(pause, MAX_PAUSE), now)
        self._emit_level()

    def _emit_level(self) -> None:
        if watch.by_event["limit_changed"]:
            self._level.emit(self._wait_queue.query_pacer(self._pacer.rate), self.name)

    def snapshot(self) -> Mapping[str, float]:
        """Return the numbers of calls that may begin now (``available``) and that wait (``queued``).

        ``rate``: the current rate, in calls a second, less while the limits of the server are in force.
        ``retry_after``: the seconds that another call would have to wait. With shares also the waiting calls
        of each class, such as ``queued.batch``.
        """
        return self._wait_queue.query_pacer(self._snapshot)

    def _snapshot(self, now: float) -> Mapping[str, float]:
        pacer, queue = self._pacer, self._wait_queue
        usual = queue.new_waiter(min(1.0, pacer.most))
        snapshot = {
            "rate": pacer.rate(now),
            "available": pacer.available(now),
            "queued": len(queue),
            "retry_after": pacer.due(now, usual.cost, queue.ahead_of(usual, now)),
        }
        if isinstance(queue, RankedWaitQueue):
            snapshot |= {f"queued.{name}": number for name, number in queue.queued_by_class().items()}
        return snapshot

    def _wrapper(self, *, is_async: bool) -> Wrapper:
        settings = self.settings
        wait: Callable[..., Any] = self._wait_queue.aenter if is_async else self._wait_queue.enter
        names: dict[str, Any] = {"pacer": self._pacer, "wait": wait, "follow": self._follow}
        if settings.cost != 1 and not callable(settings.cost):
            names["wait"] = lambda: wait(self.settings.cost)
        return TEMPLATES[settings.following, self._per_call is not None], names

    def can_reconfigure(self, other: Self, /) -> bool:
        """Return True unless ``following`` or ``window`` differs: decorated functions keep them.

        They also keep whether there are shares, a function as ``cost`` or ``priority``, and a cost of 1.
        """
        mine, others = self.settings, other.settings
        other_cost = self._per_call is None and other._per_call is None and 1 not in (mine.cost, others.cost)
        return (
            (mine.following, mine.window) == (others.following, others.window)
            and (mine.cost == others.cost or other_cost)
            and (self._shares is None) == (other._shares is None)
            and same_function(self._shares, other._shares)
        )

    def reconfigure(self, other: Self, /) -> None:
        """Apply the settings of another limit; the used part of the burst, or of a window, stays used."""
        self.settings = settings = replace(other.settings, name=self.name)
        self._shares, queue = other._shares, self._wait_queue
        queue.wait = settings.wait
        if isinstance(queue, RankedWaitQueue) and self._shares is not None:
            queue.update_pacer(queue.configure, self._shares)
        # The time is read under the lock of the queue; read earlier, it could be outdated.
        queue.update_pacer(lambda: settings.apply(self._pacer, SYSTEM.now()))
        self._emit_level()

    def ended(self, ticket: object, error: BaseException | None, now: float, /) -> None:  # noqa: ARG002
        """Apply the limits in the headers of an error, if ``following`` is set."""
        if self.settings.following and error is not None:
            self._follow(error)

    def _rejection(self, why: str, wait: float) -> Exception:
        if wait == inf:
            return CostError(f"{self._title('rate limit')} has at most {self.settings.most:g} at once, {why}")
        message = f"{self._title('rate limit')} is used up: {self.settings.pace}, {why}"
        error = RateLimited(message, retry_after=wait)
        return emit_rejected(error, "rate_limit", self.name)

    def describe(self) -> str:
        cost = self.settings.cost
        costs = "" if cost == 1 else ", each at its cost" if callable(cost) else f", a call costs {cost:g}"
        guaranteed = "" if self._shares is None else f"{describe_shares(self._shares)}, "
        less = ", less if the server asks for it" if self.settings.following else ""
        return f"{self.settings.pace}{less}{costs}, {guaranteed}{describe_others(self.wait)}"

    def __repr__(self) -> str:
        cost, window, following = self.settings.cost, self.settings.window, self.settings.following or None
        pace = f"{self.rate:.12g}, per={self.per:.12g}" + (f", burst={self.burst}" if window is None else "")
        own = () if cost == 1 else (f"cost={display_name(cost) if callable(cost) else cost}",)
        more = {"window": window, "following": following, "shares": self._shares}
        return self._repr(pace, f"wait={self.wait}", *own, **more)


def per_call_demand(cost: Cost, shares: Shares | None) -> PerCall | None:
    """Return the evaluation of the options that are functions of a call's arguments; None if none is."""
    by_class = None if shares is None else shares.per_call
    if by_class is None and not callable(cost):
        return None
    functions: dict[str, Callable[..., Any]] = {} if by_class is None else {**by_class.functions}
    cost_of: Callable[..., float] | None = None
    if callable(cost):
        option = "RateLimit cost"
        functions[option], cost_of = cost, cost_function(cost, option)

    def demand(*args: Any, **kwargs: Any) -> Demand:
        costs = cost if cost_of is None else cost_of(*args, **kwargs)
        return (costs,) if by_class is None else (costs, by_class.evaluate(*args, **kwargs))

    return PerCall(functions, demand)


def _headers_and_status(answer: Any) -> tuple[object, object]:
    """Return the headers and the status of a response, or of an error that carries one."""
    unknown = TOO_MANY_REQUESTS if isinstance(answer, Exception) else None
    with suppress(Exception):  # the answer may be any object, with attributes that raise
        for source in (answer, getattr(answer, "response", None)):
            status, headers = status_and_headers(source)
            if headers is not None:
                return headers, unknown if status is None else status
    return None, None
