"""`Pipeline.check`: each known problem, with its reason; near misses are not reported."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from redouble import (
    AdaptiveConcurrency,
    Backoff,
    Bulkhead,
    CircuitBreaker,
    Coalesce,
    Fallback,
    Gate,
    Hedge,
    Keyed,
    Kind,
    Layer,
    Pipeline,
    Retry,
    RetryBudget,
    Timeout,
    TokenBucket,
    Worker,
    presets,
    transient,
)
from redouble.http import rule
from redouble.httpx2 import Transport
from tests.support.fakes import Ledger, UnhashableRule, always
from tests.support.layers.analysis import UNHINTED, Own, Patient, assert_warnings

FULL = Backoff.exponential(0.2).maximum(2).full_jitter()
ONCE = Retry(attempts=1)
BULKHEAD, BREAKER, BUDGET, BUCKET, LEDGER = (
    Bulkhead(2),
    CircuitBreaker(),
    RetryBudget(),
    TokenBucket(),
    Ledger(),
)
RULE, JUDGE = always(True), UnhashableRule()
WRITES = Retry(on=rule(methods={"POST"}))
LONG_ATTEMPTS = Retry(attempt_timeout=3)

ATTEMPT = (
    r"attempt_timeout=.* is not below the .* of the whole call: an attempt that is cut leaves no time .*"
)
INSIDE_LIMIT = r"Timeout\(.*\) inside a limit of .* s: the limit is always reached first, so .*"
BULKHEAD_INSIDE = (
    r"Bulkhead inside Retry: a call releases its slot while it waits to retry, .*; put it outside"
)
BREAKER_OUTSIDE = (
    r"CircuitBreaker outside Retry: it counts one failure for several failed attempts, .*; put it inside"
)
FALLBACK_INSIDE = r"Fallback inside Retry, for the same errors: it replaces each error .*; put it outside"
FALLBACK_HIDES = (
    r"Fallback inside CircuitBreaker, for the same errors: it replaces each error .*; put it outside"
)
FALLBACK_RACES = r"Fallback inside Hedge: the substitute for a failed attempt ends the race .*; put it .*"
BREAKER_CUT = r"CircuitBreaker inside the limit of an attempt: it takes a call that is cut for a cancelled .*"
SHARED_INSIDE_RETRY = (
    "Coalesce inside Retry: if a shared call fails, every caller retries it, and spends from the budget; put "
    "it outside"
)
SHARED_INSIDE_HEDGE = (
    "Coalesce inside Hedge: the extra call waits for the one that is late, so it never wins; put it outside"
)
SHARED_WRITES = (
    r"StaleFallback around a policy that sends (PATCH, )?POST again: .*; put it around functions .*"
)
SHARES = r"Bulkhead\(.\) shares=.*: a part of a slot counts as one, so . slots are guaranteed and there .*"
NO_QUEUE = r"AdaptiveConcurrency with a wait or an order, and without a queue: no call waits; write queue=20"
WINDOW = r"CircuitBreaker window=. below twice the limit of an attempt, . s: .*; write window=.* or more, .*"
NO_JITTER = r"Retry without jitter: clients that failed together retry together; write backoff=Backoff.*"
TOO_LONG = r"Retry\(attempts=\d+\) may need .* s and has .* s: at worst, there is no time for the last .*"
NO_BUDGET = (
    r"Retry with .* and no budget: when the service is down, every attempt adds to its load; pass budget=.*"
)
SOFT_LIMIT = r"Retry\(.*timeout=.*\) without a worker, beside a layer that has one: .*; write worker=Worker.*"
RETRY_INSIDE = r"Retry inside Retry: their attempts multiply; retry in one place"


def quick(**options: Any) -> Retry:
    """Return a policy that no hint can make wait for longer."""
    return Retry(hints=UNHINTED, **options)


POOL = Worker(limit=3)


def no_retry(when: str) -> str:
    return rf"RetryBudget\(max_in_flight=.*, minimum=0\): {when}it grants no retry; write minimum=1 or more"


def twice(kind: str) -> str:
    return rf"the same {kind} is in the pipeline twice: every call counts twice, and may wait for itself"


def nested_budget(kind: str) -> str:
    return rf"the same {kind} in nested policies: it counts the call of the outer one only, .* of its own.*"


PROBLEMS: list[tuple[Layer, list[str]]] = [
    # the attempt's timeout is not below the total
    (Retry(attempt_timeout=5, timeout=5), [ATTEMPT, TOO_LONG]),
    (Retry(attempt_timeout=9, timeout=5), [ATTEMPT, TOO_LONG]),
    (Timeout(5) | Retry(attempt_timeout=5), [ATTEMPT, TOO_LONG]),
    (Timeout(5) | BREAKER | Own() | Retry(attempt_timeout=6), [BREAKER_OUTSIDE, ATTEMPT, TOO_LONG]),
    (Timeout(timedelta(seconds=5)) | Timeout(5), [INSIDE_LIMIT]),
    (Timeout(5) | Retry(hints=UNHINTED) | Timeout(9), [TOO_LONG, INSIDE_LIMIT]),
    (Retry(timeout=5) | Timeout(5), [TOO_LONG, INSIDE_LIMIT]),
    # a limit that interrupts nothing, where the other one does
    (Timeout(30, worker=Worker()) | Retry(timeout=9), [SOFT_LIMIT]),
    (Retry(timeout=20) | Timeout(2, worker=Worker()), [SOFT_LIMIT]),
    (Retry(attempts=1, work_timeout=9) | Timeout(2, worker=Worker()), [SOFT_LIMIT]),
    (
        Retry(timeout=9, nested="stop") | quick(timeout=1, worker=Worker()),
        [SOFT_LIMIT, RETRY_INSIDE, TOO_LONG],
    ),
    (
        Retry(timeout=5) | Timeout(6, worker=Worker()),
        [SOFT_LIMIT, TOO_LONG],
    ),  # the inner limit does end calls
    (Timeout(5, worker=Worker()) | Timeout(5, worker=Worker()), [INSIDE_LIMIT]),
    # a slot that is released too early
    (Retry() | BULKHEAD, [BULKHEAD_INSIDE]),
    (Retry() | Timeout(2) | Own() | BULKHEAD | Timeout(1), [BULKHEAD_INSIDE]),
    (Patient() | BULKHEAD, [BULKHEAD_INSIDE]),
    # a wait without a queue
    (AdaptiveConcurrency(wait=5) | Own(), [NO_QUEUE]),
    (AdaptiveConcurrency(order="lifo") | Own(), [NO_QUEUE]),
    (AdaptiveConcurrency(wait=0) | AdaptiveConcurrency(wait=None, queue=5), []),
    # a breaker that sees too little
    (BREAKER | Retry(), [BREAKER_OUTSIDE]),
    (BREAKER | BULKHEAD | Timeout(30) | Retry() | Own(), [BREAKER_OUTSIDE]),
    # a breaker that never sees calls that hang
    (Retry() | Timeout(2) | BREAKER, [BREAKER_CUT]),
    (Retry(attempt_timeout=2) | BREAKER, [BREAKER_CUT]),
    (Timeout(2) | Own() | BREAKER, [BREAKER_CUT]),
    (Timeout(2) | BREAKER | Bulkhead(1), [BREAKER_CUT]),
    # the same object twice
    (BULKHEAD | BREAKER | BULKHEAD, [twice("Bulkhead")]),
    (BREAKER | BREAKER, [twice("CircuitBreaker")]),
    (BREAKER | Own() | BREAKER | BREAKER, [twice("CircuitBreaker")] * 2),
    (BULKHEAD | Retry() | BREAKER | BREAKER, [twice("CircuitBreaker")]),
    (Retry(budget=BUDGET) | quick(budget=BUDGET), [RETRY_INSIDE, nested_budget("RetryBudget")]),
    (Retry(budget=BUCKET) | quick(attempts=2, budget=BUCKET), [RETRY_INSIDE, nested_budget("TokenBucket")]),
    (
        Retry(budget=LEDGER) | Retry(attempts=2, give_up_after=5, budget=LEDGER),
        [RETRY_INSIDE, nested_budget("Ledger")],
    ),
    (
        Retry(budget=Ledger()) | Retry(attempts=2, give_up_after=5, budget=Ledger()),
        [RETRY_INSIDE],
    ),  # equal, and not the same
    (Retry(budget=BUDGET.without_credit()) | quick(budget=BUDGET), [RETRY_INSIDE]),
    (
        Retry(budget=BUDGET) | Keyed(str, lambda: quick(budget=BUDGET)),
        [RETRY_INSIDE, nested_budget("RetryBudget")],
    ),
    (Retry(budget=BUDGET) | Keyed(str, lambda: quick(budget=RetryBudget())), [RETRY_INSIDE]),
    (
        Pipeline(Keyed(str, lambda: Retry(budget=BUDGET) | quick(budget=BUDGET))),
        [RETRY_INSIDE, nested_budget("RetryBudget")],
    ),
    (Retry(worker=POOL) | quick(worker=POOL), [RETRY_INSIDE, twice("Worker")]),
    (Retry(worker=POOL) | Timeout(1, worker=POOL), [twice("Worker")]),
    (Retry(worker=Worker()) | Timeout(1, worker=Worker()), []),
    # a cap on retries in flight that grants none
    (
        Retry(budget=RetryBudget(max_in_flight=0.2, minimum=0)),
        [no_retry("while fewer than 5 .* ")],
    ),
    (
        Retry(budget=RetryBudget(max_in_flight=0.3, minimum=0)),
        [no_retry("while fewer than 4 .* ")],
    ),
    (Retry(budget=RetryBudget(max_in_flight=0, minimum=0)), [no_retry("")]),
    (Retry(budget=RetryBudget(max_in_flight=0.2, minimum=1)), []),
    (Retry(budget=RetryBudget(max_in_flight=1, minimum=0)), []),
    (Retry(budget=RetryBudget(max_in_flight=0.2, minimum=0), attempts=1), []),
    # a fallback that leaves nothing to retry
    (Retry() | Fallback(value=1), [FALLBACK_INSIDE]),
    (Retry(on=OSError) | Own() | Fallback(print, on=OSError), [FALLBACK_INSIDE]),
    (Retry(on=ConnectionError) | Fallback(value=1, on=OSError), [FALLBACK_INSIDE]),
    (Retry(on=[ConnectionError, KeyError]) | Fallback(value=1, on=(OSError, LookupError)), [FALLBACK_INSIDE]),
    (Retry(on=transient) | Fallback(value=1, on=transient), [FALLBACK_INSIDE]),
    (Retry(on=[transient]) | Fallback(value=1, on=transient), [FALLBACK_INSIDE]),
    (Retry(on=transient) | Fallback(value=1, on=[transient]), [FALLBACK_INSIDE]),
    (Retry(on=[RULE, OSError]) | Fallback(value=1, on=[RULE, OSError]), [FALLBACK_INSIDE]),
    (Retry(on=RULE) | Fallback(value=1, on=[Exception]), [FALLBACK_INSIDE]),
    (Retry(on=JUDGE) | Fallback(value=1, on=JUDGE), [FALLBACK_INSIDE]),
    # a fallback that hides failures from the breaker
    (BREAKER | Fallback(value=1), [FALLBACK_HIDES]),
    (CircuitBreaker(OSError) | Timeout(2) | Fallback(value=1, on=OSError), [FALLBACK_HIDES]),
    (Retry() | BREAKER | Fallback(value=1), [FALLBACK_INSIDE, FALLBACK_HIDES]),
    # a fallback that wins a race
    (Hedge(0.1) | Fallback(value=1), [FALLBACK_RACES]),
    (Hedge() | Timeout(2) | Fallback(print, on=OSError), [FALLBACK_RACES]),
    (Hedge() | Keyed(str, lambda: Fallback(value=1)), [FALLBACK_RACES]),
    (Keyed(str, Hedge) | Fallback(value=1), [FALLBACK_RACES.replace("Hedge", "Keyed")]),
    (Pipeline(Keyed(str, lambda: Hedge() | Fallback(value=1))), [FALLBACK_RACES]),
    (quick() | Hedge(0.1) | Fallback(value=1), [FALLBACK_INSIDE, FALLBACK_RACES]),
    # results that must not be shared
    (Fallback.stale(9) | Retry(on=rule(methods={"GET", "POST", "PATCH"})), [SHARED_WRITES]),
    (Fallback.stale(9) | BULKHEAD | Retry(on=[OSError, rule(methods=["post"])]), [SHARED_WRITES]),
    (Coalesce() | Retry(on=rule(methods={"POST"})), [SHARED_WRITES.replace("StaleFallback", "Coalesce")]),
    (Coalesce() | Retry(until=rule(methods={"POST"})), [SHARED_WRITES.replace("StaleFallback", "Coalesce")]),
    (Fallback.stale(9) | Keyed(str, lambda: WRITES | ONCE), [SHARED_WRITES]),
    (Pipeline(Keyed(str, lambda: BULKHEAD | Fallback.stale(9) | WRITES)), [SHARED_WRITES]),
    (Keyed(str, lambda: Fallback.stale(9)) | BULKHEAD | WRITES, [SHARED_WRITES]),
    # a shared call that is not the only one
    (Retry(on=OSError) | Coalesce(), [SHARED_INSIDE_RETRY]),
    (Hedge(0.1) | Coalesce(), [SHARED_INSIDE_HEDGE]),
    # more slots guaranteed than there are
    (Bulkhead(2, shares={"a": 0.4, "b": 0.3, "c": 0.3}), [SHARES]),
    (Bulkhead(1, shares={"a": 0.1, "b": 0.1}) | Retry(), [SHARES]),
    # a window that forgets calls that hang
    (CircuitBreaker(ratio=0.5, window=5) | Timeout(3), [WINDOW]),
    (CircuitBreaker(slow=2, slow_ratio=0.5, window=5) | Timeout(3), [WINDOW]),
    (
        quick() | CircuitBreaker(ratio=0.5, window=9) | Bulkhead(2, wait=1) | Timeout(4),
        [WINDOW, BULKHEAD_INSIDE],
    ),
    (LONG_ATTEMPTS | CircuitBreaker(ratio=0.5, window=5), [BREAKER_CUT, WINDOW]),
    (LONG_ATTEMPTS | CircuitBreaker(ratio=0.5, window=6), [BREAKER_CUT]),
    (Timeout(3) | CircuitBreaker(ratio=0.5, window=5), [BREAKER_CUT, WINDOW]),
    # no jitter
    (Retry(backoff=Backoff.exponential(0.2)), [NO_JITTER]),
    (Retry(backoff=[1, 2, 3]), [NO_JITTER]),
    (Retry(backoff=Backoff.constant(0)), [NO_JITTER]),
    (Retry(backoff=Backoff.constant(1).jitter(0)), [NO_JITTER]),
    (Retry(backoff={Kind.throttled: Backoff.constant(3), None: FULL}), [NO_JITTER]),
    (Retry(backoff={Kind.throttled: FULL, None: Backoff.of([1, 2, 3])}), [NO_JITTER]),
    # not enough time
    (Retry(attempts=4, backoff=Backoff.random(9, 11)), [TOO_LONG]),
    (Retry(attempts=4, attempt_timeout=8), [TOO_LONG]),
    (Retry() | Timeout(8), [TOO_LONG]),
    (Timeout(9) | Retry() | Timeout(2), [TOO_LONG]),
    (Timeout(1) | Retry(), [TOO_LONG]),
    (Retry(timeout=1), [TOO_LONG]),
    (Retry(backoff={Kind.throttled: Backoff.random(20, 30), None: FULL}), [TOO_LONG]),
    # no budget
    (Retry(attempts=5), [NO_BUDGET]),
    (Retry(attempts=None), [NO_BUDGET]),
    (presets.polling(), [NO_BUDGET]),
    (Patient(attempts=5), [NO_BUDGET]),
    # attempts multiply, and so do waits
    (Retry() | Retry(), [TOO_LONG, RETRY_INSIDE]),
    (Retry() | quick(), [RETRY_INSIDE]),
    (Retry() | quick() | Own() | quick(), [RETRY_INSIDE] * 2),
    # all at once, in order
    (
        BREAKER | Retry(attempts=9, backoff=[9] * 8) | BULKHEAD | Fallback(value=1),
        [
            *(BREAKER_OUTSIDE, NO_JITTER, TOO_LONG, NO_BUDGET),
            *(BULKHEAD_INSIDE, FALLBACK_HIDES, FALLBACK_INSIDE),
        ],
    ),
    (presets.finagle(), [NO_JITTER]),  # as its docstring states
]


@pytest.mark.parametrize(("pipeline", "expected"), PROBLEMS)
def test_known_problems_are_reported(pipeline: Layer, expected: list[str]) -> None:
    assert_warnings(pipeline, expected)


EXAMPLE = Retry(on=(OSError, KeyError), backoff=Backoff.exponential(0.1).maximum(5).full_jitter())

FINE: list[Layer] = [
    Pipeline(),
    Pipeline(Own()),
    Timeout(30) | Bulkhead(10, wait=1.0) | EXAMPLE | CircuitBreaker() | Timeout(2),
    Pipeline(Retry()),
    Fallback(value=1) | Bulkhead(10) | Retry() | CircuitBreaker(),
    Bulkhead(10) | Fallback(print) | Timeout(30, worker=Worker()) | Retry() | CircuitBreaker() | Timeout(2),
    # near misses
    Timeout(30, worker=Worker()) | Retry(timeout=9, worker=Worker()),
    Timeout(30, worker=Worker()) | Retry(timeout=20) | Timeout(2),  # async code
    Retry(attempt_timeout=2, timeout=20),
    Timeout(10) | Retry() | Timeout(2),
    Timeout(5.001) | Timeout(5),
    Timeout(5) | Bulkhead(2, wait=60),
    BULKHEAD | Bulkhead(2) | CircuitBreaker() | CircuitBreaker(),  # equal, and not the same
    Timeout(5) | Own() | Timeout(4),
    Retry(budget=BUDGET) | ONCE,
    ONCE | Retry(),
    ONCE | BULKHEAD,
    BREAKER | ONCE,
    ONCE | Fallback(value=1),
    Retry(attempts=1, backoff=[1]),
    Retry(attempts=1, attempt_timeout=9, timeout=5),
    Fallback(value=1) | Retry(),
    Timeout(2) | BREAKER | Timeout(1),
    Timeout(2) | CircuitBreaker(slow=1),
    Timeout(30) | Retry() | BREAKER,  # a limit of the whole call
    Fallback(value=1) | BREAKER,
    Fallback(value=1) | Hedge(0.1),
    Fallback.stale(9) | Retry(on=rule()),
    Coalesce() | Retry(on=rule()),
    CircuitBreaker(ratio=0.5, window=6) | Timeout(3),
    CircuitBreaker(ratio=0.5, window=5, calls=100) | Timeout(3),
    CircuitBreaker(window=5) | Timeout(3),  # failures in a row
    CircuitBreaker(ratio=0.5, window=1),
    Timeout(3) | CircuitBreaker(ratio=0.5, window=5, slow=1),  # it counts before it is cut
    LONG_ATTEMPTS | CircuitBreaker(ratio=0.5, window=5, slow=1),
    LONG_ATTEMPTS | CircuitBreaker(ratio=0.5, window=5) | Timeout(2),
    Bulkhead(10, shares={"a": 0.4, "b": 0.3, "c": 0.3}),
    Bulkhead(3, shares={"a": 0.3, "b": 0.3, "c": 0.3, "d": 0}),
    Bulkhead(7, shares={"a": 0.3, "b": 0.1}),
    Fallback.stale(9) | Retry(on=[OSError, RULE, rule(methods={"GET", "PUT"})]) | BREAKER,
    Retry(on=rule(methods={"POST"})) | CircuitBreaker(),
    Coalesce() | Retry(on=rule(methods={"POST"}), attempts=1),
    Coalesce() | CircuitBreaker(on=rule(methods={"POST"})),  # it sends nothing again
    Coalesce() | Keyed(str, lambda: Retry(on=rule()) | CircuitBreaker()),
    Keyed(str, lambda: Retry(budget=BUDGET)) | CircuitBreaker(),
    CircuitBreaker(OSError) | Fallback(value=1, on=KeyError),
    BREAKER | Fallback(value=1, on=OSError),
    Retry(on=OSError) | Fallback(value=1, on=KeyError),
    Retry(on=OSError) | Fallback(value=1, on=ConnectionError),  # the others are retried
    Retry(on=(OSError, KeyError)) | Fallback(value=1, on=OSError),
    Retry(on=transient) | Fallback(value=1, on=OSError),
    Retry(on=OSError) | Fallback(value=1, on=RULE),
    Retry(on=[RULE, OSError]) | Fallback(value=1, on=[OSError, RULE]),
    Retry(backoff=Backoff.constant(1).jitter(0.1)),
    Retry(backoff=Backoff.random(0, 1)),
    Retry(backoff=Backoff.decorrelated(0.1, 2)),
    Retry(backoff={Kind.throttled: FULL, None: Backoff.exponential(0.1).equal_jitter()}),
    Retry(backoff=[]),
    Retry(attempts=4, backoff=Backoff.random(8, 10)),
    Retry() | Timeout(7),
    Retry(attempts=5, budget=BUDGET),
    Retry(attempts=None, budget=LEDGER),
    Retry(attempts=None, until=RULE),
    presets.polling(until=RULE),
    *(getattr(presets, name)() for name in ("aws_standard", "database", "http", "httpware", "llm")),
    BULKHEAD | presets.http() | BREAKER | Timeout(2),
]


@pytest.mark.parametrize("pipeline", FINE)
def test_arrangements_without_problems_are_accepted(pipeline: Layer) -> None:
    assert_warnings(pipeline, [])


def test_nested_pipelines_are_checked() -> None:
    inner = Retry() | BULKHEAD
    for whole in (
        Pipeline(inner),
        Pipeline(Pipeline(inner)),
        Own() | inner,
        Pipeline(Retry(), Pipeline(BULKHEAD)),
    ):
        assert_warnings(whole, [BULKHEAD_INSIDE])
    assert_warnings((BULKHEAD | Own()) | (Own() | BULKHEAD), [twice("Bulkhead")])


@pytest.mark.parametrize(
    ("pipeline", "text"),
    [
        (Retry(attempt_timeout=9, timeout=5.5), "attempt_timeout=9 is not below the 5.5 s of the whole call"),
        (Timeout(5) | Timeout(7.5), "Timeout(7.5) inside a limit of 5 s"),
        (
            Retry(attempts=9, budget=BUDGET, backoff=Backoff.random(1000, 2000)),
            "may need 16000 s and has 30 s",
        ),
        (Timeout(8) | Retry(attempts=2) | Timeout(4), "Retry(attempts=2) may need 8.2 s and has 8 s"),
        (Retry(attempts=5), "Retry with 5 attempts and no budget"),
        (
            Bulkhead(2, shares={"a": 0.4, "b": 0.3, "c": 0.3}),
            "so 3 slots are guaranteed and there are 2; write a higher limit",
        ),
        (Retry(attempts=None), "Retry with no limit of attempts and no budget"),
    ],
)
def test_problems_name_their_numbers(pipeline: Layer, text: str) -> None:
    [one] = [one for one in Pipeline(pipeline).check() if text in one]
    assert one


@pytest.mark.parametrize(("pipeline", "expected"), PROBLEMS)
def test_each_reason_is_one_sentence(pipeline: Layer, expected: Any) -> None:
    """The problem, a colon, and the reason: on one line, without a full stop."""
    for text in Pipeline(pipeline).check():
        assert ": " in text
        assert "\n" not in text
        assert "  " not in text
        assert not text.endswith(".")
        assert ". " not in text


def test_a_gate_of_your_own_is_shared_too() -> None:
    class Own(Gate):
        """Admits every call."""

    own = Own()
    [twice] = (own | own).check()
    assert twice.startswith("the same Own is in the pipeline twice")
    assert (Own() | Own()).check() == []


USED_BY_CLIENTS: list[tuple[Pipeline, list[str]]] = [
    (Retry(attempt_timeout=2) | CircuitBreaker(), []),
    (Retry() | Timeout(2) | CircuitBreaker(), []),
    (Retry(attempt_timeout=2) | Keyed(str, CircuitBreaker), []),
    (Timeout(2) | CircuitBreaker(), []),
    (Timeout(30) | Retry() | CircuitBreaker(), []),
    (Timeout(9) | Retry(hints=UNHINTED) | CircuitBreaker(), []),
    (CircuitBreaker() | Retry(attempt_timeout=2), [BREAKER_OUTSIDE]),
    (Timeout(1) | Retry(), [TOO_LONG]),
    (Retry(attempt_timeout=8) | CircuitBreaker(), [TOO_LONG]),
    (Retry(attempt_timeout=2) | CircuitBreaker(ratio=0.5, window=3), [WINDOW]),
    (Retry(attempt_timeout=2) | CircuitBreaker(ratio=0.5, window=4), []),
]


@pytest.mark.parametrize(("pipeline", "expected"), USED_BY_CLIENTS)
def test_a_client_ends_an_attempt_itself(pipeline: Pipeline, expected: list[str]) -> None:
    """So a breaker counts it; the other warnings are the same."""
    before = pipeline.check()
    Transport(pipeline)
    assert_warnings(pipeline, expected)
    assert_warnings(Pipeline(*pipeline.layers), expected)  # an equal one
    own = "CircuitBreaker inside", "CircuitBreaker window"
    assert [text for text in before if not text.startswith(own)] == [
        text for text in pipeline.check() if not text.startswith(own)
    ]


def test_a_layer_that_cannot_be_hashed_is_checked_too() -> None:
    class Unhashable(Layer):
        """A layer of the user's, equal to all others."""

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Unhashable)

        __hash__: Any = None

        def around(self, fn: Any, /) -> Any:
            return fn

    pipeline = Retry(attempt_timeout=2) | Unhashable() | CircuitBreaker()
    Transport(pipeline)
    assert_warnings(pipeline, [BREAKER_CUT])
