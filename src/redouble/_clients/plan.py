"""The plan of one policy for one client: a function that sends, and the facts that the client needs.

The policy may be any layer or pipeline. The plan derives from it the time limit of a call and whether there
is a retry budget for each host. A client that ends its own wait knows whether the request was sent, and keeps
its connections intact; therefore all time limits become deadlines, at which the client ends its wait.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import fields, replace
from functools import partial
from math import inf
from typing import Any, TypeAlias, TypeVar

from redouble._clients.client_call import ClientCall, TimeLimit, TimeoutOfCall
from redouble._clients.held_gate import request_gate
from redouble._clients.policy_binding import is_named
from redouble._drivers.attempt_timeout import run_limited
from redouble._drivers.calls import adrive, adrive_after_failure, begin_run, drive, drive_after_failure
from redouble._engine.budgets.retry_budget import MAX_HOSTS, is_by_host
from redouble._engine.report import STAMP
from redouble._engine.run import Run
from redouble._failures.verdict import On
from redouble._internal.bounded_cache import BoundedCache
from redouble._internal.callables import display_name
from redouble._layers.analysis import used_by_client
from redouble._layers.layer import Layer, Pipeline
from redouble._layers.results.fallback import Fallback
from redouble._layers.retry.retry import Retry
from redouble._layers.timeout.timeout import Timeout
from redouble._runtime.clock import SYSTEM, call_reader
from redouble._runtime.deadline import deadline

Send: TypeAlias = Callable[[Any], Any]

RETRY_OPTIONS = frozenset(field.name for field in fields(Retry))


class Plan:
    """One policy compiled for one client."""

    def __init__(self, layers: tuple[Layer, ...], name: str, send: Send, *, aio: bool) -> None:
        retries = [layer for layer in layers if isinstance(layer, Retry)]
        self.layers = layers
        # Limits outside the outermost Retry hold for the whole call; inner ones restart with each attempt.
        self._around = around = layers[: layers.index(retries[0])] if retries else layers
        # The shortest `Timeout` of these, which holds from the start of the call.
        self.outer_limit = min(
            (layer.traits().time_limit for layer in around if isinstance(layer, Timeout)), default=inf
        )
        self.total = min(retries[0]._total if retries else inf, self.outer_limit)
        self.labels: Mapping[str, str] = retries[0].labels if retries else {}
        self.name = (retries[0].name if retries else "") or name
        self.reads_bodies = any(map(self._reads_body, map(until_of, layers)))
        self.outermost = retries[0] if retries else None
        self._name, self._send, self._aio = name, send, aio
        self._by_host = any(is_by_host(layer.budget) for layer in retries)
        self._calls = BoundedCache[Send](MAX_HOSTS)
        # True if a first attempt may be made without the policy: nothing in it acts before an attempt ends.
        self.fast_path = len(layers) == 1 and _is_transparent(layers[0])
        self.budget: Any = retries[0].budget if self.fast_path else None
        self._call = self._wrap_send(None)  # here, so that an impossible policy raises at construction

    def call_for(self, host: Hashable) -> Send:
        """Return the function that sends a request to this host under the policy."""
        if not self._by_host:
            return self._call
        return self._calls.get(host) or self._calls.get_or_create(host, lambda: self._wrap_send(host))

    def _wrap_send(self, host: Hashable | None) -> Send:
        layers = [self._client_layer(layer, host) for layer in self.layers]
        return Pipeline(*layers)(self._send) if layers else self._send

    def _reads_body(self, until: object) -> bool:
        """Return True if a rule for results needs the body of a response."""
        return until is not None

    def _rules_of(self, layer: Retry) -> On:
        """Return the option ``on`` of a `Retry` in this client."""
        return layer.on

    def _client_layer(self, layer: Layer, host: Hashable | None) -> Layer:
        if isinstance(layer, Timeout) and layer.worker is None:
            return DeadlineLayer(layer, self.name, whole=any(layer is each for each in self._around))
        if isinstance(layer, Fallback):
            return layer.of_request()
        if not isinstance(layer, Retry):
            return request_gate(layer)
        retry = replace(layer, name=layer.name or self._name, on=self._rules_of(layer))
        if host is not None and is_by_host(layer.budget):
            retry = replace(retry, budget=layer.budget.of(host))
        return GuardedRetry(retry, outermost=layer is self.outermost)


def until_of(layer: Layer) -> object:
    """Return the option ``until`` of a layer, or None if it has no such option."""
    return getattr(getattr(layer, "settings", layer), "until", None)


def _is_transparent(layer: Layer) -> bool:
    """Return True if a call that succeeds at once needs nothing from the layer but a credit to its budget."""
    if not isinstance(layer, Retry) or layer.worker is not None or layer.clock is not SYSTEM:
        return False
    return layer._afirst in ("plain", "credited")


class GuardedRetry(Layer):
    """A `Retry` of a client's policy: the call guards its runs, and an attempt gets its limits as a deadline.

    The outermost one continues a call of which an attempt has failed outside of the policy.
    """

    def __init__(self, policy: Retry, *, outermost: bool) -> None:
        self._policy, self._outermost = policy, outermost

    def around(self, fn: Callable[..., Any], /) -> Callable[..., Any]:
        """Return ``fn`` retried, for a plain function."""

        def retrying(client_call: ClientCall) -> Any:
            run, failure = self._begin(client_call, aio=False)
            limited = within_limits(run, fn)
            try:
                if failure is not None:
                    return drive_after_failure(run, failure, limited, (client_call,), {})
                return drive(run, None, limited, (client_call,), {})
            finally:
                run.guard = failure = None  # break the cycles with the call, and with this frame

        return retrying

    def around_async(self, fn: Callable[..., Any], /) -> Callable[..., Any]:
        """Return ``fn`` retried, for a coroutine function."""

        async def retrying(client_call: ClientCall) -> Any:
            run, failure = self._begin(client_call, aio=True)
            limited = awithin_limits(run, fn)
            try:
                if failure is not None:
                    return await adrive_after_failure(run, failure, limited, (client_call,), {})
                return await adrive(run, None, limited, (client_call,), {})
            finally:
                run.guard = failure = None  # break the cycles with the call, and with this frame

        return retrying

    def _begin(self, client_call: ClientCall, *, aio: bool) -> tuple[Run, Exception | None]:
        """Return the run of a call, and the failure of its running attempt if there was one already."""
        policy, name = self._policy, self._policy.name or ""
        failure, run, previous = None, None, None
        if self._outermost:
            failure, client_call.failure = client_call.failure, None
            run = client_call.run
            previous, client_call.previous = client_call.previous, None
        if failure is not None and run is not None:
            run.reopen()
        elif previous is not None and previous.run is not None and previous.plan is client_call.plan:
            run = previous.run
            if (response := previous.response()) is not None:  # pragma: no branch  it may have been dropped
                vars(response)[STAMP] = run.report()  # of its own request
            run.repeat()
        else:
            started = None
            if failure is not None or previous is not None:
                elapsed = client_call.elapsed()  # first: the run must not begin before the call
                started = call_reader(policy._time, aio=aio)() - elapsed
            run = begin_run(Run, policy, name, aio=aio, attempt=int(failure is not None), started=started)
            if self._outermost:
                client_call.begin_limits(run)
            if failure is not None:
                run.time_left(own=False)
        run.guard, run.tracked = client_call, True
        if self._outermost:
            client_call.run = run
        if self._outermost and failure is not None:
            client_call.innermost_timeout = None
        if failure is not None and client_call.is_cut_by(run):
            failure = client_call.cut_error(run.expired())
        return run, failure


class DeadlineLayer(Layer):
    """A `Timeout` of a client's policy: the client inside ends its waits at the deadline.

    whole: True if it is around the outermost `Retry`, so that it limits the call with all of its attempts.
    """

    def __init__(self, timeout: Timeout, name: str, *, whole: bool) -> None:
        timeout.check_request()
        self._timeout, self._name, self._whole = timeout, name, whole

    def around(self, fn: Callable[..., Any], /) -> Callable[..., Any]:
        """Return ``fn`` with a deadline, for a plain function."""

        def limited(client_call: ClientCall) -> Any:
            timeout = self._begin(client_call)
            with self._timeout.timed(client_call.now):
                if self._whole:
                    return attempt_within(timeout, fn, client_call)
                with client_call.limited_attempt(timeout):
                    return call_within(timeout.time_left, fn, client_call)

        return limited

    def around_async(self, fn: Callable[..., Any], /) -> Callable[..., Any]:
        """Return ``fn`` with a deadline, for a coroutine function."""

        async def limited(client_call: ClientCall) -> Any:
            timeout = self._begin(client_call)
            with self._timeout.timed(client_call.now):
                if self._whole:
                    return await aattempt_within(timeout, fn, client_call)
                with client_call.limited_attempt(timeout):
                    return await acall_within(timeout.time_left, fn, client_call)

        return limited

    def _begin(self, client_call: ClientCall) -> TimeoutOfCall:
        """Return the limit of a call; the argument of its function is the request."""
        seconds = self._timeout.limit_of(client_call.request)
        return TimeoutOfCall(seconds, self._name, client_call, whole=self._whole)


def within_limits(run: Run, fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that makes an attempt within the limits of its run: on its worker if it has one."""
    return partial(attempt_within, run, fn) if run.policy.worker is None else run_limited(run, fn)


