"""Reports of how a `with` block ended, and results that count as failures, for gates of one's own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from redouble import AdaptiveConcurrency, AdaptiveRate, CircuitBreaker, Gate, Throttle, errors
from redouble.testing import ok
from tests.support.fakes import Boom
from tests.support.layers.fallbacks import called


class Recorder(Gate):
    """A gate that records how calls end, and takes negative results for failures."""

    def __init__(self) -> None:
        self.ends: list[BaseException | None] = []

    def admit(self, now: float, /) -> None:
        """Admit every call."""

    def ended(self, ticket: Any, error: BaseException | None, now: float, /) -> None:
        self.ends.append(error)

    def refusal(self, result: Any, /) -> Exception | None:
        return Boom(f"{result}") if isinstance(result, int) and result < 0 else None


def test_a_block_that_is_reported_as_failed() -> None:
    gate, boom = Recorder(), Boom("mine")
    with gate as admission:
        admission.failed(503)
    with gate as admission:
        admission.failed(boom)
    with gate as admission:
        admission.failed()
    refused, raised, nothing = gate.ends
    assert isinstance(refused, errors.NotAccepted)
    assert refused.last == 503
    assert raised is boom
    assert isinstance(nothing, errors.NotAccepted)
    assert nothing.last is None


def test_a_block_that_is_reported_as_a_success_although_it_raises() -> None:
    gate = Recorder()
    with pytest.raises(Boom), gate as admission:
        admission.succeeded()
        raise Boom
    assert gate.ends == [None]


def test_the_last_report_counts() -> None:
    gate = Recorder()
    with gate as admission:
        admission.failed("first")
        admission.succeeded()
    assert gate.ends == [None]


@pytest.mark.parametrize(("result", "failed"), [(-1, True), (1, False), (None, False)])
def test_a_result_that_is_reported_is_judged(result: object, failed: bool) -> None:
    gate = Recorder()
    with gate as admission:
        admission.failed("before")
        admission.succeeded(result)
    assert isinstance(gate.ends[0], Boom) == failed


def test_a_rule_that_raises_about_a_reported_result() -> None:
    """Its error comes out of the block, as any other would."""

    class Broken(Recorder):
        """A gate with a mistake in its rule."""

        def refusal(self, result: Any, /) -> Exception | None:
            raise Boom("of the rule")

    gate = Broken()
    with pytest.raises(Boom) as caught, gate as admission:
        admission.succeeded(3)
    assert gate.ends == [caught.value]


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_an_interruption_overrides_a_report(interruption: type[BaseException]) -> None:
    gate = Recorder()
    with pytest.raises(interruption), gate as admission:
        admission.failed("before")
        raise interruption
    assert isinstance(gate.ends[0], interruption)


@pytest.mark.parametrize("result", [-1, 1])
def test_a_result_with_a_refusal(colour: str, result: int) -> None:
    gate = Recorder()
    assert called(colour, gate, ok(result)) == result
    assert isinstance(gate.ends[0], Boom) == (result < 0)


class OwnBreaker(CircuitBreaker):
    """A breaker whose class judges results."""

    def refusal(self, result: Any, /) -> Exception | None:
        return Recorder().refusal(result)


class OwnThrottle(Throttle):
    """The same for a throttle."""

    def refusal(self, result: Any, /) -> Exception | None:
        return Recorder().refusal(result)


class OwnConcurrency(AdaptiveConcurrency):
    """The same for an adaptive limit."""

    def refusal(self, result: Any, /) -> Exception | None:
        return Recorder().refusal(result)


class OwnRate(AdaptiveRate):
    """The same for an adaptive rate."""

    def refusal(self, result: Any, /) -> Exception | None:
        return Recorder().refusal(result)


OWN: list[tuple[Callable[[], Gate], str, object]] = [
    (partial(OwnBreaker, failures=1), "state", "closed"),
    (partial(OwnThrottle, minimum=99), "accepts", 1),
    (partial(OwnConcurrency, 10, by="aimd", window=1e-6, on=Boom), "limit", 10),
    (partial(OwnRate, on=Boom), "rate", None),
]


@pytest.mark.parametrize(("make", "what", "good"), OWN, ids=lambda each: getattr(each, "func", None))
def test_a_subclass_of_a_gate_of_ours_may_judge_results(
    colour: str, make: Callable[[], Gate], what: str, good: object
) -> None:
    accepted, refused, block = make(), make(), make()
    assert called(colour, accepted, ok(1)) == 1
    assert called(colour, refused, ok(-1)) == -1
    with block as admission:
        admission.succeeded(-1)
    assert [gate.snapshot()[what] == good for gate in (accepted, refused, block)] == [True, False, False]
