"""Calls of language models through an `llm.Model`: llm-fiber's decision record and the facts of its code.

Metrics and logs are in test_instruments_llm, spending limits in test_llm_spend.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from functools import partial
from typing import Any

import httpx2
import pytest
from trio.testing import MockClock

from redouble import SYSTEM, Backoff, Reason, Report, Retry, bind, presets, report
from redouble.instruments import memory
from redouble.llm import Context, CutShort, Model, Timeouts
from redouble.testing import virtual_time
from tests.conformance.flows import ASYNC, EVERY, in_colour
from tests.support.scripted import Draws, Virtual

every_colour = pytest.mark.parametrize("colour", EVERY)
every_async = pytest.mark.parametrize("colour", ASYNC)

REQUEST = httpx2.Request("POST", "http://model.test/v1/chat")
AT_ONCE = Retry(backoff=[0] * 9)


class Fault:
    """Return a new error for each attempt, because an error keeps its report."""

    def __init__(self, kind: Callable[..., Exception], *said: Any, **more: Any) -> None:
        self._make = partial(kind, *said, **more)
        self.kind = type(self._make())

    def __call__(self) -> Exception:
        return self._make()

    def __repr__(self) -> str:
        return f"{self.kind.__name__}-{self._make()}"


def answered(status: int, body: bytes = b"") -> Fault:
    response = httpx2.Response(status, request=REQUEST, content=body)
    return Fault(httpx2.HTTPStatusError, f"{status}", request=REQUEST, response=response)


RESET = Fault(ConnectionResetError, "reset")
SILENCE = Fault(httpx2.ReadTimeout, "silence", request=REQUEST)


def model(policy: Retry = AT_ONCE, **options: Any) -> Model:
    return Model("acme", "small", policy=policy, **{"worker": None, **options})


class Asked:
    """A scripted model that fails and then answers, called in a colour."""

    def __init__(self, *outcomes: Fault | str) -> None:
        self.outcomes = outcomes
        self.calls = 0
        self.raised: Exception | None = None

    def answer(self) -> str:
        outcome = self.outcomes[min(self.calls, len(self.outcomes) - 1)]
        self.calls += 1
        if isinstance(outcome, Fault):
            self.raised = outcome()
            raise self.raised
        return outcome

    async def later(self) -> str:
        return self.answer()

    def call(self, colour: str, model: Model) -> object:
        def asking() -> object:
            with bind(run_id="r1"):
                return model.call(self.answer)

        async def waiting() -> object:
            with bind(run_id="r1"):
                return await model.call(self.later)

        return in_colour(colour, asking, waiting, MockClock(autojump_threshold=0))

    def fails(self, colour: str, model: Model) -> Report:
        """Make a call, and return its error, which is the last error of the model."""
        with pytest.raises(Exception) as caught:  # noqa: PT011  checked below
            self.call(colour, model)
        assert caught.value is self.raised
        call_report = report(caught.value)
        assert call_report is not None
        return call_report


class Streamed:
    """A scripted stream for each attempt: chunks, errors, and seconds of silence."""

    def __init__(self, *streams: Sequence[object]) -> None:
        self.streams = streams
        self.log: list[str] = []
        self.chunks: list[object] = []
        self.opened = 0

    def blocking(self) -> Generator[object]:
        self.opened += 1
        number = self.opened
        self.log.append(f"opened {number}")
        try:
            for item in self.streams[number - 1]:
                if isinstance(item, Fault):
                    raise item()
                yield item
        finally:
            self.log.append(f"closed {number}")

    async def waiting(self) -> AsyncGenerator[object]:
        for item in self.blocking():
            if isinstance(item, float):
                await SYSTEM.asleep(item)
            else:
                yield item

    def read(self, colour: str, model: Model) -> None:
        def read() -> None:
            with bind(run_id="r1"):
                for chunk in model.stream(self.blocking):
                    self.chunks.append(chunk)

        async def aread() -> None:
            with bind(run_id="r1"):
                async for chunk in model.stream(self.waiting):
                    self.chunks.append(chunk)

        with virtual_time():
            in_colour(colour, read, aread, MockClock(autojump_threshold=0))


# ------------------------------------------------------------------------------- retrying


@every_colour
@pytest.mark.parametrize(
    ("drawn", "delays"),
    [(1.0, [0.2, 0.4, 0.8, 1.6, 2.0]), (0.5, [0.1, 0.2, 0.4, 0.8, 1.0]), (0.0, [])],
)
def test_lf_adr_01_full_jitter(colour: str, drawn: float, delays: list[float]) -> None:
    """LF-ADR-01: from zero up to 200 ms, doubled for each attempt, up to 2000 ms."""
    clock = Virtual()
    policy = presets.llm(attempts=6, timeout=None, clock=clock, random=Draws(drawn))
    Asked(RESET).fails(colour, model(policy))
    assert [wait for wait in clock.waits if wait] == pytest.approx(delays)


@every_colour
def test_lf_adr_01_four_attempts_in_30_seconds(colour: str) -> None:
    """LF-ADR-01: these are the defaults of a model."""
    usual = Model("acme", "small")
    assert usual.timeouts == Timeouts(connect=5, read=30, total=30)
    asked = Asked(RESET)
    with virtual_time():
        call_report = asked.fails(colour, Model("acme", "small", worker=None))
    assert (asked.calls, call_report.reason) == (4, Reason.attempts)


@every_colour
@pytest.mark.parametrize(
    ("error", "again"),
    [
        *((answered(status), True) for status in (429, 500, 501, 502, 503, 504, 529, 599)),
        (Fault(socket.gaierror, socket.EAI_AGAIN, "no name"), True),
        (Fault(ConnectionRefusedError, "refused"), True),
        (RESET, True),
        (Fault(httpx2.ConnectError, "handshake", request=REQUEST), True),
        (Fault(ssl.SSLEOFError, "handshake"), True),
        (Fault(httpx2.ConnectTimeout, "connect", request=REQUEST), True),
        (SILENCE, True),
        *((answered(status), False) for status in (400, 401, 403, 404)),
        (answered(400, b'{"error": {"type": "invalid_request_error"}}'), False),
        (answered(401, b'{"error": {"code": "invalid_api_key"}}'), False),
        (answered(429, b'{"error": {"code": "insufficient_quota"}}'), False),
    ],
    ids=repr,
)
def test_the_classification_table_of_the_decision_record(colour: str, error: Fault, again: bool) -> None:
    """Of LF-ADR-01: errors that are retried before a stream starts."""
    asked = Asked(error, "ok")
    if again:
        assert asked.call(colour, model()) == "ok"
    else:
        assert asked.fails(colour, model()).reason == Reason.stopped
    assert asked.calls == 1 + again


@every_colour
@pytest.mark.parametrize(
    ("error", "said", "calls"),
    [
        pytest.param(RESET, True, 2, id="LF-ADR-04.retry-True"),
        pytest.param(RESET, False, 1, id="LF-ADR-04.retry-False"),
        pytest.param(answered(400), True, 2, id="LF-ADR-04.stop-True"),
        pytest.param(answered(400), None, 1, id="LF-ADR-04.stop-None"),
        pytest.param(RESET, None, 2, id="LF-ADR-04.retry-None"),
    ],
)
def test_lf_adr_04_retry_if(colour: str, error: Fault, said: bool | None, calls: int) -> None:
    """LF-ADR-04: the hook is called first, with the model, and with the fields bound to the call."""
    told: list[tuple[type[Exception], int, Context]] = []

    def retry_if(error: Exception, attempt: int, context: Context) -> bool | None:
        told.append((type(error), attempt, context))
        return said

    asked, streamed = Asked(error, "ok"), Streamed([error], ["ok"])
    hooked = model(retry_if=retry_if)
    if calls == 2:
        asked.call(colour, hooked)
        streamed.read(colour, hooked)
    else:
        asked.fails(colour, hooked)
        with pytest.raises(error.kind):
            streamed.read(colour, hooked)
    assert (asked.calls, streamed.opened) == (calls, calls)
    bound = {"run_id": "r1"}
    assert told == [(error.kind, 1, Context("acme", "small", bound, stream)) for stream in (False, True)]


# -------------------------------------------------------------------------------- streams


@every_colour
@pytest.mark.parametrize("idempotency", [None, "auto"])
@pytest.mark.parametrize(
    ("streams", "chunks", "error"),
    [
        pytest.param([[answered(503)], ["a", "b"]], ["a", "b"], None, id="LF-ADR-05.before-any-chunk"),
        pytest.param([["a", RESET], ["a", "b"]], ["a"], RESET, id="LF-ADR-05.reset-after-1"),
        pytest.param([["a", SILENCE], ["a", "b"]], ["a"], SILENCE, id="LF-ADR-05.silence-after-1"),
    ],
)
def test_lf_adr_05_streams(
    colour: str, idempotency: Any, streams: list[list[object]], chunks: list[str], error: Fault | None
) -> None:
    """LF-ADR-05: retried before any chunk, raised at once after one, with a key or without."""
    streamed = Streamed(*streams)
    guarded = model(idempotency=idempotency)
    if error is None:
        streamed.read(colour, guarded)
    else:
        with pytest.raises(error.kind) as caught:
            streamed.read(colour, guarded)
        call_report = report(caught.value)
        assert call_report is not None
        assert call_report.reason == Reason.committed
    assert (streamed.chunks, streamed.opened) == (chunks, 1 if error else 2)


@every_async
@pytest.mark.parametrize(
    ("stream", "reason"),
    [
        pytest.param(["a", 31.0, "b"], "committed", id="LF-ADR-05.silence-after-1"),
        pytest.param(["a", *[1.0, "b"] * 40], "timeout", id="LF-ADR-05.total"),
    ],
)
def test_lf_adr_05_limits(colour: str, stream: list[object], reason: str) -> None:
    """LF-ADR-05: 30 s of silence, or 30 s in all, end a stream that has started; it is not retried."""
    streamed = Streamed(stream, ["a", "b"])
    with pytest.raises(TimeoutError) as caught:
        streamed.read(colour, model(timeouts=Timeouts(connect=5, read=30, total=30.5)))
    call_report = report(caught.value)
    assert call_report is not None
    assert (call_report.reason, call_report.labels) == (reason, {"provider": "acme", "model": "small"})
    assert (streamed.opened, streamed.log[-1]) == (1, "closed 1")


BUSY: dict[str, Any] = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
START: dict[str, Any] = {"type": "message_start", "message": {}}
STOP: dict[str, Any] = {"type": "message_stop"}


@every_colour
@pytest.mark.parametrize(
    ("streams", "chunks", "error"),
    [
        pytest.param([[BUSY], [START, STOP]], [START, STOP], None, id="stream.commit_points.error-first"),
        pytest.param([[], [START, STOP]], [START, STOP], None, id="stream.commit_points.empty-first"),
        pytest.param([[START, BUSY], []], [START], "overloaded", id="stream.commit_points.error-later"),
        pytest.param([[START], []], [START], "message_stop", id="stream.commit_points.cut-short"),
    ],
)
def test_commit_points(
    colour: str, streams: list[list[object]], chunks: list[object], error: str | None
) -> None:
    """stream.commit_points: a first event with an error commits nothing; the rest of the stream is closed."""
    streamed = Streamed(*streams)
    if error is None:
        streamed.read(colour, model())
        assert streamed.log == ["opened 1", "closed 1", "opened 2", "closed 2"]
    else:
        with pytest.raises(Exception, match=error) as caught:
            streamed.read(colour, model())
        assert isinstance(caught.value, CutShort) is (error == "message_stop")
        assert streamed.log == ["opened 1", "closed 1"]
    assert streamed.chunks == chunks


@every_async
def test_commit_points_attempt_timeout(colour: str) -> None:
    """stream.commit_points: the limit of an attempt ends with the first chunk."""
    streamed = Streamed([0.5, "a", 3.0, "b", 3.0, "c"])
    policy = Retry(backoff=[0], attempt_timeout=1)
    streamed.read(colour, model(policy))
    assert (streamed.chunks, streamed.opened) == (["a", "b", "c"], 1)


# ------------------------------------------------------------------ the behaviour of its code


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        pytest.param(Timeouts(), (5, 30, 30), id="LF-CODE-01.timeouts-default"),
        pytest.param(Timeouts(10, 60, 120), (10, 60, 120), id="LF-CODE-01.timeouts-conservative"),
        pytest.param(Timeouts(2, 10, 30), (2, 10, 30), id="LF-CODE-01.timeouts-aggressive"),
        pytest.param(Timeouts.none(), (None, None, None), id="LF-CODE-01.timeouts-none"),
    ],
)
def test_lf_code_01_timeouts(limits: Timeouts, expected: tuple[float | None, ...]) -> None:
    """LF-CODE-01: the total is that of the decision record, 30 s; the others can be given."""
    assert (limits.connect, limits.read, limits.total) == expected
    assert model(timeouts=limits).timeouts == limits


@pytest.mark.parametrize(
    ("make", "named"),
    [
        pytest.param(lambda: Timeouts(connect=0), "connect=0", id="LF-CODE-04.connect"),
        pytest.param(lambda: Timeouts(read=-1), "read=-1", id="LF-CODE-04.read"),
        pytest.param(lambda: Timeouts(total=0), "total=0", id="LF-CODE-04.total"),
    ],
)
def test_lf_code_04_refused(make: Callable[[], object], named: str) -> None:
    """LF-CODE-04: invalid options are rejected by the constructor, by name."""
    with pytest.raises(ValueError, match=f"^Timeouts {named}: write "):
        make()


def test_lf_code_04_total_below_connect_deviates(recwarn: pytest.WarningsRecorder) -> None:
    """LF-CODE-04: a total below the other limits causes no warning, because it limits them too."""
    limits = Timeouts(total=3)
    assert not recwarn.list
    assert limits.within(3)["connect"] == limits.within(3)["read"] == pytest.approx(3, abs=0.02)


LIKE = {  # llm-fiber's errors, and the corresponding ones
    "FiberConnectionError": Fault(ConnectionError, "lost"),
    "FiberTimeoutError": Fault(TimeoutError, "late"),
    "FiberRateLimitError": answered(429),
    "FiberAuthError": answered(401),
    "FiberValidationError": answered(400),
    "FiberQuotaError": answered(402),
    "FiberParsingError": Fault(UnicodeDecodeError, "utf-8", b"\xff", 0, 1, "invalid start byte"),
    "FiberProviderError": Fault(RuntimeError, "something"),
    "FiberError": Fault(Exception, "something"),
    "ValueError": Fault(ValueError, "something"),
}


@every_colour
@pytest.mark.parametrize("name", LIKE)
def test_lf_code_03_should_retry(colour: str, name: str) -> None:
    """LF-CODE-03: lost, late and rate-limited calls are retried, up to three attempts."""
    asked = Asked(LIKE[name])
    asked.fails(colour, model(Retry(backoff=[0] * 9, attempts=3)))
    again = name in ("FiberConnectionError", "FiberTimeoutError", "FiberRateLimitError")
    assert asked.calls == (3 if again else 1)


@every_colour
@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_lf_code_03_statuses(colour: str, status: int) -> None:
    """LF-CODE-03: the statuses that are retried there are retried here."""
    asked = Asked(answered(status), "ok")
    assert asked.call(colour, model()) == "ok"


@every_colour
@pytest.mark.parametrize("status", [408, 501, 520, 529])
def test_lf_code_03_statuses_deviate(colour: str, status: int) -> None:
    """LF-CODE-03: so are all other 5xx, as in the decision record, and 408, a request timeout."""
    asked = Asked(answered(status), "ok")
    assert asked.call(colour, model()) == "ok"


@every_colour
@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 408, 429, 500, 529])
def test_lf_code_05_statuses_deviate(colour: str, status: int) -> None:
    """LF-CODE-05: the client's own error is raised for a status, and metrics have the number."""
    with memory.instrument() as metrics:
        Asked(answered(status)).fails(colour, model())
    assert metrics.counter("errors", code=str(status), provider="acme", model="small") == 1


@every_colour
def test_lf_code_06_total(colour: str) -> None:
    """LF-CODE-06: a delay that exceeds the total is not slept; the last error is raised."""
    clock = Virtual()
    asked = Asked(RESET)
    policy = Retry(attempts=5, backoff=Backoff.constant(0.2), clock=clock)
    call_report = asked.fails(colour, model(policy, timeouts=0.5))
    assert (asked.calls, clock.waits, call_report.reason) == (3, [0.2, 0.2], Reason.timeout)
