"""Keyed: a layer of its own for each key, such as a breaker for each host.

What is remembered, and for how long, is decided in `_table`. Keys go nowhere: into no name, no label, no log.

What `Keyed` is given: whether the key can be told from a call, and whether the maker wants to know it.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Hashable, Mapping
from math import inf
from typing import Any, Generic, ParamSpec, TypeVar, cast

from redouble._drivers.stream_function import StreamFunction
from redouble._internal.callables import display_name, lazy_kind
from redouble._internal.codegen import Template, compile_wrapper
from redouble._internal.locks import SharedByIdentity
from redouble._internal.public import public
from redouble._internal.validation import Duration, instance, whole
from redouble._internal.validation import seconds as checked
from redouble._layers.analysis import Traits
from redouble._layers.keyed_table import KeyedEntry, KeyedStreamOwner, KeyedTable, WrapperCache
from redouble._layers.layer import Layer, LayerProxy, Pipeline
from redouble._runtime.ambient import ambient
from redouble._runtime.clock import SYSTEM, fast_reader
from redouble._telemetry.registry import unregister

__all__ = ["Keyed", "check_hashable", "check_key", "wants_key"]


KEYWORD = inspect.Parameter.KEYWORD_ONLY
SINGLE = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD, KEYWORD)


def check_key(key: Callable[..., Any], fn: Callable[..., Any]) -> None:
    """Say so if the key cannot be told from the arguments of a function: it is given all of them."""
    try:
        takes, parameters = inspect.signature(key), inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):  # some built-ins do not tell
        return
    if any(p.kind not in SINGLE for p in parameters):  # who knows what it is called with
        return
    positional = [p.name for p in parameters if p.kind is not KEYWORD]
    named = {p.name: p for p in parameters if p.kind is KEYWORD}
    try:
        takes.bind(*positional, **named)
    except TypeError:
        wanted = ", ".join([*positional, *(["*", *named] if named else [])])
        said = f"Keyed key={display_name(key)} does not take what {display_name(fn)} does"
        raise TypeError(f"{said}: write a function of ({wanted})") from None


def check_hashable(found: object, key: Callable[..., Any]) -> None:
    """Say so if what was told cannot be a key; not what it is, for keys go nowhere."""
    try:
        hash(found)
    except TypeError:
        given = f"Keyed key={display_name(key)} gave a {type(found).__name__}"
        raise TypeError(f"{given}: keys must be hashable") from None


def wants_key(make: Callable[..., object]) -> bool:
    """Say whether it needs an argument."""
    try:
        inspect.signature(make).bind()
    except TypeError:
        return True
    except ValueError:  # some built-ins do not tell
        return False
    return False


L = TypeVar("L", bound=Layer)
P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")

# The entry is a local: as long as the call runs, it is held by its frame.
KEYED = Template(
    "keyed layer",
    """\
{async_}def keyed({parameters}):
    redouble_key = redouble_of({arguments})
    redouble_moment = redouble_system() if redouble_ambient else redouble_now()
    try:
        redouble_entry = redouble_table[redouble_key]
        if redouble_moment - redouble_entry.used > redouble_idle:
            redouble_entry = None  # or it would seem to be in use
            raise redouble_KeyError
        redouble_touch(redouble_key)
        redouble_way = redouble_ways[redouble_entry]
    except (redouble_KeyError, redouble_TypeError):
        redouble_entry, redouble_way = redouble_find(redouble_key, redouble_moment, redouble_ways)
    redouble_entry.used = redouble_moment
    try:
        return {await_}redouble_way({arguments})
    finally:
        redouble_entry.used = redouble_system() if redouble_ambient else redouble_now()
        del redouble_entry  # the frame may live on, in a traceback
