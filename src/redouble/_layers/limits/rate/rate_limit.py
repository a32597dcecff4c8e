"""RateLimit: a fixed rate of calls with a burst; other calls wait in a FIFO queue, or are rejected."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Self

from redouble._failures.retry_after import quota, response_hint
from redouble._internal.codegen import Template
from redouble._internal.public import public
from redouble._internal.validation import Duration, format_seconds, instance, integer, number
from redouble._internal.validation import seconds as checked
from redouble._layers.gate import Wrapper, describe_others
from redouble._layers.limits.rate.pacing import GcraPacer
from redouble._layers.limits.rate.wait_queue import WaitingGate, WaitQueue
from redouble._runtime.clock import SYSTEM
from redouble._telemetry.emit import emit_rejected
from redouble.errors import RateLimited

MAX_PAUSE = 3600.0  # seconds: a server that asks for more is mistaken, or hostile
MAX_CALLS = 10**9  # the largest rate, and the largest burst
TOO_MANY_REQUESTS = 429
SLOWING = (403, TOO_MANY_REQUESTS, 503)  # the statuses of answers whose `Retry-After` means all calls

# Between reading and writing `fast_arrival_time` there is no call: see rule 2 of the pacing module.
PACED = Template(
    "rate limit",
    """\
{async_}def paced({parameters}):
    redouble_moment = redouble_system() if redouble_ambient else redouble_now()
    if redouble_pacer.fast_arrival_time <= redouble_moment:
        redouble_pacer.fast_arrival_time = redouble_moment + redouble_pacer.interval
    elif redouble_pacer.fast_arrival_time - redouble_pacer.slack <= redouble_moment:
        redouble_pacer.fast_arrival_time += redouble_pacer.interval
    else:
        {await_}redouble_wait()
    redouble_result = {await_}redouble_fn({arguments})
    {check}
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimitSettings:
    """The validated options of a `RateLimit`."""

    rate: float
    per: float
    burst: int
    wait: float | None
    following: bool
    name: str | None

    @property
    def pace(self) -> str:
        """The rate, for messages."""
        return f"{self.rate:g} " + ("a second" if self.per == 1 else f"in {format_seconds(self.per)}")


@public("redouble")
class RateLimit(WaitingGate):
    """A rate limit: ``rate`` calls begin in ``per`` seconds, evenly spaced; after a pause ``burst`` at once.

    In any t seconds at most ``rate / per * t + burst`` calls begin, in all threads and event loops together.
    Other calls wait in a FIFO queue for up to ``wait`` seconds (None: as long as it takes, 0: not at all). A
    call that cannot be admitted in time raises `RateLimited` at once, with ``retry_after``. A blocking call
    on the thread of a running event loop never waits, because it would stop the loop.

    For more than some hundred calls a second set a burst: timers are late by up to a millisecond, and without
    a burst that time is lost.

    following: apply the server's own limits, as the headers of each response or error state them: see
        `follow`.
    name: the name of the limit in its errors.
    """

    def __init__(
        self,
        rate: float,
        per: Duration = 1,
        burst: int = 1,
        wait: Duration | None = None,
        *,
        following: bool = False,
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
        instance(following, "RateLimit following", bool, "True or False")
        self.settings = RateLimitSettings(
            rate=rate, per=per, burst=burst, wait=wait, following=following, name=name
        )
        self.name = name
        self._pacer = GcraPacer(per / rate, burst)
        self._wait_queue = WaitQueue(self._pacer, wait, self._rejection, self._admitted_late)
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

    def snapshot(self) -> Mapping[str, float]:
        """Return the numbers of calls that may begin now (``available``) and that wait (``queued``).

        ``retry_after``: the seconds that another call would have to wait.
        """
        return self._wait_queue.query_pacer(self._snapshot)

    def _snapshot(self, now: float) -> Mapping[str, float]:
        available, queued = self._pacer.available(now), len(self._wait_queue)
        return {"available": available, "queued": queued, "retry_after": self._pacer.due(now, queued)}

    def _wrapper(self, *, is_async: bool) -> Wrapper:
        wait = self._wait_queue.aenter if is_async else self._wait_queue.enter
        names = {"pacer": self._pacer, "wait": wait, "follow": self._follow}
        return FOLLOWING if self.settings.following else PACED, names

    def can_reconfigure(self, other: Self, /) -> bool:
        """Return True unless ``following`` differs: functions that are decorated already cannot change it."""
        return self.settings.following == other.settings.following

    def reconfigure(self, other: Self, /) -> None:
        """Apply the settings of another limit; the used part of the burst stays used."""
        self.settings = settings = replace(other.settings, name=self.name)
        self._wait_queue.wait = settings.wait
        interval, burst = settings.per / settings.rate, settings.burst
        # The time is read under the lock of the queue; read earlier, it could be outdated.
        self._wait_queue.update_pacer(lambda: self._pacer.reconfigure(interval, burst, SYSTEM.now()))

    def ended(self, ticket: object, error: BaseException | None, now: float, /) -> None:  # noqa: ARG002
        """Apply the limits in the headers of an error, if ``following`` is set."""
        if self.settings.following and error is not None:
            self._follow(error)

    def _rejection(self, why: str, wait: float) -> RateLimited:
        message = f"{self._title('rate limit')} is used up: {self.settings.pace}, {why}"
        error = RateLimited(message, retry_after=wait)
        return emit_rejected(error, "rate_limit", self.name)

    def describe(self) -> str:
        return f"{self.settings.pace}, {describe_others(self.wait)}"

    def __repr__(self) -> str:
        pace = f"{self.rate:.12g}, per={self.per:.12g}, burst={self.burst}"
        return self._repr(pace, f"wait={self.wait}", following=self.settings.following or None)


def _headers_and_status(answer: Any) -> tuple[object, object]:
    """Return the headers and the status of a response, or of an error that carries one."""
    unknown = TOO_MANY_REQUESTS if isinstance(answer, Exception) else None
    with suppress(Exception):  # the answer may be any object, with attributes that raise
        for source in (answer, getattr(answer, "response", None)):
            headers = getattr(source, "headers", None)
            if headers is not None:
                status = getattr(source, "status_code", getattr(source, "status", None))
                return headers, unknown if status is None else status
    return None, None
