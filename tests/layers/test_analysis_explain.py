"""`Pipeline.explain`: a drawing of the layers, what each does, and the worst case."""

from __future__ import annotations

from typing import Any

import pytest

from redouble import (
    AdaptiveConcurrency,
    AdaptiveRate,
    Backoff,
    Bulkhead,
    CircuitBreaker,
    Fallback,
    Gate,
    Hedge,
    Kind,
    Layer,
    Pipeline,
    Retry,
    RetryBudget,
    Throttle,
    Timeout,
    TokenBucket,
    Worker,
    presets,
)
from tests.support.fakes import stable_repr
from tests.support.layers.analysis import UNHINTED, Own, Patient

REFUSED = "; a refused result is a failure"
POLICY = Retry(on=OSError, backoff=Backoff.exponential(0.1).maximum(5).full_jitter())


class Turnstile(Gate):
    def admit(self, now: float, /) -> None: ...


def test_a_pipeline_of_many_layers() -> None:
    guarded = Timeout(30) | Bulkhead(10, wait=1.0) | POLICY | CircuitBreaker() | Timeout(2)
    assert guarded.explain() == (
        """\
Timeout                       at most 30 s
└─ Bulkhead                   10 at once, others wait up to 1 s
   └─ Retry                   up to 4 attempts, delays of 0.7 s in all, within 30 s
      └─ CircuitBreaker       opens after 5 failures in a row, for 30 s
         └─ Timeout           at most 2 s
            └─ your function

at worst: 4 calls, 30 s"""
    )


def test_an_empty_pipeline() -> None:
    assert Pipeline().explain() == "your function\n\nat worst: 1 call, for as long as your function takes"


def test_a_pipeline_of_one_layer() -> None:
    drawn = "Timeout           at most 2 s\n└─ your function\n\nat worst: 1 call, 2 s"
    assert Pipeline(Timeout(2)).explain() == drawn


def test_a_budget_with_a_cap() -> None:
    policy = Retry(attempts=2, backoff=[0], budget=RetryBudget(max_in_flight=0.2))
    drawn = "up to 2 attempts, within 30 s, limited by a budget (in flight: 0.2 of the calls, or 3)"
    assert drawn in policy.describe()


@pytest.mark.parametrize(
    ("worker", "described"),
    [
        (Worker(), ""),
        (Worker(limit=1), ", on 1 thread"),
        (Worker("process", limit=20), ", on 20 processes at most"),
    ],
)
def test_a_worker_with_a_limit(worker: Worker, described: str) -> None:
    policy = Retry(attempts=2, backoff=[0], worker=worker)
    assert policy.describe() == f"up to 2 attempts, within 30 s{described}"
    assert Timeout(2, worker=worker).describe() == f"at most 2 s{described}"


def test_a_users_own_layers() -> None:
    """They are drawn by the name of their class, and do not change the worst case."""
    drawn = """\
Own
└─ Turnstile
   └─ Timeout           at most 2 s
      └─ your function

at worst: 1 call, 2 s"""
    assert (Own() | Turnstile() | Timeout(2)).explain() == drawn


def test_a_pipeline_in_another_is_flat() -> None:
    inner = POLICY | Timeout(2)
    flat = Timeout(30) | POLICY | Timeout(2)
    assert (Timeout(30) | inner).explain() == Pipeline(Pipeline(flat)).explain() == flat.explain()


