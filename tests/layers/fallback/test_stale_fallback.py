"""`Fallback.stale`: the last good result of the same call instead of an error, if it is young enough."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from redouble import Fallback, Layer, Pipeline, Retry, errors, observe, stats
from redouble._internal import reentrancy
from redouble._internal.callables import UsageError
from redouble._layers.results import result_memory as _memory
from redouble._runtime.backend import backend
from redouble.testing import Script, VirtualClock, ok, virtual_time
from redouble.types import Event
from tests.support.fakes import ASYNC, SYNC, Boom, in_colour, nothing
from tests.support.interruption import SignalHandler
from tests.support.runtime.cancellation import CANCELLATIONS, cancelled
from tests.support.thread_switching import run_in_threads, switching
from tests.support.virtual_time import VIRTUAL_COLOURS, in_virtual_colour


class Service:
    """A function that fails while it is ``down``, in both colours; its result tells its arguments apart."""

    def __init__(self) -> None:
        self.down: Exception | None = None
        self.calls = 0

    def fetch(self, key: Any = 0, *more: Any, **options: Any) -> object:
        self.calls += 1
        if self.down is not None:
            raise self.down
        return (self.calls, key, *more, *options.items())

    async def afetch(self, key: Any = 0, *more: Any, **options: Any) -> object:
        await backend().sleep(0)
        return self.fetch(key, *more, **options)


class Reader:
    """A service behind a layer, called in one colour."""

    def __init__(self, colour: str, layer: Layer) -> None:
        self.service, self.colour = Service(), colour
        self._fn, self._afn = layer(self.service.fetch), layer(self.service.afetch)

    def get(self, *args: Any, **options: Any) -> Any:
        return in_colour(self.colour, lambda: self._fn(*args, **options), lambda: self._afn(*args, **options))


def test_an_error_is_replaced_by_the_last_good_result(colour: str) -> None:
    reader = Reader(colour, Fallback.stale(60))
    assert [reader.get("a"), reader.get("a"), reader.get("b")] == [(1, "a"), (2, "a"), (3, "b")]
    reader.service.down = Boom("x")
    assert [reader.get("a"), reader.get("b")] == [(2, "a"), (3, "b")]
    with pytest.raises(Boom) as caught:
        reader.get("c")
    assert caught.value is reader.service.down
    reader.service.down = None
    assert reader.get("a") == (7, "a")


def test_only_errors_that_on_names_are_replaced(colour: str) -> None:
    reader = Reader(colour, Fallback.stale(60, on=OSError))
    reader.get()
    reader.service.down = Boom("x")
    with pytest.raises(Boom):
        reader.get()
    reader.service.down = OSError()
    assert reader.get() == (1, 0)


@VIRTUAL_COLOURS
def test_a_result_that_is_too_old_is_no_answer(colour: str) -> None:
    layer, script = Fallback.stale(10), Script(ok("a"), "fail", ok("b"), Boom("x"))
    fn, afn = layer(script), layer(script.aio)

    def blocking(clock: VirtualClock) -> list[object]:
        taken: list[object] = [fn()]
        clock.advance(10)
        taken.append(fn())
        taken.append(fn())
        clock.advance(10.5)
        with pytest.raises(Boom):
            fn()
        return taken

    async def waiting(clock: VirtualClock) -> list[object]:
        taken: list[object] = [await afn()]
        await clock.asleep(10)
        taken.append(await afn())
        taken.append(await afn())
        await clock.asleep(10.5)
        with pytest.raises(Boom):
            await afn()
        return taken

    assert in_virtual_colour(colour, blocking, waiting) == ["a", "a", "b"]


# ---------------------------------------------------------------------------------- keys


def lookup(key: object, depth: int = 1, *, deep: bool = False) -> object:
    raise AssertionError


def test_calls_with_equal_arguments_are_the_same_however_they_are_passed() -> None:
    fallback, down = Fallback.stale(60), list[None]()

    @fallback
    def fetch(key: object, depth: int = 1, *, deep: bool = False, **more: int) -> object:
        if down:
            raise Boom
        return key, depth, deep, more

    fetch(1, a=1, b=2)
    down.append(None)
    same: list[Callable[[], object]] = [
        lambda: fetch(1, a=1, b=2),
        lambda: fetch(1, 1, a=1, b=2),
        lambda: fetch(key=1, depth=1, deep=False, b=2, a=1),
    ]
    assert [call() for call in same] == [(1, 1, False, {"a": 1, "b": 2})] * 3
    others: list[Callable[[], object]] = [
        lambda: fetch(2, a=1, b=2),
        lambda: fetch(1, 2, a=1, b=2),
        lambda: fetch(1, deep=True, a=1, b=2),
        lambda: fetch(1, a=1),
        lambda: fetch(1),
    ]
    for call in others:
        with pytest.raises(Boom):
            call()


def test_keyword_arguments_never_equal_positional_ones() -> None:
    fallback, down = Fallback.stale(60), list[None]()

    @fallback
    def fetch(*args: Any, **kwargs: Any) -> object:
        if down:
            raise Boom
        return args

    fetch(1, a=2)
    down.append(None)
    with pytest.raises(Boom):
        fetch(1, ("a", 2))
    with pytest.raises(Boom):
        fetch((1,), ("a", 2))
    assert fetch(1, a=2) == (1,)


def by_id(key: dict[str, int], *_: object, **__: object) -> int:
    return key["id"]


def inverse(key: int) -> int:
    return 1 // key


def unhashable(*_: object) -> Any:
    return {"secret"}


def test_a_key_of_the_callers(colour: str) -> None:
    reader = Reader(colour, Fallback.stale(60, key=by_id))
    reader.get({"id": 1}, "trace 1", user="ada")
    reader.service.down = Boom("x")
    assert reader.get({"id": 1}, "trace 2") == (1, {"id": 1}, "trace 1", ("user", "ada"))
    with pytest.raises(Boom):
        reader.get({"id": 2})


def test_the_results_of_two_functions_are_kept_apart(colour: str) -> None:
    layer = Fallback.stale(60)
    first, second = Reader(colour, layer), Reader(colour, layer)
    first.get("a")
    second.service.down = Boom("x")
    with pytest.raises(Boom):
        second.get("a")


@pytest.mark.parametrize("layer", [Fallback.stale(60), Fallback.stale(60) | Retry(attempts=1)], ids=repr)
def test_call_remembers_too(colour: str, layer: Layer) -> None:
    """Each `call` wraps the function once more, also by the layers inside."""
    script = Script(ok(1), Boom("x"))
    aio = script.aio
    for _ in range(2):
        assert in_colour(colour, lambda: layer.call(script, 3), lambda: layer.call(aio, 3)) == 1


def test_call_of_a_callable_that_is_not_hashable(colour: str) -> None:
    @dataclass
    class Client:
        down: bool = False

        def __call__(self) -> int:
            if self.down:
                raise Boom
            return 3

    client, other, layer = Client(), Client(down=True), Fallback.stale(60)
    assert layer.call(client) == 3
    client.down = True
    assert layer.call(client) == 3
    with pytest.raises(Boom):
        layer.call(other)


def test_arguments_that_are_not_hashable_are_reported_before_the_call(colour: str) -> None:
    """The error is one of the program, which no layer outside retries or replaces; it shows no argument."""
    reader = Reader(colour, Fallback(value=7) | Retry(on=Exception) | Fallback.stale(60))
    message = (
        r"^Fallback.stale cannot compare the arguments of .*fetch: unhashable type: 'list'; write key=, a "
        r"function of the arguments that returns something hashable$"
    )
    with pytest.raises(UsageError, match=message):
        reader.get(["secret"])
    keyed = Reader(colour, Fallback.stale(60, key=unhashable))
    message = r"^Fallback.stale key=unhashable returned no hashable key: unhashable type: 'set'$"
    with pytest.raises(UsageError, match=message):
        keyed.get("a")
    assert reader.service.calls == keyed.service.calls == 0


def test_the_error_of_a_key_is_raised_before_the_call(colour: str) -> None:
    reader = Reader(colour, Fallback.stale(60, key=inverse))
    with pytest.raises(ZeroDivisionError):
        reader.get(0)
    assert reader.service.calls == 0


# --------------------------------------------------------------------------- what is kept


def test_the_oldest_results_are_forgotten(colour: str) -> None:
    layer = Fallback.stale(60, most=2, name="pages")
    reader = Reader(colour, layer)
    for key in "abac":
        reader.get(key)
    assert layer.snapshot() == {"cached": 2, "limit": 2}
    assert stats()["layers"]["pages"] == {"type": "StaleFallback", "cached": 2, "limit": 2}
    reader.service.down = Boom("x")
    assert [reader.get("a"), reader.get("c")] == [(3, "a"), (4, "c")]
    with pytest.raises(Boom):
        reader.get("b")


def test_results_that_are_too_old_are_forgotten() -> None:
    with virtual_time() as clock:
        layer = Fallback.stale(10)
        reader = Reader("sync", layer)
        for key, pause in (("a", 6), ("b", 6), ("c", 0)):
            reader.get(key)
            clock.advance(pause)
        assert layer.snapshot()["cached"] == 2


def test_a_reconfigured_layer_keeps_its_results(colour: str) -> None:
    layer = Fallback.stale(60, name="a")
    reader = Reader(colour, layer)
    for key in "abc":
        reader.get(key)
    other = Fallback.stale(30, most=2, on=OSError, name="b")
    assert layer.can_reconfigure(other)
    layer.reconfigure(other)
    assert (layer.name, layer.on, layer.snapshot()) == ("a", OSError, {"cached": 2, "limit": 2})
    reader.service.down = OSError()
    assert reader.get("c") == (3, "c")
    reader.service.down = Boom()
    with pytest.raises(Boom):
        reader.get("c")
    assert not layer.can_reconfigure(Fallback.stale(60, key=str))


def test_a_reload_forgets_results_that_are_too_old_then() -> None:
    layer = Fallback.stale(60)
    with virtual_time() as clock:
        layer.call(abs, 1)
        clock.advance(10)
        layer.reconfigure(Fallback.stale(5))
    assert layer.snapshot()["cached"] == 0


@pytest.mark.parametrize("most", [1, 2])
def test_a_signal_handler_may_make_a_call_at_any_point_of_another(most: int) -> None:
    """It stores a result and forgets others, in the middle of the same operation."""
    number, more = 0, True
    while more:
        number += 1
        layer = Fallback.stale(60, most=most)
        service = Service()
        fetch = layer(service.fetch)
        fetch("old")
        handler = SignalHandler({_memory.__file__, reentrancy.__file__}, partial(fetch, "other"), number)
        more = handler.interrupt(partial(fetch, "new"))
        assert layer.snapshot() == {"cached": most, "limit": most}
        service.down = Boom("x")
        assert [key for key in ("old", "new", "other") if remembers(fetch, key)] != ["old"]
    assert number > 5


def remembers(fetch: Callable[..., object], key: str) -> bool:
    try:
        fetch(key)
    except Boom:
        return False
    return True


def test_the_finaliser_of_a_forgotten_result_may_make_a_call() -> None:
    class Response:
        def __del__(self) -> None:
            fetch("from the finaliser")

    layer = Fallback.stale(60, most=1)

    @layer
    def fetch(key: str) -> object:
        return Response() if key == "first" else key

    fetch("first")
    assert fetch("second") == "second"
    assert layer.snapshot() == {"cached": 1, "limit": 1}


@pytest.mark.stress
@pytest.mark.usefixtures(switching.__name__)
def test_threads_share_the_results() -> None:
    layer = Fallback.stale(60, most=5)
    lock = threading.Lock()
    failing = [False] * 20

    @layer
    def fetch(key: int) -> int:
        with lock:
            failing[key] = not failing[key]
            if not failing[key]:
                raise Boom
        return key

    def work(_: str) -> None:
        for key in [*range(20)] * 10:
            with suppress(Boom):
                assert fetch(key) == key

    run_in_threads(work, threads=8)
    assert layer.snapshot() == {"cached": 5, "limit": 5}


# ------------------------------------------------------------------ what the caller sees


@VIRTUAL_COLOURS
def test_a_stale_result_can_be_marked_and_emits_its_age(colour: str) -> None:
    seen: list[Event] = []
    layer = Fallback.stale(60, mark=lambda value, age: (value, age), name="pages")
    script = Script(ok("a"), Boom("x"))
    fn, afn = layer(script), layer(script.aio)

    def blocking(clock: VirtualClock) -> list[object]:
        first = fn()
        clock.advance(2)
        return [first, fn()]

    async def waiting(clock: VirtualClock) -> list[object]:
        first = await afn()
        await clock.asleep(2)
        return [first, await afn()]

    with observe(seen.append, only=["fallback"]):
        assert in_virtual_colour(colour, blocking, waiting) == ["a", ("a", 2)]
    (event,) = seen
    assert (event.by, event.name, event.level, str(event.error)) == ("stale_fallback", "pages", 2, "x")


def test_the_error_of_mark_is_raised(colour: str) -> None:
    reader = Reader(colour, Fallback.stale(60, mark=lambda value, age: value[99]))
    reader.get()
    reader.service.down = boom = Boom("x")
    with pytest.raises(IndexError) as caught:
        reader.get()
    assert caught.value.__context__ is boom


def test_a_refused_result_is_replaced_and_never_remembered(colour: str) -> None:
    layer, script = Fallback.stale(60, until=bool), Script(ok(0), ok(1), ok(0), Boom("x"))
    fn, afn = layer(script), layer(script.aio)
    assert [in_colour(colour, fn, afn) for _ in range(4)] == [0, 1, 1, 1]


@pytest.mark.parametrize("colour", ASYNC)
@pytest.mark.parametrize("swallowed", [False, True])
def test_a_cancellation_is_never_replaced(colour: str, swallowed: bool) -> None:
    layer, lost, calls = Fallback.stale(60), OSError("connection lost"), list[None]()

    @layer
    async def fetch() -> int:
        calls.append(None)
        if len(calls) > 1:
            try:
                await backend().sleep(1e6)
            except CANCELLATIONS:
                if swallowed:
                    raise lost from None
                raise
        return 3

    async def twice() -> int:
        await fetch()
        return await fetch()

    assert cancelled(colour, twice) == (lost if swallowed else "cancelled")


@pytest.mark.parametrize("colour", SYNC)
def test_a_plain_function_that_returns_an_awaitable_raises_type_error(colour: str) -> None:
    reader = Reader(colour, Fallback.stale(60))
    with pytest.raises(TypeError, match="returned something to await"):
        in_colour(colour, lambda: Fallback.stale(60).call(deferred, reader.service), nothing)


def deferred(service: Service) -> Any:
    return service.afetch()


# -------------------------------------------------------------------------------- options


def plain(value: object) -> object:
    return value


async def coroutine(*_: object) -> None:
    """Return nothing."""


@pytest.mark.parametrize(
    ("args", "options", "kind", "message"),
    [
        ((), {}, TypeError, "max_age"),
        ((plain,), {}, TypeError, r"^write @Fallback.stale\(60\), with the seconds"),
        ((0,), {}, ValueError, r"^Fallback.stale max_age=0: write more seconds, such as max_age=60$"),
        (("60s",), {}, TypeError, r"^Fallback.stale max_age='60s': write seconds"),
        ((60,), {"key": 3}, TypeError, r"^Fallback.stale key=3: write a function of the arguments, such as"),
        ((60,), {"key": coroutine}, TypeError, r"^Fallback.stale key=coroutine is a coroutine function"),
        (
            (60,),
            {"most": 0},
            ValueError,
            r"^Fallback.stale most=0: write how many results to keep, 1 or",
        ),
        ((60,), {"mark": 3}, TypeError, r"^Fallback.stale mark=3: write a plain function of the result and"),
        ((60,), {"mark": coroutine}, TypeError, r"^Fallback.stale mark=coroutine: write a plain"),
        ((60,), {"mark": plain}, TypeError, r"^Fallback.stale mark=plain: write a plain function of the r"),
        ((60,), {"on": ()}, ValueError, r"^Fallback.stale on=\(\) is empty"),
    ],
)
def test_wrong_options_are_reported(args: Any, options: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        Fallback.stale(*args, **options)


def test_a_function_that_it_cannot_wrap() -> None:
    def items() -> Any:
        yield 1

    async def aitems() -> Any:
        yield 1

    for work in (items, aitems):
        with pytest.raises(TypeError, match=r"^Fallback.stale cannot remember .*items, a generator, whose"):
            Fallback.stale(60)(work)
    message = r"^Fallback.stale key=plain does not accept the arguments of lookup: write a function of \(key"
    with pytest.raises(TypeError, match=message):
        Fallback.stale(60, key=plain)(lookup)


def test_its_description_and_repr() -> None:
    layer = Fallback.stale(60, key=plain, most=5, name="pages")
    assert repr(layer) == "Fallback.stale(60, key=plain, most=5, name='pages')"
    assert layer.describe() == "the last good result instead of an error, up to 60 s old, 5 at most"
    assert layer.traits().shares_results
    assert Pipeline(layer).traits().shares_results
    assert layer.until is None
    inside = Retry(on=Boom) | layer
    assert any(re.search("Fallback inside Retry", problem) for problem in inside.check())


def test_outside_it_another_fallback_answers_if_nothing_is_remembered(colour: str) -> None:
    reader = Reader(colour, Fallback(value="none") | Fallback.stale(60))
    reader.service.down = errors.Rejected("x")
    assert reader.get() == "none"
