"""The errors of this package: the class tree, where each is raised, and pickling."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from redouble import Hints, Kind, Reason, Report, Retry, Verdict, errors, report
from redouble.errors import RedoubleError, Rejected, RetryError
from tests.support.fakes import Ledger, Virtual, stable_repr

TREE: dict[type[Exception], tuple[type[Exception], ...]] = {
    RedoubleError: (Exception,),
    RetryError: (RedoubleError,),
    errors.AttemptsExhausted: (RetryError,),
    errors.NotAccepted: (RetryError,),
    errors.BudgetExhausted: (RetryError,),
    errors.Stopped: (RetryError,),
    errors.DeadlineExceeded: (RetryError, TimeoutError),
    errors.AttemptTimeout: (RedoubleError, TimeoutError),
    errors.WorkerStillRunning: (RedoubleError, TimeoutError),
    errors.WorkerFailed: (RedoubleError,),
    Rejected: (RedoubleError,),
    errors.CircuitOpen: (Rejected,),
    errors.BulkheadFull: (Rejected,),
    errors.WorkersBusy: (Rejected,),
    errors.RateLimited: (Rejected,),
    errors.ConfigError: (RedoubleError, ValueError),
}


class Refused(Exception):
    """The operation's own error."""


class Holding(Exception):
    """An error that cannot be pickled, because of an attribute."""

    def __init__(self) -> None:
        super().__init__("holding")
        self.callback = lambda: None


class Nameless(Holding):
    """An error without a working repr, too."""

    def __repr__(self) -> str:
        raise RuntimeError


class OneWay(Exception):
    """An error that can be pickled, but not unpickled."""

    def __init__(self, *, code: int) -> None:
        super().__init__("one", "way")
        self.code = code


def test_the_class_tree_matches_the_docstring() -> None:
    assert {kind: kind.__bases__ for kind in TREE} == TREE
    assert {kind.__name__ for kind in TREE} | {"Reason"} == set(errors.__all__)
    docstring = errors.__doc__ or ""
    assert all(kind.__name__ in docstring for kind in TREE)


def test_the_reasons() -> None:
    assert [str(reason) for reason in Reason] == [
        "attempts",
        "stopped",
        "timeout",
        "work_timeout",
        "budget",
        "hint_too_long",
        "nested",
        "backoff_ended",
        "worker_still_running",
        "committed",
        "not_replayable",
    ]


