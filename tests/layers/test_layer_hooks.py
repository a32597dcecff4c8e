"""The hooks of a user's own layer: it is described, linted and listed as the built-in layers are."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, ParamSpec, TypeVar

import pytest

from redouble import (
    AdaptiveConcurrency,
    AdaptiveRate,
    Bulkhead,
    Chaos,
    CircuitBreaker,
    Fallback,
    Gate,
    Hedge,
    Keyed,
    Layer,
    Pipeline,
    RateLimit,
    Retry,
    RetryBudget,
    Throttle,
    Timeout,
    TokenBucket,
    stats,
)
from redouble._engine.budgets.retry_budget import HostBudgets
from redouble.errors import Rejected
from redouble.http._plan import http_plan
from redouble.instruments._metric_definitions import BREAKER_STATE, BULKHEAD_IN_USE, BULKHEAD_QUEUED
from redouble.instruments._metrics_recorder import read_gauge
from redouble.testing import recorded
from redouble.types import Traits, WorstCase
from tests.support.fakes import stable_repr

P = ParamSpec("P")
T = TypeVar("T")

PUT_OUTSIDE = "Turnstile inside Retry: a coin is paid for each attempt; put it outside"


class Again(Layer):
    """A user's own retry: it calls a second time after an error."""

    def __init__(self, pause: float = 0.5, on: type[Exception] = Exception) -> None:
        self.pause, self.on = pause, on

    def around(self, fn: Callable[P, T], /) -> Callable[P, T]:
        def again(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return fn(*args, **kwargs)
            except self.on:
                return fn(*args, **kwargs)

        return again

    def describe(self) -> str:
        return f"a second call after {self.pause:g} s"

    def traits(self) -> Traits:
        return Traits(retries=True, handles=self.on)

    def worst_case(self, inner: WorstCase, /) -> WorstCase:
        return WorstCase(2 * inner.calls, 2 * inner.seconds, 2 * inner.waiting).after(self.pause)


class Turnstile(Gate):
    """A user's own gate: it admits as many calls as there are ``coins``."""

    def __init__(self, coins: int, name: str | None = None) -> None:
        self.coins, self.name, self.passed = coins, name, 0
        self.register()

    def admit(self, now: float, /) -> None:
        if self.passed == self.coins:
            raise Rejected("no coins are left")
        self.passed += 1

    def describe(self) -> str:
        return f"{self.coins} coins"

    def worst_case(self, inner: WorstCase, /) -> WorstCase:
        return inner.after(0.25)

    def lint(self, outer: tuple[Layer, ...], inner: tuple[Layer, ...], worst: WorstCase, /) -> Iterable[str]:
        if any(layer.traits().retries for layer in outer):
            yield PUT_OUTSIDE
        if worst.calls > 1:
            yield f"Turnstile around {worst.calls:g} calls: they share a coin"

    def snapshot(self) -> Mapping[str, int]:
        return {"passed": self.passed, "coins": self.coins}


def problems_of(layer: Layer) -> list[str]:
    """Return the problems that a pipeline reports, without the reasons."""
    return [sentence.partition(":")[0] for sentence in Pipeline(layer).check()]


# ------------------------------------------------------------------------------------- explain


def test_it_describes_itself() -> None:
    assert (Timeout(9) | Again() | Turnstile(3) | Timeout(2)).explain() == (
        """\
Timeout                    at most 9 s
└─ Again                   a second call after 0.5 s
   └─ Turnstile            3 coins
      └─ Timeout           at most 2 s
         └─ your function

at worst: 2 calls, 5 s"""
    )


@pytest.mark.parametrize(
    ("layer", "worst"),
    [
        (Again(), WorstCase(2, inf, 0.5)),
        (Again() | Timeout(2), WorstCase(2, 4.5, 0.5)),
        (Again() | Bulkhead(1, wait=3) | Timeout(2), WorstCase(2, 10.5, 6.5)),
        (Retry(attempts=3, backoff=[0, 0], budget=RetryBudget()) | Again(0), WorstCase(6, inf, 30)),
        (Timeout(1) | Again() | Turnstile(1) | Timeout(2), WorstCase(2, 1, 1)),
        (Keyed(str, Again) | Timeout(2), WorstCase(2, 4.5, 0.5)),
        (Pipeline(), WorstCase()),
    ],
    ids=stable_repr,
)
def test_its_worst_case_is_part_of_that_of_the_pipeline(layer: Layer, worst: WorstCase) -> None:
    assert Pipeline(layer).worst_case(WorstCase()) == worst


# --------------------------------------------------------------------------------------- check


def test_it_is_linted() -> None:
    assert (Turnstile(1) | Timeout(2)).check() == []
    assert (Again() | Timeout(2) | Turnstile(1)).check() == [PUT_OUTSIDE]
    assert (Retry() | Turnstile(1)).check() == [PUT_OUTSIDE]
    assert (Turnstile(1) | Again()).check() == ["Turnstile around 2 calls: they share a coin"]
    assert Pipeline(Keyed(str, lambda: Again() | Turnstile(1))).check() == [PUT_OUTSIDE]


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        (Again() | Timeout(2) | Bulkhead(1), ["Bulkhead inside Retry"]),
        (Keyed(str, Again) | Bulkhead(1), ["Bulkhead inside Retry"]),
        (CircuitBreaker() | Again(), ["CircuitBreaker outside Retry"]),
        (RateLimit(1) | Again(), ["RateLimit outside Retry"]),
        (Hedge() | Again(), ["Hedge outside Retry"]),
        (Retry() | Again(), ["Retry inside Retry"]),
        (Again(on=OSError) | Fallback(value=1, on=OSError), ["Fallback inside Again, for the same errors"]),
        (Again(on=OSError) | Fallback(value=1, on=KeyError), []),
    ],
    ids=stable_repr,
)
def test_built_in_layers_use_its_traits(layer: Layer, expected: list[str]) -> None:
    assert problems_of(layer) == expected