@pytest.mark.parametrize(
    ("layer", "words"),
    [
        (Retry(), "up to 4 attempts, delays of 1.4 s in all, within 30 s"),
        (Retry(attempts=1), "1 attempt, within 30 s"),
        (Retry(attempts=2, give_up_after=None), "up to 2 attempts, delays of 0.2 s in all"),
        (Retry(attempts=None), "any number of attempts, within 30 s"),
        (Retry(attempts=None, give_up_after=None, timeout=5), "any number of attempts, within 5 s"),
        (Retry(timeout=5), "up to 4 attempts, delays of 1.4 s in all, within 5 s"),
        (Retry(timeout=50), "up to 4 attempts, delays of 1.4 s in all, within 30 s"),
        (Retry(attempts=3, backoff=[0, 0], attempt_timeout=1.5), "up to 3 attempts, 1.5 s each, within 30 s"),
        (
            Retry(attempts=2, backoff={Kind.throttled: [9], None: [1]}),
            "up to 2 attempts, delays of 9 s in all, within 30 s",
        ),
        (
            Retry(attempts=3, backoff=[1234.5, 2000], give_up_after=7200),
            "up to 3 attempts, delays of 3234.5 s in all, within 7200 s",
        ),
        (Patient(attempts=1), "1 attempt, within 30 s"),
        (Timeout(0.25), "at most 0.25 s"),
        (Timeout(3600, worker=Worker()), "at most 3600 s"),
        (Bulkhead(10), "10 at once, others wait up to 1 s"),
        (Bulkhead(1, wait=0.5, queue=3), "1 at once, others wait up to 0.5 s"),
        (Bulkhead(1, wait=0), "1 at once, others are refused"),
        (Bulkhead(1, wait=None), "1 at once, others wait"),
        (CircuitBreaker(failures=3, cooldown=0.5), "opens after 3 failures in a row, for 0.5 s"),
        (
            CircuitBreaker(ratio=0.5, minimum=10, window=60),
            "opens after 50% failures of at least 10 calls in 60 s, for 30 s",
        ),
        (
            CircuitBreaker(until=bool, state="metrics_only"),
            "would open after 5 failures in a row, for 30 s; a refused result is a failure (metrics_only)",
        ),
        (
            Throttle(until=bool),
            f"at most 2 calls for each one accepted in 120 s{REFUSED}",
        ),
        (
            AdaptiveConcurrency(until=bool, queue=3),
            f"as many at once as the service can handle, currently 20, others wait up to 1 s{REFUSED}",
        ),
        (AdaptiveRate(until=bool), "as fast as the server allows; a refused result is a failure"),
        (
            Hedge(1, until=bool),
            f"once more if it takes over 1 s, for 2 % of the calls at most{REFUSED}",
        ),
        (Fallback(value="secret"), "another result instead of an error"),
        (Fallback(value="secret", until=bool), "another result instead of an error or a refused result"),
        (
            Fallback.stale(9, until=bool),
            "the last good result instead of an error or a refused result, up to 9 s old, 1000 at most",
        ),
        (Own(), ""),
    ],
    ids=stable_repr,
)
def test_the_description_of_a_layer(layer: Layer, words: str) -> None:
    first, *_ = Pipeline(layer).explain().splitlines()
    assert first.split(maxsplit=1) == [type(layer).__name__, *([words] if words else [])]


MANY = [
    Pipeline(),
    Pipeline(Own()),
    Own() | Turnstile(),
    Timeout(30) | Bulkhead(10) | POLICY | CircuitBreaker() | Fallback(value=3) | Timeout(2),
    Fallback(print) | Bulkhead(3, wait=None) | Retry(attempts=None) | Retry(budget=TokenBucket()) | Own(),
    *(Pipeline(getattr(presets, name)()) for name in presets.__all__),
]


@pytest.mark.parametrize("pipeline", MANY, ids=stable_repr)
def test_the_layout(pipeline: Pipeline) -> None:
    """Layers are indented, descriptions are aligned, and the worst case follows an empty line."""
    *rows, blank, worst = pipeline.explain().splitlines()
    names = [type(layer).__name__ for layer in pipeline.layers]
    assert [row.lstrip(" └─").split("  ")[0] for row in rows] == [*names, "your function"]
    assert [row.find(name) for row, name in zip(rows, names, strict=False)] == [
        3 * n for n in range(len(names))
    ]
    starts = {len(row) - len(row.split("  ")[-1].lstrip()) for row in rows[:-1] if "  " in row.lstrip(" └─")}
    assert len(starts) <= 1
    assert starts <= {len(rows[-1]) + 2}
    assert blank == ""
    assert worst.startswith("at worst: ")
    assert all(row == row.rstrip() for row in rows)
    assert "e+" not in "".join(rows)


def test_explain_and_check_change_no_state() -> None:
    """No slot is acquired, nothing is spent or drawn; and a second call returns the same."""

    class Untouched:
        def random(self) -> float:
            raise AssertionError("something was drawn")

    bulkhead, budget, breaker = Bulkhead(1), RetryBudget(), CircuitBreaker()
    before = [bulkhead.snapshot(), budget.snapshot(0), breaker.snapshot()]
    pipeline = bulkhead | Retry(budget=budget, random=Untouched()) | breaker
    assert pipeline.explain() == pipeline.explain()
    assert pipeline.check() == pipeline.check() == []
    assert [bulkhead.snapshot(), budget.snapshot(0), breaker.snapshot()] == before


def test_a_value_is_never_shown() -> None:
    pipeline = Fallback(value="secret") | Retry(name="secret", labels={"key": "secret"})
    text = pipeline.explain() + " ".join(pipeline.check())
    assert "secret" not in text


@pytest.mark.parametrize(
    "endless", [{"give_up_after": 10}, {"give_up_after": None, "work_timeout": 10}], ids=str
)
def test_any_number_of_attempts_is_limited_by_time(endless: dict[str, Any]) -> None:
    text = Pipeline(Retry(attempts=None, hints=UNHINTED, **endless)).explain()
    assert text.splitlines()[-1].startswith(
        "at worst: calls until time is up, for as long as your function takes"
    )
