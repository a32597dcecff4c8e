"""The export of a policy as a gRPC service config, the document that configures gRPC's own retries.

Each part of the policy that the document cannot express gets a sentence in ``lost``. `_retry_policy_export`
maps attempts, delays, codes and budgets.
"""

from __future__ import annotations

import random as chance
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, cast

import grpc

from redouble._clients.plan import is_named
from redouble._engine.options import HOOKS
from redouble._internal.callables import display_name
from redouble._internal.public import public
from redouble._layers.layer import Layer, Pipeline
from redouble._layers.retry.retry import Retry
from redouble._layers.timeout import Timeout
from redouble._runtime.clock import SYSTEM
from redouble.grpc._channel_policy import layer_of
from redouble.grpc._retry_policy_export import CODES, format_duration, retry_policy, throttling

__all__ = ["ServiceConfig", "service_config"]

NAME = re.compile(r"[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)?")
NAME_FORMATS = "'package.Service' or 'package.Service/Method'"


@public("redouble.grpc")
@dataclass(frozen=True)
class ServiceConfig:
    """The result of `service_config`: a document for gRPC, and the parts of the policy that it lacks.

    json: the document.
    lost: a sentence for each part of the policy that gRPC will not apply.
    """

    json: str
    lost: tuple[str, ...] = ()

    @property
    def mapping(self) -> dict[str, Any]:
        """The document as a dictionary: a new one each time, free to change and to merge."""
        from json import loads  # noqa: PLC0415  only needed for an export

        return cast("dict[str, Any]", loads(self.json))

    @property
    def options(self) -> list[tuple[str, object]]:
        """Options for a channel: ``grpc.insecure_channel(target, options=config.options)``.

        A ``timeout`` is left out: grpcio would end the calls up to two seconds before it.
        """
        # https://github.com/grpc/grpc/issues/34547, since 2023: grpcio reads the start of a call from one
        # clock and the current time from another, so a timeout below one second ends before the call begins.
        from json import dumps  # noqa: PLC0415

        config = self.mapping
        for method in config.get("methodConfig", ()):
            method.pop("timeout", None)
        return [("grpc.service_config", dumps(config)), ("grpc.enable_retries", 1)]


@public("redouble.grpc")
def service_config(
    policy: Layer | None = None,
    *,
    methods: Sequence[str] | None = None,
    codes: Iterable[str | grpc.StatusCode] | None = None,
) -> ServiceConfig:
    """Export a policy as a service config, for channels that use gRPC's own retries, not interceptors.

    policy: a `Retry`, or a pipeline with one; `presets.grpc()` unless given.
    methods: the methods it applies to: ``"package.Service"``, ``"package.Service/Method"``; by default all.
    codes: the status codes to retry, or their names. Unless given, those that the rules of the policy retry,
        each judged by an error with this code and without details.

    The document holds attempts, growing delays, the time limit of the whole call (``timeout``, or a `Timeout`
    around the `Retry`) and `TokenBucket.grpc`. ``lost`` names the rest.
    """
    layers = tuple(_flat(layer_of(policy)))
    retries = [index for index, layer in enumerate(layers) if isinstance(layer, Retry)]
    if not retries:
        raise TypeError(f"policy={policy!r} has no Retry to export: write Retry(...), or a pipeline with one")
    outer, (first, *inner) = layers[: retries[0]], layers[retries[0] :]
    retry = cast("Retry", first)
    lost: list[str] = []
    chosen = None if codes is None else _codes(codes)
    method: dict[str, object] = {"name": [{}] if methods is None else _names(methods)}
    config: dict[str, object] = {"methodConfig": [method]}
    retried = retry_policy(retry, chosen, lost)
    limits = [retry._total, *(layer.traits().time_limit for layer in outer if isinstance(layer, Timeout))]
    if retried is None:  # then the limits of an attempt limit the call
        limits += [retry._attempt_limit, retry._work_limit]
        limits += [layer.traits().time_limit for layer in inner if isinstance(layer, Timeout)]
    else:
        method["retryPolicy"] = retried
        if (tokens := throttling(retry, lost)) is not None:
            config["retryThrottling"] = tokens
        lost += _lost_retry_options(retry)
    if (limit := min(limits)) < inf:
        method["timeout"] = format_duration(limit)
        option = f"timeout={limit:g}"
        lost.append(
            f"{option}: grpcio ends calls up to 2 s early, so `options` leaves it out; pass {option} "
            "with each call"
        )
    lost += _lost_call_options(retry)
    lost += [_lost_layer(layer) for layer in outer if not isinstance(layer, Timeout)]
    lost += [_lost_layer(layer) for layer in inner if retried is not None or not isinstance(layer, Timeout)]
    from json import dumps  # noqa: PLC0415  only needed for an export

    return ServiceConfig(dumps(config), tuple(lost))


