"""`Script`: each call plays the next step, in blocking and in async code, and each step is played once."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from redouble import Retry, transient
from redouble.testing import Script, ScriptedFailure, VirtualClock, fail, ok, virtual_time
from tests.support.fakes import in_colour
from tests.support.runtime.tasks import together
from tests.support.thread_switching import frequent_switches
from tests.support.virtual_time import PLACES, WHERE, at, no_real_waits

pytestmark = pytest.mark.usefixtures(no_real_waits.__name__)

ERROR = TimeoutError("slow")
STOP = KeyboardInterrupt()


def play(colour: str, script: Script, *args: object, **kwargs: object) -> object:
    """Call a script once."""
    return in_colour(colour, lambda: script(*args, **kwargs), lambda: script.aio(*args, **kwargs))


# --------------------------------------------------------------------------------- steps


@pytest.mark.parametrize("value", [3, None, "fail", ERROR, 0, [], ok])
def test_ok_returns_its_value(colour: str, value: object) -> None:
    assert play(colour, Script(ok(value))) is value


def test_ok_needs_no_value(colour: str) -> None:
    assert play(colour, Script(ok())) is None


@pytest.mark.parametrize("step", [ERROR, fail(ERROR)])
def test_an_error_is_raised_unchanged(colour: str, step: Any) -> None:
    with pytest.raises(TimeoutError) as caught:
        play(colour, Script(step))
    assert caught.value is ERROR


@pytest.mark.parametrize("step", [ZeroDivisionError, fail(ZeroDivisionError)])
def test_an_error_class_is_instantiated_for_each_call(colour: str, step: Any) -> None:
    script, seen = Script(step, step), list[BaseException]()
    for _ in range(2):
        with pytest.raises(ZeroDivisionError) as caught:
            play(colour, script)
        seen.append(caught.value)
    assert seen[0] is not seen[1]


@pytest.mark.parametrize("step", ["fail", fail()])
def test_fail_raises_a_transient_error(colour: str, step: Any) -> None:
    with pytest.raises(ScriptedFailure) as caught:
        play(colour, Script(step))
    assert isinstance(caught.value, ConnectionError)
    assert transient(caught.value)


def test_a_base_exception_is_raised_too() -> None:
    for step in (STOP, fail(STOP)):
        with pytest.raises(KeyboardInterrupt) as caught:
            Script(step)()
        assert caught.value is STOP


BAD: list[Any] = [3, None, "ok", "Fail", int, ok, ["fail"], b"fail", ...]


@pytest.mark.parametrize("step", BAD)
def test_invalid_steps_are_refused(step: Any) -> None:
    with pytest.raises(TypeError, match=r"^a step .*: write 'fail', an exception, ok\(value\) or fail\(err"):
        Script("fail", step)


@pytest.mark.parametrize("error", ["boom", 3, int, None, ok(3)])
def test_what_cannot_be_raised_is_refused_at_construction(error: Any) -> None:
    """Otherwise Python would raise in the middle of a test that it "must derive from BaseException"."""
    with pytest.raises(TypeError):
        Script(fail(error))


@pytest.mark.parametrize("make", [ok, fail])
def test_takes_must_be_a_duration(make: Callable[..., Any]) -> None:
    assert make(takes=timedelta(minutes=1)).takes == 60
    assert make().takes == 0
    for wrong in (-1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match=r"^takes="):
            make(takes=wrong)
    for odd in ("1s", True, None):
        with pytest.raises(TypeError, match=r"^takes=.*: write seconds as a number"):
            make(takes=odd)


# --------------------------------------------------------------------------------- calls


def test_the_order_of_steps_and_the_arguments_of_calls(colour: str) -> None:
    script = Script(ok(1), ok(2), ok(3))
    assert script.calls == []
    assert [play(colour, script), play(colour, script, "a", key=1), play(colour, script, "b")] == [1, 2, 3]
    assert script.calls == [((), {}), (("a",), {"key": 1}), (("b",), {})]


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_a_call_after_the_last_step_raises(colour: str, steps: int) -> None:
    script = Script(*[ok()] * steps)
    for _ in range(steps):
        play(colour, script)
    for more in (1, 2):
        with pytest.raises(AssertionError) as caught:
            play(colour, script)
        assert str(caught.value) == (
            f"<Script with {steps} step(s), called {steps + more} time(s)>: it has no steps left"
        )
    assert len(script.calls) == steps + 2


def test_too_many_attempts_of_a_policy_raise() -> None:
    """Whatever the policy retries, even if it is every exception."""
    for policy in (Retry(backoff=[0] * 9), Retry(on=Exception, backoff=[0] * 9)):
        with pytest.raises(AssertionError, match="it has no steps left"):
            policy.call(Script("fail", "fail"))


def test_both_colours_share_the_steps_of_a_script() -> None:
    script = Script(ok(1), ok(2), ok(3), ok(4))
    coroutine = script.aio
    assert script() == 1
    assert in_colour("asyncio", lambda: None, coroutine) == 2
    assert in_colour("trio", lambda: None, script.aio) == 3
    assert in_colour("asyncio", lambda: None, coroutine) == 4
    assert len(script.calls) == 4


def test_no_step_is_played_before_the_await() -> None:
    script = Script(ok(1))
    made = script.aio()
    assert script.calls == []
    made.close()


def test_the_repr_of_a_script() -> None:
    script = Script("fail", ok())
    assert repr(script) == "<Script with 2 step(s), called 0 time(s)>"
    with pytest.raises(ScriptedFailure):
        script("secret")
    assert repr(script) == "<Script with 2 step(s), called 1 time(s)>"


def test_threads_share_the_steps_of_a_script() -> None:
    """Every step is played once, and a call after the last raises."""
    script = Script(*map(ok, range(4000)))

    def work(_: int) -> list[Any]:
        return [script() for _ in range(500)]

    with frequent_switches(), ThreadPoolExecutor(8) as pool:
        played = [value for values in pool.map(work, range(8)) for value in values]
    assert sorted(played) == list(range(4000))
    with pytest.raises(AssertionError, match="called 4001 time"):
        script()


# ---------------------------------------------------------------------------------- time


@pytest.mark.parametrize("place", PLACES)
def test_a_step_takes_virtual_time(place: str) -> None:
    def script() -> Script:
        return Script(ok(takes=3600), fail(takes=0.5), fail(ERROR, takes=timedelta(minutes=1)), ok())

    def blocking(clock: VirtualClock) -> list[float]:
        one, moments = script(), [clock.now()]
        for _ in range(4):
            with suppress(OSError):
                one()
            moments.append(clock.now())
        assert clock.delays == []  # delays are the waits between attempts only
        return moments

    async def waiting(clock: VirtualClock) -> list[float]:
        one, moments = script(), [clock.now()]
        for _ in range(4):
            with suppress(OSError):
                await one.aio()
            moments.append(clock.now())
        assert clock.delays == []
        return moments

    assert at(place, blocking, waiting) == [0, 3600, 3600.5, 3660.5, 3660.5]


@pytest.mark.parametrize("place", WHERE)
def test_steps_of_concurrent_tasks_take_time_concurrently(place: str) -> None:
    async def waiting(clock: VirtualClock) -> float:
        await together(place, *(Script(ok(takes=3600)).aio for _ in range(3)))
        return clock.now()

    assert at(place, lambda _: None, waiting) == 3600


def test_takes_needs_virtual_time(colour: str) -> None:
    script = Script(ok(takes=2.5), fail(takes=2.5))
    for _ in range(2):
        with pytest.raises(
            RuntimeError, match=r"^takes=2\.5 needs virtual time: write `with virtual_time\(\)"
        ):
            play(colour, script)
    with virtual_time():
        assert Script(ok(3, takes=2.5))() == 3
