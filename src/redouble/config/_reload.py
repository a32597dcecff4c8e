"""The configuration in force: loaded, found by name, and exchanged while calls run.

Rule 1: everything that can fail is done first; then all is exchanged, and nothing of that can fail. So a
        configuration is in force as a whole, or not at all.
Rule 2: that is done in turn, and who comes in the middle of it leaves a note (`_turns`). Meanwhile nothing is
        logged: that needs a lock of somebody else's.

What a document means is not known here, and what stays of the one before is decided in `_successor`.
"""

from __future__ import annotations

import os
from _thread import get_ident
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any, NamedTuple, TypeAlias
from weakref import ref

from redouble._internal.logger import log
from redouble._internal.public import public
from redouble._internal.reentrancy import ReloadLock
from redouble._internal.validation import instance
from redouble._layers.layer import Pipeline
from redouble._layers.retry.retry import Retry
from redouble._telemetry.registry import unregister
from redouble.config._carry_over import ActiveConfig, carry_over
from redouble.config._document import Config, in_file, parse, read_document
from redouble.config._errors import DocPath
from redouble.config._named_policy import BoundValue, Named
from redouble.errors import ConfigError

__all__ = ["ConfigStore", "Reload", "load", "policies", "reload"]


Source: TypeAlias = Mapping[str, object] | str | os.PathLike[str] | None
Environ: TypeAlias = Mapping[str, str] | None

MAX_WAIT = 1.0  # second: who is at it may wait for a lock that this thread has, if a signal brought us here


@public("redouble.config")
class Reload(NamedTuple):
    """What came of a reload: what has ``changed``, such as ``policies.payments``; or the ``error``.

    After an error everything is as it was before.
    """

    changed: tuple[str, ...] = ()
    error: ConfigError | None = None

    @property
    def ok(self) -> bool:
        """Whether the configuration was valid, and is in force."""
        return self.error is None


class PreparedConfig(NamedTuple):
    """A configuration that has only to be put in force: who stands for what, and what is in their cells."""

    active: ActiveConfig
    source: tuple[Source, Environ]
    current: dict[Named, Retry | Pipeline]
    values: dict[BoundValue[Any], tuple[Retry | Pipeline, Any]]


