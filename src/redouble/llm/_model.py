"""Model: the layer for calls of one language model.

A `Model` validates its options and derives two `Retry` policies from them, one for calls and one for opening
streams.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Iterable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import Any, ParamSpec, TypeVar, cast, overload

from redouble import presets
from redouble._clients.idempotency_key import Idempotency, Keys, as_idempotency
from redouble._drivers.attempt_timeout import arun_limited, run_limited
from redouble._drivers.calls import adrive, drive
from redouble._drivers.stream_function import StreamFunction
from redouble._engine.options import refuse_unlimited, refuse_until
from redouble._engine.report import STAMP, Report
from redouble._engine.worker import Worker
from redouble._failures.transient import transient
from redouble._failures.verdict import as_rules
from redouble._internal.callables import (
    callable_kind,
    display_name,
    lazy_kind,
    reject_awaitable,
    reject_uncallable,
)
from redouble._internal.public import public
from redouble._internal.validation import Duration, instance, signature_mismatch
from redouble._layers.analysis import Traits, WorstCase
from redouble._layers.layer import Layer
from redouble._layers.retry.retry import Openable, Retry
from redouble.errors import Reason
from redouble.llm._answer import Answer, StreamOpener
from redouble.llm._call import Call, RetryIf, in_context
from redouble.llm._errors import SpendRefused
from redouble.llm._protocols.base import Protocol, ProtocolFactory
from redouble.llm._protocols.builtin import protocol_factory
from redouble.llm._protocols.fields import usage_of
from redouble.llm._rules import ModelRule, table
from redouble.llm._sdks import ModelFunction
from redouble.llm._spend.account import Account, Reserve
from redouble.llm._spend.meter import Meter, check_token_amount
from redouble.llm._spend.spend import Spend
from redouble.llm._spend.usage import Price, Usage
from redouble.llm._timeouts import Timeouts, as_timeouts

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")

DEFAULT_GIVE_UP_AFTER = Retry().give_up_after
DEFAULT_TIMEOUTS = Timeouts()  # recognised by identity: the caller gave none


@public("redouble.llm")
@dataclass(frozen=True)
class Model(Layer):
    """One language model: the time limits, the retries and the spend of its calls.

    >>> from redouble import llm
    >>> model = llm.Model("openai", "gpt-5", timeouts=llm.Timeouts(total=120))

    Call the SDK through it, ``model.call(client.chat.completions.create, ...)``; a stream by
    ``model.stream(client.chat.completions.create, ..., stream=True)``; or decorate a function of yours:
    plain, async, a generator or an async generator. It is a layer, for pipelines too.

    provider: the provider's name: a label of all events, metrics and reports.
    model: the model's name: another label.
    timeouts: a `Timeouts`, or seconds for the whole call; replaces the ``timeout`` of the policy.
    policy: a `Retry`; `presets.llm()` unless given: 4 attempts, full jitter from 0.2 s to 2 s, a budget.
    retry_if: ``(error, attempt, context) -> bool | None`` overrides what is retried; None is no opinion.
    spend: a `Spend` that calls share; then ``reserve`` is the most tokens that one call takes, as a number,
        as a `Usage`, or as a function of the call's arguments.
    price: the price of tokens, needed where a `Spend` limits the cost.
    usage: a function that returns the `Usage` of an answer, for answers unlike those of the SDKs; the usage
        of a stream is read by its protocol.
    protocol: how a stream reports its end and its errors: "auto", "openai", "anthropic", "sse", a class
        derived from `Protocol`, or None to inspect nothing.
    idempotency: "auto" gives each call a key, the same in all of its attempts.
    worker: the thread that runs blocking code, so that it can be limited; None for the caller's own thread,
        where only the clients of redouble enforce the limits.
    """

    _kept_by_wrapper = True

    provider: str
    model: str
    timeouts: Timeouts | Duration | None = DEFAULT_TIMEOUTS
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
    _keys: Idempotency = field(init=False, repr=False, compare=False)
    _protocol_factory: ProtocolFactory | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for option in ("provider", "model"):
            label: object = getattr(self, option)
            if not isinstance(label, str) or not label:
                raise TypeError(f"Model {option}={label!r}: write its name, such as 'openai' and 'gpt-5'")
        check_retry_if(self.retry_if)
        check_spend(self.spend, self.reserve, self.price)
        if self.usage is not None:
            check_function(self.usage, "Model usage", "a function of a result that returns a Usage")
        policy = presets.llm() if self.policy is None else self.policy
        instance(policy, "Model policy", Retry, "a redouble.Retry, or None")
        check_worker(self.worker, "Model worker")
        check_worker(policy.worker, "Model policy worker")
        timeouts = as_timeouts(self.timeouts, "Model timeouts")
        if self.timeouts is DEFAULT_TIMEOUTS and policy.timeout is not None:
            timeouts = replace(timeouts, total=policy.timeout)
        vars(self).update(
            timeouts=timeouts,
            policy=policy,
            _calls=self._derive(policy, timeouts, stream=False),
            _streams=self._derive(policy, timeouts, stream=True),
            _keys=as_idempotency(self.idempotency),
            _protocol_factory=protocol_factory(self.protocol),
        )

    def _derive(self, policy: Retry, timeouts: Timeouts, *, stream: bool) -> Retry:
        """Return the policy of the calls, or of the streams until their first chunk."""
        attempt_limit = min(timeouts.opening if stream else inf, policy._attempt_limit)
        rules = as_rules(table) if policy.on is transient else policy._rules
        limited_otherwise = timeouts.total is not None and policy.give_up_after is DEFAULT_GIVE_UP_AFTER
        return replace(
            policy,
            on=ModelRule(self.provider, self.model, stream, rules, self.retry_if),
            timeout=timeouts.total,
            attempt_timeout=None if attempt_limit == inf else attempt_limit,
            # The default applies only to calls without another limit.
            give_up_after=None if limited_otherwise else policy.give_up_after,
            nested="stop" if policy.nested == "warn" else policy.nested,
            labels={**policy.labels, "provider": self.provider, "model": self.model},
            worker=self.worker if policy.worker is None else policy.worker,
        )

    def describe(self) -> str:
        return f"{self.provider}/{self.model}: {self._calls.describe()}"

    def worst_case(self, inner: WorstCase, /) -> WorstCase:
        # The timeouts of the SDK end a blocking call too.
        return self._calls.worst_case(WorstCase(*inner))

    def traits(self) -> Traits:
        traits = self._calls.traits()
        return traits if self.spend is None else traits._replace(shared=(*traits.shared, self.spend))

    def lint(self, outer: tuple[Layer, ...], inner: tuple[Layer, ...], worst: WorstCase, /) -> Iterable[str]:
        return self._calls.lint(outer, inner, worst)

    def within(self, timeouts: Timeouts | Duration | None, /) -> Model:
        """Return a copy with other time limits, for one call: a `Timeouts`, or seconds for all of it."""
        return replace(self, timeouts=timeouts)

    # ----------------------------------------------------------------------------- calls

    def around(self, fn: Callable[P, T], /) -> Callable[P, T]:
        """Return ``fn`` wrapped so that each call is a call of this model."""
        policy, function = self._calls, ModelFunction(fn)

        def attempt(*args: P.args, **kwargs: P.kwargs) -> T:
            return function.end_attempt(fn(*args, **function.begin_attempt(kwargs)))

        def called(*args: P.args, **kwargs: P.kwargs) -> T:
            function.refuse_stream(kwargs)
            begun = self._begin(function.name, args, kwargs, stream=False)
            with in_context(begun):
                run = begun.begin_run(policy, policy.name or function.name, aio=False)
                answer = drive(run, None, run_limited(run, attempt), args, kwargs)
                return function.refuse_stream_result(reject_awaitable(fn, answer))

        return called

    def around_async(self, fn: Callable[P, Awaitable[T]], /) -> Callable[P, Coroutine[Any, Any, T]]:
        """Return ``fn`` wrapped so that each call is a call of this model."""
        policy, function = self._calls, ModelFunction(fn)

        async def attempt(*args: P.args, **kwargs: P.kwargs) -> T:
            return function.end_attempt(await fn(*args, **function.begin_attempt(kwargs)))

        async def called(*args: P.args, **kwargs: P.kwargs) -> T:
            function.refuse_stream(kwargs)
            begun = self._begin(function.name, args, kwargs, stream=False)
            with in_context(begun):
                run = begun.begin_run(policy, policy.name or function.name, aio=True)
                answer = await adrive(run, None, arun_limited(run, attempt), args, kwargs)
                return function.refuse_stream_result(answer)

        return called

    def _around(self, fn: Any) -> Any:
        # The async methods of the SDKs are plain functions that return an awaitable.
        if callable_kind(fn) == "plain":
            if ModelFunction(fn).is_async():
                return self.around_async(fn)
            refuse_unlimited(self._calls, fn)
        return super()._around(fn)

    def _begin(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], *, stream: bool) -> Call:
        """Begin a call: issue its key, reserve its spend and start its time."""
        key = self._keys.key() if self._keys.auto else None  # before reserving: it may fail
        account = self._reserve(self._calls.name or name, args, kwargs)
        meter = Meter(self.usage or usage_of, self.price)
        headers = {} if key is None else {self._keys.header: key}
        timeouts = cast("Timeouts", self.timeouts)
        return Call(self.provider, self.model, timeouts, stream, key, headers, meter, account)

    def _reserve(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Account | None:
        if self.spend is None:
            return None
        try:
            most = 0 if self.reserve is None else self.reserve
            if callable(most):
                most = check_token_amount(most(*args, **kwargs), "reserve")
            return Account(self.spend, self.price, most)
        except SpendRefused as error:
            labels = dict(self._calls.labels)
            vars(error)[STAMP] = Report(Reason.stopped, 0, 0.0, 0.0, name=name, labels=labels)
            raise

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
        """Return the chunks of the stream that ``open(...)`` opens, guarded, for ``for`` or ``async for``.

        Opening is retried until the first chunk has arrived, and never after it. ``open`` may return an
        iterable, a context manager that returns one, or a response whose bytes are read: of httpx, of httpx2,
        or the raw one of an SDK.
        """
        if not callable(open):
            reject_uncallable(open, "stream")
        refuse_until(self._streams, f"{display_name(open)} has none")
        function = ModelFunction(open)
        name = self._calls.name or function.name
        begun: list[Call] = []

        def begin() -> Call:
            if begun:  # read twice: by `for` and by `async for`, for instance
                raise RuntimeError("this stream has been read: call model.stream(...) again for another one")
            begun.append(self._begin(name, args, kwargs, stream=True))
            return begun[0]

        def open_source() -> Any:
            return open(*args, **function.begin_attempt(kwargs))

        open_source.__qualname__ = function.name
        make = partial(StreamOpener[Any], self._streams, name, begin, open_source, self._protocol_factory)
        return Answer(make, aio=function.has_async_client)

    def around_stream(self, fn: Callable[P, Generator[T, S, Any]], /) -> Callable[P, Generator[T, S, Any]]:
        """Return a generator function whose streams are guarded."""

        def streaming(*args: P.args, **kwargs: P.kwargs) -> Generator[T, Any, None]:
            with self.stream(fn, *args, **kwargs) as chunks:
                yield from chunks

        return streaming

    def around_async_stream(
        self, fn: Callable[P, AsyncGenerator[T, S]], /
    ) -> Callable[P, AsyncGenerator[T, S]]:
        """Return an async generator function whose streams are guarded."""

        def streaming(*args: P.args, **kwargs: P.kwargs) -> AsyncGenerator[T, S]:
            return cast("AsyncGenerator[T, S]", aiter(self.stream(fn, *args, **kwargs)))

        return StreamFunction(fn, streaming)


# -------------------------------------------------------------------------------- options


def check_function(fn: object, option: str, wanted: str) -> None:
    """Raise unless ``fn`` is a plain function."""
    if not callable(fn):
        raise TypeError(f"{option}={fn!r}: write {wanted}")
    if (kind := lazy_kind(fn)) is not None:
        raise TypeError(f"{option}={display_name(fn)} is {kind}: write a plain one, also in async code")


def check_retry_if(retry_if: object) -> None:
    """Raise unless ``retry_if`` is a plain function of three arguments, or None."""
    if retry_if is not None:
        wanted = "a function (error, attempt, context)"
        check_function(retry_if, "Model retry_if", wanted)
        if isinstance(retry_if, type):
            raise TypeError(f"Model retry_if={retry_if.__name__} is a class: write {wanted}")
        if (took := signature_mismatch(cast("RetryIf", retry_if), 3)) is not None:
            raise TypeError(f"Model retry_if={display_name(retry_if)} takes {took}: write {wanted}")


def check_worker(worker: Worker | None, option: str) -> None:
    """Raise unless ``worker`` is a worker thread, or None."""
    instance(worker, option, Worker | None, "Worker(), or None")
    if worker is not None and worker.kind != "thread":
        raise ValueError(f"{option}: a connection cannot leave its process, so write Worker()")


def check_spend(spend: Spend | None, reserve: Reserve | None, price: Price | None) -> None:
    """Raise unless ``spend`` is valid and has the ``reserve`` and ``price`` that it needs."""
    instance(price, "Model price", Price | None, "Price(input=2.5, output=10)")
    instance(spend, "Model spend", Spend | None, "Spend(tokens=100_000, per=60)")
    if callable(reserve):
        check_function(reserve, "Model reserve", "a function of the call's arguments that returns a number")
    elif reserve is not None:
        check_token_amount(reserve, "Model reserve")
    if spend is None:
        return
    if spend.cost is not None and price is None:
        raise TypeError("Model spend limits the cost: write price=Price(input=2.5, output=10) too")
    if reserve is None and (spend.tokens is not None or spend.cost is not None):
        raise TypeError("Model spend limits tokens: write reserve=4000 too, the most that a call takes")
    most = reserve.total if isinstance(reserve, Usage) else reserve
    if spend.tokens is not None and isinstance(most, int) and most > spend.tokens:
        raise ValueError(
            f"Model reserve={reserve!r} is more than {spend!r} ever allows: "
            "write the most that one call takes, or a larger limit"
        )
