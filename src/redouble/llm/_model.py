"""Model: everything that calls of one language model have in common, as a layer.

Retrying is done by a `Retry`, whose options are derived in `_settings`; streams are guarded in `_guard`.

What a `Model` makes of its options: checks that teach, and the `Retry` that its calls go by.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Iterable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import Any, ParamSpec, TypeVar, cast, overload

from redouble import presets
from redouble._clients.idempotency import Keys, as_idempotency
from redouble._drivers.stream_function import StreamFunction
from redouble._engine.options import refuse_until
from redouble._engine.worker import Worker
from redouble._failures.transient import transient
from redouble._failures.verdict import as_rules
from redouble._internal.callables import callable_kind, display_name, lazy_kind, reject_uncallable
from redouble._internal.public import public
from redouble._internal.validation import Duration, instance, takes_other_than
from redouble._layers.analysis import Traits, WorstCase
from redouble._layers.layer import Layer
from redouble._layers.retry.retry import Openable, Retry
from redouble.llm._call import (
    CallFactory,
    CallScope,
    aattempting,
    attempting,
    is_async,
    opening,
    refuse_own_retries,
    refuse_stream,
    whole,
)
from redouble.llm._context import Call, RetryIf
from redouble.llm._protocols.base import Protocol
from redouble.llm._protocols.detection import protocol_of
from redouble.llm._rules import ModelRule, table
from redouble.llm._spend.account import Reserve, check_token_amount, total_tokens
from redouble.llm._spend.spend import Spend
from redouble.llm._spend.usage import Price, Usage
from redouble.llm._stream import Answer
from redouble.llm._stream_state import StreamState
from redouble.llm._timeouts import Timeouts, as_timeouts, limit_of

__all__ = [
    "UNSAID",
    "Model",
    "check_name",
    "check_retry_if",
    "check_spend",
    "check_thread",
    "check_usage",
    "derived",
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
            raise TypeError(f"Model retry_if={display_name(retry_if)} takes {took}: write {wanted}")


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
        check_token_amount(reserve, "Model reserve")
    if spend is None:
        return
    instance(spend, "Model spend", Spend, "Spend(tokens=100_000, per=60)")
    limits = cast("Spend", spend)
    if limits.cost is not None and price is None:
        raise TypeError("Model spend limits the cost: write price=Price(input=2.5, output=10) too")
    if reserve is None and (limits.tokens is not None or limits.cost is not None):
        raise TypeError("Model spend limits tokens: write reserve=4000 too, the most that a call takes")
    if (
        limits.tokens is not None
        and isinstance(reserve, int | Usage)
        and total_tokens(reserve) > limits.tokens
    ):
        raise ValueError(
            f"Model reserve={reserve!r} is more than {limits!r} ever allows: "
            "write the most that one call takes, or a larger allowance"
        )


def _function(fn: object, option: str, wanted: str) -> None:
    if not callable(fn):
        raise TypeError(f"{option}={fn!r}: write {wanted}")
    if (what := lazy_kind(fn)) is not None:
        raise TypeError(f"{option}={display_name(fn)} is {what}: write a plain one, also in async code")


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
        on=ModelRule(provider, model, stream, rules, retry_if),
        timeout=None if whole == inf else whole,
        attempt_timeout=None if opening == inf else opening,
        # The default is for calls that have no other limit.
        give_up_after=None if whole < inf and policy.give_up_after == USUAL else policy.give_up_after,
        nested="stop" if policy.nested == "warn" else policy.nested,
        labels={**policy.labels, "provider": provider, "model": model},
    )


P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")


@public("redouble.llm")
@dataclass(frozen=True)
class Model(Layer):
    """One language model: how long its calls may take, when they are made again, what they may spend.

    >>> from redouble import llm
    >>> model = llm.Model("openai", "gpt-5", timeouts=llm.Timeouts(total=120))

    Call the SDK through it, ``model.call(client.chat.completions.create, ...)``; a stream by
    ``model.stream(client.chat.completions.create, ..., stream=True)``; or decorate a function of yours:
    plain, async, a generator or an async generator. It is a layer, for pipelines too.

    provider: whose model it is: a label of all events, metrics and reports.
    model: its name: another label.
    timeouts: a `Timeouts`, or seconds for the whole call, whatever ``timeout`` the policy has.
    policy: a `Retry`; `presets.llm()` unless given: 4 attempts, full jitter from 0.2 s to 2 s, a budget.
    retry_if: ``(error, attempt, context) -> bool | None`` overrides what is retried; None has no opinion.
    spend: an allowance that calls share; then ``reserve`` is the most tokens that one takes, as a number, as
        a `Usage`, or as a function of the call's arguments.
    price: what tokens cost, where a `Spend` limits the cost.
    usage: a function of an answer that tells its `Usage`, where that is not found as the SDKs have it;
        a stream is asked by its protocol.
    protocol: how a stream says that it is complete or went wrong: "auto", "openai", "anthropic", "sse", a
        `Protocol` of yours, or None, if nothing of the sort is to be looked for.
    idempotency: "auto" gives each call a key, the same in all of its attempts.
    worker: where blocking code runs, so that it can be limited; None for the thread of the caller, where only
        clients of ours keep the limits.
    """

    provider: str
    model: str
    timeouts: Timeouts | Duration | None = UNSAID
    policy: Retry | None = None
    retry_if: RetryIf | None = None
    spend: Spend | None = None
    reserve: Reserve | None = None
    price: Price | None = None
    usage: Callable[[Any], Usage | None] | None = None
    protocol: str | Callable[[], Protocol] | None = "auto"
    idempotency: Keys = None
    worker: Worker | None = field(default_factory=partial(Worker, grace=0, overlap=True))

    _calls: Retry = field(init=False, repr=False, compare=False)
    _streams: Retry = field(init=False, repr=False, compare=False)
    _asking: CallFactory = field(init=False, repr=False, compare=False)
    _reader: Callable[[], Protocol] | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_name(self.provider, "provider")
        check_name(self.model, "model")
        check_retry_if(self.retry_if)
        check_spend(self.spend, self.reserve, self.price)
        check_usage(self.usage)
        check_thread(self.worker, "Model worker")
        policy = presets.llm() if self.policy is None else self.policy
        instance(policy, "Model policy", Retry, "a redouble.Retry, or None")
        check_thread(policy.worker, "Model policy worker")
        timeouts = limits(self.timeouts, policy)
        spend = None if self.spend is None else (self.spend, self.reserve, self.price)
        run = partial(derived, policy, timeouts, self.provider, self.model, self.retry_if)
        calls, streams = run(stream=False), run(stream=True)
        asking = CallFactory(
            partial(Call, self.provider, self.model, timeouts),
            as_idempotency(self.idempotency),
            calls.labels,
            spend,
            self.usage,
        )
        for name, value in {
            "timeouts": timeouts,
            "policy": policy,
            "_calls": calls if calls.worker is not None else replace(calls, worker=self.worker),
            "_streams": streams if streams.worker is not None else replace(streams, worker=self.worker),
            "_asking": asking,
            "_reader": protocol_of(self.protocol),
        }.items():
            object.__setattr__(self, name, value)

    @property
    def _kept_by_wrapper(self) -> bool:
        return True

    def describe(self) -> str:
        return f"{self.provider}/{self.model}: {self._calls.describe()}"

    def worst_case(self, inner: WorstCase, /) -> WorstCase:
        return self._calls.worst_case(inner)

    def traits(self) -> Traits:
        traits = self._calls.traits()
        return traits if self.spend is None else traits._replace(shared=(*traits.shared, self.spend))

    def lint(self, outer: tuple[Layer, ...], inner: tuple[Layer, ...], worst: WorstCase, /) -> Iterable[str]:
        return self._calls.lint(outer, inner, worst)

    def within(self, timeouts: Timeouts | Duration | None, /) -> Model:
        """Return the same with other time limits, for one call: a `Timeouts`, or seconds for all of it."""
        return replace(self, timeouts=timeouts)

    # ----------------------------------------------------------------------------- calls

    def around(self, fn: Callable[P, T], /) -> Callable[P, T]:
        """Return ``fn`` called as the calls of this model are."""
        policy, asking, name = self._calls, self._asking, self._named(fn)
        attempted = attempting(fn)

        def called(*args: P.args, **kwargs: P.kwargs) -> T:
            refuse_stream(fn, kwargs)
            with CallScope(asking.begin(name, args, kwargs, stream=False)):
                return whole(fn, policy.call(attempted, *args, **kwargs))

        return called

    def around_async(self, fn: Callable[P, Awaitable[T]], /) -> Callable[P, Coroutine[Any, Any, T]]:
        """Return ``fn`` called as the calls of this model are."""
        policy, asking, name = self._calls, self._asking, self._named(fn)
        attempted = aattempting(fn)

        async def called(*args: P.args, **kwargs: P.kwargs) -> T:
            refuse_stream(fn, kwargs)
            with CallScope(asking.begin(name, args, kwargs, stream=False)):
                return whole(fn, await policy.call(attempted, *args, **kwargs))

        return called

    def _around(self, fn: Any) -> Any:
        # What the SDKs call async are plain functions that return something to await.
        return self.around_async(fn) if callable_kind(fn) == "plain" and is_async(fn) else super()._around(fn)

    def _named(self, fn: Callable[..., Any]) -> str:
        refuse_own_retries(fn)
        return self._calls.name or display_name(fn)

    # --------------------------------------------------------------------------- streams

    @overload
    def stream(self, open: Callable[P, Openable[T]], /, *args: P.args, **kwargs: P.kwargs) -> Answer[T]: ...
    @overload
    def stream(
        self,
        open: Callable[P, AbstractContextManager[Any] | AbstractAsyncContextManager[Any]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Answer[Any]: ...
    def stream(self, open: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Answer[Any]:  # noqa: A002
        """Iterate over what ``open(...)`` opens, guarded, for ``for`` or ``async for``.

        It is opened again until there is a first chunk, and never after it. It may open an iterable, a
        context manager that gives one, or an answer of httpx or httpx2, of which it is the bytes then.
        """
        if not callable(open):
            reject_uncallable(open, "stream")
        refuse_until(self._streams, f"{display_name(open)} gives none")
        name, asking = self._named(open), self._asking
        flow = StreamState(lambda: asking.begin(name, args, kwargs, stream=True), self._reader)
        flow.worker = self._streams.worker
        return Answer(flow, self._streams, name, partial(opening(open), *args, **kwargs))

    def around_stream(self, fn: Callable[P, Generator[T, S, Any]], /) -> Callable[P, Generator[T, S, Any]]:
        """Return ``fn`` guarded, for a generator function."""

        def streaming(*args: P.args, **kwargs: P.kwargs) -> Generator[T, Any, None]:
            with self.stream(fn, *args, **kwargs) as chunks:
                yield from chunks

        return streaming

    def around_async_stream(
        self, fn: Callable[P, AsyncGenerator[T, S]], /
    ) -> Callable[P, AsyncGenerator[T, S]]:
        """Return ``fn`` guarded, for an async generator function."""

        def streaming(*args: P.args, **kwargs: P.kwargs) -> AsyncGenerator[T, S]:
            return cast("AsyncGenerator[T, S]", aiter(self.stream(fn, *args, **kwargs)))

        return StreamFunction(fn, streaming)
