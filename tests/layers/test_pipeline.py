"""Pipelines, a user's own layers, and the functions that can be wrapped."""

from __future__ import annotations

import gc
import inspect
import operator
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from threading import get_ident
from typing import Any, ParamSpec, TypeVar, assert_type

import pytest

import redouble
from redouble import Layer, Pipeline, Retry, RetryBudget, Timeout, Worker, policy_of
from redouble._internal.callables import display_name
from tests.support.fakes import Virtual, in_colour, stable_repr
from tests.support.layers.gates import AtMost, aadd, add

P = ParamSpec("P")
T = TypeVar("T")


class Marked(Layer):
    """A user's own layer, which records the calls that pass."""

    def __init__(self, name: str, passed: list[str]) -> None:
        self.name, self.passed = name, passed

    def around(self, fn: Callable[P, T], /) -> Callable[P, T]:
        def marked(*args: P.args, **kwargs: P.kwargs) -> T:
            self.passed.append(str(self.name))
            return fn(*args, **kwargs)

        return marked

    def around_async(self, fn: Callable[P, Awaitable[T]], /) -> Callable[P, Coroutine[Any, Any, T]]:
        async def marked(*args: P.args, **kwargs: P.kwargs) -> T:
            self.passed.append(str(self.name))
            return await fn(*args, **kwargs)

        return marked

    def __repr__(self) -> str:
        return f"Marked({self.name})"


class Idle(Layer):
    """A layer that returns every function unchanged."""

    def around(self, fn: Callable[P, T], /) -> Callable[P, T]:
        return fn


class Cold(Layer):
    """A layer without wrappers: it can wrap no function."""


def test_a_retry_around_a_gate(colour: str) -> None:
    """The gate's rejection is transient and its hint is waited for; each attempt passes the gate."""
    gate, clock = AtMost(1), Virtual()

    def free_gate(_: object) -> None:
        gate.inside = 0

    retry = Retry(backoff=[0, 0], hints=redouble.Hints(spread=0), clock=clock, on_retry=free_gate)
    pipeline = retry | gate
    gate.inside = 1
    assert in_colour(colour, lambda: pipeline(add)(1, two=4), lambda: pipeline.call(aadd, 1, two=4)) == 5
    assert [wait for wait in clock.waits if wait] == [2]
    assert gate.log == [(1, None, 0)]


def test_a_gate_around_a_retry(colour: str) -> None:
    """The whole call is one admission, however many attempts it takes."""
    gate, script = AtMost(1), iter([OSError(), OSError(), 7])
    pipeline = gate | Retry(on=OSError, backoff=[0, 0], clock=Virtual())

    def fetch() -> object:
        assert gate.inside == 1
        if isinstance(step := next(script), OSError):
            raise step
        return step

    async def afetch() -> object:
        return fetch()

    assert in_colour(colour, pipeline(fetch), pipeline(afetch)) == 7
    assert gate.log == [(1, None, 0)]


def test_outermost_first_and_flat(colour: str) -> None:
    passed: list[str] = []
    a, b, c, d = (Marked(name, passed) for name in "abcd")
    pipeline = (a | b) | (c | d)
    assert_type(pipeline, Pipeline)
    assert pipeline.layers == (a, b, c, d)
    assert Pipeline(a, Pipeline(b, Pipeline(c)), d) == pipeline == a | (b | (c | d))
    assert in_colour(colour, lambda: pipeline(add)(1), lambda: pipeline(aadd)(1)) == 3
    assert passed == ["a", "b", "c", "d"]


def test_the_report_of_a_pipeline_names_the_function() -> None:
    @(Retry(on=ConnectionError, attempts=2, backoff=[0]) | AtMost(1) | Retry(attempts=1))
    def fetch() -> None:
        raise ConnectionError

    with pytest.raises(ConnectionError) as caught:
        fetch()
    found = redouble.report(caught.value)
    assert found is not None
    assert found.name == display_name(fetch)
    assert found.attempts == 2


def test_an_empty_pipeline_returns_the_function_itself() -> None:
    assert Pipeline()(add) is add
    assert Pipeline()(aadd) is aadd
    assert not hasattr(add, "__wrapped__")
    assert Pipeline(Idle(), Idle())(add) is add


def test_a_pipeline_is_a_value() -> None:
    policy, gate = Retry(attempts=2), AtMost(3)
    assert repr(policy | gate) == "Retry(attempts=2) | AtMost(3)"
    assert repr(Pipeline()) == "Pipeline()"
    assert policy | gate == Pipeline(Retry(attempts=2), gate) != gate | policy
    assert hash(policy | gate) == hash(Pipeline(Retry(attempts=2), gate))
    assert (policy | gate).__eq__(policy) is False
    assert Pipeline().call(add, 1) == 3


def test_limits_in_a_pipeline(colour: str) -> None:
    """A timeout is a layer like any other: around the whole call, or around each attempt."""
    inner = Timeout(60, worker=Worker())
    pipeline = Timeout(3600, worker=Worker()) | Retry(attempts=2) | inner
    assert pipeline.layers == (Timeout(3600, worker=Worker()), Retry(attempts=2), inner)
    assert repr(Timeout(2) | Retry()) == "Timeout(seconds=2.0, worker=None) | Retry()"
    assert Timeout(2) | Retry() == Timeout(2.0) | Retry() != Retry() | Timeout(2)
    assert hash(Timeout(2) | Retry()) == hash(Timeout(2.0) | Retry())
    assert in_colour(colour, lambda: pipeline(add)(1, two=4), lambda: pipeline(aadd)(1, two=4)) == 5
    assert policy_of(pipeline(add)) is pipeline
    assert redouble.variant(pipeline(add), attempts=1)(1) == 3