class ConfigStore(ReloadLock[Source]):
    """The configuration in force, and who goes by it."""

    def __init__(self) -> None:
        super().__init__()
        self._active: ActiveConfig | None = None
        self._source: tuple[Source, Environ] = (None, None)
        self._names: dict[str, ref[Named]] = {}
        self._reloading_threads: set[int] = set()  # threads that reload

    def named(self, name: str) -> Named:
        """Return what stands for a name: the same for all who ask."""
        instance(name, "policies name", str, "the name of a policy or a pipeline, such as 'payments'")
        with self._lock:
            known = self._names.get(name)
            found = None if known is None else known()
            if found is None:
                found = Named(name, self, None if self._active is None else self._active.config.named(name))
                self._names[name] = ref(found)
                self._request_repeat()
            return found

    def load(self, source: Source, environ: Environ) -> Config:
        """Put a configuration in force, or raise."""
        try:
            with self._exclusive() as mine:
                if not mine:
                    raise ConfigError("this very thread is in the middle of loading one: load it after that")
                return self._put_in_force(source, environ).config
        finally:
            self._execute_requests(self._reload_now)

    def reload(self, source: Source) -> Reload:
        """Put another configuration in force, or say why not."""
        if self._active is None:
            raise ConfigError("there is nothing to reload yet: call redouble.config.load(...) first")
        me = get_ident()
        if me in self._reloading_threads:  # a signal has come while we log, or heed notes
            self._record_request(source)
            return Reload()
        try:
            self._reloading_threads.add(me)
            told = self._reload_now(source)
            self._execute_requests(self._reload_now)
        finally:
            self._reloading_threads.discard(me)
        self._execute_requests(self._reload_now)  # what has come in just that moment
        return told

    def _reload_now(self, source: Source) -> Reload:
        if self._active is None:  # what was to be the first one failed, and somebody had left a note
            return Reload()
        try:
            with self._exclusive(MAX_WAIT) as mine:
                if not mine:
                    self._record_request(source)
                    return Reload()
                before, environ = self._source
                changed = self._put_in_force(before if source is None else source, environ).changed
        except ConfigError as error:
            said = "the configuration is not reloaded, and the last good one stays: %s"
            log(said, str(_bare(error)), trouble=True, traced=False)  # it says where
            return Reload((), error)
        log("the configuration is reloaded: %s", ", ".join(changed) or "nothing has changed", news=True)
        return Reload(changed)

    # ---------------------------------------------------------------- in a turn

    def _put_in_force(self, source: Source, environ: Environ) -> ActiveConfig:
        ready, done = self._prepared(source, environ), False
        try:
            self._exchange(ready)
            done = True
        finally:
            if not done:  # interrupted
                self._exchange(ready)
        return ready.active

    def _prepared(self, source: Source, environ: Environ) -> PreparedConfig:
        """Do all that can fail."""
        wanted = "a mapping, or the path of a TOML file"
        instance(source, "source", Mapping | str | os.PathLike | None, wanted)
        if isinstance(source, Mapping):
            said, where = DocPath().table(source), ""
        else:
            said, where = read_document(source)
            source = os.path.abspath(where)  # somebody may change the directory
        with in_file(where) if where else nullcontext():
            parts = parse(said, environ)
            spare = [*parts.shared.values()]
            try:
                what = carry_over(self._active, parts)
                current = {named: named._find_in(what.config) for named in self._in_use()}
                made = {
                    cell: (layer, named._make_value(cell, layer))
                    for named, layer in current.items()
                    for cell in named._live_cells()
                }
                spare = [fresh for key, fresh in parts.shared.items() if what.shared[key] is not fresh]
            finally:
                for thing in spare:  # nobody will use it, and it is in nobody's statistics
                    unregister(thing)
            for _, fresh in what.reconfigured:
                unregister(fresh)
        return PreparedConfig(what, (source, environ), current, made)

    def _exchange(self, ready: PreparedConfig) -> None:
        """Do the rest, which cannot fail; twice does no harm."""
        before: Mapping[tuple[str, str], object] = {} if self._active is None else self._active.shared
        self._active, self._source = ready.active, ready.source
        for key, thing in before.items():
            if ready.active.shared.get(key) is not thing:
                unregister(thing)
        for old, fresh in ready.active.reconfigured:
            old.reconfigure(fresh)
        for named, layer in ready.current.items():
            named._current = layer
        for cell, filling in ready.values.items():
            cell.layer, cell.made = filling

    def _after_fork(self) -> None:
        super()._after_fork()
        self._reloading_threads.clear()  # none of those threads is here

    def _in_use(self) -> list[Named]:
        return [named for known in list(self._names.values()) if (named := known()) is not None]


def _bare(error: ConfigError) -> ConfigError:
    """Take the tracebacks off: their frames hold functions, and all who keep the error."""
    link: BaseException | None = error
    while link is not None:
        link = link.with_traceback(None).__context__
    return error


LIVE = ConfigStore()


@public("redouble.config")
def load(source: Source = None, *, environ: Environ = os.environ) -> Config:
    """Put a configuration in force, for `redouble.policies`; if it is not valid, nothing changes.

    >>> from redouble.config import load
    >>> config = load({"policies": {"payments": {"attempts": 5}}})

    source: a mapping, or the path of a TOML file; None for ``redouble.toml`` in the working directory, or
        else for ``[tool.redouble]`` in ``pyproject.toml`` there.
    environ: variables that override it, such as ``REDOUBLE_PAYMENTS_ATTEMPTS=5``; None for none.

    Budgets and gates that have the same name and type as before keep their state, and get the new values.
    """
    return LIVE.load(source, environ)


@public("redouble.config")
def reload(source: Source = None) -> Reload:
    """Read the configuration again, or another one, and put it in force while calls run.

    It may be called from any thread, and by a signal handler. One that is not valid is no reason to fail: the
    last good one stays, an error is logged, and the result says so. Calls that are under way go on as they
    began. In the middle of another reload, as in a signal handler, it is put off until that one is over, and
    the result says nothing.
    """
    return LIVE.reload(source)


@public("redouble")
def policies(name: str) -> Named:
    """Return the policy or pipeline that has this name in the configuration, now and after each reload.

    >>> import redouble
    >>> payments = redouble.policies("payments")
    >>> @payments
    ... def pay(amount): ...

    It can be used before there is a configuration; a call needs one, see `redouble.config.load`.
    """
    return LIVE.named(name)
