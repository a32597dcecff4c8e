"""Objects shared by identity: never copied, never pickled, and usable after a fork."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from collections.abc import Callable

import pytest

from redouble import Bulkhead, CircuitBreaker, Kind, Retry, RetryBudget, TokenBucket
from redouble._internal.locks import _after_fork

MAKERS: list[Callable[[], object]] = [RetryBudget, TokenBucket, CircuitBreaker, lambda: Bulkhead(2)]
EVERY = pytest.mark.parametrize("make", MAKERS, ids=["budget", "bucket", "breaker", "bulkhead"])


@EVERY
def test_a_copy_is_the_same_object(make: Callable[[], object]) -> None:
    shared = make()
    assert copy.copy(shared) is copy.deepcopy(shared) is shared
    assert copy.deepcopy({"a": [shared]})["a"] == [shared]


@EVERY
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_shared_object_cannot_be_pickled(make: Callable[[], object], protocol: int) -> None:
    shared = make()
    name = type(shared).__name__
    with pytest.raises(
        TypeError, match=f"a {name} is shared by the calls of one process .*: create one there"
    ):
        pickle.dumps(shared, protocol)


def test_a_policy_with_a_shared_object_cannot_be_pickled() -> None:
    with pytest.raises(TypeError, match="a RetryBudget is shared by the calls of one process"):
        pickle.dumps(Retry(budget=RetryBudget()))


@EVERY
def test_objects_with_equal_options_are_not_equal(make: Callable[[], object]) -> None:
    one, other = make(), make()
    assert one != other
    assert len({one, other}) == 2


def test_policies_that_share_a_budget_are_equal_and_hashable() -> None:
    budget = RetryBudget()
    assert Retry(budget=budget) == Retry(budget=budget) != Retry(budget=RetryBudget())
    assert hash(Retry(budget=budget)) == hash(Retry(budget=budget))


# ---------------------------------------------------------------------------------------- forks

START = '''
import gc, os, threading, warnings
from redouble import Kind, RetryBudget, TokenBucket
warnings.simplefilter("ignore", DeprecationWarning)  # a fork with threads, on purpose
held, release = threading.Event(), threading.Event()

class Held(float):
    """A time whose arithmetic blocks until `release` is set."""

def holding(name):
    def hold(self, *others):
        if not release.is_set():
            held.set()
            release.wait()
        return getattr(float, name)(float(self), *others)
    return hold

for name in ("__mul__", "__truediv__", "__sub__", "__lt__", "__gt__"):
    setattr(Held, name, holding(name))

def in_the_middle(use):
    threading.Thread(target=use, daemon=True).start()
    held.wait()

def in_a_child(check):
    child = os.fork()
    if not child:
        release.set()
        code = 1
        try:
            code = 7 if check() else 2
        finally:
            os._exit(code)
    release.set()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
'''


def program(script: str) -> list[str]:
    """Run a script in another process; return the lines that it printed."""
    command = [sys.executable, "-c", START + script]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)  # noqa: S603
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_counts_survive_a_fork() -> None:
    """Run the hooks that a child process runs after a fork, in this process."""
    budget, bucket = RetryBudget(per_second=1), TokenBucket(20)
    assert [shared.spend(Kind.unknown, 5.0) is None for shared in (budget, bucket)] == [False, False]
    _after_fork()
    assert [shared.spend(Kind.unknown, 5.0) is None for shared in (budget, bucket)] == [False, False]
    assert (budget.snapshot()["granted"], bucket.snapshot()["tokens"]) == (2, 10)


FORKS = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")


@FORKS
def test_a_fork_while_a_budget_counts_on_another_thread() -> None:
    """The child has neither that thread nor the lock that it holds; its budget continues to count."""
    script = """
budget = RetryBudget(ratio=1, per_second=0)
budget.credit(None, Held(5.0))
in_the_middle(lambda: budget.spend(Kind.unknown, 5.0))
def check():
    for _ in range(3):
        budget.credit(None, 6.0)
    seen = budget.snapshot(6.0)["credits"] >= 3
    return seen and [budget.spend(Kind.unknown, 6.0) is not None for _ in range(3)] == [True] * 3
print(in_a_child(check))
"""
    assert program(script) == ["7"]


@FORKS
def test_a_fork_while_a_bucket_is_used_on_another_thread() -> None:
    script = """
bucket = TokenBucket(10, refill_per_second=1)
in_the_middle(lambda: bucket.spend(Kind.unknown, Held(5.0)))
def check():
    return bucket.spend(Kind.unknown, 5.0) is not None and bucket.snapshot(5.0)["tokens"] >= 0
print(in_a_child(check))
"""
    assert program(script) == ["7"]


@FORKS
def test_a_forked_child_continues_from_the_state_of_its_parent() -> None:
    """The child's state does not affect its parent."""
    script = """
budget, bucket = RetryBudget(ratio=0, per_second=1), TokenBucket(20)
dropped = RetryBudget()
del dropped
gc.collect()
for shared in (budget, bucket):
    shared.spend(Kind.unknown, 5.0)
def check():
    budget.spend(Kind.unknown, 5.0)
    bucket.spend(Kind.unknown, 5.0)
    return (budget.snapshot()["granted"], bucket.snapshot()["tokens"]) == (2, 10)
print(in_a_child(check), budget.snapshot()["granted"], bucket.snapshot()["tokens"])
"""
    assert program(script) == ["7 1 15.0"]


@FORKS
def test_a_fork_at_any_moment_leaves_shared_objects_usable() -> None:
    """The child uses the objects that the threads of its parent were using."""
    script = """
import signal, sys
sys.setswitchinterval(1e-6)
budget, bucket = RetryBudget(ratio=1, per_second=1, window=1e6), TokenBucket(1e6, refill_per_second=1)
def hammer():
    while not release.is_set():
        for shared in (budget, bucket):
            shared.credit()
            grant = shared.spend()
            if grant is not None:
                shared.refund(grant)
threads = [threading.Thread(target=hammer) for _ in range(4)]
for thread in threads:
    thread.start()
def used():
    before = budget.snapshot()["credits"]
    for _ in range(300):
        budget.credit()
    return budget.snapshot()["credits"] == before + 300 and budget.spend() and bucket.spend()
codes = []
for _ in range(20):
    child = os.fork()
    if not child:
        signal.alarm(20)
        code = 1
        try:
            code = 7 if used() else 2
        finally:
            os._exit(code)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
release.set()
for thread in threads:
    thread.join()
print(*sorted(set(codes)))
"""
    assert program(script) == ["7"]
