"""Reports and outcomes, and the stamp that an exception carries.

The engine stamps the exception that it raises with the run; the report is built only when it is read.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar, cast

from redouble._failures.verdict import Kind, Verdict
from redouble._internal.public import public
from redouble.errors import Limit, Reason, RetryError, WorkerStillRunning

T_co = TypeVar("T_co", covariant=True)

STAMP: Final = "__redouble__"
PREFIX: Final = "redouble: gave up "


@public("redouble")
class AttemptRecord(NamedTuple):
    """One attempt. ``started`` counts from the start of the call; ``delay`` is the wait that followed.

    After the last attempt, ``delay`` is the wait that a retry would have had, if it was refused for another
    reason than the failure itself: by the budget, by a time limit, or because the hint was too long.
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
    """The report of one call. ``reason`` is None if it succeeded.

    ``limit`` is the limit that ended it, or that its last attempt exceeded: ``attempt``, ``work``, ``total``,
    ``give_up_after`` or ``deadline``. ``workers_left`` is the number of threads that did not stop when asked.
    ``usage`` is what the call has used, by name: tokens and cost, if it is one of an `llm.Model`.
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
    usage: Mapping[str, float] = {}

    @property
    def late(self) -> bool:
        """True if the call succeeded after its limit: an attempt ran past its limit and returned."""
        return self.reason is None and self.limit is not None

    @property
    def next_delay(self) -> float | None:
        """The delay of the retry that was refused, or None: how long a caller who goes on should wait."""
        return self.history[-1].delay if self.reason is not None and self.history else None


class CallStamp(Protocol):
    """What a call that gave up leaves on its error: its run, which becomes its report when pickled."""

    @property
    def reason(self) -> Reason | None:
        """Why the call gave up."""
        ...

    @property
    def name(self) -> str:
        """The name of its policy."""
        ...

    @property
    def attempt(self) -> int:
        """The number of attempts."""
        ...

    def report(self) -> Report:
        """Build the report."""
        ...


class ResendGuard:
    """What one of our clients gives the engine with each call: whether the request may be sent again.

    The client sets it as the `guard` of the runs of its call, and the engine consults it before every retry.
    It is also the stamp on the error of an attempt that no policy has judged yet. Code that reads stamps sees
    a policy that stopped at its first attempt, which does not multiply attempts.
    """

    reason = Reason.stopped
    name = ""
    attempt = 1

    def veto(self, verdict: Verdict, /) -> Reason | None:
        """Return the reason why an attempt that ended with this verdict must not be followed by another."""

    def succeeded(self, credit: Callable[[], None], /) -> None:
        """Credit a budget for a success: now, or when the body of the response is there."""
        credit()


@public("redouble")
class Outcome(NamedTuple, Generic[T_co]):
    """How a call ended, without raising. ``error`` with ``ok`` is an exception that a rule accepted."""

    ok: bool
    value: T_co | None
    error: Exception | None
    report: Report

    def __repr__(self) -> str:
        # The text of an error may hold secrets, and a value may be huge.
        from redouble._redaction.rendering import field_repr  # noqa: PLC0415  only for a repr

        fields = f"value={field_repr(self.value)}, error={field_repr(self.error)}, report={self.report!r}"
        return f"Outcome(ok={self.ok}, {fields})"

    def unwrap(self) -> T_co:
        """Return the value, or raise the error."""
        if self.error is not None:
            try:
                raise self.error
            finally:
                del self  # break the cycle of the error and this frame
        return cast("T_co", self.value)  # no error, so it is the value, None included


@public("redouble")
def report(exc: object, /) -> Report | None:
    """Return the report of the policy that raised this exception, or None.

    A response that one of our HTTP clients has returned has a report too, and so has the error that
    ``raise_for_status()`` raises for it.
    """
    stamp = stamp_of(exc) or stamp_of_response(exc)
    if stamp is None:
        return exc.report if isinstance(exc, RetryError) else None
    return stamp if isinstance(stamp, Report) else stamp.report()


def stamp_of(exc: object) -> CallStamp | Report | None:
    """Return the stamp that a policy left on this very exception."""
    try:
        return cast("CallStamp | Report | None", vars(exc).get(STAMP))
    except Exception:  # it has no readable attributes
        return None


def stamp_of_response(error: object) -> CallStamp | Report | None:
    """Return the stamp that one of our clients left on the response of this error."""
    try:
        return stamp_of(vars(error).get("response"))
    except Exception:  # it has no readable attributes
        return None


def related_errors(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, its explicit causes and the members of groups."""
    seen: set[int] = set()
    pending: list[BaseException | None] = [error]
    while pending:
        related = pending.pop()
        if related is None or id(related) in seen:
            continue
        seen.add(id(related))
        yield related
        try:
            pending.append(related.__cause__)
            if isinstance(related, BaseExceptionGroup):
                pending.extend(cast("BaseExceptionGroup[BaseException]", related).exceptions)
        except Exception:  # noqa: S112  its attributes cannot be read
            continue


def left_worker(stamp: CallStamp | Report | None) -> bool:
    """Return True if a policy has left a worker running beside which no other may run."""
    return stamp.workers_left > 0 if isinstance(stamp, Report) else bool(getattr(stamp, "stuck", False))


def has_left_a_worker(error: BaseException) -> bool:
    """Return True if an error, one of its causes or a member of its group reports a worker left running."""
    return any(
        issubclass(type(other), WorkerStillRunning) or left_worker(stamp_of(other))
        for other in related_errors(error)
    )


def annotate(exc: BaseException, stamp: CallStamp | Report, note: str | None) -> CallStamp | Report | None:
    """Set the stamp and one note, replacing earlier ones; return the replaced stamp.

    They are written into ``__dict__``: an exception may forbid ``setattr`` (a frozen dataclass does), and its
    ``__notes__`` may be anything. An error in here must not replace the caller's exception.
    """
    try:
        own: dict[str, Any] = exc.__dict__
        if not own and note is not None:  # the usual error
            own[STAMP], own["__notes__"] = stamp, [note]
            return None
        before: CallStamp | Report | None = own.get(STAMP)
        own[STAMP] = stamp
        if note is None:
            return before
        notes: object = own.get("__notes__")
        if notes is None:
            own["__notes__"] = [note]
        elif isinstance(notes, list):
            own["__notes__"] = [*(n for n in cast("list[object]", notes) if not _is_own_note(n)), note]
    except Exception:  # this exception cannot be annotated
        return None
    return before


def _is_own_note(note: object) -> bool:
    return isinstance(note, str) and note.startswith(PREFIX)
