"""`redouble.presets`: the numbers of each, in every colour; options replace them."""

from __future__ import annotations

import inspect
import pydoc
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest

from redouble import (
    Backoff,
    Hints,
    Kind,
    Retry,
    RetryBudget,
    TokenBucket,
    Verdict,
    presets,
    report,
    transient,
)
from redouble.testing import Script, VirtualClock, ok
from support import always
from test_virtual import PLACES, at, unwaiting

pytestmark = pytest.mark.usefixtures(unwaiting.__name__)

ALL: dict[str, Callable[..., Retry]] = {name: getattr(presets, name) for name in presets.__all__}
EACH = pytest.mark.parametrize("name", ALL)


def full(initial: float, maximum: float) -> Backoff:
    return Backoff.exponential(initial).maximum(maximum).full_jitter()


NUMBERS: dict[str, dict[str, Any]] = {
    "http": {"attempts": 3, "backoff": full(0.1, 5), "give_up_after": 30},
    "aws_standard": {
        "attempts": 3,
        "backoff": {Kind.throttled: full(1, 20), None: full(0.05, 20)},
        "hints": Hints(over=5, spread=0),
        "give_up_after": None,
    },
    "httpware": {
        "attempts": 3,
        "backoff": full(0.1, 5),
        "hints": Hints(mode="instead", longest=5, spread=0),
        "give_up_after": None,
    },
    "finagle": {"attempts": 21, "backoff": Backoff.constant(0)},
    "database": {"attempts": 4, "backoff": full(0.05, 1), "give_up_after": 10},
    "polling": {
        "attempts": None,
        "backoff": Backoff.exponential(1).maximum(30).equal_jitter(),
        "give_up_after": 300,
    },
    "llm": {"attempts": 4, "backoff": full(0.2, 2), "timeout": 30},
}

BUDGETS: dict[str, Any] = {
    "http": RetryBudget(0.2, 10, 10, "success"),
    "aws_standard": TokenBucket(500, {Kind.throttled: 5, None: 14}),
    "httpware": RetryBudget(0.2, 10, 10, "request"),
    "finagle": RetryBudget(0.2, 10, 10, "request"),
    "database": RetryBudget(0.2, 10, 10, "success"),
    "polling": None,
    "llm": RetryBudget(0.2, 10, 10, "success"),
}


@EACH
def test_the_numbers(name: str) -> None:
    """All that is not said is as in any policy."""
    assert replace(ALL[name](), budget=None) == Retry(**NUMBERS[name])
    assert repr(ALL[name]().budget) == repr(BUDGETS[name])


@EACH
def test_a_budget_of_its_own(name: str) -> None:
    """Each call of a preset makes a new one; a policy is made once per service, and shared."""
    one, other = ALL[name](), ALL[name]()
    assert one is not other
    assert (one.budget is other.budget) is (one.budget is None)
    shared = RetryBudget()
    assert ALL[name](budget=shared).budget is shared
    assert ALL[name](budget=None).budget is None


@EACH
def test_options_replace(name: str) -> None:
    policy = ALL[name](attempts=2, backoff=[9], give_up_after=99, on=KeyError, name="mine")
    assert (policy.attempts, [*policy.backoff], policy.give_up_after) == (2, [9], 99)
    assert (policy.on, policy.name) == (KeyError, "mine")
    usual = ALL[name]()
    assert (policy.hints, policy.timeout) == (usual.hints, usual.timeout)


@EACH
def test_wrong_options(name: str) -> None:
    """They are said as those of a policy are."""
    preset: Any = ALL[name]
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'attemps'"):
        preset(attemps=2)
    with pytest.raises(ValueError, match=r"^attempts=0: write a whole number"):
        preset(attempts=0)
    with pytest.raises(TypeError, match=r"^timeout='2s': write seconds as a number"):
        preset(timeout="2s")


@EACH
def test_options_are_keywords(name: str) -> None:
    """So a preset is no decorator either, unless it is called."""
    preset: Any = ALL[name]
    for wrong in (3, test_the_numbers):
        with pytest.raises(TypeError, match=rf"write presets\.{name}\(attempts=2\)"):
            preset(wrong)