# ------------------------------------------------------------------------- lost options


def _lost_retry_options(policy: Retry) -> Iterator[str]:
    """Yield a sentence for each lost option about retries."""
    hints = policy.hints
    if policy.give_up_after is not None:
        yield f"give_up_after={policy.give_up_after:g}: gRPC starts attempts until the call times out"
    if policy.attempt_timeout is not None:
        yield f"attempt_timeout={policy.attempt_timeout:g}: gRPC limits the whole call, not each attempt"
    if policy.work_timeout is not None:
        yield f"work_timeout={policy.work_timeout:g}: gRPC's limit includes the delays; write timeout="
    if hints.mode != "instead":
        yield f"hints: mode={hints.mode!r}; gRPC waits as long as the server asks, instead of its own delay"
    if hints.mode != "ignore":
        if hints.longest is not None:
            yield f"hints: longest={hints.longest:g}; gRPC waits as long as the server asks"
        if hints.over is not None:
            yield f"hints: over={hints.over:g}; gRPC obeys every requested delay"
        if hints.spread:
            yield f"hints: spread={hints.spread:g}; gRPC adds nothing to a requested delay"
    if policy.random is not chance:
        yield "random: gRPC has its own random source"


def _lost_call_options(policy: Retry) -> Iterator[str]:
    """Yield a sentence for each lost option about calls, retried or not."""
    if policy.until is not None:
        yield f"until={display_name(policy.until)}: gRPC does not inspect results"
    for hook in HOOKS:
        if getattr(policy, hook) is not None:
            yield f"{hook}: gRPC calls no observers"
    if policy.wrap:
        yield "wrap=True: gRPC raises the RpcError itself"
    if policy.name is not None or policy.labels:
        yield "name, labels: gRPC's retries appear in no event, metric or report of redouble"
    if policy.clock is not SYSTEM:
        yield "clock: gRPC uses the system clock"


def _lost_layer(layer: Layer) -> str:
    description = f" ({words})" if (words := layer.describe()) else ""
    label = f"{type(layer).__name__}{description}"
    if isinstance(layer, Retry):
        return f"{label} inside a Retry: the outer one is exported"
    if isinstance(layer, Timeout):
        return f"{label} for each attempt: gRPC limits the whole call, not each attempt"
    return f"{label}: a service config has no such layer"


# ------------------------------------------------------------------------------ validation


def _flat(policy: Layer) -> Iterator[Layer]:
    """Yield the layers of a policy; a policy given by name yields its current ones."""
    if isinstance(policy, Pipeline):
        for layer in policy.layers:
            yield from _flat(layer)
    elif is_named(policy):
        yield from _flat(cast("Any", policy).current)
    else:
        yield policy


def _as_list(items: object, option: str) -> list[object]:
    """Validate that an option is a list and not a single text; return it as a list."""
    if isinstance(items, str | bytes):
        raise TypeError(f"{option}={items!r}: write a list, such as [{items!r}]")
    if not isinstance(items, Iterable) or isinstance(items, Mapping):
        raise TypeError(f"{option}={items!r}: write a list of texts")
    return list(cast("Iterable[object]", items))


def _names(methods: object) -> list[dict[str, str]]:
    """Parse method names without duplicates, because gRPC rejects a document that repeats one."""
    names = [_name(method) for method in _as_list(methods, "methods")]
    if not names:
        raise ValueError("methods=[] is empty, so it would apply to no method: write None for all methods")
    return [name for index, name in enumerate(names) if name not in names[:index]]


def _name(method: object) -> dict[str, str]:
    if not isinstance(method, str):
        raise TypeError(f"methods: {method!r} is no text: write {NAME_FORMATS}")
    if method.startswith("/"):
        raise ValueError(f"methods: {method!r} begins with a slash: write {method.strip('/')!r}")
    if not NAME.fullmatch(method):
        raise ValueError(f"methods: {method!r} is not the name of a service or method: write {NAME_FORMATS}")
    return dict(zip(("service", "method"), method.split("/"), strict=False))


def _codes(codes: object) -> list[str]:
    given = _as_list(codes, "codes")
    names = [code.name if isinstance(code, grpc.StatusCode) else code for code in given]
    if not names:
        raise ValueError("codes=[] is empty, so nothing would be retried: write Retry(attempts=1) for that")
    for code in names:
        if not isinstance(code, str):
            raise TypeError(f"codes: {code!r} is no text: write names, such as 'UNAVAILABLE'")
        if code == "OK":
            raise ValueError("codes: 'OK' is a success: write the codes of failures, such as 'UNAVAILABLE'")
        if code not in CODES:
            from redouble.config._document_path import nearest  # noqa: PLC0415  only needed for a misspelt code

            raise ValueError(f"codes: {code!r} is no status code; {nearest(code.upper(), CODES)}")
    return list(dict.fromkeys(cast("list[str]", names)))
