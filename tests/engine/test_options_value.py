"""A policy is a value: frozen, compared by its options, copied, pickled, with a repr."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import random
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from redouble import SYSTEM, Backoff, Hints, Kind, Retry, Worker, transient
from tests.support.fakes import Draws, Ledger, UnhashableRule, Virtual, always, options


def backing_off(backoff: Any) -> Retry:
    return Retry(backoff=backoff)


@pytest.mark.parametrize("name", ["attempts", "on", "limit", "rules", "attempt"])
def test_a_policy_is_frozen(name: str) -> None:
    policy = Retry()
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(policy, name, 5)
    with pytest.raises(AttributeError):
        delattr(policy, name)


EQUAL: list[tuple[Retry, Retry]] = [
    (Retry(), Retry()),
    (Retry(give_up_after=timedelta(minutes=1)), Retry(give_up_after=60)),
    (
        Retry(timeout=timedelta(seconds=1), work_timeout=2),
        Retry(timeout=1.0, work_timeout=timedelta(seconds=2)),
    ),
    (backing_off([1, timedelta(seconds=2)]), Retry(backoff=(1.0, 2.0))),
    (backing_off({None: [1], "server": [2]}), backing_off({Kind.server: (2,), None: Backoff.of([1])})),
    (Retry(on=[OSError, UnhashableRule()]), Retry(on=(OSError, UnhashableRule()))),
    (Retry(on=UnhashableRule(), labels={"a": "b"}), Retry(labels={"a": "b"}, on=UnhashableRule())),
    (Retry(budget=Ledger(3)), Retry(budget=Ledger(3))),
    (Retry(hints=Hints(longest=5)), Retry(hints=Hints(longest=timedelta(seconds=5)))),
]


@pytest.mark.parametrize(("one", "other"), EQUAL)
def test_policies_are_equal_by_value_and_hashable(one: Retry, other: Retry) -> None:
    assert one == other
    assert hash(one) == hash(other)
    assert one != dataclasses.replace(one, attempts=9)
    assert sum(policy == one for policy, _ in EQUAL) == 1


@pytest.mark.parametrize(
    ("policy", "shown"),
    [
        (Retry(), "Retry()"),
        (Retry(attempts=4, give_up_after=30, on=transient, clock=SYSTEM, labels={}), "Retry()"),
        (Retry(on=OSError, attempts=None), "Retry(on=OSError, attempts=None)"),
        (Retry(on=[OSError, KeyError]), "Retry(on=[OSError, KeyError])"),
        (Retry(backoff=[1, 2], on_retry=print), "Retry(backoff=[1.0, 2.0], on_retry=print)"),
        (Retry(backoff=Backoff.constant(1)), "Retry(backoff=Backoff.constant(1))"),
        (Retry(timeout=timedelta(seconds=3), wrap=True), "Retry(timeout=3.0, wrap=True)"),
        (Retry(name="n", labels={"a": "b"}), "Retry(name='n', labels={'a': 'b'})"),
        (backing_off({None: [1]}), "Retry(backoff={None: Backoff.of((1.0,))})"),
    ],
)
def test_the_repr_has_the_options_that_differ_from_the_defaults(policy: Retry, shown: str) -> None:
    assert repr(policy) == shown


def test_replacing_an_option_keeps_the_others() -> None:
    clock, chance, judge = Virtual(), Draws(0.5), UnhashableRule()
    by_kind: Any = {None: [1], "server": [2]}
    policy = Retry(on=[judge], backoff=by_kind, labels={"a": "b"}, clock=clock, random=chance)
    changed = dataclasses.replace(policy, attempts=7)
    assert (changed.attempts, changed.clock, changed.random) == (7, clock, chance)
    assert changed == dataclasses.replace(policy, attempts=7)
    assert dataclasses.replace(changed, attempts=4) == policy


def test_labels_and_lists_are_copied() -> None:
    labels, on, delays = {"team": "a"}, [OSError], [1.0]
    policy = Retry(labels=labels, on=on, backoff=delays)
    labels["team"] = "b"
    on.append(KeyError)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    delays.append(2.0)
    assert policy == Retry(labels={"team": "a"}, on=[OSError], backoff=[1.0])
    assert not hasattr(policy.labels, "__setitem__")


# ----------------------------------------------------------------- pickling and copying


def rule(error: Exception) -> bool:
    return True


EVERY_OPTION: dict[str, Any] = {
    "on": [rule, OSError, UnhashableRule()],
    "until": bool,
    "attempts": 7,
    "backoff": {None: [1, 2], Kind.server: Backoff.exponential(1).maximum(3).full_jitter().take(9)},
    "give_up_after": timedelta(minutes=1),
    "timeout": 61,
    "attempt_timeout": 7,
    "work_timeout": 59.5,
    "hints": Hints(mode="instead", longest=5, over=timedelta(seconds=2), spread=0.5),
    "budget": Ledger(3),
    "worker": Worker(grace=timedelta(seconds=1)),
    "before_attempt": print,
    "on_success": print,
    "on_failure": print,
    "on_retry": print,
    "on_give_up": print,
    "nested": "stop",
    "wrap": True,
    "name": "api",
    "labels": {"team": "a"},
    "clock": SYSTEM,
    "random": random.Random(5),
}


def test_the_table_has_every_option() -> None:
    assert list(EVERY_OPTION) == [field.name for field in dataclasses.fields(Retry)]


@pytest.mark.parametrize("option", EVERY_OPTION)
def test_a_policy_with_one_option_can_be_pickled(option: str) -> None:
    if option in ("clock", "random"):
        return  # such objects are compared by identity; see below
    policy = Retry(**{option: EVERY_OPTION[option]})
    unpickled = pickle.loads(pickle.dumps(policy))
    assert unpickled == policy
    assert getattr(unpickled, option) == getattr(policy, option)


def test_a_policy_with_all_options_can_be_pickled() -> None:
    """The unpickled policy works: derived values are restored too."""
    policy = Retry(**EVERY_OPTION | options(clock=Virtual(5.0), random=random.Random(5)))
    unpickled = pickle.loads(pickle.dumps(policy))
    assert dataclasses.replace(unpickled, clock=policy.clock, random=policy.random) == policy
    assert unpickled.clock.time == 5.0
    assert unpickled.random.random() == random.Random(5).random()
    assert unpickled.run(int, "3").value == 3
    assert pickle.loads(pickle.dumps(Retry())) == Retry()


def test_an_unpicklable_rule_raises_the_error_of_pickle() -> None:
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        pickle.dumps(Retry(on=lambda _: True))


@pytest.mark.parametrize("given", [{}, EVERY_OPTION, {"on": always(True)}])
def test_a_deep_copy_is_the_policy_itself(given: dict[str, Any]) -> None:
    """A policy is immutable, and its budget is shared by identity."""
    policy = Retry(**given)
    assert copy.deepcopy(policy) is policy
    assert copy.deepcopy({"a": [policy]})["a"][0] is policy
    assert copy.copy(policy) == policy


@pytest.mark.parametrize("name", [*EVERY_OPTION, "_limit", "extra", "__class__", "call"])
def test_setting_any_attribute_raises(name: str) -> None:
    policy = Retry()
    with pytest.raises(dataclasses.FrozenInstanceError, match=rf"replace\(policy, {name}=\.\.\.\)"):
        setattr(policy, name, 5)
    assert policy == Retry()


@dataclass(frozen=True, kw_only=True)
class Tagged(Retry):
    """A policy with one more option, and with another default."""

    attempts: int | None = 10
    tag: str = ""


def test_a_copy_of_a_subclass_keeps_all_options() -> None:
    policy = Tagged(attempts=4, tag="y")
    for copied in (copy.copy(policy), pickle.loads(pickle.dumps(policy))):
        assert (copied.attempts, copied.tag) == (4, "y")
