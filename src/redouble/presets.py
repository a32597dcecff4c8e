"""Policies for common situations: options of `Retry`, without mechanisms of their own.

Each function makes a new `Retry` (or a pipeline that begins with one), with a budget of its own if it has
one: make it once per service and share it. Options that are given replace those of the preset.

>>> from redouble import presets
>>> policy = presets.http(attempts=2)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import update_wrapper
from math import ceil
from typing import Any, ParamSpec, TypeVar, cast

from redouble._engine.backoff import Backoff
from redouble._engine.budgets.budget_protocol import shared_budget
from redouble._engine.budgets.retry_budget import HostBudgets, RetryBudget
from redouble._engine.budgets.token_bucket import TokenBucket
from redouble._engine.options import Hints
from redouble._failures.transient import transient
from redouble._failures.verdict import Kind, Verdict, changed
from redouble._layers.layer import Layer, Pipeline
from redouble._layers.limits.rate.adaptive_rate import AdaptiveRate
from redouble._layers.retry.retry import Retry

__all__ = [
    "aws_adaptive",
    "aws_standard",
    "database",
    "finagle",
    "grpc",
    "http",
    "httpware",
    "llm",
    "polling",
]

P = ParamSpec("P")
L = TypeVar("L", bound=Layer)


def _preset(
    make: Callable[P, Retry], inside: Callable[[Retry], L]
) -> Callable[[Callable[[], dict[str, Any]]], Callable[P, L]]:
    """Return a decorator: it turns a function that returns options into one that makes a policy.

    The result accepts further options as keywords. ``inside`` adds the layers inside the `Retry`.
    """

    def preset_of(values: Callable[[], dict[str, Any]]) -> Callable[P, L]:
        def preset(*args: Any, **options: Any) -> L:
            if args:
                wanted = f"presets.{values.__name__}(attempts=2)"
                raise TypeError(f"write {wanted}, or @{wanted} to decorate: options are keywords")
            return inside(cast("Callable[..., Retry]", make)(**{**values(), **options}))

        signature, own = inspect.signature(make), values()
        options = signature.parameters.items()
        defaults = [option.replace(default=own.get(name, option.default)) for name, option in options]
        result = make if inside is _unchanged else Pipeline
        shown = signature.replace(parameters=defaults, return_annotation=result)
        cast("Any", update_wrapper(preset, values)).__signature__ = shown
        preset.__annotations__ = {"return": result}
        return preset

    return preset_of


def _unchanged(policy: Retry) -> Retry:
    return policy


def _with_adaptive_rate(policy: Retry) -> Pipeline:
    return policy | AdaptiveRate()


@_preset(Retry, _unchanged)
def http() -> dict[str, Any]:
    """For calls over HTTP: 3 attempts, full jitter from 0.1 s to 5 s, a budget, 30 s in all.

    Attempts and delays are httpware's; the budget has Finagle's numbers (a fifth of the calls, and 10 a
    second), but is credited by successes, so that it does not keep an overload going. A server that asks
    for a wait gets it, if it fits into the 30 s. Our HTTP clients use this preset by default, with a budget
    for each host, so that a host that is down does not consume the retries of the others.
    """
    return {
        "attempts": 3,
        "backoff": Backoff.exponential(0.1).maximum(5).full_jitter(),
        "budget": HostBudgets(ratio=0.2, per_second=10, window=10),
    }


def _aws() -> dict[str, Any]:
    return {
        "attempts": 3,
        "backoff": {
            Kind.throttled: Backoff.exponential(1.0).maximum(20).full_jitter(),
            None: Backoff.exponential(0.05).maximum(20).full_jitter(),
        },
        "hints": Hints(over=5, spread=0),
        "budget": TokenBucket(500, {Kind.throttled: 5, None: 14}),
        "give_up_after": None,
    }


@_preset(Retry, _unchanged)
def aws_standard() -> dict[str, Any]:
    """As the AWS SDKs do it in standard mode since 2026: 3 attempts, and a bucket of 500 tokens.

    A retry costs 14 tokens, 5 after throttling. Delays are full jitter from 0.05 s, from 1 s after
    throttling, to 20 s; a server may add up to 5 s to them. From botocore and smithy-kotlin.
    """
    return _aws()


@_preset(Retry, _with_adaptive_rate)
def aws_adaptive() -> dict[str, Any]:
    """As the AWS SDKs do it in adaptive mode: `aws_standard` around an `AdaptiveRate` of its own.

    When the service throttles, all attempts through this pipeline together slow down to the rate that it
    accepts, and wait instead of being rejected. Options are those of the `Retry`.
    """
    return _aws()


@_preset(Retry, _unchanged)
def grpc() -> dict[str, Any]:
    """As in a gRPC service config, with the values of its proposal: 4 attempts, delays from 0.1 s to 1 s.

    Delays double, and vary by a fifth. Retries stop while at most half of the 10 tokens are left; a success
    adds a tenth of one (`TokenBucket.grpc`). A server's pushback is a hint, and replaces the delay.
    """
    return {
        "attempts": 4,
        "backoff": Backoff.exponential(0.1).maximum(1).jitter(0.2),
        "hints": Hints(mode="instead", spread=0),
        "budget": TokenBucket.grpc(tokens=10, ratio=0.1),
        "give_up_after": None,
    }


@_preset(Retry, _unchanged)
def httpware() -> dict[str, Any]:
    """As httpware does it: 3 attempts, full jitter from 0.1 s to 5 s, a budget credited by requests.

    ``Retry-After`` replaces the delay, and one of more than 5 s ends the call. From its reference.
    """
    return {
        "attempts": 3,
        "backoff": Backoff.exponential(0.1).maximum(5).full_jitter(),
        "hints": Hints(mode="instead", longest=5, spread=0),
        "budget": RetryBudget(ratio=0.2, per_second=10, window=10, credit="request"),
        "give_up_after": None,
    }


def _unsent(error: Exception, /) -> Verdict | None:
    """Retry what `transient` retries, if the request is known not to have reached the server; else stop."""
    verdict = transient(error)
    if verdict is None or verdict.sent is False:
        return verdict
    return changed(verdict, action="stop", after=None)


class Requeue(Retry):
    """A `Retry` that lets each call make a fifth of the retries that its budget has left, rounded up."""

    limits_each_call = True

    def attempts_of_call(self, now: float) -> float:
        # Finagle's budget that never refuses has this balance too.
        budget = shared_budget(self.budget)
        balance = budget.balance(now) if isinstance(budget, RetryBudget) else 100
        return min(super().attempts_of_call(now), 1 + ceil(balance / 5))

    def describe(self) -> str:
        return f"{super().describe()}, a fifth of what is left for each call"


@_preset(Requeue, _unchanged)
def finagle() -> dict[str, Any]:
    """As Finagle requeues: at once, and only requests that are known not to have been sent.

    These are refused connections, connect timeouts and rejections, for example. After a reset the server may
    have processed the request, so it is not sent again. Each call may make a fifth of the retries that the
    budget has left when the call first fails: 20 if it is full. The budget is credited by requests: a fifth
    of them, and 10 a second, over 10 s. There is no delay and no jitter, which suits a client that picks
    another host each time; any other should pass ``backoff=``.
    """
    return {
        "on": _unsent,
        "attempts": None,
        "backoff": Backoff.constant(0),
        "budget": RetryBudget(ratio=0.2, per_second=10, window=10, credit="request"),
    }


@_preset(Retry, _unchanged)
def database() -> dict[str, Any]:
    """For transactions: deadlocks and lost connections end soon, and a user does not wait long for a page.

    4 attempts, full jitter from 0.05 s (as AWS does after a transient error) to 1 s, 10 s in all, a budget.
    Retry the whole transaction, and not a statement in it. Let the pool check its connections, so that those
    which a restart has killed do not use up the attempts, and switch off the retries of the client itself.
    """
    return {
        "attempts": 4,
        "backoff": Backoff.exponential(0.05).maximum(1).full_jitter(),
        "budget": RetryBudget(ratio=0.2, per_second=10, window=10),
        "give_up_after": 10,
    }


@_preset(Retry, _unchanged)
def polling() -> dict[str, Any]:
    """For polling until a condition holds: pass ``until=``, a rule for results.

    From 1 s to 30 s between two polls, half of it at random, for 5 minutes; any number of attempts.
    """
    return {
        "attempts": None,
        "backoff": Backoff.exponential(1).maximum(30).equal_jitter(),
        "give_up_after": 300,
    }


@_preset(Retry, _unchanged)
def llm() -> dict[str, Any]:
    """For calls of language models: 4 attempts, full jitter from 0.2 s to 2 s, 30 s in all.

    After that, an async attempt is cancelled, and one on a worker is ended.

    The numbers are those of llm-fiber's decision record on retries. The budget limits the cost of retries
    while a provider fails.
    """
    return {
        "attempts": 4,
        "backoff": Backoff.exponential(0.2).maximum(2).full_jitter(),
        "timeout": 30,
        "budget": RetryBudget(ratio=0.2, per_second=10, window=10),
    }