class Limit(Layer):
    """A layer with the given traits."""

    def __init__(self, traits: Traits) -> None:
        self._own = traits

    def traits(self) -> Traits:
        return self._own


@pytest.mark.parametrize(
    ("traits", "inside", "expected"),
    [
        (Traits(time_limit=2), Timeout(3), ["Timeout(3) inside a limit of 2 s"]),
        (Traits(time_limit=4), Timeout(3), []),
        (Traits(time_limit=2), Hedge(3), ["Hedge(delay=3) inside a limit of 2 s"]),
        (Traits(each_call_limit=2), Hedge(3), ["Hedge(delay=3) inside a limit of 2 s"]),
        (Traits(each_call_limit=2), CircuitBreaker(), ["CircuitBreaker inside the limit of an attempt"]),
        (Traits(time_limit=2), CircuitBreaker(), []),
    ],
)
def test_built_in_layers_use_its_limits(traits: Traits, inside: Layer, expected: list[str]) -> None:
    assert problems_of(Limit(traits) | inside) == expected
    assert problems_of(Keyed(str, lambda: Limit(traits)) | inside) == expected


def test_the_attempt_limit_of_a_keyed_policy_is_used() -> None:
    policy = Retry(attempt_timeout=2, attempts=2)
    assert problems_of(Keyed(str, lambda: policy) | Hedge(3)) == problems_of(policy | Hedge(3))


def test_shared_state_that_is_there_twice_is_reported() -> None:
    """A gate is shared state itself; other layers name theirs in their traits."""
    gate, ledger = Turnstile(1), RetryBudget()
    assert problems_of(gate | gate) == ["the same Turnstile is in the pipeline twice"]
    assert problems_of(Limit(Traits(shared=(ledger,))) | Limit(Traits(shared=(ledger,)))) == [
        "the same RetryBudget in nested policies"
    ]
    assert problems_of(Limit(Traits(shared=(ledger,))) | Retry(budget=ledger)) == [
        "the same RetryBudget in nested policies"
    ]
    assert problems_of(Turnstile(1) | Turnstile(1)) == []


