"""Whatever Redouble writes of an error: its secrets and its line breaks are in none of it."""

from __future__ import annotations

import json
import logging
import pickle
import sys
from collections.abc import Callable
from typing import Any

import pytest
import structlog
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry, generate_latest

import redouble
from redouble import Bulkhead, CircuitBreaker, Fallback, Retry, Verdict, Worker, errors, observe
from redouble.config import from_mapping
from redouble.instruments import logging as logs
from redouble.instruments import memory, opentelemetry, prometheus
from redouble.instruments import structlog as structured
from redouble.types import Ended, Event
from tests.support.fakes import Boom, Virtual, in_colour

SECRET = "hunter2"  # noqa: S105  not a real one
FORGED = "\nERROR all is well\r\x1b[2J\u2028"
TEXT = f"cannot log in: password={SECRET} at db:{SECRET}@db.test{FORGED}, X-Auth-Token: {SECRET}"

Operation = Callable[[], Any]


def operations(error: Callable[[], Exception]) -> tuple[Operation, Operation]:
    """Return an operation that raises a new error in each attempt, in both colours."""

    def work() -> None:
        raise error()

    async def awork() -> None:
        work()

    return work, awork


def policy(**options: Any) -> Retry:
    given: dict[str, Any] = {"on": Boom, "attempts": 3, "backoff": [0] * 9, "clock": Virtual()}
    return Retry(**given | options)


def ended(colour: str, retrying: Any, error: Callable[[], Exception] = lambda: Boom(TEXT)) -> Exception:
    """Make a call that fails, and return what it raises."""
    work, awork = operations(error)
    with pytest.raises(Exception) as caught:  # noqa: PT011  the test looks at it
        in_colour(colour, lambda: retrying.call(work), lambda: retrying.call(awork))
    return caught.value


def assert_clean(*texts: str) -> None:
    for text in texts:
        assert SECRET not in text
        assert len(f"{text}.".splitlines()) == 1
        assert "\x1b" not in text


def test_the_report_and_the_notes(colour: str) -> None:
    error = ended(colour, policy())
    report = redouble.report(error)
    assert report is not None
    texts = [record.error_text or "" for record in report.history]
    assert_clean(repr(report), str(report), *map(repr, report.history), *texts, *error.__notes__)
    assert all(text.startswith("cannot log in: password=REDACTED at REDACTED@db.test") for text in texts)


def test_the_error_itself_is_untouched(colour: str) -> None:
    lost = Boom(TEXT)
    assert ended(colour, policy(attempts=1), lambda: lost) is lost
    assert (str(lost), lost.args) == (TEXT, (TEXT,))


def test_the_message_of_a_retry_error(colour: str) -> None:
    error = ended(colour, policy(wrap=True))
    assert isinstance(error, errors.AttemptsExhausted)
    assert_clean(str(error), repr(error), *map(str, error.args), repr(error.report))
    assert "cannot log in: password=REDACTED" in str(error)


def test_the_pickle_of_a_retry_error_whose_last_cannot_be_pickled(colour: str) -> None:
    class Local(Boom):
        pass

    error = ended(colour, policy(wrap=True), lambda: Local(TEXT))
    pickled = pickle.dumps(error)
    assert SECRET.encode() not in pickled
    assert isinstance(error, errors.RetryError)
    assert "REDACTED" in str(pickle.loads(pickled).last)


def test_the_stamp_of_an_error_is_pickled_as_its_report(colour: str) -> None:
    stamp = vars(ended(colour, policy()))["__redouble__"]
    assert SECRET.encode() not in pickle.dumps(stamp)


def test_the_outcome(colour: str) -> None:
    work, awork = operations(lambda: Boom(TEXT))
    outcome = in_colour(colour, lambda: policy().run(work), lambda: policy().run(awork))
    assert_clean(repr(outcome), str(outcome))
    assert str(outcome.error) == TEXT


def test_the_value_of_an_outcome_is_bounded() -> None:
    outcome = policy().run(lambda: {"password": SECRET, "page": "x" * 1_000_000})
    assert_clean(repr(outcome))
    assert len(repr(outcome)) < 10_000
    assert repr(policy().run(lambda: 3)).startswith("Outcome(ok=True, value=3, error=None, report=Report(")


def test_events(colour: str) -> None:
    events: list[Event] = []
    with observe(events.append):
        ended(colour, policy() | CircuitBreaker(failures=2))
    assert len(events) > 5
    assert_clean(*map(repr, events), *map(str, events))


