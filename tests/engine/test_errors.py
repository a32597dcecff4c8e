"""The errors of this package: the tree, where each is raised, and pickling."""

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
    errors.RateLimited: (Rejected,),
    errors.ConfigError: (RedoubleError, ValueError),
}


class Refused(Exception):
    """The operation's own error."""


class Holding(Exception):
    """Cannot be pickled: it holds what cannot."""

    def __init__(self) -> None:
        super().__init__("holding")
        self.callback = lambda: None


class Nameless(Holding):
    """Cannot even be written down."""

    def __repr__(self) -> str:
        raise RuntimeError


class OneWay(Exception):
    """Can be pickled, and then not be unpickled."""

    def __init__(self, *, code: int) -> None:
        super().__init__("one", "way")
        self.code = code


def test_the_tree_is_as_drawn() -> None:
    assert {kind: kind.__bases__ for kind in TREE} == TREE
    assert {kind.__name__ for kind in TREE} | {"Reason"} == set(errors.__all__)
    drawn = errors.__doc__ or ""
    assert all(kind.__name__ in drawn for kind in TREE)


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
def test_every_error_can_travel(kind: type[Exception], way: Callable[[Any], Any]) -> None:
    error = kind("what happened")
    error.add_note("more of it")
    arrived = way(error)
    assert type(arrived) is kind
    assert str(arrived) == str(error) == "what happened"
    assert arrived.args == error.args
    assert arrived.__notes__ == ["more of it"]
    assert type(kind()) is kind


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", RETRY_ERRORS)
def test_with_reason_report_and_last(kind: type[RetryError], way: Callable[[Any], Any]) -> None:
    arrived = way(kind("gave up", reason=Reason.attempts, report=REPORT, last=KeyError("k")))
    assert (arrived.reason, arrived.report, str(arrived)) == (Reason.attempts, REPORT, "gave up")
    assert (type(arrived.last), arrived.last.args) == (KeyError, ("k",))
    assert report(arrived) == REPORT


@pytest.mark.parametrize("last", [Holding(), OneWay(code=3), lambda: None, [open]], ids=stable_repr)
def test_a_last_that_cannot_travel_becomes_its_repr(last: object) -> None:
    arrived = pickle.loads(pickle.dumps(errors.Stopped("no", reason=Reason.stopped, last=last)))
    assert arrived.reason is Reason.stopped
    assert arrived.last == (last if isinstance(last, list) else repr(last))


def test_a_last_that_has_no_repr_either() -> None:
    arrived = pickle.loads(pickle.dumps(errors.Stopped("no", last=Nameless())))
    assert arrived.last == "<Nameless>"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", REJECTIONS)
def test_rejections_keep_their_hint(kind: type[Rejected], way: Callable[[Any], Any]) -> None:
    assert way(kind("closed", retry_after=2.5)).retry_after == 2.5
    assert way(kind("closed")).retry_after is None


@pytest.mark.parametrize("way", WAYS)
def test_a_config_error_has_a_path(way: Callable[[Any], Any]) -> None:
    error = way(errors.ConfigError("write a number", path="policies.api.attempts"))
    assert (str(error), error.path) == ("policies.api.attempts: write a number", "policies.api.attempts")
    assert (str(errors.ConfigError("no file")), errors.ConfigError().path) == ("no file", "")


# ------------------------------------------------------------------------ where from


def says(answer: Any) -> Callable[[Exception], Any]:
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
    ({"on": says(False)}, errors.Stopped, "stopped", "after 1 attempt in 2.0 s (not worth retrying)"),
    (
        {"on": says(60), "hints": Hints(longest=59)},
        errors.DeadlineExceeded,
        "hint_too_long",
        "(asked to wait 60 s)",
    ),
    ({"on": says(Verdict.retry(after=600))}, errors.DeadlineExceeded, "timeout", "(asked to wait 600 s)"),
]


@pytest.mark.parametrize(("options", "kind", "reason", "said"), WRAPPED, ids=lambda value: str(value)[:30])
def test_wrapping_chains_ours_to_yours(
    options: dict[str, Any], kind: type[RetryError], reason: str, said: str
) -> None:
    """One class per reason; yours is its cause and its ``last``, and carries no less than it would alone."""
    clock, error = Virtual(), Refused("not now")
    said_of: dict[str, Any] = {"on": Refused, "backoff": [0] * 9, **options}
    with pytest.raises(RetryError) as caught:
        Retry(**said_of, clock=clock, wrap=True).call(slowly(clock, error))
    ours = caught.value
    assert type(ours) is kind
    assert (ours.reason, ours.last, ours.__cause__) == (reason, error, error)
    assert str(ours).startswith("gave up after ")
    assert str(ours).endswith(f"{said}: Refused: not now")
    assert ours.report is not None
    assert ours.report.reason == reason
    assert report(ours) == ours.report == report(error)
    arrived = pickle.loads(pickle.dumps(ours))
    assert (report(arrived), str(arrived), arrived.last.args) == (ours.report, str(ours), ("not now",))


def test_an_inner_policy_gave_up_already() -> None:
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
def test_no_time_for_even_one_attempt(limit: str, reason: str, wrap: bool) -> None:
    options: dict[str, Any] = {limit: 0}
    with pytest.raises(errors.DeadlineExceeded, match="after 0 attempts") as caught:
        Retry(**options, wrap=wrap).call(lambda: 1)
    assert (caught.value.reason, caught.value.last, caught.value.__cause__) == (reason, None, None)
    assert caught.value.report is not None
    assert (caught.value.report.attempts, caught.value.report.history) == (0, ())


@pytest.mark.parametrize("wrap", [False, True])
def test_a_refused_result_is_the_last(wrap: bool) -> None:
    with pytest.raises(errors.NotAccepted) as caught:
        Retry(until=lambda _: False, attempts=2, backoff=[0], wrap=wrap).call(lambda: {"state": "pending"})
    assert caught.value.last == {"state": "pending"}
    assert pickle.loads(pickle.dumps(caught.value)).last == {"state": "pending"}
    assert caught.value.report is not None
    assert [entry.kind for entry in caught.value.report.history] == [Kind.unknown, Kind.unknown]
