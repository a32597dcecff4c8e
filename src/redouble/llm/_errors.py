"""The errors of language models that are ours to raise.

    RedoubleError
    ├── StreamError            a stream that had begun went wrong
    │   ├── CutShort           it ended before it said that it was complete
    │   └── ErrorEvent         it said that something went wrong; .type .said
    ├── SpendExceeded          a call was stopped in its midst: it takes more than `Spend` allows; .what
    └── Rejected
        └── SpendRefused       there was no allowance for it, so nothing was called; .what .retry_after

A stream that is silent for too long is an `AttemptTimeout`, one that takes too long a `DeadlineExceeded`:
both are a `TimeoutError`.
"""

from __future__ import annotations

from typing import Any

from redouble._internal.public import public
from redouble.errors import RedoubleError, Rejected, _rebuild

__all__ = ["CutShort", "ErrorEvent", "SpendExceeded", "SpendRefused", "StreamError"]


@public("redouble.llm")
class StreamError(RedoubleError):
    """A stream went wrong."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.args, self.__dict__.copy()))


@public("redouble.llm")
class CutShort(StreamError, ConnectionError):
    """A stream ended before it said that it was complete: what has come is not the whole answer."""


@public("redouble.llm")
class ErrorEvent(StreamError):
    """A stream said in its midst that something went wrong, though its status had been 200.

    ``type`` is the word for it, such as ``overloaded_error``, and ``said`` all that came with it.
    """

    def __init__(self, message: str = "", *, type: str | None = None, said: object = None) -> None:  # noqa: A002
        super().__init__(message)
        self.type = type
        self.said = said


@public("redouble.llm")
class SpendExceeded(RedoubleError):
    """A call was stopped in its midst: it takes more of ``what``, tokens or cost, than the `Spend` allows.

    That is a stream that has taken it, or a call whose answer was refused and which would be made again.
    """

    __reduce__ = StreamError.__reduce__

    def __init__(self, message: str = "", *, what: str | None = None) -> None:
        super().__init__(message)
        self.what = what


@public("redouble.llm")
class SpendRefused(Rejected):
    """Nothing was called: the `Spend` has too little left of ``what``: ``tokens``, ``cost``, ``requests``."""

    def __init__(
        self, message: str = "", *, what: str | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(message, retry_after=retry_after)
        self.what = what
