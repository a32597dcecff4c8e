"""`AdaptiveConcurrency`: which errors are signs of overload and lower the limit, in every colour."""

from __future__ import annotations

from typing import Any

import pytest

from redouble import SYSTEM, AdaptiveConcurrency, Verdict, errors
from redouble._runtime.backend import backend
from redouble.testing import VirtualClock
from tests.support.failures.library_errors import error_named
from tests.support.fakes import ASYNC, Boom, Panic, always
from tests.support.layers.limits.adaptive_concurrency import learned_gate
from tests.support.runtime.cancellation import cancelled
from tests.support.virtual_time import AROUND_LOOP, at, no_real_waits

pytestmark = pytest.mark.usefixtures(no_real_waits.__name__)

THROTTLED = error_named("botocore.exceptions.ClientError", response={"Error": {"Code": "SlowDown"}})
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
    # never a sign of overload, whatever ``on`` is
    (Panic(), {"on": Exception}, 20),
    (KeyboardInterrupt(), {"on": Exception}, 20),
    (errors.Rejected("further in"), {"on": Exception}, 20),
    (errors.BulkheadFull("further in"), {}, 20),
]


async def nothing() -> None: ...


@pytest.mark.parametrize(("raised", "options", "limit"), SIGNS)
@AROUND_LOOP
def test_overload_errors_lower_the_limit_and_other_errors_do_not(
    place: str, raised: BaseException, options: dict[str, Any], limit: int
) -> None:
    """One error is enough in a window of successful calls; it is raised unchanged."""
    gate, caught = learned_gate(**options), list[BaseException]()

    def fails() -> None:
        raise raised

    async def afails() -> None:
        raise raised

    def blocking(clock: VirtualClock) -> None:
        try:
            gate.call(fails)
        except BaseException as error:
            caught.append(error)
        clock.advance(1.5)
        for _ in range(10):
            gate.call(int)

    async def waiting(clock: VirtualClock) -> None:
        try:
            await gate.call(afails)
        except BaseException as error:
            caught.append(error)
        await SYSTEM.asleep(1.5)
        for _ in range(10):
            await gate.call(nothing)

    at(place, blocking, waiting)
    assert caught == [raised]
    assert gate.limit == limit


@pytest.mark.parametrize("colour", ASYNC)
@pytest.mark.parametrize("replaced", [False, True])
def test_a_cancellation_or_an_error_raised_from_it_does_not_lower_the_limit(
    colour: str, replaced: bool
) -> None:
    """The caller cancelled: that is no sign of an overloaded service."""
    gate = AdaptiveConcurrency(on=Exception)

    async def hangs() -> None:
        try:
            await backend().sleep(1e6)
        finally:
            if replaced:
                raise Boom

    outcome = cancelled(colour, lambda: gate.call(hangs))
    assert isinstance(outcome, Boom) if replaced else outcome == "cancelled"
    later = SYSTEM.now() + 60
    for _ in range(10):
        gate.ended(gate.admit(later), None, later)
    assert gate.snapshot() == {"limit": 20, "in_use": 0}
