"""Calls that cause every type of event."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from redouble import CircuitBreaker, Retry, Timeout, Worker, deadline, errors
from redouble._telemetry.emit import emit_layer
from redouble._telemetry.events import What
from tests.support.fakes import Boom, Virtual


def fails() -> None:
    """Fail."""
    raise Boom


def zero() -> int:
    """Return 0."""
    return 0


# Events of layers, each to be caused by its layer as soon as that emits it.
OF_LAYERS: tuple[What, ...] = ("waited", "limit_changed", "hedged", "hedge_won", "fallback", "coalesced")


def every_event() -> None:
    """Cause each type of event at least once."""
    clock = Virtual()
    retrying = Retry(on=Boom, attempts=2, backoff=[0], clock=clock)
    breaker = CircuitBreaker(failures=1, cooldown=5, clock=clock)
    retrying.call(int)
    for call in (partial(retrying.call, fails), partial(breaker.call, fails)):
        with suppress(Boom):
            call()
    clock.time = 5
    breaker.call(int)
    breaker.isolate()
    with suppress(errors.Rejected):
        breaker.call(int)
    breaker.disable()
    breaker.metrics_only()
    with suppress(Boom):
        breaker.call(fails)
    with deadline(0), suppress(errors.AttemptTimeout):
        Timeout(5, worker=Worker())(zero)()
    for what in OF_LAYERS:
        emit_layer(what, "layer", None)
