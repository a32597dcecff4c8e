"""What happened: on errors, on outcomes, on request.

The engine leaves its run on the exception that comes out; the records are built only when somebody
reads them. This file writes on exceptions and reads from them; it decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar, cast

from redouble._failures.verdict import Kind
from redouble._internal.public import public
from redouble.errors import Limit, Reason, RetryError, WorkerStillRunning

__all__ = [
    "AttemptRecord",
    "Outcome",
    "Report",
    "RetryVeto",
    "annotate",
    "has_left_a_worker",
    "left_worker",
    "related_errors",
    "report",
    "stamp_of",
    "stamp_of_response",
]


# fmt: on

T_co = TypeVar("T_co", covariant=True)

STAMP: Final = "__redouble__"
PREFIX: Final = "redouble: gave up "


@public("redouble")
class AttemptRecord(NamedTuple):
    """One attempt. ``started`` counts from the start of the call; ``delay`` is the wait that followed.

    ``error_type`` and ``error_text`` are None where the attempt returned.
    """

    number: int
    kind: Kind | None
    error_type: str | None
    error_text: str | None
    started: float
    elapsed: float
    delay: float | None
    hint: float | None


@public("redouble")
class Report(NamedTuple):
    """What one call did. ``reason`` is None if it succeeded.

    ``limit`` says which limit ended it, or cut its last attempt: ``attempt``, ``work``, ``total``,
    ``give_up_after`` or ``deadline``. ``workers_left`` are the threads that did not stop when told to.
    """

    reason: Reason | None
    attempts: int
    elapsed: float
    work_elapsed: float
    limit: Limit | None = None
    workers_left: int = 0
    name: str = ""
    labels: Mapping[str, str] = {}
    history: tuple[AttemptRecord, ...] = ()

    @property
    def late(self) -> bool:
        """Whether it succeeded after its time was up: what was to be cut went on, and returned."""
        return self.reason is None and self.limit is not None


class CallStamp(Protocol):
    """What a given-up call leaves on its error: its run, which becomes its report when pickled."""

    @property
    def reason(self) -> Reason | None:
        """Why it was given up."""
        ...

    @property
    def name(self) -> str:
        """Whose policy it was."""
        ...

    @property
    def attempt(self) -> int:
        """How many attempts it made."""
        ...

    def report(self) -> Report:
        """Build the report."""
        ...


class RetryVeto:
    """What a client of ours leaves on the error of an attempt before any policy sees it.

    To whoever reads stamps it is a policy that ended at its first attempt: with it, nothing multiplies.
    """

    __slots__ = ()

    reason = Reason.stopped
    name = ""
    attempt = 1
    asked = False  # whether anything depends on what it answers

    def check(self, run: Any, /) -> Reason | None:  # noqa: ARG002
        """Learn which run is about to retry, and answer why it must not, if so."""
        return None


@public("redouble")
class Outcome(NamedTuple, Generic[T_co]):
    """How a call ended, without raising. ``error`` with ``ok`` is an exception that was accepted."""

    ok: bool
    value: T_co | None
    error: Exception | None
    report: Report

    def unwrap(self) -> T_co:
        """Return the value, or raise the error."""
        if self.error is not None:
            try:
                raise self.error
            finally:
                del self  # or the error and this frame would keep each other alive
        return cast("T_co", self.value)  # no error, so it is the value, None included


@public("redouble")
def report(exc: object, /) -> Report | None:
    """Tell what the policy did that let this exception through, or None if none did.

    An answer that one of our HTTP clients has returned tells it too, and so does the error that
    ``raise_for_status()`` makes of it.
    """
    stamp = stamp_of(exc) or stamp_of_response(exc)
    if stamp is None:
        return exc.report if isinstance(exc, RetryError) else None
    return stamp if isinstance(stamp, Report) else stamp.report()


def stamp_of(exc: object) -> CallStamp | Report | None:
    """Return what a policy left on this very exception."""
    try:
        return cast("CallStamp | Report | None", vars(exc).get(STAMP))
    except Exception:  # it has no attributes, or does not show them
        return None


def stamp_of_response(error: object) -> CallStamp | Report | None:
    """Return what a client of ours left on the answer of which somebody has made this error since."""
    try:
        return stamp_of(vars(error).get("response"))
    except Exception:  # it has no attributes, or does not show them
        return None


def related_errors(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, its explicit causes and the members of groups."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        found = waiting.pop()
        if found is None or id(found) in seen:
            continue
        seen.add(id(found))
        yield found
        try:
            waiting.append(found.__cause__)
            if isinstance(found, BaseExceptionGroup):
                waiting.extend(cast("BaseExceptionGroup[BaseException]", found).exceptions)
        except Exception:  # noqa: S112  it does not let itself be looked at
            continue


def left_worker(stamp: CallStamp | Report | None) -> bool:
    """Say whether a policy has left a worker beside which none may run."""
    return stamp.workers_left > 0 if isinstance(stamp, Report) else bool(getattr(stamp, "stuck", False))


def has_left_a_worker(error: BaseException) -> bool:
    """Say whether an error says so, itself or by what it came of."""
    return any(
        isinstance(found, WorkerStillRunning) or left_worker(stamp_of(found))
        for found in related_errors(error)
    )


def annotate(exc: BaseException, stamp: CallStamp, note: str | None) -> CallStamp | Report | None:
    """Leave the stamp, and one note; a note of ours is replaced, and so is a stamp, which is returned.

    Written into ``__dict__``: an exception may forbid ``setattr`` (a frozen dataclass does), and its
    ``__notes__`` may be anything. Nothing here may cost the caller the exception.
    """
    try:
        own: dict[str, Any] = exc.__dict__
        before: CallStamp | Report | None = own.get(STAMP)
        own[STAMP] = stamp
        if note is None:
            return before
        notes: object = own.get("__notes__")
        if notes is None:
            own["__notes__"] = [note]
        elif isinstance(notes, list):
            own["__notes__"] = [*(n for n in cast("list[object]", notes) if not _is_own_note(n)), note]
    except Exception:  # there is nothing to be done about such an exception
        return None
    return before


def _is_own_note(note: object) -> bool:
    return isinstance(note, str) and note.startswith(PREFIX)