def test_log_lines(colour: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with logs.instrument():
        ended(colour, Fallback(lambda error: 1 / 0) | policy() | CircuitBreaker(failures=2) | Bulkhead(3))
    assert len(caplog.records) > 5
    formatter = logging.Formatter("%(levelname)s %(message)s")
    assert_clean(*map(formatter.format, caplog.records))
    assert_clean(*(json.dumps(vars(record), default=str) for record in caplog.records))


def test_structured_logs(colour: str) -> None:
    with structlog.testing.capture_logs() as entries, structured.instrument():
        ended(colour, policy())
    assert len(entries) > 3
    assert_clean(*map(json.dumps, entries))


def test_metrics_and_spans(colour: str) -> None:
    """A reason of a rule is a label; and a rule may give any."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    registry = CollectorRegistry()

    def rule(error: Exception) -> Verdict:
        return Verdict.retry(reason=str(error))

    careless = policy(on=rule)
    with memory.instrument() as metrics, prometheus.instrument(registry), opentelemetry.instrument():
        with provider.get_tracer("test").start_as_current_span("call", record_exception=False):
            ended("sync", careless)
        ended(colour, careless)
    (span,) = exporter.get_finished_spans()
    assert_clean(*(repr(dict(event.attributes or {})) for event in span.events), repr(metrics.series()))
    assert SECRET not in generate_latest(registry).decode()


@pytest.mark.parametrize("hook", ["on_failure", "on_retry", "on_give_up"])
def test_an_observer_that_fails(colour: str, hook: str, caplog: pytest.LogCaptureFixture) -> None:
    """Its own text is somebody else's too, and its context is the error of the operation."""

    class Failing:
        def __call__(self, event: Event) -> None:
            try:
                raise event.error or ZeroDivisionError
            except Exception as error:
                raise ValueError(f"hook failed: {TEXT}") from error

    Failing.__qualname__ = f"Failing{colour}{hook}"  # logged once for each name
    ended(colour, policy(**{hook: Failing()}))
    records = [record for record in caplog.records if hook.removeprefix("on_") in record.getMessage()]
    assert len(records) == 1
    assert_clean(
        logging.Formatter("%(message)s").format(records[0]), json.dumps(vars(records[0]), default=str)
    )
    message = records[0].getMessage()
    assert "ValueError: hook failed: cannot log in: password=REDACTED" in message
    assert "in test_an_observer_that_fails.<locals>.Failing.__call__" in message


def test_a_rule_that_fails_keeps_the_report_clean(colour: str) -> None:
    def rule(error: Exception) -> bool:
        raise ValueError(TEXT)

    error = ended(colour, policy(on=rule))
    assert isinstance(error, ValueError)
    assert_clean(repr(redouble.report(error)), repr(redouble.report(error.__context__)))


def unpicklable() -> None:
    raise Unpicklable(TEXT)


def test_what_a_rule_prints(colour: str) -> None:
    """A rule may log what it judges."""
    seen: list[str] = []

    class Rule:
        def judge(self, ended: Ended) -> bool:
            seen.append(f"{ended}")
            return True

    ended(colour, policy(on=Rule()))
    assert len(seen) == 3
    assert_clean(*seen)


class Unpicklable(Exception):
    def __reduce__(self) -> Any:
        raise TypeError(f"cannot pickle {TEXT}")


def lost() -> None:
    raise ConnectionError(TEXT)


@pytest.mark.quiet
def test_worker_processes() -> None:
    working = policy(worker=Worker(kind="process"), attempts=2, clock=redouble.SYSTEM, on=OSError)
    with pytest.raises(errors.WorkerFailed, match="REDACTED") as failed:
        working.call(unpicklable)
    assert_clean(str(failed.value), repr(failed.value))
    with pytest.raises(ConnectionError) as caught:
        working.call(lost)
    cause = caught.value.__cause__
    assert SECRET not in f"{cause!s}{cause!r}"
    assert "in lost" in str(cause)
    assert str(pickle.loads(pickle.dumps(cause))) == str(cause)
    assert SECRET.encode() not in pickle.dumps(cause)


@pytest.mark.parametrize(
    "document",
    [
        {"policies": {"a": {"password": SECRET}}},
        {"policies": {"a": {"attempts": f"postgresql://app:{SECRET}@db/x"}}},
        {"policies": {"a": {"on": f"token={SECRET}"}}},
        {"gates": {"a": {"type": f"api_key={SECRET}"}}},
        {"budgets": {"a": f"password={SECRET}"}},
    ],
)
def test_errors_of_a_configuration(document: dict[str, Any]) -> None:
    with pytest.raises(errors.ConfigError) as caught:
        from_mapping(document)
    assert_clean(str(caught.value))


def test_the_error_event_of_a_stream() -> None:
    from redouble.llm._protocols.builtin import DetectedProtocol

    event = {"type": "error", "error": {"type": "authentication_error", "message": TEXT}}
    error = DetectedProtocol("anthropic").read(event)
    assert error is not None
    assert_clean(str(error), repr(error))
    assert error.said is event


def test_the_details_of_an_rpc() -> None:
    from redouble.grpc._finished_call import ResolvedCall

    call = ResolvedCall(error=Boom(TEXT))
    assert_clean(call.details(), call.debug_error_string())


def test_a_text_is_hidden_as_a_whole_without_a_file_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rules are loaded with the first text; a process that fails may be unable to open their file."""

    class Full:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "redouble._redaction.text":
                raise OSError(24, "Too many open files")

    monkeypatch.delitem(sys.modules, "redouble._redaction.text")
    monkeypatch.setattr(sys, "meta_path", [Full(), *sys.meta_path])
    assert str(ended("sync", policy(wrap=True))).endswith("ScriptedError: REDACTED")
