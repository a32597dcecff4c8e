"""A circuit breaker opens after failures in a row, rejects calls, and obeys isolate() and close()."""

from __future__ import annotations

import copy
import os
import pickle
import threading
from dataclasses import replace
from typing import Any

import pytest

from redouble import CircuitBreaker, Verdict, errors, transient
from redouble.types import Event
from tests.support.fakes import Boom, Panic, always
from tests.support.layers.breaker_scripts import BreakerScript

# ----------------------------------------------------------------------- failures in a row


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        # exactly this many in a row, not one less
        ({"failures": 1}, "good:closed bad:open good:no bad:no"),
        ({"failures": 3}, "bad:closed bad:closed bad:open"),
        ({"failures": 3}, "bad bad good bad bad:closed bad:open"),
        ({}, "bad bad bad bad:closed bad:open"),
        # an error without a verdict is not counted
        ({"failures": 2}, "bad cancelled refused cancelled:closed bad:open"),
        ({"failures": 1}, "cancelled refused cancelled refused:closed"),
        # calls that run at the same time: the last one to fail opens it, those behind it change nothing
        ({"failures": 2}, "a> b> c> a=bad b=bad:open c=bad:open +29.9:open +0.2:half_open"),
        ({"failures": 2}, "a> b> a=bad b=good bad:closed bad:open"),
        # after the cooldown one call decides
        ({"failures": 1, "cooldown": 5}, "bad +4.999:open good:no +0.001:half_open good:closed"),
        ({"failures": 1, "cooldown": 5}, "bad +5 bad:open +4.9 good:no +0.1 good:closed bad:open"),
        ({"failures": 1, "cooldown": 0}, "bad:half_open bad:half_open good:closed"),
        ({"failures": 1, "cooldown": 1}, "bad" + " +0.1" * 10 + " good:closed"),  # that is 0.9999999999999999
        # earlier counts are reset
        ({"failures": 2, "cooldown": 5}, "bad bad +5 good:closed bad:closed bad:open"),
        # by hand
        ({}, "isolate:isolated good:no +1000000:isolated bad:no close:closed good:closed"),
        ({"failures": 1}, "bad:open close:closed good:closed"),
        ({"failures": 1}, "bad +30 close:closed a> isolate a=good:isolated a>:no"),
        (
            {"failures": 1, "cooldown": 5},
            "bad +5 a> isolate:isolated a=good:isolated +5:isolated close good:closed",
        ),
        ({"failures": 1, "cooldown": 5}, "bad isolate +5:isolated good:no isolate:isolated close:closed"),
        ({"failures": 2}, "bad close bad:closed bad:open"),
        ({"failures": 2}, "bad isolate close bad:closed bad:open"),
        ({"failures": 2, "slow": 9}, "bad close bad:closed bad:open"),
    ],
)
def test_the_state_after_each_step(options: dict[str, Any], steps: str) -> None:
    BreakerScript(**options).run(steps)


@pytest.mark.parametrize(
    ("begun", "then"),
    [
        ("a>", "bad:open"),
        ("a>", "bad +5:half_open"),
        ("a>", "bad +5 b>:half_open"),
        ("a>", "bad +5 good:closed"),
        ("a>", "isolate:isolated"),
        ("a>", "close:closed"),
        ("a>", "isolate close:closed"),
        ("bad +5 a>", "+5 b>:half_open b=good:closed"),
        ("bad +5 a>", "+5 b> b=bad:open"),
        ("bad +5 a>", "close:closed"),
        ("bad +5 a>", "isolate:isolated"),
    ],
)
@pytest.mark.parametrize("end", ["good", "bad", "cancelled", "refused"])
@pytest.mark.parametrize("slow", [None, 1000])
def test_the_result_of_a_call_from_another_epoch_is_ignored(
    begun: str, then: str, end: str, slow: float | None
) -> None:
    script = BreakerScript(failures=1, cooldown=5, slow=slow)
    script.run(begun)
    script.run(then)
    before = script.breaker.snapshot()
    script.run(f"a={end}")
    assert script.breaker.snapshot() == before