def test_a_worker_in_the_middle_of_a_pipeline() -> None:
    """Outer layers run here, inner ones on the thread."""
    passed, here = list[str](), get_ident()

    class Located(Marked):
        def around(self, fn: Callable[P, T], /) -> Callable[P, T]:
            def marked(*args: P.args, **kwargs: P.kwargs) -> T:
                passed.append(f"{self.name} {'here' if get_ident() == here else 'there'}")
                return fn(*args, **kwargs)

            return marked

    pipeline = Located("a", passed) | Retry(worker=Worker()) | Located("b", passed) | Located("c", passed)
    assert pipeline.call(add, 1) == 3
    assert passed == ["a here", "b there", "c there"]


@pytest.mark.parametrize("wrong", [None, 3, add, "Retry()"], ids=stable_repr)
def test_only_layers_go_into_a_pipeline(wrong: Any) -> None:
    with pytest.raises(TypeError, match="unsupported operand"):
        _ = Retry() | wrong
    with pytest.raises(TypeError, match="unsupported operand"):
        _ = wrong | Retry()


@pytest.mark.parametrize(
    ("wrong", "instead"),
    [
        (Retry, r"is not a layer: write Retry\(\.\.\.\)"),
        (RetryBudget(), r"pass a budget to the policy, as in Retry\(budget=\.\.\.\)"),
    ],
)
def test_an_error_suggests_what_to_write_instead(wrong: Any, instead: str) -> None:
    with pytest.raises(TypeError, match=instead):
        _ = Retry() | wrong
    with pytest.raises(TypeError, match=r"write Pipeline\(\*layers\)"):
        Pipeline([Retry(), Retry()])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="is not a layer"):
        Pipeline(Retry(), wrong)


def test_a_class_is_not_its_instance() -> None:
    wrong: Any = Retry
    with pytest.raises(TypeError, match=r"is not a layer: write Retry\(...\)"):
        Pipeline(wrong)


def test_a_layer_without_wrappers_raises() -> None:
    with pytest.raises(TypeError, match=r"Cold cannot wrap add, which is a plain function"):
        Cold()(add)
    with pytest.raises(TypeError, match="Cold cannot wrap aadd, which is a coroutine function"):
        Cold()(aadd)
    with pytest.raises(TypeError, match="Cold cannot wrap"):
        (Retry() | Cold())(add)


# -------------------------------------------------------------------- decorated functions


class Client:
    """Every kind of method."""

    layer = Marked("m", list[str]())

    @layer
    def method(self, one: int) -> int:
        """Do it."""
        return one

    @layer
    @classmethod
    def of_class(cls, one: int) -> int:
        return one

    @layer
    @staticmethod
    def static(one: int) -> int:
        return one

    @classmethod
    @layer
    def inside_out(cls, one: int) -> int:
        return one

    @layer
    async def amethod(self, one: int) -> int:
        return one

    def __call__(self) -> int:
        return 1


def test_a_decorated_function_keeps_its_signature() -> None:
    layer = Marked("m", list[str]())
    for fn in (add, aadd):
        wrapped: Any = layer(fn)
        assert (wrapped.__name__, wrapped.__doc__, wrapped.__wrapped__) == (fn.__name__, "Add them.", fn)
        assert inspect.signature(wrapped) == inspect.signature(fn)
        assert inspect.iscoroutinefunction(wrapped) == inspect.iscoroutinefunction(fn)
        assert set(wrapped.__dict__) == {"__wrapped__"}


def test_methods_of_every_kind() -> None:
    client = Client()
    calls = [client.method, client.of_class, Client.of_class, client.static, Client.static]
    for call in [*calls, client.inside_out, Client.inside_out]:
        assert call(3) == 3
        assert policy_of(call) is Client.layer
    assert policy_of(Client.method) is policy_of(client.amethod) is Client.layer
    assert inspect.iscoroutinefunction(client.amethod)


def test_policy_of() -> None:
    policy, gate = Retry(attempts=2), AtMost(1)
    pipeline = policy | gate
    assert policy_of(pipeline(add)) is pipeline
    assert policy_of(gate(policy(add))) is gate
    assert policy_of(redouble.retry(add)) == Retry()
    assert policy_of(add) is policy_of(print) is policy_of(Client()) is None
    assert policy_of(operator.itemgetter(1)) is None  # it does not support weak references


@pytest.mark.parametrize(
    "layer",
    [Retry(), AtMost(1), Retry() | AtMost(1), Timeout(2, worker=Worker()), Retry(worker=Worker())],
    ids=stable_repr,
)
def test_a_decorated_function_is_freed(layer: Layer) -> None:
    """Not even a function that calls itself, and so refers to its own wrapper."""

    def make() -> weakref.ref[Callable[[int], int]]:
        @layer
        def down(n: int) -> int:
            return down(n - 1) if n else 0

        return weakref.ref(down)

    reference = make()
    gc.collect()
    assert reference() is None