@EACH
def test_what_help_says(name: str) -> None:
    """Where the numbers come from, which options there are, and what they are here."""
    preset = ALL[name]
    signature = inspect.signature(preset)
    assert signature.return_annotation is Retry
    assert list(signature.parameters) == [option.name for option in fields(Retry) if option.init]
    assert all(option.kind is option.KEYWORD_ONLY for option in signature.parameters.values())
    usual = preset()
    for option in ("attempts", "give_up_after", "timeout", "hints", "backoff"):
        assert signature.parameters[option].default == getattr(usual, option)
    assert (preset.__name__, preset.__module__, preset.__qualname__) == (name, "redouble.presets", name)
    said = inspect.getdoc(preset) or ""
    assert said.splitlines()[0].endswith((".", ":"))
    assert name in pydoc.render_doc(preset)


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("http", "httpware"),
        ("http", "Finagle"),
        ("aws_standard", "botocore and smithy-kotlin"),
        ("httpware", "reference"),
        ("finagle", "Finagle"),
        ("database", "AWS"),
        ("llm", "llm-fiber"),
    ],
)
def test_where_the_numbers_come_from(name: str, source: str) -> None:
    assert source in (inspect.getdoc(ALL[name]) or "")


# ------------------------------------------------------------------------------ at work


def delays(place: str, policy: Retry, *steps: Any) -> tuple[object, list[float]]:
    """Make a call in virtual time; tell why it was given up, and the delays."""
    script = Script(*steps)

    def blocking(clock: VirtualClock) -> tuple[object, list[float]]:
        outcome: Any = policy.run(script)
        return outcome.report.reason, clock.delays

    async def waiting(clock: VirtualClock) -> tuple[object, list[float]]:
        outcome = await policy.run(script.aio)
        return outcome.report.reason, clock.delays

    reason, waits = at(place, blocking, waiting)
    return reason, [round(wait, 3) for wait in waits if wait]


class Half:
    """A chance that is always even."""

    def random(self) -> float:
        return 0.5


THROTTLED = Verdict.retry(kind=Kind.throttled)

AT_WORK: dict[str, tuple[str, dict[str, Any], int, tuple[object, list[float]]]] = {
    # a preset, options, how many failures, and why it was given up after which delays (of chance at 1/2)
    "http": ("http", {}, 9, ("attempts", [0.05, 0.1])),
    "http, hinted": ("http", {"on": always(29.0)}, 1, (None, [29.5])),
    "http, asked too much": ("http", {"on": always(31.0)}, 1, ("timeout", [])),
    "aws": ("aws_standard", {}, 9, ("attempts", [0.025, 0.05])),
    "aws, throttled": ("aws_standard", {"on": always(THROTTLED)}, 9, ("attempts", [0.5, 1.0])),
    "aws, hinted": ("aws_standard", {"on": always(60.0)}, 9, ("attempts", [5.025, 5.05])),
    "httpware": ("httpware", {}, 9, ("attempts", [0.05, 0.1])),
    "httpware, hinted": ("httpware", {"on": always(5.0)}, 9, ("attempts", [5.0, 5.0])),
    "httpware, asked too much": ("httpware", {"on": always(5.5)}, 9, ("hint_too_long", [])),
    "finagle": ("finagle", {}, 99, ("attempts", [])),
    "finagle, soon": ("finagle", {}, 20, (None, [])),
    "database": ("database", {}, 9, ("attempts", [0.025, 0.05, 0.1])),
    "polling": ("polling", {}, 3, (None, [0.75, 1.5, 3.0])),
    "llm": ("llm", {}, 9, ("attempts", [0.1, 0.2, 0.4])),
    "llm, soon": ("llm", {}, 1, (None, [0.1])),
}


@pytest.mark.parametrize("row", AT_WORK)
@pytest.mark.parametrize("place", PLACES)
def test_at_work(place: str, row: str) -> None:
    name, options, failures, expected = AT_WORK[row]
    policy = ALL[name](random=Half(), **options)
    assert delays(place, policy, *["fail"] * failures, ok(3)) == expected


def test_polling() -> None:
    """Until it is so, or for five minutes."""
    policy = presets.polling(until=lambda state: state == "done", random=Half())
    assert delays("sync", policy, ok("new"), ok("started"), ok("done")) == (None, [0.75, 1.5])
    reason, waits = delays("sync", policy, *[ok("new")] * 99)
    assert (reason, waits[-1]) == ("timeout", 22.5)
    assert 270 < sum(waits) < 300


def test_a_budget_is_shared_by_the_calls_of_a_policy() -> None:
    """A policy made once lets so many calls retry, and no more."""
    policy = presets.aws_standard(on=Exception, attempts=2)
    reasons: list[object] = []
    for _ in range(36):
        with pytest.raises(Exception, match="x") as caught:
            policy.call(Script(OSError("x"), OSError("x")))
        said = report(caught.value)
        reasons.append(said and said.reason)
    assert reasons == ["attempts"] * 35 + ["budget"]  # 500 tokens, 14 each


def test_what_is_retried_is_left_to_the_rule() -> None:
    assert {preset().on for preset in ALL.values()} == {transient}