REPORT = Report(Reason.attempts, 3, 2.5, 1.5, labels={"team": "a"})
RETRY_ERRORS = [kind for kind in TREE if issubclass(kind, RetryError)]
REJECTIONS = [kind for kind in TREE if issubclass(kind, Rejected)]
WAYS: list[Callable[[Any], Any]] = [
    copy.copy,
    *(lambda error, n=n: pickle.loads(pickle.dumps(error, n)) for n in range(pickle.HIGHEST_PROTOCOL + 1)),
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", TREE)
def test_every_error_can_be_copied_and_pickled(kind: type[Exception], way: Callable[[Any], Any]) -> None:
    error = kind("what happened")
    error.add_note("more of it")
    copied = way(error)
    assert type(copied) is kind
    assert str(copied) == str(error) == "what happened"
    assert copied.args == error.args
    assert copied.__notes__ == ["more of it"]
    assert type(kind()) is kind


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", RETRY_ERRORS)
def test_copies_keep_reason_report_and_last(kind: type[RetryError], way: Callable[[Any], Any]) -> None:
    copied = way(kind("gave up", reason=Reason.attempts, report=REPORT, last=KeyError("k")))
    assert (copied.reason, copied.report, str(copied)) == (Reason.attempts, REPORT, "gave up")
    assert (type(copied.last), copied.last.args) == (KeyError, ("k",))
    assert report(copied) == REPORT


@pytest.mark.parametrize("last", [Holding(), OneWay(code=3), lambda: None, [open]], ids=stable_repr)
def test_an_unpicklable_last_becomes_its_repr(last: object) -> None:
    copied = pickle.loads(pickle.dumps(errors.Stopped("no", reason=Reason.stopped, last=last)))
    assert copied.reason is Reason.stopped
    assert copied.last == (last if isinstance(last, list) else repr(last))


def test_an_unpicklable_last_without_a_repr_becomes_its_type() -> None:
    copied = pickle.loads(pickle.dumps(errors.Stopped("no", last=Nameless())))
    assert copied.last == "<Nameless>"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", REJECTIONS)
def test_copies_of_rejections_keep_retry_after(kind: type[Rejected], way: Callable[[Any], Any]) -> None:
    assert way(kind("closed", retry_after=2.5)).retry_after == 2.5
    assert way(kind("closed")).retry_after is None


@pytest.mark.parametrize("way", WAYS)
def test_a_config_error_has_a_path(way: Callable[[Any], Any]) -> None:
    error = way(errors.ConfigError("write a number", path="policies.api.attempts"))
    assert (str(error), error.path) == ("policies.api.attempts: write a number", "policies.api.attempts")
    assert (str(errors.ConfigError("no file")), errors.ConfigError().path) == ("no file", "")


# ------------------------------------------------------ where each error is raised


def always(answer: Any) -> Callable[[Exception], Any]:
    return lambda _: answer


def slowly(clock: Virtual, error: Exception) -> Callable[[], None]:
    def operation() -> None:
        clock.time += 2
        raise error

    return operation


WRAPPED: list[tuple[dict[str, Any], type[RetryError], str, str]] = [
    ({"attempts": 2}, errors.AttemptsExhausted, "attempts", "after 2 attempts in 4.0 s (attempts exhausted)"),
    ({"backoff": []}, errors.AttemptsExhausted, "backoff_ended", "after 1 attempt in 2.0 s (no delays left)"),
    ({"budget": Ledger(0)}, errors.BudgetExhausted, "budget", "(retry budget exhausted)"),
    ({"timeout": 3}, errors.DeadlineExceeded, "timeout", "after 2 attempts in 4.0 s (no time left)"),
    ({"give_up_after": 9, "backoff": [9]}, errors.DeadlineExceeded, "timeout", "(no time left)"),
    ({"work_timeout": 4}, errors.DeadlineExceeded, "work_timeout", "(no work time left)"),
    ({"on": always(False)}, errors.Stopped, "stopped", "after 1 attempt in 2.0 s (not worth retrying)"),
    (
        {"on": always(60), "hints": Hints(longest=59)},
        errors.DeadlineExceeded,
        "hint_too_long",
        "(asked to wait 60 s)",
    ),
    ({"on": always(Verdict.retry(after=600))}, errors.DeadlineExceeded, "timeout", "(asked to wait 600 s)"),
]


@pytest.mark.parametrize(("options", "kind", "reason", "message"), WRAPPED, ids=lambda value: str(value)[:30])
def test_wrap_raises_our_error_from_the_operations_error(
    options: dict[str, Any], kind: type[RetryError], reason: str, message: str
) -> None:
    """One class per reason; the operation's error is its cause and its ``last``, and has the same report."""
    clock, error = Virtual(), Refused("not now")
    given: dict[str, Any] = {"on": Refused, "backoff": [0] * 9, **options}
    with pytest.raises(RetryError) as caught:
        Retry(**given, clock=clock, wrap=True).call(slowly(clock, error))
    ours = caught.value
    assert type(ours) is kind
    assert (ours.reason, ours.last, ours.__cause__) == (reason, error, error)
    assert str(ours).startswith("gave up after ")
    assert str(ours).endswith(f"{message}: Refused: not now")
    assert ours.report is not None
    assert ours.report.reason == reason
    assert report(ours) == ours.report == report(error)
    copied = pickle.loads(pickle.dumps(ours))
    assert (report(copied), str(copied), copied.last.args) == (ours.report, str(ours), ("not now",))


def test_nested_stop_raises_stopped() -> None:
    inner = Retry(on=Refused, attempts=2, backoff=[0])
    outer = Retry(on=Refused, nested="stop", wrap=True)

    @inner
    def operation() -> None:
        raise Refused

    with pytest.raises(errors.Stopped, match="an inner policy gave up already") as caught:
        outer.call(operation)
    assert caught.value.reason is Reason.nested


@pytest.mark.parametrize("wrap", [False, True])
@pytest.mark.parametrize(("limit", "reason"), [("timeout", "timeout"), ("work_timeout", "work_timeout")])
def test_a_limit_of_zero_raises_deadline_exceeded(limit: str, reason: str, wrap: bool) -> None:
    options: dict[str, Any] = {limit: 0}
    with pytest.raises(errors.DeadlineExceeded, match="after 0 attempts") as caught:
        Retry(**options, wrap=wrap).call(lambda: 1)
    assert (caught.value.reason, caught.value.last, caught.value.__cause__) == (reason, None, None)
    assert caught.value.report is not None
    assert (caught.value.report.attempts, caught.value.report.history) == (0, ())


@pytest.mark.parametrize("wrap", [False, True])
def test_not_accepted_has_the_result_as_last(wrap: bool) -> None:
    with pytest.raises(errors.NotAccepted) as caught:
        Retry(until=lambda _: False, attempts=2, backoff=[0], wrap=wrap).call(lambda: {"state": "pending"})
    assert caught.value.last == {"state": "pending"}
    assert pickle.loads(pickle.dumps(caught.value)).last == {"state": "pending"}
    assert caught.value.report is not None
    assert [entry.kind for entry in caught.value.report.history] == [Kind.unknown, Kind.unknown]
