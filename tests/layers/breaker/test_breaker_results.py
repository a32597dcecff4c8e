"""A circuit breaker with `until` counts refused results as failures, and returns them."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import pytest

from redouble import CircuitBreaker, Keyed, Retry, Verdict, errors
from redouble.types import Ended, Until
from tests.support.fakes import Boom, Panic, Virtual, always, in_colour
from tests.support.layers.breaker_scripts import BreakerScript, Service, outcome_of, result_of

SHAPES = ("call", "decorator", "method")  # those that have a result
OK, BAD = 6, 0  # what `Service` returns for its arguments, and what the rules here refuse


class Answers(Service):
    """A service that returns a bad result while it is broken."""

    broken = False

    def __call__(self, item: int = 0, *, scale: int = 1) -> int:
        result = super().__call__(item, scale=scale)
        return BAD if self.broken else result


class JudgeOfResults:
    """A rule that is an object."""

    def judge(self, ended: Ended) -> bool:
        return ended.value != BAD


RULES: dict[str, Until] = {
    "bool": lambda result: result != BAD,
    "truthy": lambda result: result,
    "None": lambda result: None if result == BAD else "yes",
    "a class": bool,
    "judge": JudgeOfResults(),
    "retry": lambda result: Verdict.accept() if result else Verdict.retry(),
    "stop": lambda result: Verdict.accept() if result else Verdict.stop(),
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("options", [{}, {"ratio": 1, "minimum": 2}, {"slow": 9}])
def test_it_opens_and_closes_by_result(colour: str, shape: str, rule: str, options: dict[str, Any]) -> None:
    clock, service = Virtual(), Answers()
    breaker = CircuitBreaker(until=RULES[rule], failures=2, cooldown=10, clock=clock, **options)
    for broken, after, result, state in [
        (True, 0, BAD, "closed"),
        (True, 0, BAD, "open"),
        (False, 9, "no", "open"),
        (True, 1, BAD, "open"),
        (False, 10, OK, "closed"),
        (True, 0, BAD, "closed"),
        (False, 0, OK, "closed"),
        (True, 0, BAD, "closed"),
    ]:
        clock.time += after
        service.broken = broken
        assert outcome_of(colour, shape, breaker, service) == result
        assert breaker.state == state
    assert service.calls == 7


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("until", [None, bool])
def test_errors_count_as_without_until(colour: str, shape: str, until: Any) -> None:
    clock, service, boom = Virtual(), Answers(), Boom()
    breaker = CircuitBreaker(Boom, failures=2, until=until, clock=clock)
    for down, failures in [(boom, 1), (ZeroDivisionError(), 1), (Panic(), 1), (None, 0), (boom, 1)]:
        service.down = down
        assert outcome_of(colour, shape, breaker, service) == (down or OK)
        assert breaker.snapshot()["failures"] == failures


def test_the_rejection_names_a_refused_result() -> None:
    breaker = CircuitBreaker(until=bool, failures=1, name="pay")
    assert breaker.call(int) == 0
    with pytest.raises(errors.CircuitOpen, match=r"^pay is open after a refused result, for another"):
        breaker.call(int)


@pytest.mark.parametrize("shape", SHAPES)
def test_an_error_of_until_comes_out_and_counts_as_one_of_the_function(colour: str, shape: str) -> None:
    def until(result: object) -> bool:
        raise ZeroDivisionError

    for on, state in [(OSError, "closed"), (ArithmeticError, "open")]:
        breaker = CircuitBreaker(on, until=until, failures=1)
        assert isinstance(result_of(colour, shape, breaker, Answers()), ZeroDivisionError)
        assert breaker.state == state


@pytest.mark.parametrize("shape", SHAPES)
def test_an_answer_that_has_no_truth_comes_out_as_its_error_and_loses_no_probe(
    colour: str, shape: str
) -> None:
    class Neither:
        def __bool__(self) -> bool:
            raise Boom

    script = BreakerScript(on=OSError, until=always(Neither()), failures=1)
    script.breaker.isolate()
    script.breaker.close()
    assert isinstance(result_of(colour, shape, script.breaker, Answers()), Boom)
    assert script.breaker.state == "closed"


@pytest.mark.parametrize("shape", SHAPES)
def test_an_async_rule_is_an_error(colour: str, shape: str) -> None:
    class Later:
        def __await__(self) -> Any:
            yield

    breaker = CircuitBreaker(until=always(Later()), failures=1)
    raised = result_of(colour, shape, breaker, Answers())
    assert isinstance(raised, TypeError)
    assert "rules are plain functions, also in async code" in str(raised)


@pytest.mark.parametrize("shape", SHAPES)
def test_an_interruption_inside_until_is_not_counted_and_frees_the_probe(colour: str, shape: str) -> None:
    def until(result: object) -> bool:
        if interrupted:
            raise Panic
        return True

    script = BreakerScript(until=until, failures=1)
    script.run("bad +30:half_open")
    interrupted = True
    assert isinstance(result_of(colour, shape, script.breaker, Answers()), Panic)
    assert script.breaker.state == "half_open"
    interrupted = False
    assert result_of(colour, shape, script.breaker, Answers()) == OK
    assert script.breaker.snapshot()["state"] == "closed"


def test_wrong_values() -> None:
    with pytest.raises(TypeError, match=r"^until=7: write a function of the result"):
        CircuitBreaker(until=7)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_a_plain_function_that_returns_an_awaitable_is_still_an_error() -> None:
    async def later() -> int:
        return 1

    def plain() -> object:
        return later()

    breaker = CircuitBreaker(until=always(True))
    with pytest.raises(TypeError, match="returned something to await"):
        breaker.call(plain)


def test_the_result_of_a_block_is_reported() -> None:
    breaker = CircuitBreaker(until=bool, failures=2, clock=Virtual())
    with breaker as admission:
        assert admission.judge(0) == 0
    assert breaker.snapshot()["failures"] == 1
    with breaker as admission:
        admission.judge(1)
    assert breaker.snapshot()["failures"] == 0
    for why in (503, Boom()):
        with breaker as admission:
            admission.failed(why)
    assert breaker.state == "open"


def test_a_reported_exception_counts_as_on_decides() -> None:
    breaker = CircuitBreaker(OSError, failures=1)
    for reported, state in [(Boom(), "closed"), (OSError(), "open")]:
        with breaker as admission:
            admission.failed(reported)
        assert breaker.state == state


def test_a_block_that_raises_may_be_a_success() -> None:
    breaker = CircuitBreaker(failures=1)
    with pytest.raises(Boom), breaker as admission:
        admission.succeeded()
        raise Boom
    assert breaker.state == "closed"


def test_a_stream_has_no_result(colour: str) -> None:
    breaker, service = CircuitBreaker(until=always(False), failures=1), Answers()
    assert result_of(colour, "stream", breaker, service) == OK
    assert breaker.state == "closed"


@pytest.mark.parametrize("shape", ["call", "decorator"])
def test_the_breaker_of_each_key(colour: str, shape: str) -> None:
    def key(item: int, scale: int = 1) -> int:
        return item * scale

    breakers = Keyed(key, lambda: CircuitBreaker(until=bool, failures=1))
    service = Answers()
    service.broken = True
    results = [result_of(colour, shape, breakers, service) for _ in range(2)]
    assert results[0] == BAD
    assert isinstance(results[1], errors.CircuitOpen)
    assert breakers.of(6).state == "open"


def test_each_layer_of_a_pipeline_judges_for_itself(colour: str) -> None:
    """The retry asks for the outcome that it wants, and the breaker counts what the service did wrong."""
    breaker = CircuitBreaker(until=lambda status: status < 500, failures=3)
    statuses = iter([202, 503, 202, 503, 503, 200])
    policy = Retry(until=lambda status: status == 200, backoff=[0] * 9, attempts=9) | breaker

    async def later() -> int:
        return next(statuses)

    def ask() -> int:
        return next(statuses)

    async def waiting() -> int:
        return await policy.call(later)

    assert in_colour(colour, lambda: policy.call(ask), waiting) == 200
    assert breaker.snapshot()["failures"] == 0


@pytest.mark.parametrize("shape", SHAPES)
def test_a_subclass_with_hooks_of_its_own(colour: str, shape: str) -> None:
    class Own(CircuitBreaker):
        def admit(self, now: float, /) -> Any:
            return super().admit(now)

    breaker, service = Own(until=bool, failures=1), Answers()
    service.broken = True
    assert [outcome_of(colour, shape, breaker, service) for _ in range(2)] == [BAD, "no"]


def test_the_lines_of_the_wrapper_in_a_traceback() -> None:
    @CircuitBreaker(until=bool)
    def fail() -> None:
        raise Boom

    with pytest.raises(Boom) as caught:
        fail()
    lines = [frame.line for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert "redouble_result = redouble_fn(...)" in lines


# ------------------------------------------------------------------------- reconfiguration


@pytest.mark.parametrize(
    ("before", "after", "counts"),
    [
        (None, bool, True),
        (bool, None, False),
        (always(True), bool, True),
        (bool, always(True), False),
        (bool, JudgeOfResults(), True),
        (JudgeOfResults(), bool, True),
    ],
)
def test_functions_that_were_decorated_before_use_the_new_rule(
    colour: str, before: Any, after: Any, counts: bool
) -> None:
    breaker, service = CircuitBreaker(until=before, failures=1), Answers()
    blocking: Callable[..., Any] = breaker(service.__call__)
    waiting: Callable[..., Any] = breaker(service.acall)

    async def call() -> Any:
        return await waiting(2, scale=3)

    def called() -> Any:
        return in_colour(colour, lambda: blocking(2, scale=3), call)

    assert called() == OK
    breaker.reconfigure(CircuitBreaker(until=after, failures=1))
    assert called() == OK
    service.broken = True
    assert called() == BAD
    assert breaker.state == ("open" if counts else "closed")
    if counts:
        with pytest.raises(errors.CircuitOpen):
            called()


@pytest.mark.parametrize(("before", "after"), [(None, bool), (bool, None)])
def test_a_call_in_flight_while_the_rule_changes(colour: str, before: Any, after: Any) -> None:
    """It ends by the rule of its start, and its ticket counts once."""
    breaker = CircuitBreaker(until=before, failures=2)

    @breaker
    def replace() -> int:
        breaker.reconfigure(CircuitBreaker(until=after, failures=2))
        return BAD

    @breaker
    async def areplace() -> int:
        breaker.reconfigure(CircuitBreaker(until=after, failures=2))
        return BAD

    assert in_colour(colour, replace, areplace) == BAD
    assert breaker.snapshot()["failures"] == (before is not None)


def test_functions_are_not_kept_by_the_breaker() -> None:
    breaker = CircuitBreaker()
    breaker.call(int)
    assert not breaker._wrappers
