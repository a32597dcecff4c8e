"""The demonstration: the same calls to a flaky service, plainly and with Redouble.

Nothing is faked: the service is real sockets on loopback, the timelines are Redouble's own events. The
service's luck and the jitter are seeded, so that every run tells the same story.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import sys
import time
import traceback
from collections.abc import Awaitable

from demonstration.chance import ChancePerCall, current_call
from demonstration.clients import UnavailableError, get, get_async
from demonstration.diary import Diary, spelled
from demonstration.paint import heading, paint
from demonstration.service import FlakyService

import redouble
from redouble import Backoff, Report, Retry

CALLS = [f"call {number}" for number in range(1, 13)]
BACKOFF = Backoff.exponential(0.05).maximum(0.3).full_jitter()
CHANCE = ChancePerCall()


# ------------------------------------------------------------------- what a user writes


def as_asked(error: Exception) -> float | None:
    """Answer for a 503: retry, but not before it asked us to. No opinion on anything else."""
    return error.retry_after if isinstance(error, UnavailableError) else None


@redouble.retry(
    on=[as_asked, redouble.transient], attempts=6, give_up_after=5, backoff=BACKOFF, random=CHANCE
)
def fetch(port: int, path: str) -> bytes:
    """Fetch something, whatever the weather."""
    return get(port, path)


policy = Retry(on=[as_asked, redouble.transient], attempts=6, give_up_after=5, backoff=BACKOFF, random=CHANCE)


async def fetch_async(port: int, path: str) -> bytes:
    """Fetch the same in async code: the policy's attempts around a block."""
    async for attempt in policy:
        with attempt:
            body = await get_async(port, path)
    return body


# ----------------------------------------------------------------------------- sections


def plain_calls(service: FlakyService) -> int:
    """Make every call once; return how many succeeded."""
    heading("Plain calls")
    succeeded = 0
    for call in CALLS:
        try:
            get(service.port, path_of(call))
        except (OSError, UnavailableError) as error:
            print(f"{call:<8}  {spelled(error)}")
        else:
            succeeded += 1
            print(f"{call:<8}  {paint('green', 'ok')}")
    return succeeded


def retried_calls(service: FlakyService) -> int:
    """Make the same calls with retries; return how many succeeded."""
    heading("The same calls with Redouble")
    print(paint("dim", inspect.getsource(fetch)))
    succeeded = 0
    diary = Diary()
    with redouble.observe(diary):
        for call in CALLS:
            current_call.set(call)
            try:
                fetch(service.port, path_of(call))
            except (OSError, UnavailableError):
                pass
            else:
                succeeded += 1
            print(diary.line(call))
    return succeeded


def given_up_calls(service: FlakyService) -> None:
    """Show what comes out when retrying does not help."""
    heading("Giving up: your own exception comes out, with a note and its history")
    show_failure(service, "/broken")
    heading("Asked to wait longer than we have: given up at once, never retried too early")
    show_failure(service, "/maintenance")


def show_failure(service: FlakyService, path: str) -> None:
    """Make a call that is bound to fail and show its exception and its report."""
    current_call.set(path)
    try:
        fetch(service.port, path)
    except (OSError, UnavailableError) as error:
        print("".join(traceback.format_exception_only(error)))
        report = redouble.report(error)
        if report is not None:
            show_report(report)


def show_report(report: Report) -> None:
    """Show what `redouble.report` tells of a call."""
    print(f"reason={report.reason}  limit={report.limit}  attempts={report.attempts}")
    for record in report.history:
        then = "gave up" if record.delay is None else f"waited {record.delay:.2f} s"
        asked = "" if record.hint is None else f" (asked for {record.hint:g} s)"
        error = f"{record.error_type} ({record.kind})"
        print(f"  attempt {record.number} at {record.started:.1f} s: {error}, {then}{asked}")


async def concurrent_calls(service: FlakyService) -> None:
    """Make some of the calls all at once, with one policy for all of them."""
    heading("Async: one policy, calls at the same time")
    print(paint("dim", inspect.getsource(fetch_async)))
    diary = Diary()
    started = time.perf_counter()
    with redouble.observe(diary):
        calls = (named(call, fetch_async(service.port, path_of(call))) for call in CALLS)
        await asyncio.gather(*calls, return_exceptions=True)
    took = time.perf_counter() - started
    for call in CALLS:
        print(diary.line(call))
    print(f"\n{len(CALLS)} calls in {took:.1f} s; one after another they take {diary.elapsed:.1f} s.")


async def named(call: str, work: Awaitable[bytes]) -> bytes:
    """Await something as this call: a task has a context of its own."""
    current_call.set(call)
    return await work


def path_of(call: str) -> str:
    """Return what a call asks for."""
    return f"/{call.replace(' ', '/')}"


def main() -> None:
    """Tell the whole story."""
    with FlakyService() as plain:
        plain_succeeded = plain_calls(plain)
    with FlakyService() as retried:
        succeeded = retried_calls(retried)
    with FlakyService() as service:
        given_up_calls(service)
        asyncio.run(concurrent_calls(service))
    heading("Summary")
    for way, ok, requests in (
        ("plain calls", plain_succeeded, plain.requests),
        ("with Redouble", succeeded, retried.requests),
    ):
        print(f"{way:<14}{ok:>3} of {len(CALLS)} succeeded, {requests} requests at the service")


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:  # whoever reads has seen enough: scripts/demo | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
