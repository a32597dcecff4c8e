"""Code shared by the HTTP clients: per-request options, the policy in force, and the creation of exchanges.

The option of one request, where the client library has a place for it (httpx: ``extensions``), is ``None`` or
False for no retries, a layer to replace the client's policy, or a mapping with options of its `Retry` and of
the client::

    extensions={"redouble": {"attempts": 2, "idempotent": True}}
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple, cast
from weakref import WeakKeyDictionary

from redouble._clients.idempotency_key import Keys, as_idempotency, is_key
from redouble._clients.plan import RETRY_OPTIONS, Credit, Send
from redouble._clients.policy_binding import PolicyBinding
from redouble._engine.retry_budget import MAX_HOSTS as HOSTS
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
    "ClientPolicy",
    "RequestOptions",
    "bind_policy",
    "request_options",
    "timeout_types",
]


CLIENT_OPTIONS = ("idempotency_key", "idempotent", "policy")
NO_RETRIES = Pipeline()


class RequestOptions(NamedTuple):
    """The parsed options of one request."""

    idempotent: bool | None = None
    key: str | None = None
    policy: Layer | None = None
    options: Mapping[str, Any] = {}

    def plan_for(self, plan: HttpPlan, cache: BoundedCache[HttpPlan]) -> HttpPlan:
        """Return the plan with these options applied, from the cache if possible."""
        if self.policy is None and not self.options:
            return plan
        cache_key: Any = (
            self.policy,
            *((name, value.__class__, value) for name, value in self.options.items()),
        )
        try:
            cached = cache.get(cache_key)
        except TypeError:  # an option is unhashable
            return self._make_plan(plan)
        return cached or cache.get_or_create(cache_key, lambda: self._make_plan(plan))

    def _make_plan(self, plan: HttpPlan) -> HttpPlan:
        plan = plan if self.policy is None else plan.for_policy(self.policy)
        return plan.with_options(self.options) if self.options else plan


NO_OPTIONS = RequestOptions()


def request_options(value: object) -> RequestOptions:
    """Parse the option of one request."""
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
    absent = "policy" not in given
    idempotent, key, policy = (given.pop(name, None) for name in ("idempotent", "idempotency_key", "policy"))
    if absent is False and policy is None:
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


EXTENSION = "redouble"  # the key of our options in the extensions of a request


NOW = fast_reader(SYSTEM, aio=False)  # the fast path always uses the system clock
REQUEST_ATTRIBUTES = ("_request", "request", "response")
MAX_REQUEST_PLANS = 100  # cached plans of per-request options


class IssuedKey:
    """An idempotency key made by a client; ``spent`` once its call has ended."""

    def __init__(self, text: str) -> None:
        self.text, self.spent = text, False


class ClientState:
    """Client state that survives policy reloads: issued idempotency keys and the closed flag."""

    def __init__(self) -> None:
        self.issued_keys: WeakKeyDictionary[Any, IssuedKey] = WeakKeyDictionary()
        self.closed = False


class ClientPolicy:
    """The policy of one client, ready to use: its plan, idempotency option and caches."""

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
        self.credits = BoundedCache[Credit](HOSTS)  # keyed by the client's own key for a host
        self._state = state
        self._request_plans = BoundedCache[HttpPlan](MAX_REQUEST_PLANS)
        self._now = fast_reader(SYSTEM, aio=aio)

    def begin_exchange(
        self, request: Any, source: Resendable, host: Hashable, how: Any = None, options: object = NO_OPTIONS
    ) -> Exchange:
        """Create the exchange of a request, and add an idempotency key if it needs one."""
        plan, keys, requested = self.plan, self._keys, NO_OPTIONS
        if options is not NO_OPTIONS:
            requested = request_options(options)
            plan = requested.plan_for(plan, self._request_plans)
        if requested.key is not None:
            request.headers[keys.header] = requested.key
        exchange = Exchange(plan, keys, request, source, host, how, self._now)
        exchange.client_closed = self.is_closed
        if keys.auto and requested.key is None and request.method not in plan.methods:
            exchange.key = self._issue_key(request)
        if requested.idempotent is not None:
            exchange.idempotent = requested.idempotent
        return exchange

    def resume_exchange(self, request: Any, host: Hashable, how: Any, started: float) -> Exchange:
        """Create the exchange of a request whose first attempt started at ``started`` (read from `NOW`)."""
        exchange = Exchange(self.plan, self._keys, request, RESENDABLE, host, how, self._now)
        exchange.started -= NOW() - started
        exchange.sends, exchange.resend_allowed = 1, False
        exchange.client_closed = self.is_closed
        return exchange

    def _issue_key(self, request: Any) -> IssuedKey | None:
        """Add a key unless the caller set one; a key of the client is replaced once its call has ended."""
        header, key = self._keys.header, self._state.issued_keys.get(request)
        if header not in request.headers or (key and key.spent and request.headers[header] == key.text):
            key = self._state.issued_keys[request] = IssuedKey(self._keys.key())
            request.headers[header] = key.text
        return key

    def close(self) -> None:
        """Mark the client as closed: no attempt begins from now on."""
        self._state.closed = True

    def is_closed(self) -> bool:
        """Return True if the client is closed."""
        return self._state.closed

    def credit_for(self, key: Hashable, host: str) -> Credit:
        """Return the callable that credits a success to the host's budget, cached by this key."""
        return self.credits.get_or_create(key, lambda: self.plan.credit_for(host))


def bind_policy(
    name: str, policy: Layer | None, idempotency: Keys, send: Send, *, aio: bool
) -> PolicyBinding[ClientPolicy]:
    """Return the effective policy of a client, which follows reloads if it was given by name."""
    state = ClientState()

    def make(policy: Layer | None) -> ClientPolicy:
        return ClientPolicy(name, policy, idempotency, send, state, aio=aio)

    return PolicyBinding(policy, make, f"redouble.{name}")


def timeout_types(timeout: type[Exception], module: str) -> dict[type[Exception], type[Exception]]:
    """Make subclasses of our timeout errors that are also the client library's, for existing handlers."""

    def make(kind: type[Exception]) -> type[Exception]:
        def reduce(error: Exception) -> tuple[Any, ...]:
            # Pickled as our error alone: the library's constructor may require the request.
            plain = kind(*error.args)
            plain.__dict__.update({k: v for k, v in vars(error).items() if k not in REQUEST_ATTRIBUTES})
            return cast("tuple[Any, ...]", plain.__reduce__())

        return type(kind.__name__, (kind, timeout), {"__module__": module, "__reduce__": reduce})

    return {kind: make(kind) for kind in (DeadlineExceeded, AttemptTimeout)}
