"""`AdaptiveConcurrency`: which errors are signs of overload, and which say nothing, in every colour."""

from __future__ import annotations

from typing import Any

import pytest

from redouble import SYSTEM, AdaptiveConcurrency, Verdict, errors
from redouble._runtime.backend import backend
from redouble.testing import VirtualClock
from tests.failures.test_transient_libraries import alike
from tests.layers.limits.concurrency.test_adaptive_concurrency_load import EVERY, made
from tests.runtime.test_cancellation import cancelled
from tests.support.fakes import ASYNC, Boom, Panic, always
from tests.support.virtual_time import at, unwaiting

pytestmark = pytest.mark.usefixtures(unwaiting.__name__)

THROTTLED = alike("botocore.exceptions.ClientError", response={"Error": {"Code": "SlowDown"}})
SIGNS: list[tuple[BaseException, dict[str, Any], int]] = [
    (TimeoutError(), {}, 18),
    (errors.AttemptTimeout("late"), {}, 18),
    (THROTTLED, {}, 18),
    (ConnectionResetError(), {}, 20),
    (ValueError(), {}, 20),
    (Boom(), {"on": Boom}, 18),
    (Boom(), {"on": (KeyError, Boom)}, 18),
    (Boom(), {"on": KeyError}, 20),
    (Boom(), {"on": always(True)}, 18),
    (Boom(), {"on": always(2.5)}, 18),
    (Boom(), {"on": always(False)}, 20),
    (Boom(), {"on": always(None)}, 20),
    (Boom(), {"on": always(Verdict.stop())}, 20),
    (Boom(), {"on": Boom, "by": "aimd"}, 18),
    (Boom(), {"on": Boom, "by": "vegas"}, 19),
    # neither of these says anything, whatever is said of them
    (Panic(), {"on": Exception}, 20),
    (KeyboardInterrupt(), {"on": Exception}, 20),
    (errors.Rejected("further in"), {"on": Exception}, 20),
    (errors.BulkheadFull("further in"), {}, 20),
]


async def nothing() -> None: ...


@pytest.mark.parametrize(("raised", "options", "limit"), SIGNS)
@EVERY
def test_which_errors_lower_it(
    place: str, raised: BaseException, options: dict[str, Any], limit: int
) -> None:
    """One is enough, in a window of many that went well; and it comes out as it is."""
    gate, said = made(**options), list[BaseException]()

    def fails() -> None:
        raise raised

    async def afails() -> None:
        raise raised

    def blocking(clock: VirtualClock) -> None:
        try:
            gate.call(fails)
        except BaseException as error:
            said.append(error)
        clock.advance(1.5)
        for _ in range(10):
            gate.call(int)

    async def waiting(clock: VirtualClock) -> None:
        try:
            await gate.call(afails)
        except BaseException as error:
            said.append(error)
        await SYSTEM.asleep(1.5)
        for _ in range(10):
            await gate.call(nothing)

    at(place, blocking, waiting)
    assert said == [raised]
    assert gate.limit == limit


@pytest.mark.parametrize(
    ("colour", "becomes"),
    [*((colour, False) for colour in ASYNC), *((colour, True) for colour in ASYNC if colour != "trio")],
)
def test_a_cancellation_says_nothing_nor_does_an_error_made_of_it(colour: str, becomes: bool) -> None:
    """It comes of who called, and not of the service."""
    gate = AdaptiveConcurrency(on=Exception)

    async def hangs() -> None:
        try:
            await backend().sleep(1e6)
        finally:
            if becomes:
                raise Boom

    came = cancelled(colour, lambda: gate.call(hangs))
    assert isinstance(came, Boom) if becomes else came == "cancelled"
    later = SYSTEM.now() + 60
    for _ in range(10):
        gate.ended(gate.admit(later), None, later)
    assert gate.snapshot() == {"limit": 20, "in_use": 0}