# ---------------------------------------------------------------------- what counts


@pytest.mark.parametrize(
    ("on", "error", "counts"),
    [
        (Boom, Boom(), "bad"),
        (OSError, Boom(), "nothing"),
        ((OSError, Boom), Boom(), "bad"),
        (always(True), Boom(), "bad"),
        (always(1.5), Boom(), "bad"),
        (always(Verdict.retry()), Boom(), "bad"),
        (always(False), Boom(), "good"),
        (always(Verdict.stop()), Boom(), "good"),
        (always(Verdict.accept()), Boom(), "good"),
        (always(None), Boom(), "nothing"),
        (transient, ConnectionError(), "bad"),
        (transient, errors.CircuitOpen("inside"), "nothing"),
        (Exception, errors.BulkheadFull("inside"), "nothing"),
        (Exception, errors.AttemptTimeout("inside"), "bad"),
        (Exception, ExceptionGroup("many", [Boom()]), "bad"),
        (Exception, BaseExceptionGroup("many", [Panic()]), "nothing"),
        (Exception, KeyboardInterrupt(), "nothing"),
        (always(True), KeyboardInterrupt(), "nothing"),
        (Exception, GeneratorExit(), "nothing"),
    ],
)
def test_which_errors_count(on: Any, error: BaseException, counts: str) -> None:
    """Observed after one failure of two: the breaker opens, restarts counting, or continues counting."""
    breaker = CircuitBreaker([ZeroDivisionError, on], failures=2)

    def fail(error: BaseException) -> None:
        raise error

    for raised in (ZeroDivisionError(), error):
        with pytest.raises(type(raised)) as caught:
            breaker.call(fail, raised)
        assert caught.value is raised
    found = (breaker.state, breaker.snapshot()["failures"])
    assert found == {"bad": ("open", 0), "good": ("closed", 0), "nothing": ("closed", 1)}[counts]


@pytest.mark.parametrize("slow", [None, 100])
def test_a_rule_that_fails_hides_no_error_and_loses_no_probe(slow: float | None) -> None:
    spoilt = Boom("spoilt")

    def rule(error: Exception) -> bool:
        return 1 // 0 == 1 if error is spoilt else True

    script = BreakerScript(on=rule, failures=1, slow=slow)

    @script.breaker
    def call() -> None:
        raise spoilt

    for prepared in ("good:closed", "bad +30:half_open"):
        script.run(prepared)
        with pytest.raises(ZeroDivisionError) as caught:
            call()
        assert caught.value.__context__ is spoilt
    with pytest.raises(ZeroDivisionError) as caught, script.breaker:
        raise spoilt
    assert caught.value.__context__ is spoilt
    script.run("good:closed")


def test_a_rule_that_returns_a_wrong_type_raises_type_error() -> None:
    breaker = CircuitBreaker(on=always("yes"))
    with pytest.raises(TypeError, match=r"answered 'yes': write True, False") as caught, breaker:
        raise Boom
    assert isinstance(caught.value.__context__, Boom)


# --------------------------------------------------------------------------- rejections


@pytest.mark.parametrize(
    ("options", "steps", "message", "retry_after"),
    [
        ({"name": "pay"}, "bad", "pay is open after ScriptedError, for another 30 s", 30),
        ({}, "bad +27.5", "the circuit breaker is open after ScriptedError, for another 2.5 s", 2.5),
        ({"slow": 1}, "a> +1 a=good", "the circuit breaker is open after a slow call, for another 30 s", 30),
        ({}, "bad +30 a>", "the circuit breaker is half open, and probes are testing whether", None),
        ({"name": "pay"}, "isolate", r"pay is isolated, until close\(\) is called", None),
    ],
)
def test_a_rejection_names_its_reason_and_retry_after(
    options: dict[str, Any], steps: str, message: str, retry_after: float | None
) -> None:
    script = BreakerScript(failures=1, **options)
    script.run(steps)
    calls: list[None] = []
    with pytest.raises(errors.CircuitOpen, match=f"^{message}") as caught:
        script.breaker.call(lambda: calls.append(None))
    assert caught.value.retry_after == retry_after
    assert not calls
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.retry_after) == (str(caught.value), retry_after)


