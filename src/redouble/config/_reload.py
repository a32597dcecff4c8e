"""The active configuration: loading it, looking it up by name, and replacing it while calls run.

Rule 1: every step that can fail runs first, in `_prepared`, which returns the function that replaces the
        configuration and cannot fail. So a configuration becomes active as a whole, or not at all.
Rule 2: loads and reloads exclude each other. A reload waits for another one for a moment only, and is then
        deferred until that one has ended. Nothing is logged under the lock, because logging acquires locks
        that belong to other code.

`Builder` decides which objects of the previous configuration stay.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import NamedTuple, TypeAlias, TypeVar
from weakref import WeakValueDictionary

from redouble._internal.logger import log
from redouble._internal.public import public
from redouble._internal.reentrancy import ReentrancySafe, SerialQueue
from redouble._internal.validation import instance
from redouble._telemetry.registry import referenced
from redouble.config._builder import Builder
from redouble.config._config import Config
from redouble.config._document import in_file, parse, read_document
from redouble.config._document_path import DocPath
from redouble.config._named_policy import Named
from redouble.errors import ConfigError

Source: TypeAlias = Mapping[str, object] | str | os.PathLike[str] | None
Environ: TypeAlias = Mapping[str, str] | None
T = TypeVar("T")

# Seconds. The wait is bounded, because a signal handler that reloads may have interrupted code that holds a
# lock which the reloading thread waits for.
MAX_WAIT = 1.0


@public("redouble.config")
class Reload(NamedTuple):
    """The result of a reload: the paths that ``changed``, such as ``policies.payments``, or the ``error``.

    After an error, the previous configuration stays active, unchanged.
    """

    changed: tuple[str, ...] = ()
    error: ConfigError | None = None

    @property
    def ok(self) -> bool:
        """True if there was no error: the configuration is valid and active, or its reload is deferred."""
        return self.error is None


class ConfigStore(ReentrancySafe):
    """The active configuration, and the `Named` objects that follow it."""

    def __init__(self) -> None:
        super().__init__()
        self._active: Builder | None = None
        self._source: tuple[Source, Environ] = (None, None)
        self._names: WeakValueDictionary[str, Named] = WeakValueDictionary()
        self._additions = 0  # the number of objects that have been added, which follow the configuration
        self._log = SerialQueue()

    def named(self, name: str) -> Named:
        """Return the `Named` for a name: the same object for every caller."""
        instance(name, "policies name", str, "the name of a policy or a pipeline, such as 'payments'")

        def find() -> Named:
            named = self._names.get(name)
            if named is None:
                current = None if self._active is None else self._active.config.named(name)
                named = self._names[name] = Named(name, self.add, current)
            return named

        return self.add(find)

    def add(self, operation: Callable[[], T]) -> T:
        """Run an operation that adds an object which follows the configuration."""

        def count_and_run() -> T:
            self._additions += 1
            return operation()

        return self._run_now(count_and_run)

    def load(self, source: Source, environ: Environ) -> Config:
        """Make a configuration active, or raise `ConfigError`."""
        if self._owned_by_this_thread():
            raise ConfigError("this thread is already loading a configuration: load this one afterwards")
        return self._run_now(self._put_in_force, source, environ).config

    def reload(self, source: Source) -> Reload:
        """Make another configuration active, or return the error that prevents it."""
        if self._active is None:
            raise ConfigError("there is nothing to reload yet: call redouble.config.load(...) first")
        results: list[Reload] = []
        self._run_deferred(MAX_WAIT if self._request(source, results) else 0)
        return results[0] if results else Reload()

    def _request(self, source: Source, results: list[Reload]) -> bool:
        """Defer a reload; return False if one is deferred already that reads the same source."""
        needed = source is not None or not self._deferred
        if needed:
            self._deferred.append((self._reload_now, (source, results)))
        return needed

    def _after_deferred(self) -> None:
        self._log.run()

    def _after_fork(self) -> None:
        super()._after_fork()
        self._log = SerialQueue()  # the parent writes its own

    # ---------------------------------------------------------------- while the lock is held

    def _reload_now(self, source: Source, results: list[Reload]) -> None:
        before, environ = self._source
        try:
            result = Reload(self._put_in_force(before if source is None else source, environ).changed)
        except ConfigError as error:
            result = Reload((), _bare(error))
        results.append(result)
        self._log.add(_log_result, result)

    def _put_in_force(self, source: Source, environ: Environ) -> Builder:
        additions = self._additions
        (builder, exchange), exchanged = self._prepared(source, environ), False
        try:
            exchange()
            exchanged = True
        finally:
            if not exchanged:  # a signal handler raised
                exchange()
        if additions != self._additions:  # a signal handler has added an object, which this may have missed
            self._request(None, [])
        return builder

    def _prepared(self, source: Source, environ: Environ) -> tuple[Builder, Callable[[], None]]:
        """Read, validate and build a configuration: every step that can fail.

        Return also the function that replaces the active one. It cannot fail, and is idempotent.
        """
        wanted = "a mapping, or the path of a TOML file"
        instance(source, "source", Mapping | str | os.PathLike | None, wanted)
        if isinstance(source, Mapping):
            document, path = DocPath().table(source), ""
        else:
            document, path = read_document(source)
            source = os.path.abspath(path)  # the process may change its working directory before a reload
        builder = Builder(self._active)
        with in_file(path), ExitStack() as undo:
            undo.callback(builder.discard)
            config = builder.build(parse(document, environ))
            exchanges = [named._prepared(config) for named in referenced(self._names)]
            undo.pop_all()

        def exchange() -> None:
            self._active, self._source = builder, (source, environ)
            builder.update_kept()
            for exchange_named in exchanges:
                exchange_named()

        return builder, exchange


def _log_result(result: Reload) -> None:
    if result.error is None:
        changed = ", ".join(result.changed) or "nothing has changed"
        log("the configuration was reloaded: %s", changed, info=True)
    else:
        message = "the configuration was not reloaded, and the last valid one stays active: %s"
        log(message, str(result.error), error=True, traced=False)  # the message has the path


def _bare(error: ConfigError) -> ConfigError:
    """Remove the tracebacks of an error and of its context.

    Their frames refer to functions, and an object that keeps the error would keep those alive.
    """
    link: BaseException | None = error
    while link is not None:
        link = link.with_traceback(None).__context__
    return error


LIVE = ConfigStore()


@public("redouble.config")
def load(source: Source = None, *, environ: Environ = os.environ) -> Config:
    """Make a configuration active, for `redouble.policies`; if it is not valid, nothing changes.

    >>> from redouble.config import load
    >>> config = load({"policies": {"payments": {"attempts": 5}}})

    source: a mapping, or the path of a TOML file. None reads ``redouble.toml`` in the working directory or,
        if there is none, ``[tool.redouble]`` of the ``pyproject.toml`` there.
    environ: variables that override the source, such as ``REDOUBLE_POLICIES__PAYMENTS__ATTEMPTS=5``; None to
        use none.

    Budgets and gates that have the same name and type as before keep their state, and get the new values.
    """
    return LIVE.load(source, environ)


@public("redouble.config")
def reload(source: Source = None) -> Reload:
    """Read the configuration again, or read another one, and make it active while calls run.

    It may be called from any thread, and by a signal handler. An invalid configuration raises nothing: the
    last valid one stays active, the error is logged, and the result contains it. Calls in flight continue
    with the policies they began with. During another reload, as in a signal handler, the reload is deferred
    until that one has ended, and the result is empty. For a reload in another thread it waits for a moment
    first.
    """
    return LIVE.reload(source)


@public("redouble")
def policies(name: str) -> Named:
    """Return the policy or pipeline that has this name in the configuration, following each reload.

    >>> import redouble
    >>> payments = redouble.policies("payments")
    >>> @payments
    ... def pay(amount): ...

    A function can be decorated before a configuration is loaded; calling it needs one: see
    `redouble.config.load`.
    """
    return LIVE.named(name)