def test_a_client_rejects_a_layer_that_calls_concurrently() -> None:
    with pytest.raises(TypeError, match="the attempts of a client share one request"):
        http_plan(Limit(Traits(concurrent=True)), "client", lambda _: None, aio=False)


def test_the_hooks_of_a_pipeline_combine_those_of_its_layers() -> None:
    """A user's own layer that contains a pipeline may call them."""
    gate = Turnstile(3)
    pipeline = Again(on=OSError) | gate | Limit(Traits(concurrent=True, time_limit=3, each_call_limit=2))
    assert pipeline.describe() == "Again (a second call after 0.5 s) | Turnstile (3 coins) | Limit"
    assert pipeline.traits() == Traits(True, True, 3, 2, None, (gate,))
    assert Pipeline(Again(on=OSError)).traits() == Again(on=OSError).traits()
    assert pipeline.lint((), (), WorstCase()) == [PUT_OUTSIDE]
    assert Pipeline().describe() == ""


def test_the_default_hooks() -> None:
    class Bare(Layer):
        """No hooks."""

    class BareGate(Gate):
        """No hooks."""

    gate = BareGate()
    for layer, shared in ((Bare(), ()), (gate, (gate,))):
        assert layer.name is None
        assert layer.describe() == ""
        assert layer.traits() == Traits(shared=shared)
        assert layer.worst_case(WorstCase(3, 4, 5)) == WorstCase(3, 4, 5)
        assert list(layer.lint((Retry(),), (Retry(),), WorstCase())) == []
        assert layer.snapshot() == {}
        assert layer.can_reconfigure(layer) is False
        layer.reconfigure(layer)


# -------------------------------------------------------------------------------- wrong hooks


def broken(hook: str, result: Callable[..., Any]) -> Layer:
    """Make a layer with one hook replaced."""

    def own(_: Layer, *args: object) -> object:
        return result(*args)

    class Broken(Layer):
        """A layer whose other hooks are the default ones."""

    setattr(Broken, hook, own)
    return Broken()


EXPLAIN: Callable[[Pipeline], object] = Pipeline.explain
CHECK: Callable[[Pipeline], object] = Pipeline.check
SENTENCES = r"return a list of sentences, \(\) for none; or yield them$"


@pytest.mark.parametrize(
    ("hook", "returned", "use", "message"),
    [
        ("describe", None, EXPLAIN, r'^Broken.describe\(\) returned None: return a string, or "" for no'),
        ("describe", 3, EXPLAIN, r"^Broken.describe\(\) returned 3: return a string"),
        ("traits", None, CHECK, r"^Broken.traits\(\) returned None: return redouble.types.Traits"),
        ("traits", (False, 3), CHECK, r"^Broken.traits\(\) returned \(False, 3\): return redouble.types"),
        ("worst_case", None, EXPLAIN, r"^Broken.worst_case\(\) returned None: return a redouble.types.Worst"),
        ("worst_case", (1, 2, 3), CHECK, r"^Broken.worst_case\(\) returned \(1, 2, 3\): return a redouble"),
        ("lint", "put it out", CHECK, rf"^Broken.lint\(\) returned 'put it out': {SENTENCES}"),
        ("lint", "", CHECK, rf"^Broken.lint\(\) returned '': {SENTENCES}"),
        ("lint", None, CHECK, rf"^Broken.lint\(\) returned None: {SENTENCES}"),
        ("lint", [("a", "b")], CHECK, rf"^Broken.lint\(\) returned \[\('a', 'b'\)\]: {SENTENCES}"),
        ("lint", ["fine", None], CHECK, rf"^Broken.lint\(\) returned \['fine', None\]: {SENTENCES}"),
    ],
)
@pytest.mark.parametrize("keyed", [False, True], ids=["alone", "by key"])
def test_a_hook_that_returns_a_wrong_type_is_reported(
    hook: str, returned: object, use: Callable[[Pipeline], object], message: str, keyed: bool
) -> None:
    """The error names the class, the hook, and what to return."""
    layer = broken(hook, lambda *_: returned)
    with pytest.raises(TypeError) as caught:
        use(Timeout(2) | (Keyed(str, lambda: layer) if keyed else layer) | Bulkhead(1))
    assert re.search(message, str(caught.value))


