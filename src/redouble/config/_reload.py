"""The active configuration: loading it, looking it up by name, and replacing it while calls run.

Rule 1: every step that can fail runs first, in `_prepared`; `_exchange` then replaces the configuration and
        cannot fail. So a configuration becomes active as a whole, or not at all.
Rule 2: loads and reloads exclude each other (`ReloadLock`). A re-entrant or timed-out reload is recorded and
        executed afterwards. Nothing is logged while the lock is held, because logging acquires locks that
        belong to other code.

`Builder` decides which objects of the previous configuration stay.
"""

from __future__ import annotations

import os
from _thread import get_ident
from collections.abc import Mapping
from contextlib import ExitStack, nullcontext
from typing import Any, NamedTuple, TypeAlias
from weakref import ref

from redouble._internal.logger import log
from redouble._internal.public import public
from redouble._internal.reentrancy import ReloadLock
from redouble._internal.validation import instance
from redouble._layers.layer import Pipeline
from redouble._layers.retry.retry import Retry
from redouble._telemetry.registry import unregister
from redouble.config._builder import Builder, BuiltConfig
from redouble.config._config import Config
from redouble.config._document import in_file, parse, read_document
from redouble.config._document_path import DocPath
from redouble.config._named_policy import BoundValue, Named
from redouble.errors import ConfigError

__all__ = ["ConfigStore", "Reload", "load", "policies", "reload"]


Source: TypeAlias = Mapping[str, object] | str | os.PathLike[str] | None
Environ: TypeAlias = Mapping[str, str] | None

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


class PreparedConfig(NamedTuple):
    """A validated configuration that is ready to become active.

    current: the policy or pipeline to which each `Named` will refer.
    values: the layer and the value that each `BoundValue` will hold.
    """

    active: BuiltConfig
    source: tuple[Source, Environ]
    current: dict[Named, Retry | Pipeline]
    values: dict[BoundValue[Any], tuple[Retry | Pipeline, Any]]


class ConfigStore(ReloadLock[Source]):
    """The active configuration, and the `Named` objects that follow it."""

    def __init__(self) -> None:
        super().__init__()
        self._active: BuiltConfig | None = None
        self._source: tuple[Source, Environ] = (None, None)
        self._names: dict[str, ref[Named]] = {}
        self._reloading_threads: set[int] = set()  # threads inside `reload`

    def named(self, name: str) -> Named:
        """Return the `Named` for a name: the same object for every caller."""
        instance(name, "policies name", str, "the name of a policy or a pipeline, such as 'payments'")
        with self._lock:
            reference = self._names.get(name)
            named = None if reference is None else reference()
            if named is None:
                named = Named(name, self, None if self._active is None else self._active.config.named(name))
                self._names[name] = ref(named)
                self._request_repeat()
            return named

    def load(self, source: Source, environ: Environ) -> Config:
        """Make a configuration active, or raise `ConfigError`."""
        try:
            with self._exclusive() as mine:
                if not mine:
                    raise ConfigError(
                        "this thread is already loading a configuration: load this one afterwards"
                    )
                return self._put_in_force(source, environ).config
        finally:
            self._execute_requests(self._reload_now)

    def reload(self, source: Source) -> Reload:
        """Make another configuration active, or return the error that prevents it."""
        if self._active is None:
            raise ConfigError("there is nothing to reload yet: call redouble.config.load(...) first")
        thread = get_ident()
        if thread in self._reloading_threads:  # a signal handler interrupted this thread inside `reload`
            self._record_request(source)
            return Reload()
        try:
            self._reloading_threads.add(thread)
            result = self._reload_now(source)
            self._execute_requests(self._reload_now)
        finally:
            self._reloading_threads.discard(thread)
        self._execute_requests(self._reload_now)  # a request recorded just before the discard
        return result

    def _reload_now(self, source: Source) -> Reload:
        if self._active is None:  # the first load failed after a request was recorded
            return Reload()
        try:
            with self._exclusive(MAX_WAIT) as mine:
                if not mine:
                    self._record_request(source)
                    return Reload()
                before, environ = self._source
                changed = self._put_in_force(before if source is None else source, environ).changed
        except ConfigError as error:
            message = "the configuration was not reloaded, and the last valid one stays active: %s"
            log(message, str(_bare(error)), error=True, traced=False)  # the message has the path
            return Reload((), error)
        log("the configuration was reloaded: %s", ", ".join(changed) or "nothing has changed", info=True)
        return Reload(changed)

    # ---------------------------------------------------------------- while the lock is held

    def _put_in_force(self, source: Source, environ: Environ) -> BuiltConfig:
        prepared, exchanged = self._prepared(source, environ), False
        try:
            self._exchange(prepared)
            exchanged = True
        finally:
            if not exchanged:  # a signal handler raised
                self._exchange(prepared)
        return prepared.active

    def _prepared(self, source: Source, environ: Environ) -> PreparedConfig:
        """Read, validate and build a configuration: every step that can fail."""
        wanted = "a mapping, or the path of a TOML file"
        instance(source, "source", Mapping | str | os.PathLike | None, wanted)
        if isinstance(source, Mapping):
            document, path = DocPath().table(source), ""
        else:
            document, path = read_document(source)
            source = os.path.abspath(path)  # the process may change its working directory before a reload
        builder = Builder(self._active)
        with in_file(path) if path else nullcontext(), ExitStack() as undo:
            undo.callback(builder.discard)
            active = builder.build(parse(document, environ))
            current = {named: named._find_in(active.config) for named in self._in_use()}
            values = {
                cell: (layer, named._make_value(cell, layer))
                for named, layer in current.items()
                for cell in named._live_cells()
            }
            undo.pop_all()
        return PreparedConfig(active, (source, environ), current, values)

    def _exchange(self, ready: PreparedConfig) -> None:
        """Replace the active configuration. Cannot fail, and is idempotent."""
        self._active, self._source = ready.active, ready.source
        for thing in ready.active.removed:
            unregister(thing)
        for old, fresh in ready.active.reconfigured:
            old.reconfigure(fresh)
        for named, layer in ready.current.items():
            named._current = layer
        for cell, filling in ready.values.items():
            cell.layer, cell.value = filling

    def _after_fork(self) -> None:
        super()._after_fork()
        self._reloading_threads.clear()  # those threads do not exist in the child process

    def _in_use(self) -> list[Named]:
        return [named for reference in list(self._names.values()) if (named := reference()) is not None]


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
    until that one has ended, and the result is empty.
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
