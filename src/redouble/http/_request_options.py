"""The options of one request.

Where the client library has a place for them (httpx: ``extensions``), they are ``None`` or False for no
retries, a layer to replace the client's policy, or a mapping with options of its `Retry` and of the client::

    extensions={"redouble": {"attempts": 2, "idempotent": True}}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from redouble._clients.idempotency_key import is_key
from redouble._clients.plan import RETRY_OPTIONS
from redouble._layers.layer import Layer, Pipeline

EXTENSION = "redouble"  # the key of our options in the extensions of a request
CLIENT_OPTIONS = ("idempotency_key", "idempotent", "policy")
NO_RETRIES = Pipeline()


class RequestOptions(NamedTuple):
    """The parsed options of one request."""

    idempotent: bool | None = None
    key: str | None = None
    policy: Layer | None = None
    options: Mapping[str, Any] = {}


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
            names = ", ".join(sorted({*CLIENT_OPTIONS, *RETRY_OPTIONS}))
            raise TypeError(f"extensions['redouble'] has no option {name!r}: write one of {names}")
    if "policy" in given and given["policy"] is None:
        given["policy"] = NO_RETRIES
    key, idempotent, policy = (given.pop(name, None) for name in CLIENT_OPTIONS)
    if not isinstance(idempotent, bool | None):
        raise TypeError(f"extensions['redouble'] idempotent={idempotent!r}: write True or False")
    if key is not None and not is_key(key):
        raise TypeError(f"extensions['redouble'] idempotency_key={key!r}: write a text, in ASCII")
    if not isinstance(policy, Layer | None):
        raise TypeError(f"extensions['redouble'] policy={policy!r}: write a Retry, or None for no retries")
    return RequestOptions(idempotent, key, policy, given)
