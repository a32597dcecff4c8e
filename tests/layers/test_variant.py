"""`policy_of` and `variant`: what decorates a function, and the same function with other options."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import redouble
from redouble import Pipeline, Retry, policy_of, variant
from tests.support.drivers.flaky_function import CLOCK, answer, policy
from tests.support.fakes import Boom

pytestmark = pytest.mark.usefixtures("two_failures")


class Service:
    @policy
    def method(self, *args: object, **kwargs: object) -> object:
        return answer(*args, **kwargs)

    @policy
    async def amethod(self) -> object:
        return answer()

    @policy
    @staticmethod
    def static(*args: object, **kwargs: object) -> object:
        return answer(*args, **kwargs)

    @classmethod
    @policy
    def of_class(cls, *args: object, **kwargs: object) -> object:
        assert cls is Service
        return answer(*args, **kwargs)

    def plain(self) -> object:
        return answer()


service = Service()


def test_policy_of() -> None:
    for fn in (service.method, Service.method, service.static, service.of_class, service.amethod):
        assert policy_of(fn) is policy
    outer = Retry(on=Boom, attempts=2)
    assert policy_of(outer(policy(answer))) is outer
    assert policy_of(answer) is None
    assert policy_of(service.plain) is None


def test_a_policy_never_changes() -> None:
    with pytest.raises(AttributeError, match=r"write dataclasses\.replace\(policy, attempts=\.\.\.\)"):
        policy.attempts = 9  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]


def test_a_variant_has_other_options() -> None:
    once = variant(policy(answer), attempts=1)
    with pytest.raises(Boom):
        once()
    assert policy_of(once) == Retry(on=Boom, backoff=[1] * 9, give_up_after=None, clock=CLOCK, attempts=1)
    assert policy.attempts == 4


@pytest.mark.parametrize("method", [service.method, service.static, service.of_class])
def test_variant_of_a_method(method: Callable[..., Any]) -> None:
    """It stays bound to its object or class."""
    changed = variant(method, attempts=3)
    assert changed(2, key=3) == ((2,), {"key": 3})
    assert getattr(changed, "__self__", None) is getattr(method, "__self__", None)


def test_variant_of_a_pipeline() -> None:
    gate = redouble.Gate()
    changed = variant((gate | policy)(answer), attempts=7)
    layer = policy_of(changed)
    assert isinstance(layer, Pipeline)
    assert layer.layers[0] is gate
    assert isinstance(layer.layers[1], Retry)
    assert layer.layers[1].attempts == 7


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (answer, "answer is not decorated by a policy"),
        ((policy | policy)(answer), "has no single Retry"),
        (redouble.Gate()(answer), "has no single Retry"),
    ],
)
def test_a_function_without_a_single_retry_has_no_variant(fn: Callable[..., Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        variant(fn, attempts=1)
    with pytest.raises(TypeError, match="options are keywords"):
        variant(fn, 1)  # type: ignore[call-arg, arg-type]  # pyright: ignore[reportCallIssue]


@pytest.mark.parametrize("name", ["static", "of_class"])
def test_a_variant_of_the_method_object_makes_its_own_attempts_only(name: str) -> None:
    calls = list[None]()

    def fails(*_: object) -> None:
        calls.append(None)
        raise Boom

    decorated: Any = policy(fails)

    class Failing:
        static: Any = staticmethod(decorated)
        of_class: Any = classmethod(decorated)

    changed = variant(vars(Failing)[name], attempts=2)
    with pytest.raises(Boom):
        changed()
    assert len(calls) == 2
