"""Retries inside retries: found by the stamp a policy leaves on the error it gave up on.

Three attempts around three attempts are nine, and nobody wrote nine anywhere. The stamp is looked for
on the error and along its explicit causes, so it survives ``raise X from err``. The implicit context
is not followed: an error raised while some older, given-up error is being handled is not nested in it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, cast
from weakref import WeakSet

from redouble._options import Options
from redouble._report import Report, Stamp, stamp_of
from redouble.errors import Reason

__all__ = ["nested"]

_warned: WeakSet[Options] = WeakSet()


class Current(Protocol):
    """What has to be known of the run that asks."""

    policy: Options
    attempt_started: float
    cancelling: Callable[[], bool] | None
    now: float


def nested(error: BaseException, run: Current) -> Reason | None:
    """Return why to stop if an inner policy gave up on this error during this attempt."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        stamp = stamp_of(cause)
        if stamp is not None and _during(stamp, run):
            # An exhausted budget speaks for everybody: retrying further out would defeat it.
            if stamp.reason is Reason.budget or run.policy.nested == "stop":
                return Reason.nested
            if run.policy.nested == "warn":
                _warn(run.policy, stamp)
            return None
        cause = cause.__cause__
    return None


def _during(stamp: Stamp | Report, run: Current) -> bool:
    """Tell a stamp of this attempt from an old one: some code raises one instance again and again."""
    if isinstance(stamp, Report):  # it came from another process, so from no call of ours
        return True
    inner = cast("Current", stamp)
    same_time = inner.policy.clock is run.policy.clock and (inner.cancelling is None) == (
        run.cancelling is None
    )
    return not same_time or inner.now >= run.attempt_started


def _warn(policy: Options, stamp: Stamp | Report) -> None:
    if policy in _warned:
        return
    _warned.add(policy)
    import logging  # noqa: PLC0415  nobody pays for it while all goes well

    logging.getLogger("redouble").warning(
        "%r retries an error on which an inner policy (%s) already gave up: attempts multiply. "
        "Retry in one place, or say nested='stop' or nested='allow'",
        policy,
        stamp.name or "unnamed",
    )
