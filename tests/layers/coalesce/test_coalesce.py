"""`Coalesce`: concurrent identical calls share one, in every colour."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from typing import Any

import pytest

from redouble import Coalesce, Fallback, Layer, Retry, observe, report, stats
from redouble._internal.callables import UsageError
from redouble.testing import Script, ok
from redouble.types import Event
from tests.support.fakes import ASYNC, SYNC, Boom, Virtual, in_colour, nothing
from tests.support.layers.coalesced_calls import Group, Service

IDLE = {"in_flight": 0, "waiting": 0}


def test_identical_calls_share_one(colour: str) -> None:
    value, coalesce = object(), Coalesce()
    service = Service(value)
    found = Group(colour, coalesce, service).outcomes(("a",), ("a",), ("a",))
    assert [one is value for one in found] == [True] * 3
    assert service.calls == [("a",)]
    assert coalesce.snapshot() == IDLE


def test_other_calls_are_made_on_their_own(colour: str) -> None:
    service = Service(1, 2, 3)
    found = Group(colour, Coalesce(), service).outcomes(("a",), ("b",), ("a",), ("a", 1))
    assert found[0] == found[2]
    assert sorted({*found}) == [1, 2, 3]
    assert sorted(service.calls) == [("a",), ("a", 1), ("b",)]  # Trio starts tasks in any order


def test_nothing_is_remembered(colour: str) -> None:
    coalesce, script = Coalesce(), Script(ok(1), Boom("x"), ok(2))
    fn, afn = coalesce(script), coalesce(script.aio)
    assert in_colour(colour, lambda: fn("a"), lambda: afn("a")) == 1
    with pytest.raises(Boom):
        in_colour(colour, lambda: fn("a"), lambda: afn("a"))
    assert in_colour(colour, lambda: fn("a"), lambda: afn("a")) == 2
    assert coalesce.snapshot() == IDLE


def test_an_error_goes_to_all_callers(colour: str) -> None:
    """Each has its own copy, so what layers outside add to one of them is not in the others."""
    boom = Boom("x")
    boom.add_note("seen")
    found = Group(colour, Coalesce(), Service(boom)).outcomes((), (), ())
    assert [type(one) for one in found] == [Boom] * 3
    assert [str(one) for one in found] == ["x"] * 3
    assert len({id(one) for one in found}) == 3
    assert sum(one is boom for one in found) == 1
    assert len({id(one.__notes__) for one in found}) == 3
    for one in found:
        frames = [frame.name for frame in traceback.extract_tb(one.__traceback__)]
        assert frames[-1] == "_finish"
        assert frames.count("coalesced") <= 2  # that of the caller, and that of the call in flight


def test_a_report_belongs_to_its_caller(colour: str) -> None:
    coalesce = Coalesce()
    layer = Retry(attempts=1, name="mine", clock=Virtual()) | coalesce
    found = Group(colour, coalesce, Service(Boom("x")), layer).outcomes((), ())
    reports = [report(one) for one in found]
    assert reports[0] is not reports[1]
    assert all(one is not None and one.attempts == 1 for one in reports)
    assert [len(getattr(one, "__notes__", [])) for one in found] in ([0, 0], [1, 1])


def test_what_layers_outside_add_to_an_error_is_not_in_the_copies(colour: str) -> None:
    """The copies are those of the error as the call in flight raised it."""

    def noted(error: Exception) -> None:
        error.add_note("noted")
        raise error

    coalesce = Coalesce()
    found = Group(colour, coalesce, Service(Boom("x")), Fallback(noted) | coalesce).outcomes((), (), ())
    assert [one.__notes__ for one in found] == [["noted"]] * 3


def test_a_key_of_the_callers(colour: str) -> None:
    service = Service(1, 2)
    coalesce = Coalesce(first)
    found = Group(colour, coalesce, service).outcomes(("a", 1), ("a", 2), ("b", 1))
    assert found[0] == found[1]
    assert sorted({*found}) == [1, 2]
    assert coalesce.key is first


def first(key: str, *_: object) -> str:
    return key


def test_calls_of_two_functions_are_kept_apart(colour: str) -> None:
    coalesce, one, two = Coalesce(), Service(1), Service(2)
    inner = Group(colour, coalesce, two)

    def fetch(*args: Any) -> Any:
        return coalesce.call(one_call, *args)

    def one_call(*args: Any) -> Any:
        return args

    async def aone_call(*args: Any) -> Any:
        return args

    async def afetch(*args: Any) -> Any:
        return await coalesce.call(aone_call, *args)

    fn, afn = coalesce(fetch), coalesce(afetch)
    assert in_colour(colour, lambda: fn("a"), lambda: afn("a")) == ("a",)
    assert inner.outcomes(("a",)) == [2]
    assert one.calls == []


@pytest.mark.parametrize("colour", ASYNC)
@pytest.mark.parametrize("layered", [False, True])
def test_call_shares_too(colour: str, layered: bool) -> None:
    """Each `call` wraps the function once more, also by the layers inside."""
    coalesce, service = Coalesce(), Service(1)
    layer: Layer = Fallback(value=0) | coalesce | Retry(attempts=1) if layered else coalesce
    group = Group(colour, coalesce, service)

    def call(*args: Any) -> Any:
        return layer.call(service.afetch, *args)

    group._afn = call
    assert group.outcomes(("a",), ("a",)) == [1, 1]
    assert len(service.calls) == 1


def test_a_call_inside_itself_does_not_wait_for_itself(colour: str) -> None:
    """Directly, or in a task or a context that it has started."""
    coalesce, depths = Coalesce(), list[int]()

    @coalesce
    def recursive() -> int:
        depths.append(len(depths))
        return recursive() if len(depths) < 3 else len(depths)

    @coalesce
    async def arecursive() -> int:
        depths.append(len(depths))
        return await arecursive() if len(depths) < 3 else len(depths)

    assert in_colour(colour, recursive, arecursive) == 3
    assert coalesce.snapshot() == IDLE


def test_flights_inside_one_another(colour: str) -> None:
    coalesce = Coalesce()

    @coalesce
    def sum_to(number: int) -> int:
        return number + sum_to(number - 1) if number else 0

    @coalesce
    async def asum_to(number: int) -> int:
        return number + await asum_to(number - 1) if number else 0

    assert in_colour(colour, lambda: sum_to(4), lambda: asum_to(4)) == 10


@pytest.mark.parametrize("colour", ASYNC)
def test_a_blocking_call_never_waits_on_the_thread_of_an_event_loop(colour: str) -> None:
    coalesce, service = Coalesce(), Service(1, 2)
    other = Group("thread", coalesce, service)
    seen: list[object] = []
    calling = coalesce(fast(service))

    async def main() -> None:
        seen.append(calling())

    in_colour(colour, lambda: None, main)
    assert other.outcomes(()) == [1]
    assert seen == ["fast"]


def fast(service: Service) -> Any:
    def fetch() -> str:
        return "fast"

    return fetch


# ------------------------------------------------------------------------------- what is seen


def test_a_shared_call_emits_an_event(colour: str) -> None:
    seen: list[Event] = []
    with observe(seen.append, only=["coalesced"]):
        Group(colour, Coalesce(name="pages"), Service("done")).outcomes((), (), ())
        assert [(event.by, event.name, event.error) for event in seen] == [("coalesce", "pages", None)] * 2
        assert all(event.elapsed >= 0 and event.attempt == 0 for event in seen)
        seen.clear()
        Group(colour, Coalesce(), Service(Boom("x"))).outcomes((), ())
    ((name, error),) = [(event.name, str(event.error)) for event in seen]
    assert (name, error) == ("coalesce", "x")


def test_its_state_is_in_the_stats() -> None:
    coalesce = Coalesce(name="pages")
    assert stats()["layers"]["pages"] == {"type": "Coalesce", **IDLE}
    assert coalesce.traits().shared == (coalesce,)


# ---------------------------------------------------------------------------------- mistakes


def test_arguments_that_are_not_hashable_are_reported_before_the_call(colour: str) -> None:
    script = Script()
    layer = Fallback(value=7) | Coalesce()
    message = (
        r"^Coalesce cannot compare the arguments of Script: unhashable type: 'list'; write key=, a function "
        r"of the arguments that returns something hashable$"
    )
    aio = script.aio
    with pytest.raises(UsageError, match=message):
        in_colour(colour, lambda: layer.call(script, ["secret"]), lambda: layer.call(aio, ["secret"]))
    with pytest.raises(UsageError, match=r"^Coalesce key=listed returned no hashable key: unhashable type"):
        in_colour(colour, lambda: Coalesce(listed).call(script, 1), lambda: Coalesce(listed).call(aio, 1))
    assert script.calls == []


def listed(*args: object) -> Any:
    return [*args]


def test_the_error_of_a_key_is_raised_before_the_call(colour: str) -> None:
    script, coalesce = Script(), Coalesce(inverse)
    aio = script.aio
    with pytest.raises(ZeroDivisionError):
        in_colour(colour, lambda: coalesce.call(script, 0), lambda: coalesce.call(aio, 0))
    assert script.calls == []


def inverse(number: int) -> float:
    return 1 / number


@pytest.mark.parametrize("colour", SYNC)
def test_a_plain_function_that_returns_an_awaitable_raises_type_error(colour: str) -> None:
    def deferred() -> Any:
        return nothing()

    with pytest.raises(TypeError, match="returned something to await"):
        in_colour(colour, lambda: Coalesce().call(deferred), nothing)


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (3, r"^Coalesce key=3: write a function of the arguments, such as lambda user: user.id$"),
        (
            nothing,
            r"^Coalesce key=nothing is a coroutine function: write a plain function. If .* @Coalesce\(\)",
        ),
    ],
)
def test_a_wrong_key_is_reported(key: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        Coalesce(key)


def test_what_it_cannot_wrap() -> None:
    def items() -> Any:
        yield 1

    async def aitems() -> Any:
        yield 1

    for work in (items, aitems):
        with pytest.raises(TypeError, match=r"^Coalesce cannot share .*items, a generator, whose items only"):
            Coalesce()(work)
    with pytest.raises(TypeError, match=r"^Coalesce key=inverse does not accept the arguments of fast"):
        Coalesce(inverse)(two)


def two(one: object, two: object) -> None:
    """Take two arguments."""


two.__qualname__ = "fast"


def test_a_block_has_no_result_to_share() -> None:
    block: Any = Coalesce()
    with pytest.raises(TypeError, match=r"^Coalesce cannot share a `with` block"), block:
        pass

    async def main() -> None:
        async with block:
            pass

    with pytest.raises(TypeError, match=r"^Coalesce cannot share a `with` block"):
        in_colour("asyncio", lambda: None, main)


def test_call_of_a_callable_that_is_not_hashable() -> None:
    @dataclass
    class Client:
        def __call__(self) -> int:
            return 3

    assert Coalesce().call(Client()) == 3


# -------------------------------------------------------------------------------- descriptions


def test_its_description_and_repr() -> None:
    assert repr(Coalesce()) == "Coalesce()"
    assert repr(Coalesce(first, name="pages")) == "Coalesce(first, name='pages')"
    assert Coalesce().describe() == (
        "one call at a time for the same arguments, which others that come meanwhile share"
    )
    assert Coalesce(first).describe().startswith("one call at a time for the same first()")


def test_it_is_reconfigured_if_the_key_is_the_same() -> None:
    coalesce = Coalesce(first)
    assert coalesce.can_reconfigure(Coalesce(first))
    assert not coalesce.can_reconfigure(Coalesce())
    coalesce.reconfigure(Coalesce(first))
    assert coalesce.key is first
