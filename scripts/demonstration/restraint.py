"""What people write to call a service that may be overloaded: four ways, from nothing to a budget."""

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
    """Ask once."""
    await ask()


async def by_hand(ask: Ask) -> None:
    """Ask three times, as everybody once wrote it."""
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
    """Do the same, but retries have to be earned."""
    return replace(patient(), budget=RetryBudget(ratio=0.2, per_second=1))


def with_policy(policy: Retry) -> Call:
    """Return a way to call: with this policy, shared by all callers, and the same chance on every run."""
    seeded = replace(policy, random=Random("restraint"))  # noqa: S311  chance, not secrets

    async def call(ask: Ask) -> None:
        await seeded.call(ask)

    return call


class Way(NamedTuple):
    """A way to call, by its name."""

    name: str
    call: Call


def four_ways() -> list[Way]:
    """Return all of them, fresh: a budget remembers."""
    return [
        Way("No retries", once),
        Way("By hand, 3 attempts", by_hand),
        Way("Redouble, 4 attempts", with_policy(patient())),
        Way("Redouble with a budget", with_policy(restrained())),
    ]
