"""Idempotency keys: one for each logical call, the same in all of its attempts.

A server that knows the key does the work once, however often it is asked; so a request that carries one may
be sent again whatever its method.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeGuard, cast

from redouble._internal.callables import display_name
from redouble._internal.public import public

__all__ = ["TOKEN", "Idempotency", "Keys", "as_idempotency", "is_key", "new_key"]


HEADER = "Idempotency-Key"
TOKEN = frozenset("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")


def new_key() -> str:
    """Make a key that nobody else has."""
    from uuid import uuid4  # noqa: PLC0415  for those who use keys

    return str(uuid4())


def is_key(key: object) -> TypeGuard[str]:
    """Say whether it can be sent as a key."""
    return isinstance(key, str) and key != "" and key.isascii() and key.isprintable()


@public("redouble.http")
@dataclass(frozen=True)
class Idempotency:
    """Which header carries the key, and whether we put one there ourselves.

    header: its name. A request that has it counts as idempotent, whoever wrote it.
    auto: whether a request of another method that lacks it is given one.
    make: what makes a key; it is called once for each logical call.
    """

    header: str = HEADER
    auto: bool = True
    make: Callable[[], str] = new_key

    def __post_init__(self) -> None:
        if not isinstance(cast("object", self.header), str) or not self.header or set(self.header) - TOKEN:
            raise ValueError(f"Idempotency header={self.header!r}: write a header's name, such as {HEADER!r}")
        if not isinstance(cast("object", self.auto), bool):
            raise TypeError(f"Idempotency auto={self.auto!r}: write True or False")
        if not callable(self.make):
            raise TypeError(f"Idempotency make={self.make!r}: write a function that returns a key")

    def key(self) -> str:
        """Make a key, and see that it is one."""
        made: object = self.make()
        if not is_key(made):
            raise TypeError(
                f"Idempotency make={display_name(self.make)} made {made!r}: return a text, in ASCII"
            )
        return made


Keys: TypeAlias = Idempotency | Literal["auto"] | None

RECOGNISE_ONLY = Idempotency(auto=False)


def as_idempotency(keys: object) -> Idempotency:
    """Read the option ``idempotency``."""
    if keys is None:
        return RECOGNISE_ONLY
    if keys == "auto":
        return Idempotency()
    if isinstance(keys, Idempotency):
        return keys
    raise TypeError(
        f"idempotency={keys!r}: write 'auto', None, or redouble.http.Idempotency(header={HEADER!r})"
    )
