"""What all clients share: how a request becomes an exchange, and the time that blocking ones may wait.

What a caller says about one request, where the client has a place for it.

``None`` or False: no retries. A layer: this instead of the client's policy. A mapping: options of its `Retry`
and some of ours::

    extensions={"redouble": {"attempts": 2, "idempotent": True}}
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple, cast
from weakref import WeakKeyDictionary

from redouble._clients.idempotency import Keys, as_idempotency, is_key
from redouble._clients.plan import RETRY_OPTIONS, Credit, Send, is_named
from redouble._engine.retry_budget import MOST as HOSTS
from redouble._internal.bounded_cache import BoundedCache
from redouble._layers.layer import Layer, Pipeline
from redouble._runtime.clock import SYSTEM, fast_reader
from redouble.errors import AttemptTimeout, DeadlineExceeded
from redouble.http._exchange import Exchange
from redouble.http._plan import HttpPlan, http_plan
from redouble.http._request_body import RESENDABLE, Resendable

__all__ = [
    "EXTENSION",
    "NOW",
    "NO_OPTIONS",
    "PREFETCH_LIMIT",
    "ClientPolicy",
    "ClientState",
    "PolicyBinding",
    "RequestOptions",
    "empty_instance",
    "request_options",
    "timeout_types",
]


CLIENT_OPTIONS = ("idempotency_key", "idempotent", "policy")
NO_RETRIES = Pipeline()


class RequestOptions(NamedTuple):
    """What was said about one request."""

    idempotent: bool | None = None
    key: str | None = None
    policy: Layer | None = None
    options: Mapping[str, Any] = {}

    def plan_for(self, plan: HttpPlan, kept: BoundedCache[HttpPlan]) -> HttpPlan:
        """Return the plan that comes of it; it is kept, for whoever says the same."""
        if self.policy is None and not self.options:
            return plan
        what: Any = (self.policy, *((name, value.__class__, value) for name, value in self.options.items()))
        try:
            found = kept.get(what)
        except TypeError:  # something in it has no hash
            return self._make_plan(plan)
        return found or kept.get_or_create(what, lambda: self._make_plan(plan))

    def _make_plan(self, plan: HttpPlan) -> HttpPlan:
        plan = plan if self.policy is None else plan.for_policy(self.policy)
        return plan.with_options(self.options) if self.options else plan


NO_OPTIONS = RequestOptions()


def request_options(value: object) -> RequestOptions:
    """Read it."""
    if value is None or value is False:
        return RequestOptions(policy=NO_RETRIES)
    if isinstance(value, Layer):
        return RequestOptions(policy=value)
    if not isinstance(value, Mapping):
        raise TypeError(
            f"extensions['redouble']={value!r}: write a policy, None for no retries, or a mapping such as "
            "{'attempts': 2, 'idempotent': True}"
        )
    given = dict(cast("Mapping[str, Any]", value))
    for name in given:
        if name not in CLIENT_OPTIONS and name not in RETRY_OPTIONS:
            raise TypeError(f"extensions['redouble'] has no option {name!r}: write one of {_option_names()}")
    unsaid = "policy" not in given
    idempotent, key, policy = (given.pop(name, None) for name in ("idempotent", "idempotency_key", "policy"))
    if unsaid is False and policy is None:
        policy = NO_RETRIES
    if not isinstance(idempotent, bool | None):
        raise TypeError(f"extensions['redouble'] idempotent={idempotent!r}: write True or False")
    if key is not None and not is_key(key):
        raise TypeError(f"extensions['redouble'] idempotency_key={key!r}: write a text, in ASCII")
    if not isinstance(policy, Layer | None):
        raise TypeError(f"extensions['redouble'] policy={policy!r}: write a Retry, or None for no retries")
    return RequestOptions(idempotent, key, policy, given)


def _option_names() -> str:
    return ", ".join(sorted({*CLIENT_OPTIONS, *RETRY_OPTIONS}))


EXTENSION = "redouble"  # in the extensions of a request: what its caller says about it


def empty_instance(kind: type[Any]) -> Any:
    """Make an answer to be filled, in another process perhaps."""
    return object.__new__(kind)


NOW = fast_reader(SYSTEM, aio=False)  # whatever runs the tasks: what is quick has no clock of its own
PREFETCH_LIMIT = 65_536  # bytes of a failure that are read, so that its connection is free while we wait
REQUEST_ATTRIBUTES = ("_request", "request", "response")
MAX_REQUEST_PLANS = 100  # plans of single requests to keep


class IssuedKey:
    """A key that we have made; ``spent`` once its call is over."""

    def __init__(self, text: str) -> None:
        self.text, self.spent = text, False


class ClientState:
    """What a client keeps, whatever becomes of its policy: keys it has given, and whether it is closed."""

    def __init__(self) -> None:
        self.issued_keys: WeakKeyDictionary[Any, IssuedKey] = WeakKeyDictionary()
        self.closed = False


class ClientPolicy:
    """What one client goes by."""

    def __init__(
        self,
        name: str,
        policy: Layer | None,
        idempotency: Keys,
        send: Send,
        state: ClientState,
        *,
        aio: bool,
    ) -> None:
        self._keys = as_idempotency(idempotency)
        self.plan = http_plan(policy, name, send, aio=aio)
        self.fast_path = self.plan.fast_path and not self._keys.auto
        self.has_budget = self.plan.budget is not None
        self.credits = BoundedCache[Credit](HOSTS)  # by whatever the client knows a host by
        self._state = state
        self._request_plans = BoundedCache[HttpPlan](MAX_REQUEST_PLANS)
        self._now = fast_reader(SYSTEM, aio=aio)

    def begin_exchange(
        self, request: Any, source: Resendable, host: Hashable, options: object = NO_OPTIONS
    ) -> Exchange:
        """Begin an exchange; a request that needs a key is given one."""
        plan, keys, about = self.plan, self._keys, NO_OPTIONS
        if options is not NO_OPTIONS:
            about = request_options(options)
            plan = about.plan_for(plan, self._request_plans)
        if about.key is not None:
            request.headers[keys.header] = about.key
        exchange = Exchange(plan, keys, request, source, host, self._now)
        exchange.client_closed = self.is_closed
        if keys.auto and about.key is None and request.method not in plan.methods:
            exchange.key = self._issue_key(request)
        if about.idempotent is not None:
            exchange.idempotent = about.idempotent
        return exchange

    def _issue_key(self, request: Any) -> IssuedKey | None:
        """Give a request a key, unless its caller has; one that we made is for one call."""
        header, given = self._keys.header, self._state.issued_keys.get(request)
        if header not in request.headers or (given and given.spent and request.headers[header] == given.text):
            given = self._state.issued_keys[request] = IssuedKey(self._keys.key())
            request.headers[header] = given.text
        return given

    def close(self) -> None:
        """Begin nothing from now on."""
        self._state.closed = True

    def is_closed(self) -> bool:
        """Say whether anything may begin."""
        return self._state.closed

    def resume_exchange(self, request: Any, host: Hashable, started: float) -> Exchange:
        """Begin an exchange of which one attempt was made already, at that time by `NOW`."""
        exchange = Exchange(self.plan, self._keys, request, RESENDABLE, host, self._now)
        ago = NOW() - started
        exchange.started -= ago
        exchange.call_deadline -= ago
        exchange.sends, exchange.resend_allowed = 1, False
        exchange.client_closed = self.is_closed
        return exchange

    def credit_for(self, key: Hashable, host: str) -> Credit:
        """Return what is told the time of a success, and remember it by this key."""
        return self.credits.get_or_create(key, lambda: self.plan.credit_for(host))


class PolicyBinding:
    """The terms that a client goes by: of its policy, or of the one that now has the name it was given."""

    def __init__(self, name: str, policy: Layer | None, idempotency: Keys, send: Send, *, aio: bool) -> None:
        state = ClientState()

        def made(policy: Layer | None) -> ClientPolicy | None:
            return ClientPolicy(name, policy, idempotency, send, state, aio=aio)

        named = self._policy = cast("Any", policy)
        if is_named(policy):
            self._binding = named._follow(made, None, f"redouble.{name}")
        else:
            self._binding = FixedBinding(made(policy))

    @property
    def current(self) -> ClientPolicy:
        """What it goes by now."""
        terms: ClientPolicy | None = self._binding.made
        if terms is None:
            raise self._policy._unloaded()
        return terms


class FixedBinding:
    """Terms that never change."""

    def __init__(self, made: ClientPolicy | None) -> None:
        self.made = made


def timeout_types(timeout: type[Exception], module: str) -> dict[type[Exception], type[Exception]]:
    """Make errors of ours, about time, that are the client's own too: its users know no others."""

    def made(kind: type[Exception]) -> type[Exception]:
        def reduced(error: Exception) -> tuple[Any, ...]:
            # In another process it is ours alone: the client's may need its request to be made again.
            plain = kind(*error.args)
            plain.__dict__.update({k: v for k, v in vars(error).items() if k not in REQUEST_ATTRIBUTES})
            return cast("tuple[Any, ...]", plain.__reduce__())

        return type(kind.__name__, (kind, timeout), {"__module__": module, "__reduce__": reduced})

    return {kind: made(kind) for kind in (DeadlineExceeded, AttemptTimeout)}
