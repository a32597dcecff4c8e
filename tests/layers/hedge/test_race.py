"""The winner and the outcome of a race: decided without any clock, task or event loop."""

from __future__ import annotations

import weakref
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redouble import Verdict
from redouble._failures.verdict import Ended, FailureFilter, On, Until
from redouble._layers.hedge.race import Race
from tests.support.fakes import Boom, always
from tests.support.garbage_collection import without_gc


def new_race(begun: int = 2, on: On = Boom, until: Until | None = None) -> Race:
    """Return a race with this many attempts running."""
    made = Race(FailureFilter(on, "Hedge"), until)
    assert [made.start_attempt() for _ in range(begun - 1)] == list(range(2, begun + 1))
    assert (made.started, made.running, made.over) == (begun, begun, False)
    return made


class Late(Exception):
    def __init__(self, retry_after: object) -> None:
        self.retry_after = retry_after


# -------------------------------------------------------------------------------- winners


@pytest.mark.parametrize("number", [1, 2, 3])
def test_the_first_result_wins(number: int) -> None:
    race = new_race(3)
    race.record_result(number, f"of {number}", 0.0)
    assert (race.winner, race.over, race.running) == (number, True, 2)
    for other in {1, 2, 3} - {number}:
        race.record_result(other, f"of {other}", 0.0)
    assert (race.winner, race.running, race.outcome()) == (number, 0, f"of {number}")


@pytest.mark.parametrize("answer", [None, False, Verdict.stop(), Verdict.accept()])
def test_an_error_that_on_does_not_handle_wins(answer: Any) -> None:
    race, error = new_race(on=always(answer)), Boom()
    race.record_error(2, error, 0.0)
    race.record_result(1, "too late", 0.0)
    assert (race.winner, race.over) == (2, True)
    with pytest.raises(Boom) as caught:
        race.outcome()
    assert caught.value is error


@pytest.mark.parametrize("order", list(permutations([1, 2, 3])))
def test_if_all_fail_the_error_of_the_first_attempt_is_raised(order: tuple[int, ...]) -> None:
    race, errors = new_race(3), [Boom("1"), Boom("2"), Boom("3")]
    for number in order:
        assert not race.over
        race.record_error(number, errors[number - 1], 0.0)
    assert (race.winner, race.over) == (None, True)
    with pytest.raises(Boom) as caught:
        race.outcome()
    assert caught.value is errors[0]


@pytest.mark.parametrize("number", [1, 2])
def test_an_attempt_that_ends_after_the_race_changes_nothing(number: int) -> None:
    race = new_race()
    race.record_result(3 - number, "won", 0.0)
    race.record_error(number, Late(60), 0.0)
    assert (race.not_before, race.running, race.outcome()) == (0.0, 0, "won")


def test_a_cancelled_attempt_has_lost() -> None:
    race, error = new_race(), Boom()
    race.record_cancelled()
    assert not race.over
    race.record_error(1, error, 0.0)
    assert (race.over, race.winner) == (True, None)
    with pytest.raises(Boom):
        race.outcome()


# ------------------------------------------------------------------------- refused results


class Judge:
    """A rule that depends on the number of the attempt too."""

    def judge(self, ended: Ended) -> bool:
        return ended.attempt == 2 and ended.value == "good"


def is_good(value: object) -> bool:
    return value == "good"


@pytest.mark.parametrize("until", [is_good, Judge()])
def test_the_race_continues_after_a_refused_result(until: Any) -> None:
    race = new_race(until=until)
    race.record_result(1, "bad", 0.0)
    assert not race.over
    race.record_result(2, "good", 0.0)
    assert (race.winner, race.outcome()) == (2, "good")


@pytest.mark.parametrize("answer", [False, None, Verdict.retry(), Verdict.stop()])
def test_if_all_are_refused_the_result_of_the_first_attempt_is_returned(answer: object) -> None:
    race = new_race(until=always(answer))
    race.record_result(2, "b", 0.0)
    race.record_result(1, "a", 0.0)
    assert (race.winner, race.over, race.outcome()) == (None, True, "a")


@pytest.mark.parametrize("ending", ["result", "error"])
def test_the_error_of_a_failing_rule_wins(ending: str) -> None:
    def raising(_: object) -> bool:
        raise LookupError

    race = new_race(on=raising, until=raising)
    if ending == "result":
        race.record_result(2, "b", 0.0)
    else:
        race.record_error(2, Boom(), 0.0)
    assert race.winner == 2
    with pytest.raises(LookupError):
        race.outcome()


# --------------------------------------------------------------------------------- hints


@pytest.mark.parametrize(
    ("after", "not_before"),
    [(3, 13), (0.5, 10.5), (0, 10), (None, 0), (True, 0), ("3", 0), (float("nan"), 0)],
)
def test_a_retry_after_delays_the_next_attempt(after: object, not_before: float) -> None:
    race = new_race(on=Exception)
    race.record_error(2, Late(after), 10.0)
    assert race.not_before == not_before


def test_the_longest_hint_counts() -> None:
    race = new_race(4, on=Exception)
    for number, after in ((2, 3), (3, 9), (4, 1)):
        race.record_error(number, Late(after), 10.0)
    assert race.not_before == 19


# ------------------------------------------------------------------- unused results


ENDINGS = st.lists(st.tuples(st.sampled_from(["good", "bad", "fail", "cut"]), st.integers(0, 3)), max_size=5)


@settings(max_examples=50)
@given(first=st.sampled_from(["good", "bad", "fail"]), others=ENDINGS, data=st.data())
def test_every_result_is_either_returned_or_unused(
    first: str, others: list[tuple[str, int]], data: Any
) -> None:
    """In any order; the same object may be the result of several attempts."""
    pool = [object() for _ in range(4)]
    endings = {1: (first, 0)} | dict(enumerate(others, 2))
    values = {number: pool[which] for number, (_, which) in endings.items()}
    goods = {number for number, (ending, _) in endings.items() if ending == "good"}

    class ByAttempt:
        def judge(self, ended: Ended) -> bool:
            return ended.attempt in goods

    race = new_race(len(endings), until=ByAttempt())
    returned: list[object] = []
    for number in data.draw(st.permutations(sorted(endings))):
        ending = endings[number][0]
        if ending == "fail":
            race.record_error(number, Boom(), 0.0)
        elif ending == "cut":
            race.record_cancelled()
        else:
            race.record_result(number, values[number], 0.0)
            returned.append(values[number])
    unused = race.take_unused(delivered=True)
    everything = unused + race.take_unused(delivered=False)  # no result is taken twice
    assert {id(value) for value in everything} == {id(value) for value in returned}
    assert race.take_unused(delivered=False) == []
    assert len(everything) == len(set(map(id, everything)))
    try:
        out = [race.outcome()]
    except Boom:
        out = []
        assert (race.winner, first) == (None, "fail")
    assert {*map(id, unused)} == {*map(id, returned)} - {*map(id, out)}
    assert (race.winner is None) == (not goods)


@pytest.mark.usefixtures(without_gc.__name__)
def test_a_race_keeps_no_error_that_it_raised() -> None:
    race, watched = new_race(), list[weakref.ref[Boom]]()
    race.record_error(2, Boom("2"), 0.0)
    race.record_error(1, Boom("1"), 0.0)
    try:
        race.outcome()
    except Boom as error:
        watched.append(weakref.ref(error))
    assert [ref() for ref in watched] == [None]
