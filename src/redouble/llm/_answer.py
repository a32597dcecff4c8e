"""Answer: the chunks of one logical stream, opened with retries and handed out under guard."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar, cast

from redouble._drivers.async_items import AsyncItems
from redouble._drivers.stream_source import AsyncSource, Source
from redouble._drivers.streams import Opener, Stream
from redouble._engine.options import Options
from redouble._engine.run import Committing
from redouble._internal.public import public
from redouble.llm._errors import CutShort
from redouble.llm._flow import Flow
from redouble.llm._guard import AsyncGuarded, Guarded
from redouble.llm._usage import Usage

__all__ = ["Answer"]

T = TypeVar("T")


class Opening(Opener[T]):
    """Opens the sources of one guarded stream."""

    def __init__(
        self,
        flow: Flow,
        policy: Options,
        name: str,
        open: Callable[[], Any],  # noqa: A002
        *,
        aio: bool = False,
    ) -> None:
        guarded = partial(AsyncGuarded[T], flow, open) if aio else partial(Guarded[T], flow, open)
        super().__init__(policy, name, guarded, aio=aio)
        self._flow = flow

    def open(self) -> tuple[Source[T], T]:
        """Open a source, with retries, and take its first chunk."""
        with self._flow.opening():
            return super().open()

    async def aopen(self) -> tuple[AsyncSource[T], T]:
        """Open a source, with retries, and take its first chunk."""
        with self._flow.opening():
            return await super().aopen()

    def failed(self, error: Exception, *, final: bool = False) -> bool:
        """Take note that a source failed after its first chunk: the stream is over."""
        self._cut = self._cut or self._flow.cut
        cast("Committing", self._run).limit = self._flow.late
        return super().failed(error, final=final)

    def cut(self, error: BaseException | None) -> None:
        """Tell nobody, but settle what it took."""
        super().cut(error)
        self._flow.leave()

    def ended(self) -> None:
        """Take note that a source came to its end, or was closed."""
        self._cut = self._cut or self._flow.cut
        super().ended()

    def _refuse(self) -> None:
        """Refuse nothing: its source may be read on a worker."""


class Chunks(AsyncItems[T]):
    """The chunks of a guarded stream in async code: one whose reader was cancelled never looks complete."""

    __slots__ = ("_flow",)

    def __init__(self, opening: Opening[T], flow: Flow) -> None:
        super().__init__(opening)
        self._flow = flow

    async def __anext__(self, take: Any = None, thrown: object = None) -> T:
        if self._flow.cut:
            raise CutShort("the stream was cancelled, and closed")
        return await super().__anext__(take, thrown)


@public("redouble.llm")
class Answer(Stream[T], Generic[T]):
    """The chunks of one answer, for ``for`` or ``async for``, as what opens it demands.

    It is closed at its end; to close it early, use it in a ``with`` or ``async with``.
    """

    def __init__(
        self,
        flow: Flow,
        policy: Options,
        name: str,
        open: Callable[[], Any],  # noqa: A002
    ) -> None:
        make = partial(Opening[T], flow, policy, name, open)
        super().__init__(make)
        self._async_items = Chunks(make(aio=True), flow)
        self._flow = flow

    @property
    def usage(self) -> Usage | None:
        """The tokens that it took, once it is over and if it said so."""
        return self._flow.usage