@pytest.mark.parametrize("start", [0.1, 0.7, 1e5 + 0.3, 1e9 / 7])
@pytest.mark.parametrize("cooldown", [0.1, 0.3, 7.7])
def test_a_call_after_retry_after_is_admitted(start: float, cooldown: float) -> None:
    """Regardless of how the float of the current time was rounded."""
    script = BreakerScript(failures=1, cooldown=cooldown, start=start)
    script.run("bad")
    script.clock.time += cooldown / 3
    with pytest.raises(errors.CircuitOpen) as caught:
        script.breaker.admit(script.clock.now())
    wait = caught.value.retry_after
    assert wait is not None
    assert 0 < wait < cooldown
    script.clock.time += wait
    script.run("good:closed")


# ------------------------------------------------------- snapshot, repr, copies, forks


def test_the_snapshot_in_every_state() -> None:
    script = BreakerScript(failures=2, name="pay")
    closed = {
        "state": "closed",
        "state_number": 0,
        "retry_after": None,
        "rejected": 0,
        "reopened": 0,
        "failures": 0,
        "calls": 0,
        "slow": 0,
        "exceeded": 0,
    }
    assert script.breaker.snapshot() == closed
    script.run("bad")
    assert script.breaker.snapshot() == closed | {"failures": 1, "calls": 1}
    script.run("bad good:no good:no +10")
    is_open = closed | {"state": "open", "state_number": 1, "rejected": 2}
    assert script.breaker.snapshot() == is_open | {"retry_after": 20}
    script.run("+20")
    half_open = closed | {"state": "half_open", "state_number": 2, "rejected": 2}
    assert script.breaker.snapshot() == half_open
    script.run("bad bad:no")
    assert script.breaker.snapshot() == is_open | {"retry_after": 30, "rejected": 3, "reopened": 1}
    script.run("+30 good")
    assert script.breaker.snapshot() == closed


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "CircuitBreaker(failures=5, cooldown=30)"),
        ({"ratio": 0.5, "cooldown": 1.5}, "CircuitBreaker(ratio=0.5, cooldown=1.5)"),
        ({"failures": 2, "name": "pay"}, "CircuitBreaker(failures=2, cooldown=30, name='pay')"),
    ],
)
def test_its_repr(options: dict[str, Any], text: str) -> None:
    assert repr(CircuitBreaker(**options)) == text


def test_it_is_shared_and_never_copied() -> None:
    breaker = CircuitBreaker()
    assert copy.copy(breaker) is breaker
    assert copy.deepcopy({"of": breaker})["of"] is breaker
    with pytest.raises(TypeError, match=r"^a CircuitBreaker is shared by the calls of one process"):
        pickle.dumps(breaker)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_can_change_the_state() -> None:
    """Even if another thread held the lock at the fork, or was calling an observer."""
    entered, leave = threading.Event(), threading.Event()

    def hold(_: object = None) -> None:
        entered.set()
        leave.wait()

    held, observed = CircuitBreaker(failures=1), CircuitBreaker(failures=1, on_change=hold)
    events: list[Event] = []

    def hold_lock() -> None:
        with held._lock:
            hold()

    for work in (hold_lock, observed.isolate):
        entered.clear()
        leave.clear()
        thread = threading.Thread(target=work)
        thread.start()
        try:
            assert entered.wait(30)
            child = os.fork()
            if not child:  # pragma: no cover  in another process
                code = 1
                try:
                    leave.set()  # the child's copy
                    observed.settings = replace(observed.settings, on_change=events.append)
                    for breaker in (held, observed):
                        breaker.close()
                        breaker.isolate()
                    fine = (
                        held.state == observed.state == "isolated" and events[-1].what == "circuit_isolated"
                    )
                    code = 0 if fine else 2
                finally:
                    os._exit(code)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        finally:
            leave.set()
            thread.join()