""",
)

OPENED = "redouble_open(redouble_of({arguments}), ({positional}), {{{keywords}}})"
STREAM = Template("keyed stream", "def keyed({parameters}):\n    return (yield from " + OPENED + ")\n")
ASYNC_STREAM = Template("keyed async stream", "def keyed({parameters}):\n    return " + OPENED + "\n")


@public("redouble")
class Keyed(SharedByIdentity, LayerProxy, Generic[L]):
    """A layer of its own for each key, which is told from the arguments of a call.

    key: a function of the arguments of the call, such as ``lambda host, *_: host``. Keys are hashable.
    make: makes the layer of a key. It is given the key if it needs an argument, else none.
    most: how many keys to remember; beyond that, the one that was not used for longest is forgotten.
    idle: forget a key that was not used for this many seconds; None: only when there are too many.
    name: what it is called in metrics. Keys never are a part of that.

    What a call in flight uses is not forgotten before it ends.
    """

    def __init__(
        self,
        key: Callable[..., Hashable],
        make: Callable[[Any], L] | Callable[[], L],
        most: int = 1000,
        idle: Duration | None = 600,
        *,
        name: str | None = None,
    ) -> None:
        for option, value in (("key", key), ("make", make)):
            if isinstance(value, Layer) or not callable(value):
                wanted = "lambda host: host" if option == "key" else "lambda: CircuitBreaker()"
                raise TypeError(f"Keyed {option}={value!r}: write a function, such as {wanted}")
            if (what := lazy_kind(value)) is not None:
                raise TypeError(f"Keyed {option}={display_name(value)} is {what}: write a plain function")
        self._key, self._make = key, cast("Callable[..., L]", make)
        self._given = wants_key(make)
        if self._given and isinstance(make, type):
            raise TypeError(f"Keyed make={make.__name__} needs options: write lambda: {make.__name__}(...)")
        self._most = whole(most, "Keyed most", 1, "how many keys, 1 or more")
        self._idle = inf if idle is None else checked(idle, "Keyed idle")
        instance(name, "Keyed name", str | None, "a text, or None")
        self.name = name
        self.register("layers")
        self._one: Layer | None = None  # to look at
        self._table = KeyedTable(self._made, self._most, self._idle)

    def of(self, key: Hashable) -> L:
        """Return the layer of a key, as a call with that key would use it."""
        return cast("L", self._entry(key).layer)

    def snapshot(self) -> Mapping[str, float]:
        """Tell how many ``keys`` there are, and how many were ``forgotten``."""
        return {"keys": len(self._table.entries), "forgotten": self._table.forgotten}

    def around(self, fn: Callable[P, T], /) -> Callable[P, T]:
        """Return ``fn`` wrapped by the layer of its key."""
        return self._shaped(fn, is_async=False)

    def around_async(self, fn: Callable[P, Awaitable[T]], /) -> Callable[P, Coroutine[Any, Any, T]]:
        """Return ``fn`` wrapped by the layer of its key, for a coroutine function."""
        return self._shaped(fn, is_async=True)

    def around_stream(self, fn: Callable[P, Generator[T, S, Any]], /) -> Callable[P, Generator[T, S, Any]]:
        """Return ``fn`` wrapped by the layer of its key, for a generator function."""
        check_key(self._key, fn)

        def opened(key: Hashable, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Generator[T, S, Any]:
            entry = self._entry(key)
            try:
                return (yield from entry.layer.around_stream(fn)(*args, **kwargs))
            finally:
                entry.used = SYSTEM.now()
                del entry

        return compile_wrapper(fn, STREAM, is_async=False, of=self._key, open=opened, layer=self)

    def around_async_stream(
        self, fn: Callable[P, AsyncGenerator[T, S]], /
    ) -> Callable[P, AsyncGenerator[T, S]]:
        """Return ``fn`` wrapped by the layer of its key, for an async generator function."""
        from redouble._drivers.async_items import AsyncItems  # noqa: PLC0415  for those who stream

        check_key(self._key, fn)

        def opened(key: Hashable, args: tuple[Any, ...], kwargs: dict[str, Any]) -> AsyncGenerator[T, S]:
            entry = self._entry(key)
            return AsyncItems(KeyedStreamOwner(entry, entry.layer.around_async_stream(fn)(*args, **kwargs)))

        made = compile_wrapper(fn, ASYNC_STREAM, is_async=False, of=self._key, open=opened, layer=self)
        return StreamFunction(fn, made)

    def _shaped(self, fn: Callable[..., Any], *, is_async: bool) -> Callable[..., Any]:
        check_key(self._key, fn)
        if not self._given:  # a layer that cannot wrap it says so now, and not at the first call
            sample = self._sample()
            (sample.around_async if is_async else sample.around)(fn)
        ways = self._table.wrapped(lambda layer: layer.around_async(fn) if is_async else layer.around(fn))
        return compile_wrapper(
            fn,
            KEYED,
            is_async=is_async,
            of=self._key,
            table=self._table.entries,
            touch=self._table.entries.move_to_end,
            ways=ways,
            find=self._find,
            layer=self,  # for `policy_of`
            idle=self._idle,
            ambient=ambient.active,
            system=SYSTEM.now,
            now=fast_reader(SYSTEM, aio=False),
            KeyError=KeyError,
            TypeError=TypeError,
        )

    def _find(self, key: Hashable, now: float, ways: WrapperCache) -> tuple[KeyedEntry, Callable[..., Any]]:
        check_hashable(key, self._key)
        return self._table.find(key, now, ways)

    def _entry(self, key: Hashable) -> KeyedEntry:
        check_hashable(key, self._key)
        return self._table.entry(key, SYSTEM.now())

    def _made(self, key: Hashable) -> L:
        layer: object = self._make(key) if self._given else self._make()
        if not isinstance(layer, Layer):
            raise TypeError(f"Keyed make={display_name(self._make)} made {layer!r}, which is no layer")
        return cast("L", layer)

    # ---------------------------------------------------------------- as what it makes would

    def _sample(self) -> Layer:
        if self._one is None:
            self._one = one = self._made(None)
            for layer in one.layers if isinstance(one, Pipeline) else (one,):
                unregister(layer)  # nobody's calls go through it
                unregister(getattr(layer, "budget", None))
        return self._one

    def _target_layers(self) -> tuple[Layer, ...]:
        """Return the layers that one key has; none, if there is no key yet and its layers depend on it."""
        known = self._table.any() if self._given else None
        if self._given and known is None:
            return ()
        layer = self._sample() if known is None else known.layer
        return layer.layers if isinstance(layer, Pipeline) else (layer,)

    def describe(self) -> str:
        return f"{super().describe() or 'a layer'} for each key, {self._most} at most"

    def traits(self) -> Traits:
        return super().traits()._replace(shared=(self,))

    def __repr__(self) -> str:
        named = "" if self.name is None else f", name={self.name!r}"
        return f"Keyed({display_name(self._key)}, {display_name(self._make)}, most={self._most}{named})"
