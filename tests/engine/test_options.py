"""The options of `Retry`: each invalid value is refused by name."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from math import inf, nan
from types import SimpleNamespace
from typing import Any

import pytest

import redouble
from redouble import Clock, Hints, Kind, Retry, transient
from tests.support.fakes import Ledger, UnhashableRule, stable_repr


class AwaitedJudge:
    async def judge(self, ended: object, /) -> bool:
        return True


class Awaited:
    async def __call__(self, value: object) -> bool:
        return True


async def awaited(value: object) -> bool:
    return True


def two(event: object, more: object) -> None: ...


DURATIONS = ("give_up_after", "timeout", "work_timeout")
HOOKS = ("before_attempt", "on_success", "on_failure", "on_retry", "on_give_up")

WRONG: list[tuple[str, object, type[Exception], str]] = [
    ("on", 3, TypeError, "on=3: write an exception type, a tuple of them, a rule"),
    ("on", None, TypeError, "on=None: write"),
    ("on", "OSError", TypeError, "on='OSError': write"),
    ("on", {OSError}, TypeError, "on={<class 'OSError'>}: write"),
    ("on", [OSError, "x"], TypeError, "on='x': write"),
    ("on", OSError(), TypeError, "on=OSError(): write"),
    ("on", int, TypeError, "on=<class 'int'> is not an exception type: write a subclass of Exception"),
    ("on", UnhashableRule, TypeError, "UnhashableRule'> is not an exception type"),
    ("on", ExceptionGroup[OSError], TypeError, "parameters, so write ExceptionGroup"),
    ("on", [], ValueError, "on=[] is empty, so nothing would ever be retried: write attempts=1"),
    ("on", (), ValueError, "on=() is empty"),
    ("on", [[], ()], ValueError, "is empty"),
    ("on", BaseException, ValueError, "on=BaseException is never retried"),
    ("on", KeyboardInterrupt, ValueError, "on=KeyboardInterrupt is never retried"),
    ("on", (OSError, SystemExit), ValueError, "on=SystemExit is never retried"),
    ("on", [OSError, [GeneratorExit]], ValueError, "write Exception or something narrower"),
    ("on", asyncio.CancelledError, ValueError, "on=CancelledError is never retried"),
    ("on", BaseExceptionGroup, ValueError, "on=BaseExceptionGroup is never retried"),
    ("on", awaited, TypeError, "on=awaited is a coroutine function: rules are plain functions"),
    ("on", [OSError, partial(awaited)], TypeError, "is a coroutine function: rules are plain functions"),
    ("on", AwaitedJudge(), TypeError, "is a coroutine function: rules are plain functions"),
    ("on", Awaited(), TypeError, "is a coroutine function: rules are plain functions"),
    ("until", Awaited(), TypeError, "is a coroutine function"),
    ("until", 3, TypeError, "until=3: write a function of the result"),
    ("until", transient, TypeError, "until=transient judges errors, and until results: write redouble.http"),
    ("until", transient.with_({}), TypeError, "until=transient judges errors, and until results"),
    ("until", OSError, TypeError, "until=OSError is an exception type, and until judges results: write on="),
    ("until", "done", TypeError, "until='done': write a function of the result"),
    ("until", awaited, TypeError, "until=awaited is a coroutine function"),
    ("until", AwaitedJudge(), TypeError, "is a coroutine function"),
    ("attempts", 0, ValueError, "attempts=0: write a whole number, 1 for no retries"),
    ("attempts", -1, ValueError, "attempts=-1: write a whole number"),
    ("attempts", 2.0, TypeError, "attempts=2.0: write a whole number"),
    ("attempts", nan, TypeError, "attempts=nan: write a whole number"),
    ("attempts", inf, TypeError, "attempts=inf: write a whole number"),
    ("attempts", True, TypeError, "attempts=True: write a whole number"),
    ("attempts", "4", TypeError, "attempts='4': write a whole number"),
    ("backoff", 3, TypeError, "backoff=3 is not an iterable of seconds: write Backoff.constant(1)"),
    ("backoff", None, TypeError, "backoff=None is not an iterable of seconds"),
    ("backoff", "1, 2", TypeError, "backoff='1, 2' is not an iterable of seconds"),
    ("backoff", b"12", TypeError, "backoff=b'12' is not an iterable of seconds"),
    ("backoff", iter([1]), TypeError, "can be iterated only once"),
    ("backoff", (n for n in [1]), TypeError, "can be iterated only once"),
    ("backoff", [1, -1], ValueError, "backoff=-1: write a finite number of seconds"),
    ("backoff", (nan,), ValueError, "backoff=nan"),
    ("backoff", [inf], ValueError, "backoff=inf"),
    ("backoff", [10**400], ValueError, "backoff is too large"),
    ("backoff", [True], TypeError, "backoff=True"),
    ("backoff", ["1"], TypeError, "backoff='1'"),
    ("backoff", {}, ValueError, "backoff by kind needs a None key"),
    ("backoff", {Kind.network: [1]}, ValueError, "backoff by kind needs a None key"),
    ("backoff", {None: [1], "slow": [2]}, ValueError, "backoff has a key 'slow': write a Kind (network,"),
    ("backoff", {None: [1], 3: [2]}, ValueError, "backoff has a key 3"),
    ("backoff", {None: 1}, TypeError, "backoff[None]=1 is not an iterable"),
    ("backoff", {None: [-1]}, ValueError, "backoff[None]=-1"),
    *((option, "1s", TypeError, f"{option}='1s': write seconds") for option in DURATIONS),
    *((option, True, TypeError, f"{option}=True: write seconds") for option in DURATIONS),
    *((option, [1], TypeError, f"{option}=[1]: write seconds") for option in DURATIONS),
    *((option, nan, ValueError, f"{option}=nan: write a finite") for option in DURATIONS),
    *((option, inf, ValueError, f"{option}=inf: write a finite") for option in DURATIONS),
    *((option, -1, ValueError, f"{option}=-1: write a finite") for option in DURATIONS),
    *((option, timedelta(-1), ValueError, f"{option}=-86400.0: write a finite") for option in DURATIONS),
    *((option, 10**400, ValueError, f"{option} is too large for a float: write") for option in DURATIONS),
    ("hints", "ignore", TypeError, "hints='ignore': write Hints(...), such as Hints(longest=60)"),
    ("hints", None, TypeError, "hints=None: write Hints(...)"),
    ("hints", Hints, TypeError, "hints=<class 'redouble.Hints'>: write Hints(...)"),
    ("budget", 500, TypeError, "budget=500: write a budget, such as RetryBudget(ratio=0.2)"),
    ("budget", Ledger, TypeError, "budget=Ledger is a class: write Ledger(...)"),
    ("budget", SimpleNamespace(start=print), TypeError, "it has no method failed()"),
    *((option, 3, TypeError, f"{option}=3: write a function of one event") for option in HOOKS),
    *((option, "log", TypeError, f"{option}='log': write a function") for option in HOOKS),
    *((option, awaited, TypeError, f"{option}=awaited is a coroutine function") for option in HOOKS),
    *((option, two, TypeError, f"{option}=two takes (event") for option in HOOKS),
    ("nested", "never", ValueError, "nested='never': write 'warn', 'stop' or 'allow'"),
    ("nested", True, ValueError, "nested=True: write 'warn', 'stop' or 'allow'"),
    ("nested", ["warn"], ValueError, "nested=['warn']: write"),
    ("wrap", 1, TypeError, "wrap=1: write True or False"),
    ("wrap", "yes", TypeError, "wrap='yes': write True or False"),
    ("wrap", None, TypeError, "wrap=None: write True or False"),
    ("name", 3, TypeError, "name=3: write a text, or None"),
    ("name", b"me", TypeError, "name=b'me': write a text"),
    ("labels", "team", TypeError, "labels='team': write a mapping of text to text"),
    ("labels", [("team", "a")], TypeError, "labels=[('team', 'a')]: write a mapping"),
    ("labels", None, TypeError, "labels=None: write a mapping"),
    ("labels", {1: "a"}, TypeError, "labels: key=1: write a text"),
    ("labels", {"team": 1}, TypeError, "labels['team']=1: write a text"),
    ("clock", Clock, TypeError, "clock=Clock is a class: write Clock(...)"),
    ("clock", None, TypeError, "clock=None cannot be a clock: it has no method now()"),
    ("clock", SimpleNamespace(now=print), TypeError, "it has no method sleep()"),
    ("random", random.Random, TypeError, "random=Random is a class: write Random(...)"),
    ("random", random.random, TypeError, "it has no method random()"),
    ("random", 0.5, TypeError, "random=0.5 cannot be a random"),
    ("retries", 3, TypeError, "Retry.__init__() got an unexpected keyword argument 'retries'"),
]


@pytest.mark.parametrize(
    ("option", "value", "kind", "message"), WRONG, ids=lambda value: stable_repr(value)[:40]
)
@pytest.mark.parametrize(
    "make", [Retry, redouble.retry, partial(dataclasses.replace, Retry())], ids=["Retry", "retry", "replace"]
)
def test_wrong_options_are_rejected(
    make: Callable[..., object], option: str, value: object, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind) as caught:
        make(**{option: value})
    assert message in str(caught.value)
    assert option in str(caught.value)


def test_a_policy_without_any_limit_is_refused() -> None:
    with pytest.raises(ValueError, match=r"attempts=None would retry for ever: .* give_up_after=30"):
        Retry(attempts=None, give_up_after=None)
    for limit in DURATIONS:
        options: dict[str, Any] = {"give_up_after": None, limit: 5}
        assert Retry(attempts=None, **options).attempts is None
    with pytest.raises(TypeError, match="positional"):
        Retry(3)  # type: ignore[call-arg, arg-type]  # pyright: ignore[reportCallIssue]
