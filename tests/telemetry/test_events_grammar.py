"""The order of events follows a small grammar, in every case."""

from __future__ import annotations

import re
from contextlib import suppress
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from redouble import Retry
from redouble.types import Event
from tests.support.fakes import Boom, Ledger, Operation, Step, Virtual, fail, ok, options

HOOKS = ("before_attempt", "on_success", "on_failure", "on_retry", "on_give_up")
WORDS = {"before_attempt": "b", "failure": "f", "retry": "r", "success": "s", "give_up": "g"}

# before_attempt, failure, retry, ... and then exactly one end; a BaseException may end it anywhere
GRAMMAR = re.compile(r"(bfr)*(bs|bfg|bfrg|b?g)")

DURATIONS = st.sampled_from([0.0, 0.5, 3.0, 40.0])
STEPS = st.one_of(
    st.builds(fail, takes=DURATIONS),
    st.builds(ok, st.booleans(), takes=DURATIONS),
    st.builds(fail, st.just(KeyError()), takes=DURATIONS),
)


@given(
    script=st.lists(STEPS, min_size=1, max_size=8),
    attempts=st.integers(1, 5),
    late=st.dictionaries(st.sampled_from(HOOKS), DURATIONS, max_size=2),
    delays=st.lists(DURATIONS, max_size=5),
    retries=st.integers(0, 5),
)
def test_the_grammar_of_events(
    script: list[Step], attempts: int, late: dict[str, float], delays: list[float], retries: int
) -> None:
    clock = Virtual()
    events: list[Event] = []

    def observer(event: Event) -> None:
        events.append(event)
        clock.time += late.get(event.what if event.what == "before_attempt" else f"on_{event.what}", 0)

    budget = Ledger(retries=retries)
    retrying = Retry(
        on=Boom,
        clock=clock, attempts=attempts, backoff=delays, until=bool, budget=budget, timeout=50,
        **options(**dict.fromkeys(HOOKS, observer)),
    )  # fmt: skip
    operation = Operation(script, clock)
    with suppress(Exception):
        retrying.call(operation)
    sentence = "".join(WORDS[event.what] for event in events)
    assert GRAMMAR.fullmatch(sentence), sentence
    assert [e.attempt for e in events if e.what == "failure"] == [*range(1, sentence.count("f") + 1)]
    assert all(a.elapsed <= b.elapsed for a, b in pairwise(events))
    assert all(event.delay is not None for event in events if event.what == "retry")
    assert all(event.delay is None for event in events if event.what not in ("retry", "give_up"))
    assert all((event.reason is None) == (event.what != "give_up") for event in events)
