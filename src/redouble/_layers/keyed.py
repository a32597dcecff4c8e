"""Keyed: a layer of its own for each key, such as a breaker for each host.

`KeyedTable` decides which keys are kept, and for how long. Keys may be private: no name, label, log or error
contains them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator, Hashable, Mapping
from math import inf
from typing import Any, Generic, ParamSpec, TypeVar, cast

from redouble._drivers.stream_function import StreamFunction
from redouble._engine.per_call import check_arguments
from redouble._internal.callables import display_name, lazy_kind
from redouble._internal.codegen import Template, compile_wrapper
from redouble._internal.locks import SharedByIdentity, gil
from redouble._internal.public import public
from redouble._internal.validation import Duration, integer, seconds, signature_mismatch
from redouble._layers.analysis import Traits
from redouble._layers.keyed_table import KeyedEntry, KeyedTable, open_keyed_stream
from redouble._layers.layer import AsyncGeneratorFunction, Layer, LayerProxy, Layers, flattened
from redouble._runtime.clock import SYSTEM, WRAPPER_CLOCK
from redouble._telemetry.registry import unregister

L = TypeVar("L", bound=Layer)
P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")

CALL = """\
    try:
        return {await_}redouble_wrapper({arguments})
    finally:
        redouble_entry.used = redouble_system() if redouble_ambient else redouble_now()
        del redouble_entry  # a traceback may keep the frame alive
