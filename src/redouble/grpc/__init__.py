"""Retries for gRPC: interceptors to put on a channel.

On a blocking channel, and on a channel of `grpc.aio`::

    channel = grpc.intercept_channel(grpc.insecure_channel(target), *redouble.grpc.interceptors())
    channel = grpc.aio.insecure_channel(target, interceptors=redouble.grpc.aio_interceptors(policy))

All shapes of calls are retried, streams until their first response. The caller gets the same object as from
gRPC: the call that succeeded, or the `grpc.RpcError` of the last attempt, for which `redouble.report` returns
the report. A server's ``grpc-retry-pushback-ms`` and its ``RetryInfo`` are obeyed, and a call's ``timeout=``
covers all attempts. gRPC's own retries (a channel's service config) multiply with these: configure retries in
one place, and give the channel ``options=[("grpc.enable_retries", 0)]``, without which gRPC also removes
``grpc-previous-rpc-attempts`` from the metadata.
"""

from __future__ import annotations

from redouble._internal.extras import missing_extra
from redouble._layers.layer import Layer

try:
    import grpc

    from redouble.grpc._interceptors import Interceptor, make_aio_interceptors
    from redouble.grpc._service_config_export import ServiceConfig, service_config
except ModuleNotFoundError as error:
    raise missing_extra("grpc", error) from None

__all__ = ["ServiceConfig", "aio_interceptors", "interceptors", "service_config"]


def interceptors(policy: Layer | None = None) -> tuple[Interceptor]:
    """Return interceptors that retry the calls of a channel.

    >>> import grpc
    >>> import redouble.grpc
    >>> bare = grpc.insecure_channel("localhost:50051", options=[("grpc.enable_retries", 0)])
    >>> channel = grpc.intercept_channel(bare, *redouble.grpc.interceptors())

    policy: a `Retry`, any other layer, or a pipeline; a new `redouble.presets.grpc()` unless given, so that
        each channel has its own tokens for throttling.

    A call by ``.future()`` occupies a thread until it ends. A stream starts at once if the policy has only
    `Retry` and `Timeout` layers; otherwise when the caller waits for the first response.
    """
    return (Interceptor(policy),)


def aio_interceptors(policy: Layer | None = None) -> list[grpc.aio.ClientInterceptor]:
    """Return interceptors for a channel of `grpc.aio`, to be passed as its ``interceptors=``.

    policy: as with `interceptors`.
    """
    return make_aio_interceptors(policy)
