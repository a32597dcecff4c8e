"""Idempotency keys: one for each logical call, the same in all of its attempts.

A server that supports the key does the work once, however often it receives the request; therefore a request
with a key may be resent whatever its method.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeGuard, cast

from redouble._internal.callables import display_name
from redouble._internal.public import public

HEADER = "Idempotency-Key"
TOKEN = frozenset("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")


def new_key() -> str:
    """Make a unique key."""
    from uuid import uuid4  # noqa: PLC0415  imported only where keys are used

    return str(uuid4())


def is_key(key: object) -> TypeGuard[str]:
    """Return True if the value can be sent as a key."""
    return isinstance(key, str) and key != "" and key.isascii() and key.isprintable()


@public("redouble.http")
@dataclass(frozen=True)
class Idempotency:
    """The header that carries the key, and whether the client adds one.

    header: its name. A request that has it counts as idempotent, whether the caller or the client set it.
    auto: True if the client adds a key to requests without one whose method is not idempotent.
    make: the function that makes a key, called once for each logical call.
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
        """Make a key and validate it."""
        key: object = self.make()
        if not is_key(key):
            raise TypeError(
                f"Idempotency make={display_name(self.make)} made {key!r}: return a text, in ASCII"
            )
        return key


Keys: TypeAlias = Idempotency | Literal["auto"] | None

RECOGNISE_ONLY = Idempotency(auto=False)


def as_idempotency(keys: object) -> Idempotency:
    """Parse the option ``idempotency``."""
    if keys is None:
        return RECOGNISE_ONLY
    if keys == "auto":
        return Idempotency()
    if isinstance(keys, Idempotency):
        return keys
    raise TypeError(
        f"idempotency={keys!r}: write 'auto', None, or redouble.http.Idempotency(header={HEADER!r})"
    )
