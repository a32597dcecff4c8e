"""The analysis of a `CircuitBreaker`: its description, and which of its settings do not fit their place."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, inf

from redouble._internal.validation import format_seconds
from redouble._layers.analysis import WorstCase, combined_traits
from redouble._layers.breaker.cooldown import describe_cooldown
from redouble._layers.breaker.settings import CircuitBreakerSettings
from redouble._layers.layer import Layers


def describe_breaker(settings: CircuitBreakerSettings, judged: str) -> str:
    """Return when the breaker opens and for how long; ``judged``: what is said about results."""
    if settings.state == "disabled":
        return "admits all calls: it is disabled"
    verb = "would open" if settings.state == "metrics_only" else "opens"
    text = f"{verb} after {_condition(settings)}, for {describe_cooldown(settings.cooldown)}"
    if settings.probe_ratio is not None:
        text += f", and again if {settings.probe_ratio:.4g} of {settings.probes} probes fail"
    text += judged
    return text if settings.state == "closed" else f"{text} ({settings.state})"


def _condition(settings: CircuitBreakerSettings) -> str:
    """Return what opens the breaker."""
    streak, shares = f"{settings.failures} failures in a row", list[str]()
    if settings.ratio is not None:
        shares.append(f"{settings.ratio * 100:g}% failures")
    if settings.slow_ratio is not None and settings.slow is not None:
        shares.append(f"{settings.slow_ratio * 100:g}% calls of {format_seconds(settings.slow)} or more")
    if not shares:
        return streak
    at_least, window = f"at least {settings.minimum}", f" calls in {format_seconds(settings.window)}"
    if settings.calls is not None:
        window = f"the last {settings.calls} calls"
        at_least = f"{at_least} of " if settings.minimum < settings.calls else ""
    condition = f"{' or '.join(shares)} of {at_least}{window}"
    return condition if settings.ratio is not None else f"{streak} or {condition}"


def lint_breaker(
    settings: CircuitBreakerSettings, outer: Layers, inner: Layers, worst: WorstCase
) -> Iterator[str]:
    """Yield the mistakes in the settings, and in the place of the breaker in its pipeline."""
    yield from _lint_probes(settings)
    if combined_traits(inner).retries:
        return
    attempt = outer[max((i for i, layer in enumerate(outer) if layer.traits().retries), default=0) :]
    limit = inf if settings.slow is not None else combined_traits(attempt).each_call_limit
    if limit < inf and worst.seconds == inf:
        yield (
            "CircuitBreaker inside the limit of an attempt: it takes a call that is cut for a cancelled "
            "one, so a service that hangs never opens it; put a Timeout inside, or set slow= (neither is "
            "needed in a client of Redouble, which ends the attempt itself)"
        )
    yield from _lint_window(settings, min(limit, worst.seconds))


def _lint_window(settings: CircuitBreakerSettings, longest: float) -> Iterator[str]:
    """Return the problem of a window that is short for calls that may take this long."""
    by_share = settings.ratio is not None or settings.slow_ratio is not None
    if by_share and settings.calls is None and settings.window < 2 * longest < inf:
        yield (
            f"CircuitBreaker window={settings.window:g} below twice the limit of an attempt, "
            f"{format_seconds(longest)}: a call that hangs counts when it ends, so of those that a "
            "caller makes in a row the window holds one, and may never hold enough to open; write "
            f"window={2 * longest:g} or more, or calls="
        )


def _lint_probes(settings: CircuitBreakerSettings) -> Iterator[str]:
    """Return the problem of a share of the probes that one failed probe reaches."""
    ratio, probes = settings.probe_ratio, settings.probes
    if ratio is not None and ratio * probes <= 1:
        yield (
            f"CircuitBreaker probe_ratio={ratio:g} of probes={probes}: one failed probe opens it again, "
            f"as without it; admit more probes, such as probes={max(10, ceil(4 / ratio))}"
        )
