"""The option ``protocol=``: a built-in protocol, or a user-defined one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import pytest

from redouble.llm._errors import ErrorEvent
from redouble.llm._protocols.base import Protocol
from redouble.llm._protocols.builtin import protocol_factory

NAMES = ("auto", "openai", "anthropic", "sse")


class Mine(Protocol):
    def read(self, chunk: object, /) -> ErrorEvent | None:
        self.known = self.ended = chunk == "END"
        return ErrorEvent("no") if chunk == "NO" else None

    def cut_short(self) -> str:
        return "no END"


class Half(Protocol):
    def read(self, chunk: object, /) -> ErrorEvent | None: ...


def test_built_in_protocols_by_name() -> None:
    assert protocol_factory(None) is None
    for name in NAMES:
        made = protocol_factory(name)
        assert made is not None
        first, second = made(), made()
        assert first is not second
        assert (first.known, first.ended, first.usage, first.pieces) == (name != "auto", False, None, 0)


def test_a_user_defined_protocol_is_used_as_it_is() -> None:
    ways: list[Callable[[], Protocol]] = [Mine, partial(Mine), mine]
    for factory in ways:
        made = protocol_factory(factory)
        assert made is factory
        own = factory()
        assert (own.known, own.ended, own.usage, own.pieces) == (False, False, None, 0)
        assert own.read("END") is None
        assert (own.known, own.ended, own.cut_short()) == (True, True, "no END")


def mine() -> Protocol:
    return Mine()


async def acoroutine() -> Protocol:
    return Mine()


async def agenerator() -> AsyncIterator[Protocol]:
    yield Mine()


CHOICES = (
    r"write 'auto', 'openai', 'anthropic' or 'sse', a class derived from Protocol, or None to inspect nothing"
)


@pytest.mark.parametrize(
    ("wrong", "kind", "message"),
    [
        ("OpenAI", ValueError, rf"protocol='OpenAI': {CHOICES} \(did you mean 'openai'\?\)$"),
        ("antropic", ValueError, rf"protocol='antropic': {CHOICES} \(did you mean 'anthropic'\?\)$"),
        ("gemini", ValueError, rf"protocol='gemini': {CHOICES}$"),
        ("", ValueError, rf"protocol='': {CHOICES}$"),
        (True, TypeError, rf"protocol=True: {CHOICES}$"),
        (b"sse", TypeError, rf"protocol=b'sse': {CHOICES}$"),
        (dict, TypeError, rf"protocol=<class 'dict'>: {CHOICES}$"),
        (Mine(), TypeError, r"protocol=Mine\(\.\.\.\): write Mine, the class: each attempt needs a new one$"),
        (Half, TypeError, r"protocol=Half is not complete: write cut_short in it$"),
        (Protocol, TypeError, r"protocol=Protocol is not complete: write cut_short and read in it$"),
        (
            acoroutine,
            TypeError,
            r"protocol=acoroutine is a coroutine function: write a plain one",
        ),
        (agenerator, TypeError, r"protocol=agenerator is an async generator function: write a plain one"),
    ],
)
def test_a_wrong_protocol_raises(wrong: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=f"^{message}"):
        protocol_factory(wrong)