"""
# The entry is a local variable: while the call runs, its frame keeps the entry alive.
KEYED = Template(
    "keyed layer",
    f"""\
{{async_}}def keyed({{parameters}}):
    redouble_key = redouble_key_of({{arguments}})
    redouble_moment = redouble_system() if redouble_ambient else redouble_now()
    try:
        redouble_entry = redouble_table[redouble_key]
        if redouble_moment - redouble_entry.used > redouble_idle:
            redouble_entry = None  # a reference would mark the entry as in use
            raise redouble_KeyError
        redouble_touch(redouble_key)
        redouble_wrapper = redouble_wrappers[redouble_entry]
    except (redouble_KeyError, redouble_TypeError):
        redouble_entry, redouble_wrapper = redouble_find(redouble_key, redouble_moment, redouble_wrappers)
    redouble_entry.used = redouble_moment
{CALL}""",
)
STREAM = KEYED.derive(
    "keyed stream", ("{await_}redouble_wrapper({arguments})", "(yield from redouble_wrapper({arguments}))")
)
OPEN = "    return redouble_open(redouble_entry, redouble_wrapper({arguments}))\n"
ASYNC_STREAM = KEYED.derive("keyed async stream", (CALL, OPEN))


@public("redouble")
class Keyed(SharedByIdentity, LayerProxy, Generic[L]):
    """A layer of its own for each key, which a function computes from the arguments of a call.

    key: a function of the arguments of the call, such as ``lambda host, *_: host``. Keys must be hashable.
    make: makes the layer of a key. It is called with the key if it needs an argument, else without.
    most: how many keys to keep; beyond that, the least recently used key is forgotten.
    idle: forget a key that was not used for this many seconds; None: only when there are too many.
    name: its name in metrics, which never contain keys.

    A layer that a call in flight uses is kept until the call ends.
    """

    _kept_by_wrapper = True

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
            if (kind := lazy_kind(value)) is not None:
                raise TypeError(f"Keyed {option}={display_name(value)} is {kind}: write a plain function")
        self._key, self._make = key, cast("Callable[..., L]", make)
        self._make_takes_key = signature_mismatch(make, 0) is not None
        if self._make_takes_key and isinstance(make, type):
            raise TypeError(f"Keyed make={make.__name__} needs options: write lambda: {make.__name__}(...)")
        most = integer(most, "Keyed most", 1, "how many keys, 1 or more")
        idle = inf if idle is None else seconds(idle, "Keyed idle")
        self._table = KeyedTable(key, self._make_layer, most, idle)
        self._example: Layer | None = None  # for descriptions and checks: no call goes through it
        self.name = name
        self.register("layers")

    def of(self, key: Hashable) -> L:
        """Return the layer that a call with this key would use."""
        return cast("L", self._table.entry(key).layer)

    def snapshot(self) -> Mapping[str, float]:
        """Return how many ``keys`` there are, and how many were ``forgotten``."""
        return {"keys": len(self._table.entries), "forgotten": self._table.forgotten}

    def around(self, fn: Callable[P, T], /) -> Callable[P, T]:
        """Return ``fn`` wrapped by the layer of its key."""
        return self._compile(fn, KEYED, "around")

    def around_async(self, fn: Callable[P, Awaitable[T]], /) -> Callable[P, Coroutine[Any, Any, T]]:
        """Return ``fn`` wrapped by the layer of its key, for a coroutine function."""
        return self._compile(fn, KEYED, "around_async")

    def around_stream(self, fn: Callable[P, Generator[T, S, Any]], /) -> Callable[P, Generator[T, S, Any]]:
        """Return ``fn`` wrapped by the layer of its key, for a generator function."""
        return self._compile(fn, STREAM, "around_stream")

    def around_async_stream(self, fn: AsyncGeneratorFunction[P, T, S], /) -> AsyncGeneratorFunction[P, T, S]:
        """Return ``fn`` wrapped by the layer of its key, for an async generator function."""
        return StreamFunction(fn, self._compile(fn, ASYNC_STREAM, "around_async_stream"))

    def resolver(
        self, fn: Callable[..., Any], wrap: Callable[[Layer], Callable[P, T]]
    ) -> Callable[P, tuple[KeyedEntry, Callable[P, T]]]:
        """Return a function that finds the entry of a call of ``fn``, and what ``wrap`` made of its layer."""
        check_arguments("Keyed key", self._key, fn)
        if not self._make_takes_key:
            wrap(self._example_layer())  # a layer that cannot be wrapped raises now, not at the first call
        cache = self._table.new_cache(wrap)

        def resolve(*args: P.args, **kwargs: P.kwargs) -> tuple[KeyedEntry, Callable[P, T]]:
            return self._table.find(self._key(*args, **kwargs), SYSTEM.now(), cache)

        return resolve

    def _compile(self, fn: Callable[..., Any], template: Template, around: str) -> Callable[..., Any]:
        check_arguments("Keyed key", self._key, fn)

        def wrap(layer: Layer) -> Callable[..., Any]:
            wrapper: Callable[..., Any] = getattr(layer, around)(fn)
            return wrapper

        if not self._make_takes_key:
            wrap(self._example_layer())  # a layer that cannot wrap `fn` raises now, not at the first call
        return compile_wrapper(
            fn,
            template,
            is_async=around == "around_async",
            key_of=self._key,
            table=self._table.entries if gil.enabled else {},  # without a GIL every lookup takes the lock
            touch=self._table.entries.move_to_end,
            wrappers=self._table.new_cache(wrap),
            find=self._table.find,
            open=open_keyed_stream,
            layer=self,  # for `policy_of`
            idle=self._table.idle,
            **WRAPPER_CLOCK,
            KeyError=KeyError,
            TypeError=TypeError,
        )

    def _make_layer(self, key: Hashable) -> L:
        layer: object = self._make(key) if self._make_takes_key else self._make()
        if not isinstance(layer, Layer):
            raise TypeError(f"Keyed make={display_name(self._make)} made {layer!r}, which is no layer")
        return cast("L", layer)

    # ---------------------------------------------------------------- hooks, as those of the layers it makes

    def _example_layer(self) -> Layer:
        if self._example is None:
            self._example = example = self._make_layer(None)
            for layer in flattened(example):
                unregister(layer)  # no call goes through it
                unregister(getattr(layer, "budget", None))
        return self._example

    def _target_layers(self) -> Layers:
        """Return the layers of one key; none if the layers depend on the key and there is no key yet."""
        if not self._make_takes_key:
            return flattened(self._example_layer())
        entry = self._table.any()
        return () if entry is None else flattened(entry.layer)

    def describe(self) -> str:
        layers, most = super().describe(), f"{self._table.max_keys} at most"
        if layers and self._make_takes_key:
            return f"{layers} for one of its keys, others may differ, {most}"
        return f"{layers or 'a layer'} for each key, {most}"

    def traits(self) -> Traits:
        traits = super().traits()
        # The layers are those of one key. What they use, such as a budget, may be the same for all keys.
        used = (state for state in traits.shared if not isinstance(state, Layer))
        return traits._replace(shared=(self, *used))

    def __repr__(self) -> str:
        functions = display_name(self._key), display_name(self._make)
        return self._repr(*functions, f"most={self._table.max_keys}")