def failing(*_: object) -> Any:
    raise ZeroDivisionError


def failing_late(*_: object) -> Iterator[str]:
    yield "fine"
    raise ZeroDivisionError


@pytest.mark.parametrize(
    ("hook", "fails", "use"),
    [
        ("describe", failing, EXPLAIN),
        ("worst_case", failing, EXPLAIN),
        ("worst_case", failing, CHECK),
        ("traits", failing, CHECK),
        ("lint", failing, CHECK),
        ("lint", failing_late, CHECK),
    ],
)
def test_a_hook_that_raises_is_named_in_a_note(
    hook: str, fails: Callable[..., Any], use: Callable[[Pipeline], object]
) -> None:
    """The error is raised; built-in layers that call the hook are not named."""
    layer = broken(hook, fails)
    with pytest.raises(ZeroDivisionError) as caught:
        use(CircuitBreaker() | layer | Bulkhead(1))
    assert caught.value.__notes__ == [f"raised by Broken.{hook}(), a hook of a layer"]
    with pytest.raises(ZeroDivisionError) as caught:
        use(CircuitBreaker() | Keyed(str, lambda: layer))
    first, second = caught.value.__notes__
    assert first == f"raised by Broken.{hook}(), a hook of a layer"
    assert second.startswith("raised by Keyed.")


def test_an_attribute_with_the_name_of_a_hook_is_reported() -> None:
    """It is reported when `explain` or `check` is called; calls are not affected."""

    class Tagged(Gate):
        def __init__(self) -> None:
            self.traits: Any = ["a"]

        def admit(self, now: float, /) -> None:
            """Admit."""

    assert Tagged().call(str, 3) == "3"
    with pytest.raises(TypeError, match=r"not callable\nraised by Tagged.traits"):
        Pipeline(Tagged()).check()


# --------------------------------------------------------------------------------------- stats


def listed(name: str) -> dict[str, dict[str, Any]]:
    """Return the entries listed under a name, by section."""
    return {section: named[name] for section, named in stats().items() if name in named}


def test_it_is_listed_while_it_lives() -> None:
    gate = Turnstile(3, name="hooks gate")
    gate.call(str, 3)
    assert listed("hooks gate") == {"layers": {"type": "Turnstile", "passed": 1, "coins": 3}}
    del gate
    gc.collect()
    assert listed("hooks gate") == {}


def test_a_layer_without_a_name_is_not_listed() -> None:
    class Plain(Layer):
        def __init__(self, name: str | None = None) -> None:
            self.name = name
            self.register("limits")

    before = len(stats()["limits"])
    layers = [Plain(), Plain("hooks plain")]
    assert len(stats()["limits"]) == before + 1
    assert listed("hooks plain") == {"limits": {"type": "Plain"}}
    assert layers[0].name is None


def test_a_layer_whose_name_is_removed_is_not_listed() -> None:
    gate = Turnstile(3, name="hooks named")
    gate.name = None
    assert listed("hooks named") == {}
    assert None not in stats()["layers"]


def test_a_name_may_be_any_kind_of_attribute() -> None:
    @dataclass(frozen=True)
    class Valued(Layer):
        limit: int
        name: str | None = None

        def __post_init__(self) -> None:
            self.register()

        def snapshot(self) -> Mapping[str, int]:
            return {"limit": self.limit}

    class OfTheClass(Layer):
        name = "hooks class"

    class Computed(Layer):
        @property
        def name(self) -> str:  # type: ignore[override]  # pyright: ignore[reportIncompatibleVariableOverride]
            return "hooks property"

    layers = [Valued(3, name="hooks value"), OfTheClass(), Computed()]
    for layer in layers[1:]:
        layer.register()
    assert listed("hooks value") == {"layers": {"type": "Valued", "limit": 3}}
    assert listed("hooks class") == {"layers": {"type": "OfTheClass"}}
    assert listed("hooks property") == {"layers": {"type": "Computed"}}
    assert Valued(3) == Valued(3)
    assert Valued(3) != Valued(3, "other")


