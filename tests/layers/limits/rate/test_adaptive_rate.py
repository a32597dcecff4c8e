"""`AdaptiveRate`: its options and errors, and which errors count as throttling."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from redouble import AdaptiveRate, Fallback, Kind, Pipeline, Retry, Timeout, Verdict, errors, policy_of
from redouble.testing import VirtualClock, virtual_time
from tests.support.fakes import Boom, Panic, UnhashableRule, always, nothing
from tests.support.layers.limits.adaptive_rates import Throttled, throttled
from tests.support.virtual_time import in_virtual_colour

# ------------------------------------------------------------------------------ options


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"on": ()}, ValueError, r"AdaptiveRate on=\(\) is empty, so nothing would count"),
        ({"on": []}, ValueError, "is empty"),
        ({"on": 10}, TypeError, "AdaptiveRate on=10: write an exception type or a rule, or pass the number"),
        ({"on": "Throttled"}, TypeError, "on='Throttled': write an exception type"),
        ({"wait": -1}, ValueError, "AdaptiveRate wait=-1: write a finite number of seconds"),
        ({"wait": "1s"}, TypeError, "AdaptiveRate wait='1s'"),
        ({"least": 0}, ValueError, "AdaptiveRate least=0: write calls a second, more than 0, such as 0.5"),
        ({"least": -1}, ValueError, "AdaptiveRate least=-1"),
        ({"least": True}, TypeError, "AdaptiveRate least=True"),
        ({"least": "2"}, TypeError, "AdaptiveRate least='2'"),
        ({"name": 3}, TypeError, "AdaptiveRate name=3: write a text, or None"),
    ],
)
def test_wrong_options_are_reported(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        AdaptiveRate(**options)


@pytest.mark.parametrize(
    ("gate", "words"),
    [
        (AdaptiveRate(), ["AdaptiveRate(", "wait=None"]),
        (AdaptiveRate(wait=2, name="s3"), ["wait=2.0", "name='s3'"]),
    ],
)
def test_its_repr(gate: AdaptiveRate, words: list[str]) -> None:
    assert all(word in repr(gate) for word in words)


def test_it_is_shared_and_never_copied() -> None:
    gate = AdaptiveRate()
    assert copy.copy(gate) is copy.deepcopy(gate) is gate
    with pytest.raises(TypeError, match=r"an? AdaptiveRate is shared by the calls of one process"):
        pickle.dumps(gate)


def test_policy_of_a_decorated_function_is_the_gate() -> None:
    gate = AdaptiveRate()

    @gate
    def fetch(url: str, *, chunk: int = 1) -> tuple[str, int]:
        return url, chunk

    assert policy_of(fetch) is gate
    assert policy_of(gate(nothing)) is gate
    assert (fetch("x", chunk=2), fetch.__name__) == (("x", 2), "fetch")


@pytest.mark.parametrize(
    ("gate", "description", "at_worst"),
    [
        (AdaptiveRate(), "as fast as the server allows", "takes and any amount of waiting"),
        (AdaptiveRate(wait=2), "server allows, waiting up to 2 s", "takes and 2 s of waiting"),
    ],
)
def test_its_description(gate: AdaptiveRate, description: str, at_worst: str) -> None:
    drawn, *_, worst = Pipeline(gate).explain().splitlines()
    assert drawn.endswith(description)
    assert worst.endswith(at_worst)


def test_lint_in_a_pipeline() -> None:
    def problems(pipeline: Pipeline) -> list[str]:
        return [text for text in pipeline.check() if text.startswith("AdaptiveRate")]

    assert problems(Retry() | AdaptiveRate()) == problems(Timeout(9) | AdaptiveRate()) == []
    [text] = problems(AdaptiveRate() | Retry())
    assert text.startswith("AdaptiveRate outside Retry")
    [text] = (AdaptiveRate(Boom) | Fallback(value=1, on=Boom)).check()
    assert "Fallback" in text


# ----------------------------------------------------------- which errors are throttling


def rule_for(word: str) -> Callable[[Exception], bool | None]:
    return lambda error: True if word in str(error) else None


@pytest.mark.parametrize(
    ("on", "error", "counts"),
    [
        (Throttled, Throttled(), True),
        (Throttled, Boom(), False),
        ((Throttled, Boom), Boom(), True),
        ([rule_for("slow"), Throttled], OSError("slow down"), True),
        ([rule_for("slow"), Throttled], OSError("no"), False),
        ([rule_for("slow"), Throttled], Throttled(), True),
        (always(False), Throttled(), False),
        (always(None), Throttled(), False),
        (always(Verdict.retry(kind=Kind.throttled)), Boom(), True),
        (always(Verdict.stop()), Boom(), False),
        (UnhashableRule(), Boom(), True),
        # errors that do not come from the server
        (Exception, errors.Rejected("further in"), False),
        (Exception, errors.RateLimited("further in"), False),
        (Exception, Panic(), False),
        (Exception, KeyboardInterrupt(), False),
    ],
)
def test_which_errors_count_as_throttling(on: Any, error: BaseException, counts: bool) -> None:
    gate = AdaptiveRate(on)
    throttled(gate, error)
    assert (gate.snapshot()["rate"] is not None) == counts
    wrapped = AdaptiveRate(on)

    @wrapped
    def fails() -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        fails()
    assert caught.value is error
    assert (wrapped.snapshot()["rate"] is not None) == counts


def test_by_default_a_429_counts_as_throttling() -> None:
    request = httpx.Request("GET", "http://localhost")
    for status, counts in [(429, True), (500, False), (503, False), (404, False)]:
        gate = AdaptiveRate()
        throttled(gate, httpx.HTTPStatusError("", request=request, response=httpx.Response(status)))
        assert (gate.snapshot()["rate"] is not None) == counts
    gate = AdaptiveRate()
    throttled(gate, ConnectionResetError())
    assert gate.snapshot()["rate"] is None


@pytest.mark.parametrize("error", [errors.Rejected("further in"), Panic()])
def test_a_rejection_or_a_base_exception_is_not_measured(error: BaseException) -> None:
    with virtual_time() as clock:
        gate = AdaptiveRate()
        throttled(gate, error)
        with pytest.raises(type(error)):
            gate.call(lambda: (_ for _ in ()).throw(error))
        clock.advance(1)
        assert gate.snapshot() == {"rate": None, "measured": 0, "queued": 0}
        throttled(gate, Boom())
        clock.advance(1)
        assert (gate.snapshot()["measured"] or 0) > 0


# ---------------------------------------------------------------------------- rejections


def test_the_error_of_a_rejected_call(colour: str) -> None:
    gate = AdaptiveRate(Throttled, 0.5, least=1, name="s3")
    throttled(gate)

    def blocking(clock: VirtualClock) -> None:
        gate._bucket.set_rate(1, clock.now())
        gate.call(int)

    async def waiting(clock: VirtualClock) -> None:
        gate._bucket.set_rate(1, clock.now())
        await gate.call(nothing)

    with pytest.raises(errors.RateLimited) as caught:
        in_virtual_colour(colour, blocking, waiting)
    why = "and the wait would be longer than 0.5 s"
    assert str(caught.value) == f"the adaptive rate s3 is down to 1 calls a second after throttling, {why}"
    assert caught.value.retry_after == pytest.approx(1)
    assert gate.snapshot()["queued"] == 0


def test_a_policy_outside_waits_for_the_retry_after() -> None:
    with virtual_time() as clock:
        gate = AdaptiveRate(Throttled, 0, least=4)
        throttled(gate)
        (Retry(backoff=[0] * 3) | gate).call(int)
        assert clock.now() == pytest.approx(0.25, abs=0.05)
        assert clock.now() >= 0.25
        with pytest.raises(errors.RateLimited, match="the adaptive rate is down to 4 calls a second"):
            gate.call(int)