def awithin_limits(run: Run, fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return the coroutine function that makes an attempt within the limits of its run."""
    return partial(aattempt_within, run, fn)


def attempt_within(limit: TimeLimit, fn: Callable[..., Any], client_call: ClientCall) -> Any:
    """Make an attempt within a time limit; if the limit ends it, raise the error of the limit."""
    try:
        return call_within(limit.time_left, fn, client_call)
    except Exception:
        if client_call.is_cut_by(limit):
            raise client_call.cut_error(limit.expired()) from client_call.cut
        raise


async def aattempt_within(limit: TimeLimit, fn: Callable[..., Any], client_call: ClientCall) -> Any:
    """Make an attempt within a time limit; if the limit ends it, raise the error of the limit."""
    try:
        return await acall_within(limit.time_left, fn, client_call)
    except Exception:
        if client_call.is_cut_by(limit):
            raise client_call.cut_error(limit.expired()) from client_call.cut
        raise


def call_within(limit: Callable[[], float], fn: Callable[..., Any], client_call: ClientCall) -> Any:
    """Call a function with a deadline; ``limit`` returns the seconds."""
    seconds = limit()
    if seconds == inf:
        return fn(client_call)
    with deadline(seconds):
        return fn(client_call)


async def acall_within(limit: Callable[[], float], fn: Callable[..., Any], client_call: ClientCall) -> Any:
    """Call a function with a deadline; ``limit`` returns the seconds."""
    seconds = limit()
    if seconds == inf:
        return await fn(client_call)
    with deadline(seconds):
        return await fn(client_call)


P = TypeVar("P", bound=Plan)


def make_plan(policy: object, plan: type[P], name: str, send: Send, *, aio: bool) -> P:
    """Return the plan of the option ``policy``, or raise a TypeError that names the fix."""
    if isinstance(policy, type) or not isinstance(policy, Layer):
        fix = (
            f"write {display_name(policy)}()" if callable(policy) else "write a redouble.Retry or a pipeline"
        )
        raise TypeError(f"policy={policy!r} is no layer: {fix}, or None for the default")
    if isinstance(policy, Pipeline) and any(map(is_named, policy.layers)):
        raise TypeError(
            f"policy={policy!r}: a client follows one name, so name the whole pipeline in the configuration"
        )
    if any(layer.traits().concurrent for layer in layers_of(policy)):
        raise TypeError(
            f"policy={policy!r} has a Hedge, and the attempts of a client share one request: hedge the call "
            "instead, as in Hedge(0.1)(client.get)"
        )
    if shared := next((layer for layer in layers_of(policy) if layer.traits().shares_results), None):
        raise TypeError(
            f"policy={policy!r} has {shared!r}, and only one caller can read the body of a response: put it "
            "around a function that reads the response, and not into the policy of a client"
        )
    made = plan(layers_of(policy), name, send, aio=aio)
    used_by_client(policy)
    return made


def layers_of(policy: Layer) -> tuple[Layer, ...]:
    """Return the layers of a policy, outermost first."""
    return policy.layers if isinstance(policy, Pipeline) else (policy,)
