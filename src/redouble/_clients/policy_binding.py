"""The effective policy of one client; it follows configuration reloads if it was given by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

from redouble._layers.layer import Layer, LayerProxy

T = TypeVar("T")


class PolicyBinding(Generic[T]):
    """What a client made of its policy, in ``value``; None while a name is not configured."""

    def __init__(self, policy: Layer | None, make: Callable[[Any], T], owner: str) -> None:
        self._policy = cast("Any", policy)
        self._bound: Any = self
        self.value: T | None = None
        if is_named(policy):
            self._bound = self._policy._follow(make, None, owner)
        else:
            self.value = make(policy)

    @property
    def current(self) -> T:
        """The value in force; raise if the name of the policy is not configured."""
        value: T | None = self._bound.value
        if value is None:
            raise self._policy._not_loaded_error()
        return value


def is_named(policy: object) -> bool:
    """Return True if `redouble.policies` made the policy; does not import the configuration package."""
    return isinstance(policy, LayerProxy) and policy.resolved_by_name
