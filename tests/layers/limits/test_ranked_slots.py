"""`RankedSlots`: the order of admission by class, in any sequence of calls; claims, and interruptions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import ceil, inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redouble._layers.limits.ranked_slots import CLAIM, Order, RankedLease, RankedSlots
from redouble._layers.limits.shares import Shares
from redouble._runtime.slots import Lease
from redouble.testing import virtual_time

TWO = {"interactive": 0.6, "batch": 0.1}
ORDERS: tuple[Order, ...] = ("fifo", "lifo")
NAMES = ["interactive", "batch", "other", None]


def ranked(
    limit: int,
    shares: dict[str, float] | None = None,
    order: Order = "fifo",
    queue: float = inf,
    *,
    claiming: bool = False,
    default: str | None = None,
) -> RankedSlots:
    options = None if shares is None else Shares(shares, default, "Bulkhead")
    return RankedSlots(limit, options, order, queue, claiming=claiming)


class Line:
    """Callers of ranked slots: which are admitted, and which wait, by number."""

    def __init__(self, slots: RankedSlots, queue: float = inf) -> None:
        self.slots, self.most = slots, queue
        self.leases = list[RankedLease]()
        self.woken = list[int]()

    def come(self, name: str | None, queue: float | None = None) -> bool:
        """Acquire a slot or join the queue; return True if that was possible."""
        lease, number = self.slots.lease(name), len(self.leases)
        self.leases.append(lease)
        most = self.most if queue is None else queue
        wake = partial(self.woken.append, number)
        return self.slots.try_acquire(lease) or self.slots.enqueue(lease, wake, most)

    def end(self, number: int) -> None:
        """Release a slot."""
        self.slots.release(self.leases[number])

    @property
    def inside(self) -> set[int]:
        return {number for number, lease in enumerate(self.leases) if lease in self.slots.leases}


# ------------------------------------------------------------------------- any sequence

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["acquire", "acquire", "release", "stop_waiting"]),
        st.sampled_from(NAMES),
        st.integers(0, 9),
    ),
    max_size=60,
)
SHARES = st.sampled_from(
    [None, TWO, {"interactive": 0.5, "batch": 0.5}, {"batch": 1.0}, {"interactive": 0.0}]
)


@given(st.integers(1, 5), SHARES, st.sampled_from(["fifo", "lifo"]), STEPS)
def test_any_sequence_of_calls(
    limit: int, shares: dict[str, float] | None, order: Any, steps: list[tuple[str, str | None, int]]
) -> None:
    """Never over the limit, no slot idle while a call waits, and each slot goes where the rules say."""
    slots = ranked(limit, shares, order)
    inside, waiting = list[RankedLease](), list[RankedLease]()
    names = [*(shares or {}), None]

    def share_of(lease: RankedLease) -> float:
        return (shares or {}).get(lease.group.name or "", 0.0)

    def below(lease: RankedLease) -> bool:
        used = sum(other.group is lease.group for other in inside)
        return used < ceil(share_of(lease) * limit - 1e-9)

    def rank(lease: RankedLease) -> int:
        return names.index(lease.group.name)

    for step, name, which in steps:
        if step == "acquire":
            lease = slots.lease(name)
            if slots.try_acquire(lease):
                inside.append(lease)
            else:
                assert len(inside) == limit, "what is idle is borrowed"
                assert slots.enqueue(lease, object, inf)
                waiting.append(lease)
        elif step == "release" and inside:
            lease = inside.pop(which % len(inside))
            slots.release(lease)
            entered = [other for other in waiting if other in slots.leases]
            assert len(entered) == min(1, len(waiting)), "no slot is idle while a call waits"
            for other in entered:
                owed = [each for each in waiting if below(each)]
                assert below(other) == bool(owed)
                if not owed:
                    assert rank(other) == min(map(rank, waiting))
                of_class = [each for each in waiting if each.group is other.group]
                assert other is of_class[0 if order == "fifo" else -1]
                waiting.remove(other)
                inside.append(other)
        elif step == "stop_waiting" and waiting:
            lease = waiting.pop(which % len(waiting))
            assert not slots.stop_waiting(lease)
            slots.release(lease)
        assert slots.leases == {*inside}
        assert {*slots.queue} == {*waiting}
        assert slots.counts() == (len(inside), len(waiting))
        counts = slots.counts_by_class()
        for each in shares or {}:
            assert counts[f"in_use.{each}"] == sum(lease.group.name == each for lease in inside)
            assert counts[f"queued.{each}"] == sum(lease.group.name == each for lease in waiting)


@given(
    st.integers(1, 6),
    st.lists(st.integers(1, 10), min_size=1, max_size=4),
    st.randoms(use_true_random=False),
)
def test_no_class_with_a_share_starves(limit: int, parts: list[int], chance: Any) -> None:
    """All classes always have calls that wait, which end in any order."""
    total = max(10, sum(parts))
    shares = {f"class {n}": part / total for n, part in enumerate(parts)}
    slots = ranked(limit, shares)
    line = Line(slots)
    for name in [None, *shares] * (limit * 3):
        line.come(name)
    served = dict.fromkeys([*shares, None], 0)
    releases = 200
    for _ in range(releases):
        ending = chance.choice(sorted(line.inside))
        line.end(ending)
        (entered,) = line.woken[-1:]
        name = line.leases[entered].group.name
        served[name] += 1
        line.come(name)
    for name, share in shares.items():
        assert served[name] > 0
        group = slots.groups[name]
        if sum(ceil(each * limit - 1e-9) for each in shares.values()) <= limit:
            assert len(group.leases) >= int(share * limit + 1e-9)


def test_a_class_is_served_in_the_first_turns_after_it_comes() -> None:
    """Borrowers hold all slots: the first ones that end go to the class below its share."""
    line = Line(ranked(4, {"interactive": 0.5, "batch": 0.25}))
    for _ in range(10):
        line.come(None)
    for name in ["batch", "interactive", "interactive", "interactive"]:
        line.come(name)
    for number in range(4):
        line.end(number)
    assert line.woken == [11, 10, 12, 13]


def test_shares_of_less_than_a_slot_take_turns_by_their_size() -> None:
    line = Line(ranked(1, {"interactive": 0.6, "batch": 0.2}))
    line.come(None)
    for _ in range(12):
        line.come("interactive")
        line.come("batch")
    line.end(0)
    served = list[str | None]()
    for _ in range(11):
        last = line.woken[-1]
        served.append(line.leases[last].group.name)
        line.end(last)
    assert served.count("batch") == 3


# ----------------------------------------------------------------------------- full queues


@pytest.mark.parametrize(
    ("order", "coming", "accepted", "displaced"),
    [
        # the newcomer is the last of its class
        ("fifo", ["batch", "batch", "batch"], [True, True, False], []),
        ("lifo", ["batch", "batch", "batch"], [True, True, True], [0]),
        # a lower class goes first, the newest of it
        ("fifo", ["batch", "batch", "interactive"], [True, True, True], [1]),
        ("lifo", ["batch", "batch", "interactive"], [True, True, True], [0]),
        ("fifo", ["interactive", "interactive", "batch"], [True, True, True], [1]),
        ("fifo", [None, "other", "interactive"], [True, True, True], [1]),
        ("fifo", ["interactive", "interactive", None], [True, True, False], []),
        ("fifo", [None, None, "batch", "interactive"], [True, True, True, True], [0, 1]),
    ],
)
def test_who_leaves_a_full_queue(
    order: Order, coming: list[str | None], accepted: list[bool], displaced: list[int]
) -> None:
    """Two places, and all slots are used. One waiter of "batch" is kept for its share."""
    slots = ranked(10, TWO, order, 2)
    holders = Line(slots)
    for number in range(10):
        holders.come("interactive" if number < 6 else None)
    line = Line(slots, 2)
    assert [line.come(name) for name in coming] == accepted
    assert [number for number, lease in enumerate(line.leases) if lease.displaced] == displaced
    assert sorted(line.woken) == displaced
    assert len(slots.queue) == 2


def test_waiters_kept_for_their_shares_are_not_displaced() -> None:
    slots = ranked(2, {"interactive": 0.5, "batch": 0.5}, queue=2)
    holders = Line(slots)
    holders.come(None)
    holders.come(None)
    line = Line(slots, 2)
    assert [line.come(name) for name in ("batch", "interactive", "interactive", None)] == [
        True,
        True,
        False,
        False,
    ]
    assert line.woken == []


def test_a_newcomer_displaces_no_waiter_that_is_kept_for_its_share() -> None:
    slots = ranked(2, {"interactive": 0.5, "batch": 0.5}, queue=1)
    holders = Line(slots)
    holders.come(None)
    holders.come(None)
    line = Line(slots, 1)
    assert [line.come("batch"), line.come("interactive")] == [True, False]


@pytest.mark.parametrize(
    ("queue", "expected"), [(4, [0, 4, 3, 1, 2]), (inf, [0, 4, 3, 2, 1]), (8, [0, 1, 2, 3, 4])]
)
def test_the_newest_first_while_the_queue_is_long(queue: float, expected: list[int]) -> None:
    """It is more than half full; if it has no bound, it is longer than the limit."""
    slots = ranked(1, None, "adaptive", queue)
    line = Line(slots, queue)
    for _ in range(5):
        line.come(None)
    served = [0]
    while len(served) < 5:
        line.end(served[-1])
        served.append(line.woken[-1])
    assert served == expected


# --------------------------------------------------------------------------------- claims


def test_a_refused_call_claims_a_slot_for_a_second() -> None:
    with virtual_time() as clock:
        line = Line(ranked(2, TWO, claiming=True), 0)
        assert [line.come(None) for _ in range(3)] == [True, True, False]
        assert not line.come("batch")
        line.end(0)
        assert not line.come(None), "the slot is claimed by a class below its share"
        clock.advance(CLAIM)
        assert line.come(None), "no longer"


def test_the_class_that_claims_gets_the_slot() -> None:
    with virtual_time():
        line = Line(ranked(2, TWO, claiming=True), 0)
        assert [line.come(None), line.come(None), line.come("interactive")] == [True, True, False]
        line.end(0)
        assert not line.come(None)
        assert line.come("interactive")
        line.end(1)
        assert line.come(None), "the claim was used"


def test_a_higher_class_claims_before_a_lower_one_that_has_its_share() -> None:
    with virtual_time():
        line = Line(ranked(2, {"interactive": 0.0, "batch": 0.5}, claiming=True), 0)
        assert [line.come("batch"), line.come("batch"), line.come("interactive")] == [True, True, False]
        line.end(0)
        assert not line.come("batch")
        line.end(1)
        assert line.come("batch"), "it is below its share"


def test_each_admission_uses_one_claim() -> None:
    with virtual_time():
        slots = ranked(2, TWO, claiming=True)
        line = Line(slots, 0)
        coming = [None, None, "interactive", "interactive"]
        assert [line.come(name) for name in coming] == [True, True, False, False]
        line.end(0)
        line.end(1)
        assert line.come("interactive")
        assert len(slots.groups["interactive"].claims) == 1
        assert not line.come(None)


def test_more_claims_than_slots_are_not_kept() -> None:
    with virtual_time():
        slots = ranked(2, TWO, claiming=True)
        line = Line(slots, 0)
        for _ in range(9):
            line.come("interactive")
        assert len(slots.groups["interactive"].claims) == 2


def test_a_clock_that_is_set_back_ends_claims() -> None:
    slots = ranked(1, TWO, claiming=True)
    line = Line(slots, 0)
    line.come(None)
    with virtual_time() as clock:
        clock.advance(1000)
        line.come("interactive")
    with virtual_time():
        line.end(0)
        assert line.come(None)
    assert not slots.claimants


def test_a_gate_that_waits_has_no_claims() -> None:
    slots = ranked(1, TWO)
    line = Line(slots, 0)
    assert [line.come(None), line.come("interactive")] == [True, False]
    line.end(0)
    assert line.come(None)


# ------------------------------------------------------------------------- reconfiguration


def test_shares_that_change_keep_calls_and_waiters() -> None:
    slots = ranked(2, TWO)
    line = Line(slots)
    for name in ("interactive", "batch", "interactive", "batch", None):
        line.come(name)
    slots.configure(2, Shares({"batch": 0.9, "new": 0.1}, None, "Bulkhead"), "fifo", inf, claiming=False)
    assert slots.counts() == (2, 3)
    assert slots.counts_by_class() == {"in_use.batch": 1, "in_use.new": 0, "queued.batch": 1, "queued.new": 0}
    line.come("interactive")  # it has no class any more
    line.come("new")
    line.end(0)
    line.end(1)
    assert line.woken == [3, 6]
    line.end(3)
    line.end(6)
    assert line.woken == [3, 6, 2, 4]
    slots.configure(9, Shares({"batch": 1}, "batch", "Bulkhead"), "fifo", inf, claiming=False)
    assert [group.name for group in slots.ranking] == ["batch", "interactive", None]
    assert slots.lease(None).group.name == "batch"
    assert slots.lease("interactive").group.name is None
    assert slots.counts() == (3, 0)


def test_a_call_whose_share_is_removed_before_it_waits_is_admitted_in_its_turn() -> None:
    slots, woken = ranked(1, TWO), list[str]()
    line = Line(slots)
    line.come("interactive")
    late = slots.lease("batch")
    slots.configure(1, Shares({"interactive": 1}, None, "Bulkhead"), "fifo", inf, claiming=False)
    assert not slots.try_acquire(late)
    slots.enqueue(late, partial(woken.append, "late"), inf)
    slots.configure(1, Shares({"interactive": 1, "batch": 0}, None, "Bulkhead"), "fifo", inf, claiming=False)
    assert [group.name for group in slots.ranking] == ["interactive", "batch", None]
    line.come(None)
    line.end(0)
    assert woken == ["late"]
    assert slots.counts_by_class()["in_use.batch"] == 1
    slots.release(late)
    assert line.woken == [1]
    line.end(1)
    assert set(slots.counts_by_class().values()) == {0}


def test_two_classes_of_one_name_keep_their_waiters() -> None:
    """One of them was removed and came back, while a call had a lease of the first."""
    slots, woken = ranked(1, TWO), list[str]()
    line = Line(slots)
    line.come("interactive")
    late = slots.lease("batch")
    for shares in ({"interactive": 1.0}, TWO):
        slots.configure(1, Shares(shares, None, "Bulkhead"), "fifo", inf, claiming=False)
    line.come("batch")
    assert not slots.try_acquire(late)
    slots.enqueue(late, partial(woken.append, "late"), inf)
    for _ in range(2):
        slots.configure(1, Shares(TWO, None, "Bulkhead"), "fifo", inf, claiming=False)
    line.end(0)
    line.end(1)
    assert (line.woken, woken) == ([1], ["late"])


# ------------------------------------------------------------- interruptions and re-entrancy


def test_a_waiter_whose_leaving_was_interrupted_is_skipped() -> None:
    for order in ORDERS:
        slots = ranked(1, TWO, order)
        line = Line(slots)
        for _ in range(4):
            line.come("batch")
        for number in (1, 3):
            slots.queue.pop(line.leases[number])
        line.end(0)
        assert line.woken == [2]


class Interrupting(set[Lease]):
    """A set of leases that raises KeyboardInterrupt after one ``add()``."""

    then: Callable[[], object] | None = None

    def add(self, lease: Lease) -> None:
        super().add(lease)
        then, self.then = self.then, None
        if then is not None:
            raise KeyboardInterrupt


def test_an_interrupted_admission_continues_with_the_same_waiter() -> None:
    slots = ranked(1, TWO)
    slots.leases = leases = Interrupting()
    line = Line(slots)
    for name in (None, None, "batch"):
        line.come(name)
    leases.then = object
    with pytest.raises(KeyboardInterrupt):
        line.end(0)
    assert line.woken == [2]
    assert slots.counts() == (1, 1)


def test_a_waiter_whose_call_has_ended_gets_no_slot() -> None:
    slots = ranked(1, TWO)
    line = Line(slots)
    for _ in range(3):
        line.come("batch")
    line.leases[1].released = True
    line.end(0)
    assert line.woken == [2]
    assert slots.counts() == (1, 0)


def test_a_forked_child_starts_empty() -> None:
    slots = ranked(1, TWO, claiming=True)
    line = Line(slots)
    line.come("batch")
    line.come("batch")
    line.come("interactive", 0)
    slots._after_fork()
    assert slots.counts() == (0, 0)
    assert slots.counts_by_class() == dict.fromkeys(slots.counts_by_class(), 0)
    assert not slots.claimants
    assert line.come(None)


@given(st.integers(1, 5), st.integers(1, 3), SHARES, st.sampled_from(ORDERS), STEPS)
def test_a_full_queue_refuses_the_last_in_order(
    limit: int, queue: int, shares: dict[str, float] | None, order: Order, steps: list[tuple[str, str, int]]
) -> None:
    """None of a lower class stays, but as many of each as its share is kept for."""
    slots = ranked(limit, shares, order, queue)
    names = [*(shares or {}), None]
    leases = list[RankedLease]()

    def waiting() -> list[RankedLease]:
        return [lease for lease in leases if lease in slots.queue]

    def kept(name: str | None) -> int:
        used = sum(lease.group.name == name for lease in slots.leases if isinstance(lease, RankedLease))
        return max(0, ceil((shares or {}).get(name or "", 0.0) * limit - 1e-9) - used)

    def check_refused(refused: RankedLease) -> None:
        rank = names.index(refused.group.name)
        for lower in names[rank + 1 :]:
            assert sum(lease.group.name == lower for lease in waiting()) <= kept(lower)

    for step, name, which in steps:
        inside = [lease for lease in leases if lease in slots.leases]
        if step == "acquire":
            before, lease = waiting(), slots.lease(name)
            leases.append(lease)
            if not slots.try_acquire(lease) and not slots.enqueue(lease, object, queue):
                check_refused(lease)
                assert waiting() == before
            for other in before:
                if other not in slots.queue:
                    assert other.displaced
                    check_refused(other)
        elif step == "release" and inside:
            slots.release(inside[which % len(inside)])
        elif waiting():
            leaving = waiting()[which % len(waiting())]
            slots.stop_waiting(leaving)
            slots.release(leaving)
        assert len(slots.queue) <= queue
        assert len(slots.leases) <= limit
        assert not slots.queue or len(slots.leases) == limit, "no slot is idle while a call waits"
