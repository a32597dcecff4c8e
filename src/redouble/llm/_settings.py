"""What a `Model` makes of its options: checks that teach, and the `Retry` that its calls go by."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import cast

from redouble._engine.worker import Worker
from redouble._failures.transient import transient
from redouble._failures.verdict import as_rules
from redouble._internal.callables import spelled, would_not_run
from redouble._internal.validation import Duration, instance, takes_other_than
from redouble._layers.retry.retry import Retry
from redouble.llm._account import amount, total
from redouble.llm._context import RetryIf
from redouble.llm._spend import Spend
from redouble.llm._table import Word, table
from redouble.llm._timeouts import Timeouts, as_timeouts, limit_of
from redouble.llm._usage import Price, Usage

# fmt: off
__all__ = [
    "UNSAID", "check_name", "check_retry_if", "check_spend", "check_thread", "check_usage", "derived",
    "limits",
]
# fmt: on

USUAL = Retry().give_up_after
UNSAID = Timeouts()  # that nothing was said of them


def check_name(name: object, option: str) -> None:
    """Accept a name."""
    if not isinstance(name, str) or not name:
        raise TypeError(f"Model {option}={name!r}: write its name, such as 'openai' and 'gpt-5'")


def check_retry_if(retry_if: object) -> None:
    """Accept a function, or nothing."""
    if retry_if is not None:
        wanted = "a function (error, attempt, context)"
        _function(retry_if, "Model retry_if", wanted)
        if isinstance(retry_if, type):
            raise TypeError(f"Model retry_if={retry_if.__name__} is a class: write {wanted}")
        if (took := takes_other_than(cast("RetryIf", retry_if), 3)) is not None:
            raise TypeError(f"Model retry_if={spelled(retry_if)} takes {took}: write {wanted}")


def check_usage(usage: object) -> None:
    """Accept a function, or nothing."""
    if usage is not None:
        _function(usage, "Model usage", "a function of a result that returns a Usage")


def check_thread(worker: object, option: str) -> None:
    """Accept a worker that is a thread, or none."""
    if worker is None:
        return
    instance(worker, option, Worker, "Worker(), or None")
    if cast("Worker", worker).kind != "thread":
        raise ValueError(f"{option}: a connection cannot leave its process, so write Worker()")


def check_spend(spend: object, reserve: object, price: object) -> None:
    """Accept an allowance with all that it takes to go by it."""
    if price is not None:
        instance(price, "Model price", Price, "Price(input=2.5, output=10)")
    if callable(reserve):
        _function(reserve, "Model reserve", "a function of the call's arguments that returns a number")
    elif reserve is not None:
        amount(reserve, "Model reserve")
    if spend is None:
        return
    instance(spend, "Model spend", Spend, "Spend(tokens=100_000, per=60)")
    limits = cast("Spend", spend)
    if limits.cost is not None and price is None:
        raise TypeError("Model spend limits the cost: write price=Price(input=2.5, output=10) too")
    if reserve is None and (limits.tokens is not None or limits.cost is not None):
        raise TypeError("Model spend limits tokens: write reserve=4000 too, the most that a call takes")
    if limits.tokens is not None and isinstance(reserve, int | Usage) and total(reserve) > limits.tokens:
        raise ValueError(
            f"Model reserve={reserve!r} is more than {limits!r} ever allows: "
            "write the most that one call takes, or a larger allowance"
        )


def _function(fn: object, option: str, wanted: str) -> None:
    if not callable(fn):
        raise TypeError(f"{option}={fn!r}: write {wanted}")
    if (what := would_not_run(fn)) is not None:
        raise TypeError(f"{option}={spelled(fn)} is {what}: write a plain one, also in async code")


def limits(said: Timeouts | Duration | None, policy: Retry) -> Timeouts:
    """Return the time limits of a model: who says nothing about them has those of the policy."""
    if said is UNSAID and policy.timeout is not None:
        return replace(UNSAID, total=policy.timeout)
    return as_timeouts(said, "Model timeouts")


def derived(
    policy: Retry,
    timeouts: Timeouts,
    provider: str,
    model: str,
    retry_if: RetryIf | None,
    *,
    stream: bool,
) -> Retry:
    """Return the policy of a model's calls, or of its streams, up to their first chunk."""
    rules = as_rules(table) if policy.on is transient else policy._rules
    whole = limit_of(timeouts.total)
    opening = min(timeouts.opening, policy._attempt_limit) if stream else policy._attempt_limit
    return replace(
        policy,
        on=Word(provider, model, stream, rules, retry_if),
        timeout=None if whole == inf else whole,
        attempt_timeout=None if opening == inf else opening,
        # The default is for calls that have no other limit.
        give_up_after=None if whole < inf and policy.give_up_after == USUAL else policy.give_up_after,
        nested="stop" if policy.nested == "warn" else policy.nested,
        labels={**policy.labels, "provider": provider, "model": model},
    )
