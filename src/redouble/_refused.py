"""What a policy cannot do for this or that shape of code, and what to do instead."""

from __future__ import annotations

from redouble._internal.callables import spelled
from redouble._options import Options

__all__ = ["refuse_limits", "refuse_unlimited", "refuse_until"]


def refuse_until(policy: Options, why: str) -> None:
    """Say no to a rule for results where there is no result."""
    if policy.until is not None:
        raise TypeError(
            f"until= judges a result, and {why}: leave it out of this policy, or use policy.call(fn, ...)"
        )


def refuse_unlimited(policy: Options, fn: object) -> None:
    """Say no to a limit that plain blocking code could not keep."""
    if policy.attempt_timeout is not None and policy.worker is None:
        raise TypeError(
            f"attempt_timeout= cannot stop {spelled(fn)}, which blocks: add worker=Worker() to run it on a "
            "thread, or await policy.acall(...). timeout= and give_up_after= do without, but cut nothing"
        )


def refuse_limits(policy: Options, what: str) -> None:
    """Say no to a worker where blocking code does not end with a call, and to limits that need one."""
    for option in ("worker", "attempt_timeout"):
        if getattr(policy, option) is not None:
            raise TypeError(
                f"{option}= is for whole calls, and {what} goes on in the thread that began it: leave it out "
                "of this policy, or put the work into a function for policy.call(fn, ...)"
            )