@pytest.mark.parametrize(
    ("name", "section", "error", "message"),
    [
        (3, "layers", TypeError, "Own name=3: write a text, or None"),
        ("own", "policies", ValueError, r"Own.register\('policies'\): write one of breakers, bulkheads,"),
        ("own", "budgets", ValueError, r"Own.register\('budgets'\)"),
        ("own", "layer", ValueError, r"Own.register\('layer'\)"),
    ],
)
def test_wrong_names_and_sections_are_reported(
    name: Any, section: Any, error: type[Exception], message: str
) -> None:
    class Own(Layer):
        """Bare."""

    layer = Own()
    layer.name = name
    with pytest.raises(error, match=message):
        layer.register(section)
    assert "own" not in stats()["layers"]


@pytest.mark.parametrize("snapshot", [failing, lambda: None, lambda: 3, lambda: ["passed"]])
def test_a_failing_snapshot_names_its_layer(snapshot: Callable[..., Any]) -> None:
    layer = broken("snapshot", snapshot)
    layer.name = "hooks broken"
    layer.register()
    other = Turnstile(3, name="hooks whole")
    assert listed("hooks broken") == {"layers": {"type": "Broken", "snapshot": "failed"}}
    assert listed("hooks whole") == {"layers": {"type": "Turnstile", **other.snapshot()}}


def test_a_sample_layer_that_explain_makes_is_not_listed() -> None:
    keyed = Keyed(str, lambda: Turnstile(3, name="hooks keyed"))
    assert "3 coins" in Pipeline(keyed).explain()
    assert listed("hooks keyed") == {}
    keyed.of("a")
    assert listed("hooks keyed").keys() == {"layers"}


def test_it_appears_in_metrics_and_events() -> None:
    class Ward(Turnstile):
        def __init__(self) -> None:
            super().__init__(1, name="hooks ward")
            self.register("bulkheads")
            self.register("breakers")  # the gauges need a state, which it does not have

        def snapshot(self) -> Mapping[str, int]:
            return {"in_use": self.passed, "queued": 7}

    ward = Ward()
    with recorded() as events, pytest.raises(Rejected):
        ward.call(ward.call, str, 3)
    assert [(event.what, event.by, event.name) for event in events] == [("rejected", "ward", "hooks ward")]
    assert read_gauge(BULKHEAD_IN_USE)["hooks ward",] == 1
    assert read_gauge(BULKHEAD_QUEUED)["hooks ward",] == 7
    assert not [labels for labels in read_gauge(BREAKER_STATE) if labels[0] == "hooks ward"]


# --------------------------------------------------------------------------------- reconfigure


@pytest.mark.parametrize(
    ("old", "new", "can"),
    [
        (Bulkhead(1), Bulkhead(2), True),
        (CircuitBreaker(), CircuitBreaker(failures=9), True),
        (RateLimit(1), RateLimit(2), True),
        (RateLimit(1), RateLimit(1, following=True), False),
        (RetryBudget(), RetryBudget(0.5), True),
        (RetryBudget(), RetryBudget(credit="request"), False),
        (HostBudgets(), HostBudgets(0.5), True),
        (HostBudgets(), HostBudgets(credit="request"), False),
        (TokenBucket(), TokenBucket(3), True),
        (TokenBucket.grpc(), TokenBucket.grpc(3), True),
        (Timeout(1), Timeout(2), False),
        (Hedge(1), Hedge(2), True),
        (Throttle(), Throttle(3), True),
        (AdaptiveRate(), AdaptiveRate(wait=3), True),
        (AdaptiveRate(), AdaptiveRate(until=bool), True),
        (AdaptiveConcurrency(), AdaptiveConcurrency(3), True),
        (Chaos(latency=1), Chaos(latency=2), False),
        (Retry(), Retry(), False),
    ],
    ids=stable_repr,
)
def test_which_built_in_objects_can_be_reconfigured(old: Any, new: Any, can: bool) -> None:
    before = repr(old)
    assert old.can_reconfigure(new) is can
    assert repr(old) == before
