"""`Throttle` in every colour and shape: which calls are counted, accepted and rejected."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from typing import Any

import pytest

from redouble import SYSTEM, Retry, Throttle, Verdict, errors, report
from redouble._runtime.backend import backend
from tests.support.fakes import ASYNC, Boom, Draws, Panic, always, in_colour
from tests.support.layers.breaker_scripts import SHAPES, Service, result_of
from tests.support.layers.limits.throttles import NEVER, with_history
from tests.support.runtime.cancellation import cancelled

EACH = pytest.mark.parametrize("shape", SHAPES)

# how a call ended, the options, and how many requests and accepted requests it counts for
ENDS: list[tuple[BaseException | None, dict[str, Any], tuple[int, int]]] = [
    (None, {}, (1, 1)),
    (Boom(), {}, (1, 0)),
    (Boom(), {"on": Boom}, (1, 0)),
    (Boom(), {"on": (OSError, Boom)}, (1, 0)),
    (Boom(), {"on": always(True)}, (1, 0)),
    (Boom(), {"on": always(3.0)}, (1, 0)),
    (Boom(), {"on": [always(None), Boom]}, (1, 0)),
    # accepted, although the call failed
    (Boom(), {"on": always(False)}, (1, 1)),
    (Boom(), {"on": always(Verdict.stop())}, (1, 1)),
    # no rule decides
    (Boom(), {"on": OSError}, (0, 0)),
    (Boom(), {"on": always(None)}, (0, 0)),
    # never counted
    (Panic(), {}, (0, 0)),
    (KeyboardInterrupt(), {}, (0, 0)),
    (errors.Rejected("further in"), {}, (0, 0)),
    (errors.CircuitOpen("further in"), {"on": errors.Rejected}, (0, 0)),
]


@pytest.mark.parametrize(("ended", "options", "counted"), ENDS)
@pytest.mark.parametrize("before", [0, 1])
def test_which_calls_are_counted_and_accepted(
    colour: str, ended: BaseException | None, options: dict[str, Any], counted: tuple[int, int], before: int
) -> None:
    """``before``: the failed calls so far; with one, every call has to be admitted by the throttle."""
    throttle, service = Throttle(random=Draws(NEVER), **options), Service()
    for _ in range(before):
        throttle._requests.add(SYSTEM.now(), accepted=False)
    service.down = ended
    assert result_of(colour, "call", throttle, service) is (
        ended or result_of(colour, "call", Throttle(), Service())
    )
    seen = throttle.snapshot()
    assert (seen["requests"] - before, seen["accepts"]) == counted


@EACH
def test_a_service_that_goes_down_and_comes_back(colour: str, shape: str) -> None:
    throttle, service, boom = Throttle(1, random=Draws(0.7, 0.8, 0.0, NEVER)), Service(), Boom()
    for down, expected, requests, accepts in [
        (None, 6, 1, 1),
        (None, 6, 2, 2),
        (boom, boom, 3, 2),  # the share is a quarter
        (boom, boom, 4, 2),  # 0.7: passes; the share is two fifths
        (boom, boom, 5, 2),  # 0.8: passes; the share is a half
        (boom, errors.Rejected, 6, 2),  # 0.0: is rejected
        (None, 6, 7, 3),
        (None, 6, 8, 4),
    ]:
        service.down = down
        seen = result_of(colour, shape, throttle, service)
        assert (type(seen) if isinstance(seen, errors.Rejected) else seen) == expected
        now = throttle.snapshot()
        assert (now["requests"], now["accepts"]) == (requests, accepts)
        assert now["share"] == pytest.approx((requests - accepts) / (requests + 1))
    assert service.calls == 7


@EACH
def test_a_rejected_call_does_not_call_the_function(colour: str, shape: str) -> None:
    throttle, service = with_history(Throttle(random=Draws(0.0)), 0, 9, SYSTEM.now()), Service()
    assert isinstance(result_of(colour, shape, throttle, service), errors.Rejected)
    assert service.calls == 0
    assert throttle.snapshot()["requests"] == 10


@pytest.mark.parametrize("colour", ASYNC)
@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape != "mixed"])
def test_a_cancelled_call_is_not_counted(colour: str, shape: str) -> None:
    class Hanging(Service):
        async def acall(self, item: int = 0, *, scale: int = 1) -> int:
            await backend().sleep(1e6)
            return item

    throttle: Any = Throttle()
    assert cancelled(colour, lambda: SHAPES[shape][1](throttle, Hanging())) == "cancelled"
    assert throttle.snapshot() == {"share": 0, "requests": 0, "accepts": 0}


def test_a_stream_that_is_closed_early_counts_as_accepted(colour: str) -> None:
    throttle = Throttle()

    @throttle
    def items() -> Generator[int]:
        yield 1
        yield 2

    @throttle
    async def aitems() -> AsyncGenerator[int]:
        yield 1
        yield 2

    def blocking() -> None:
        stream = items()
        assert next(stream) == 1
        stream.close()

    async def waiting() -> None:
        stream = aitems()
        assert await anext(stream) == 1
        await stream.aclose()

    in_colour(colour, blocking, waiting)
    assert throttle.snapshot() == {"share": 0, "requests": 1, "accepts": 1}


def test_a_retry_outside_retries_a_rejected_call(colour: str) -> None:
    """`Rejected` is transient; the rejected attempts do not reach the service."""
    throttle = with_history(Throttle(random=Draws(0.0, 0.0, NEVER)), 0, 9, SYSTEM.now())
    policy, service = Retry(attempts=4, backoff=[0] * 3) | throttle, Service()
    assert result_of(colour, "call", policy, service) == 6
    assert service.calls == 1
    assert throttle.snapshot()["requests"] == 12


def test_a_retry_outside_gives_up(colour: str) -> None:
    throttle = with_history(Throttle(random=Draws(0.0)), 0, 9, SYSTEM.now())
    policy, service = Retry(attempts=3, backoff=[0] * 3) | throttle, Service()
    error = result_of(colour, "call", policy, service)
    found = report(error)
    assert found is not None
    assert (found.reason, found.attempts, service.calls) == ("attempts", 3, 0)


def test_a_call_of_a_signal_handler_that_interrupts_counting_is_counted_afterwards() -> None:
    """The handler runs while its own thread holds the lock: its call is admitted."""
    throttle = Throttle(random=Draws(0.0))
    with pytest.raises(Boom), throttle:
        raise Boom
    assert throttle._requests.limiting

    def counting() -> None:
        with throttle:
            pass
        assert throttle._requests.requests.total == 1

    throttle._run_exclusively(counting)
    assert throttle.snapshot()["requests"] == 2
