"""What each attempt did, in one line per call, written by listening to Redouble's events."""

from __future__ import annotations

from collections import defaultdict

from demonstration.chance import current_call
from demonstration.clients import UnavailableError
from demonstration.paint import paint
from redouble.types import Event


class Diary:
    """An observer that keeps a timeline of every call, for `redouble.observe`."""

    def __init__(self) -> None:
        self._steps: defaultdict[str, list[str]] = defaultdict(list)
        self._last: dict[str, Event] = {}

    def __call__(self, event: Event) -> None:
        """Take down one event."""
        call = current_call.get()
        self._last[call] = event
        steps = self._steps[call]
        if event.what == "failure" and event.error is not None:
            steps.append(spelled(event.error))
        elif event.what == "retry" and event.delay is not None:
            steps.append(paint("dim", f"{event.delay:.2f} s"))
        elif event.what == "success":
            steps.append(paint("green", "ok"))
        elif event.what == "give_up":
            steps.append(paint("red", f"gave up ({event.reason})"))

    @property
    def elapsed(self) -> float:
        """The time all calls took, added up."""
        return sum(event.elapsed for event in self._last.values())

    def line(self, call: str) -> str:
        """Return the timeline of one call: attempts, and the waits between them."""
        attempts = self._last[call].attempt
        count = "1 attempt" if attempts == 1 else f"{attempts} attempts"
        return f"{call:<8}  {' · '.join(self._steps[call])}   {count}, {self._last[call].elapsed:.1f} s"


def spelled(error: Exception) -> str:
    """Return a failure in a word or two."""
    if isinstance(error, UnavailableError):
        return paint("yellow", f"503 (asked for {error.retry_after:g} s)")
    if isinstance(error, ConnectionResetError):
        return paint("red", "reset")
    return paint("red", type(error).__name__)
