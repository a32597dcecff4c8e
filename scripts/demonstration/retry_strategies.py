"""Four retry strategies for a service that may be overloaded, from no retries to a retry budget."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from random import Random
from typing import NamedTuple, TypeAlias

from redouble import Backoff, Retry, RetryBudget

Ask: TypeAlias = Callable[[], Awaitable[None]]
Call: TypeAlias = Callable[[Ask], Awaitable[None]]


async def once(ask: Ask) -> None:
    """Make one attempt."""
    await ask()


async def by_hand(ask: Ask) -> None:
    """Make three attempts in a hand-written loop."""
    attempts = 3
    while True:
        try:
            return await ask()
        except Exception:
            attempts -= 1
            if not attempts:
                raise
            await asyncio.sleep(0.1)


def patient() -> Retry:
    """Make four attempts, spread by jitter."""
    spread = Backoff.exponential(0.1).full_jitter()
    return Retry(attempts=4, backoff=spread)


def restrained() -> Retry:
    """Add a budget: retries need credit from successful calls."""
    return replace(patient(), budget=RetryBudget(ratio=0.2, per_second=1))


def with_policy(policy: Retry) -> Call:
    """Return a function that calls with this policy, shared by all callers and with seeded jitter."""
    seeded = replace(policy, random=Random("restraint"))  # noqa: S311  chance, not secrets

    async def call(ask: Ask) -> None:
        await seeded.call(ask)

    return call


class Strategy(NamedTuple):
    """A retry strategy with its name."""

    name: str
    call: Call


def strategies() -> list[Strategy]:
    """Return new strategies; a retry budget has state."""
    return [
        Strategy("No retries", once),
        Strategy("By hand, 3 attempts", by_hand),
        Strategy("Redouble, 4 attempts", with_policy(patient())),
        Strategy("Redouble with a budget", with_policy(restrained())),
    ]
