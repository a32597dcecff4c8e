"""Named: a policy or a pipeline, referred to by its name in the active configuration.

Each wrapped function, and each other object that depends on a `Named`, has a `BoundValue`, which a reload
updates. A call costs one more attribute access; a call in flight continues with the layer it began with.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Iterator
from operator import methodcaller
from typing import TYPE_CHECKING, Any, Generic, NoReturn, ParamSpec, TypeVar, overload
from weakref import WeakValueDictionary

from redouble._drivers.blocks import AsyncAttempts, Attempt
from redouble._drivers.stream_function import StreamFunction
from redouble._engine.report import Outcome
from redouble._internal.callables import display_name
from redouble._internal.codegen import Template, compile_wrapper
from redouble._internal.locks import SharedByIdentity
from redouble._internal.public import public
from redouble._layers.layer import Layer, LayerProxy, Pipeline
from redouble._layers.retry.retry import Enterable, Openable, Retry
from redouble._telemetry.registry import referenced
from redouble.config._config import Config
from redouble.config._document_path import DocPath, rewrite
from redouble.errors import ConfigError

if TYPE_CHECKING:
    from redouble._drivers.context_managers import Entrance
    from redouble._drivers.streams import Stream

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")

NAMED = Template(
    "named policy",
    "{async_}def named({parameters}):\n    return {await_}redouble_cell.value({arguments})\n",
)
STREAM = Template(
    "named stream",
    "def named({parameters}):\n    return (yield from redouble_cell.value({arguments}))\n",
)


class BoundValue(Generic[T]):
    """A ``value`` made from the current layer of a `Named`, such as a function wrapped by that layer.

    A reload replaces it. ``owner`` names its user in errors.
    """

    __slots__ = ("__weakref__", "layer", "make", "owner", "value")

    def __init__(self, make: Callable[[Layer], T], value: T, owner: str) -> None:
        self.make, self.value, self.owner = make, value, owner
        self.layer: Layer | None = None  # the layer from which `value` was made; None before the first load


@public("redouble.config")
class Named(LayerProxy, SharedByIdentity):
    """The policy or pipeline that has this name in the configuration: made by `redouble.policies`.

    It can be used before a configuration is loaded: as a decorator, and in pipelines. Decorated functions
    follow a reload; calls in flight continue with the policy they began with. The options of a policy are
    attributes, with their current values.
    """

    _kept_by_wrapper = True
    resolved_by_name = True

    def __init__(
        self, name: str, add: Callable[[Callable[[], None]], None], current: Retry | Pipeline | None
    ) -> None:
        self._name, self._add, self._current = name, add, current
        self._cells: WeakValueDictionary[int, BoundValue[Any]] = WeakValueDictionary()

    @property
    def current(self) -> Retry | Pipeline:
        """The policy or pipeline that has this name in the active configuration."""
        if self._current is None:
            raise self._not_loaded_error()
        return self._current

    @property
    def name(  # type: ignore[override]  # pyright: ignore[reportIncompatibleVariableOverride]  # it is not set
        self,
    ) -> str | None:
        """The name of the policy, for events and reports; None for a pipeline."""
        return self.current.name

    def _not_loaded_error(self) -> ConfigError:
        return ConfigError(
            f"no configuration is loaded yet: call redouble.config.load(...) first, and then use {self!r}"
        )

    def __setattr__(self, name: str, value: object) -> None:
        if not name.startswith("_"):
            raise AttributeError(f"{name} comes from the configuration: change it there, and reload")
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:  # the type is that of the option
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.current, name)

    # ---------------------------------------------------------------- bound values

    def _follow(self, make: Callable[[Layer], T], absent: T, owner: str) -> BoundValue[T]:
        """Return a `BoundValue` with the value that ``make`` returns for the current layer.

        Each reload that changes the layer makes the value again. The `BoundValue` is held weakly. It holds
        ``absent`` until a configuration is loaded; ``owner`` names its user in errors.
        """
        cell = BoundValue(make, absent, owner)

        def bind() -> None:
            if self._current is not None:
                cell.value, cell.layer = make(self._current), self._current
            self._cells[id(cell)] = cell

        self._add(bind)
        return cell

    def _prepared(self, config: Config) -> Callable[[], None]:
        """Make the values for another layer, or raise; return the function that replaces them."""
        try:
            layer = config.named(self._name)
        except ConfigError as error:
            rewrite(error, path=DocPath(("policies", self._name)).path, end=f" (code uses {self!r})")
            raise
        values: dict[BoundValue[Any], Any] = {}
        for cell in referenced(self._cells):
            if cell.layer is not layer:
                try:
                    values[cell] = cell.make(layer)
                except Exception as error:
                    section = "policies" if isinstance(layer, Retry) else "pipelines"
                    message = f"cannot be applied to {cell.owner}, which uses it: {error}"
                    raise ConfigError(message, path=DocPath((section, self._name)).path) from error

        def exchange() -> None:
            self._current = layer
            for cell, value in values.items():
                cell.layer, cell.value = layer, value

        return exchange

    def _cell(self, around: str, fn: Callable[..., Any]) -> BoundValue[Callable[..., Any]]:
        def absent(*_: object, **__: object) -> NoReturn:
            raise self._not_loaded_error()

        return self._follow(methodcaller(around, fn), absent, display_name(fn))

    # ---------------------------------------------------------------- as a layer

    def around(self, fn: Callable[P, T], /) -> Callable[P, T]:
        """Return ``fn`` wrapped by the policy or pipeline of this name."""
        return compile_wrapper(fn, NAMED, is_async=False, cell=self._cell("around", fn), layer=self)

    def around_async(self, fn: Callable[P, Awaitable[T]], /) -> Callable[P, Coroutine[Any, Any, T]]:
        """Return the coroutine function ``fn`` wrapped by the policy or pipeline of this name."""
        return compile_wrapper(fn, NAMED, is_async=True, cell=self._cell("around_async", fn), layer=self)

    def around_stream(self, fn: Callable[P, Generator[T, S, Any]], /) -> Callable[P, Generator[T, S, Any]]:
        """Return the generator function ``fn`` wrapped by the policy or pipeline of this name."""
        return compile_wrapper(fn, STREAM, is_async=False, cell=self._cell("around_stream", fn), layer=self)

    def around_async_stream(
        self, fn: Callable[P, AsyncGenerator[T, S]], /
    ) -> Callable[P, AsyncGenerator[T, S]]:
        """Return the async generator function ``fn`` wrapped by the policy or pipeline of this name."""
        cell = self._cell("around_async_stream", fn)
        return StreamFunction(fn, compile_wrapper(fn, NAMED, is_async=False, cell=cell, layer=self))

    def call(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call ``fn`` through the policy or pipeline and return its result: await it if ``fn`` is async."""
        return self.current.call(fn, *args, **kwargs)

    def describe(self) -> str:
        return f"{self._name}: {super().describe() or 'not loaded yet'}"

    def _target_layers(self) -> tuple[Layer, ...]:
        return () if self._current is None else Pipeline(self._current).layers

    # ---------------------------------------------------------------- as a policy

    async def acall(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a blocking ``fn`` with retries from async code, as `Retry.acall` does."""
        return await self._policy("acall").acall(fn, *args, **kwargs)

    @overload
    def run(  # type: ignore[overload-overlap]  # a coroutine function is a function too: order decides
        self, fn: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, Outcome[T]]: ...
    @overload
    def run(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Outcome[T]: ...
    def run(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call ``fn`` with retries and return an `Outcome` instead of raising an error of ``fn``."""
        policy: Any = self._policy("run")  # the overloads above give the return type
        return policy.run(fn, *args, **kwargs)

    def stream(
        self,
        open: Callable[[], Openable[T]],  # noqa: A002
        /,
        *,
        resume: Callable[[T], Openable[T]] | None = None,
    ) -> Stream[T]:
        """Iterate over the stream that ``open()`` returns, as `Retry.stream` does."""
        return self._policy("stream").stream(open, resume=resume)

    def enter(self, make: Callable[P, Enterable[T]], /, *args: P.args, **kwargs: P.kwargs) -> Entrance[T]:
        """Create a context manager and enter it with retries, as `Retry.enter` does."""
        return self._policy("enter").enter(make, *args, **kwargs)

    def __iter__(self) -> Iterator[Attempt]:
        return iter(self._policy("a `for` loop"))

    def __aiter__(self) -> AsyncAttempts:
        return aiter(self._policy("an `async for` loop"))

    def _policy(self, what: str) -> Retry:
        current = self.current
        if not isinstance(current, Retry):
            raise TypeError(
                f"{self!r} is a pipeline, and {what} is for a single policy: decorate a function, or write "
                ".call(fn, ...)"
            )
        return current

    def __repr__(self) -> str:
        return f"redouble.policies({self._name!r})"
