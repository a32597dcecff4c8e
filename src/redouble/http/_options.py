"""What a caller says about one request, where the client has a place for it.

``None`` or False: no retries. A layer: this instead of the client's policy. A mapping: options of its `Retry`
and some of ours::

    extensions={"redouble": {"attempts": 2, "idempotent": True}}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from redouble._clients.idempotency import is_key
from redouble._clients.plan import RETRY_OPTIONS
from redouble._internal.bounded_cache import Kept
from redouble._layers.layer import Layer, Pipeline
from redouble.http._plan import HttpPlan

__all__ = ["NOTHING", "Said", "said"]

OURS = ("idempotency_key", "idempotent", "policy")
NO_RETRIES = Pipeline()


class Said(NamedTuple):
    """What was said about one request."""

    idempotent: bool | None = None
    key: str | None = None
    policy: Layer | None = None
    options: Mapping[str, Any] = {}

    def plan(self, plan: HttpPlan, kept: Kept[HttpPlan]) -> HttpPlan:
        """Return the plan that comes of it; it is kept, for whoever says the same."""
        if self.policy is None and not self.options:
            return plan
        what: Any = (self.policy, *((name, value.__class__, value) for name, value in self.options.items()))
        try:
            found = kept.get(what)
        except TypeError:  # something in it has no hash
            return self._made(plan)
        return found or kept.have(what, lambda: self._made(plan))

    def _made(self, plan: HttpPlan) -> HttpPlan:
        plan = plan if self.policy is None else plan.other(self.policy)
        return plan.varied(self.options) if self.options else plan


NOTHING = Said()


def said(value: object) -> Said:
    """Read it."""
    if value is None or value is False:
        return Said(policy=NO_RETRIES)
    if isinstance(value, Layer):
        return Said(policy=value)
    if not isinstance(value, Mapping):
        raise TypeError(
            f"extensions['redouble']={value!r}: write a policy, None for no retries, or a mapping such as "
            "{'attempts': 2, 'idempotent': True}"
        )
    given = dict(cast("Mapping[str, Any]", value))
    for name in given:
        if name not in OURS and name not in RETRY_OPTIONS:
            raise TypeError(f"extensions['redouble'] has no option {name!r}: write one of {_known()}")
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
    return Said(idempotent, key, policy, given)


def _known() -> str:
    return ", ".join(sorted({*OURS, *RETRY_OPTIONS}))
