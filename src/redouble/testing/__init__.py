"""Tools for tests of code that retries: virtual time, scripted functions, switches, recorded events.

>>> from redouble import Retry
>>> from redouble.testing import Script, ok, virtual_time
>>> with virtual_time() as clock:
...     Retry(backoff=[1, 2]).call(Script("fail", "fail", ok(3)))
3
>>> clock.delays
[1.0, 2.0]

With pytest, the fixtures ``redouble_time`` and ``redouble_events`` are available without any setup.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from math import isclose

from redouble._failures.verdict import Kind
from redouble._internal.shared_context_manager import Block
from redouble._internal.validation import integer
from redouble._runtime.ambient import ATTEMPT_OVERRIDE, AttemptOverride, ambient
from redouble._telemetry.events import Event
from redouble._telemetry.observers import Observation, observe
from redouble.errors import Reason
from redouble.testing._script import Script, ScriptedFailure, Step, fail, ok
from redouble.testing._switch import Switch
from redouble.testing._virtual_clock import VirtualClock
from redouble.testing._virtual_loop import virtual_time

__all__ = [
    "Script",
    "ScriptedFailure",
    "Step",
    "Switch",
    "VirtualClock",
    "assert_retried",
    "attempts",
    "fail",
    "no_retries",
    "ok",
    "recorded",
    "virtual_time",
]


# ------------------------------------------------------------------------------ switches


def attempts(most: int) -> Switch[None]:
    """Override ``attempts`` of every policy with ``most``, in this context."""
    return Switch(partial(AttemptsBlock, integer(most, "attempts", 1, "a whole number, 1 for no retries")))


class AttemptsBlock(Block[None]):
    """A block in which every policy makes at most so many attempts."""

    def __init__(self, most: int) -> None:
        self._override = AttemptOverride(most)
        self._before = ATTEMPT_OVERRIDE.get()

    def begin(self) -> None:
        """Override the option of all policies in this context."""
        ATTEMPT_OVERRIDE.set(self._override)
        ambient.add(self)

    def leave(self, error: BaseException | None) -> None:  # noqa: ARG002
        """Put the policies' own option in force again."""
        self._override.ended = True  # also for a task or a context that still refers to it
        ambient.remove(self)
        if ATTEMPT_OVERRIDE.get() is self._override:
            ATTEMPT_OVERRIDE.set(self._before)


def no_retries() -> Switch[None]:
    """Limit every policy to one attempt, in this context."""
    return attempts(1)


# ------------------------------------------------------------------------------- events


def recorded() -> Switch[list[Event]]:
    """Record every event of every policy in this process, during the block, in the list that it returns."""
    return Switch(RecordedBlock)


class RecordedBlock(Block[list[Event]]):
    """A block whose events are recorded."""

    _observation: Observation | None = None

    def begin(self) -> list[Event]:
        """Observe all events and return the list of them."""
        events: list[Event] = []
        self._observation = observe(events.append)
        return events

    def leave(self, error: BaseException | None) -> None:  # noqa: ARG002
        """Stop observing."""
        if self._observation is not None:  # pragma: no branch  it may be interrupted
            self._observation.remove()


def assert_retried(
    events: Iterable[Event],
    *,
    times: int | None = None,
    delays: Sequence[float] | None = None,
    kind: Kind | str | None = None,
    reason: Reason | str | None = None,
    ok: bool | None = None,
    name: str | None = None,
) -> None:
    """Assert that there were retries, and that they match the given expectations.

    times: the number of retries; 0 for none; if omitted, at least one.
    delays: the delays before them.
    kind: the kind of every failure.
    reason: why the call was given up.
    ok: True if the call succeeded in the end.
    name: consider only calls of this name.
    """
    seen = [event for event in events if name is None or event.name == name]
    wrong: list[str] = []
    waited = [event.delay or 0.0 for event in seen if event.what == "retry"]
    if len(waited) != times if times is not None else (delays is None and not waited):
        wrong.append(f"retries: {'some' if times is None else times}, and there were {len(waited)}")
    if delays is not None and not _close(waited, delays):
        wrong.append(f"delays of {list(delays)}, and they were {waited}")
    kinds = [str(event.kind) for event in seen if event.what == "failure"]
    if kind is not None and set(kinds) != {str(kind)}:
        wrong.append(f"failures of kind {kind}, and they were {', '.join(kinds) or 'none'}")
    reasons = [str(event.reason) for event in seen if event.what == "give_up"]
    if reason is not None and set(reasons) != {str(reason)}:
        wrong.append(f"it to be given up because of {reason}, and it was {' and '.join(reasons) or 'not'}")
    succeeded = any(event.what == "success" for event in seen)
    if ok is not None and (bool(reasons) is ok or succeeded is not ok):
        wrong.append(f"it to {'succeed' if ok else 'fail'}, and it did not")
    if wrong:
        timeline = "\n".join(f"  {_described(event)}" for event in seen) or "  nothing"
        raise AssertionError(f"expected {'; '.join(wrong)}. What happened:\n{timeline}")


def _close(some: Sequence[float], others: Sequence[float]) -> bool:
    return len(some) == len(others) and all(map(partial(isclose, abs_tol=1e-9), some, others))


def _described(event: Event) -> str:
    what = event.what.replace("_", " ")
    text = f"{event.elapsed:.3f} s  {event.name or 'a call'}, attempt {event.attempt}: {what}"
    if event.what == "retry":
        return f"{text} after {event.delay:g} s"
    if event.what == "give_up":
        return f"{text} ({event.reason})"
    error = "" if event.error is None else f", {type(event.error).__name__}"
    return text + error + ("" if event.kind is None else f" ({event.kind})")
