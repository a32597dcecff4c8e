"""`AdaptiveRate` with ``until``: results that count as throttling, in every shape of a call."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from redouble import AdaptiveRate, Verdict, errors
from redouble.testing import VirtualClock, virtual_time
from tests.support.fakes import Boom, Panic, always, nothing
from tests.support.layers.breaker_scripts import SHAPES, Service
from tests.support.layers.limits.adaptive_rates import Throttled
from tests.support.virtual_time import in_virtual_colour


def plain() -> int:
    return 0


def below_hundred(result: object) -> bool:
    """Accept small results."""
    return not isinstance(result, int) or result < 100


@pytest.mark.parametrize("shape", ["call", "decorator", "method"])
def test_a_refused_result_is_returned_and_counts_as_throttling(colour: str, shape: str) -> None:
    gate: Any = AdaptiveRate(Throttled, least=4, until=below_hundred)
    make, amake = SHAPES[shape]

    class Scaled(Service):
        scale = 1

        def __call__(self, item: int = 0, *, scale: int = 1) -> int:
            return super().__call__(item, scale=scale * self.scale)

    service = Scaled()

    def blocking(clock: VirtualClock) -> None:
        for service.scale, service.down in ((1, None), (1, Boom())):
            with suppress(Boom):
                make(gate, service)
        assert gate.snapshot()["rate"] is None
        service.scale, service.down = 50, None
        assert make(gate, service) == 300
        assert gate.snapshot()["rate"] == 4
        service.scale = 1
        assert [make(gate, service) for _ in range(4)] == [6] * 4
        assert clock.now() == 1

    async def waiting(clock: VirtualClock) -> None:
        for service.scale, service.down in ((1, None), (1, Boom())):
            with suppress(Boom):
                await amake(gate, service)
        assert gate.snapshot()["rate"] is None
        service.scale, service.down = 50, None
        assert await amake(gate, service) == 300
        assert gate.snapshot()["rate"] == 4
        service.scale = 1
        assert [await amake(gate, service) for _ in range(4)] == [6] * 4
        assert clock.now() == 1

    in_virtual_colour(colour, blocking, waiting)


def test_good_results_are_counted_without_the_lock() -> None:
    gate = AdaptiveRate(Throttled, until=below_hundred)
    with virtual_time() as clock:
        for _ in range(40):
            gate.call(int)
            clock.advance(0.05)
        measured = gate.snapshot()["measured"]
        assert measured == pytest.approx(20, rel=0.1)
        assert gate.call(int, 200) == 200
        assert gate.snapshot()["rate"] == pytest.approx(0.7 * (measured or 0), rel=0.1)


def test_errors_are_judged_by_on_all_the_same() -> None:
    gate = AdaptiveRate(Throttled, least=2, until=below_hundred)
    for error in (Boom(), errors.Rejected("further in"), Panic()):
        with pytest.raises(type(error)):
            gate.call(_raise, error)
        assert gate.snapshot()["rate"] is None
    with pytest.raises(Throttled):
        gate.call(_raise, Throttled())
    assert gate.snapshot()["rate"] == 2


def _raise(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize(
    ("until", "counts"),
    [
        (always(Verdict.accept()), False),
        (always(Verdict.retry()), True),
        (always(Verdict.stop()), True),
        (None, False),
    ],
)
def test_the_answers_of_until(until: Any, counts: bool) -> None:
    gate = AdaptiveRate(Throttled, until=until)
    gate.call(int)
    assert (gate.snapshot()["rate"] is not None) is counts


def test_a_block_reports_throttling() -> None:
    gate = AdaptiveRate(Throttled, least=2)
    with gate as admission:
        admission.failed(Boom())  # `on` does not name it
    assert gate.snapshot()["rate"] is None
    with gate as admission:
        admission.failed(429)
    assert gate.snapshot()["rate"] == 2


@pytest.mark.parametrize("error", [Boom(), Throttled()])
def test_an_error_of_until_comes_out_and_counts_as_an_error_of_the_call(
    colour: str, error: Exception
) -> None:
    def until(result: object) -> bool:
        raise error

    gate = AdaptiveRate(Throttled, until=until)

    async def waiting(clock: VirtualClock) -> None:
        await gate.call(nothing)

    with pytest.raises(type(error)):
        in_virtual_colour(colour, lambda clock: gate.call(int), waiting)
    assert (gate.snapshot()["rate"] is None) is isinstance(error, Boom)


def test_wrong_values_are_reported() -> None:
    wrong: Any
    for wrong in (3, "x"):
        with pytest.raises(TypeError, match="until="):
            AdaptiveRate(until=wrong)


# ---------------------------------------------------------------------------- reconfigure


def test_reconfiguring_keeps_the_learned_rate() -> None:
    gate = AdaptiveRate(Throttled, wait=0, least=4, name="a")
    fetch = gate(plain)
    with virtual_time():
        with pytest.raises(Throttled), gate:
            raise Throttled
        gate.reconfigure(AdaptiveRate(Boom, wait=9, least=0.1))
        assert (gate.wait, gate.name, gate.snapshot()["rate"]) == (9, "a", 4)
        assert fetch() == 0  # it waits now
        gate.reconfigure(AdaptiveRate(Boom, least=10))
        assert gate.snapshot()["rate"] == 10
        with pytest.raises(Throttled), gate:
            raise Throttled
        assert gate.snapshot()["rate"] == 10  # `on` does not name it any more


def test_reconfiguring_replaces_until() -> None:
    gate = AdaptiveRate(Throttled, until=always(True))
    fetch = gate(plain)
    other = AdaptiveRate(Throttled, until=always(False))
    assert gate.can_reconfigure(other)
    fetch()
    assert gate.snapshot()["rate"] is None
    gate.reconfigure(other)
    fetch()
    assert gate.snapshot()["rate"] == 0.5
