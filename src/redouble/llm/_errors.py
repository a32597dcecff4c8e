"""The errors that `redouble.llm` raises.

    RedoubleError
    ├── StreamError            a stream failed after it had started
    │   ├── CutShort           it ended without its end marker
    │   └── ErrorEvent         it sent an error event; .type .said
    ├── SpendExceeded          a call was stopped: it takes more than its `Spend` allows; .what
    └── Rejected
        └── SpendRefused       its `Spend` had too little left, so nothing was called; .what .retry_after

A stream that is silent for too long is an `AttemptTimeout`, one that takes too long a `DeadlineExceeded`:
both are a `TimeoutError`.
"""

from __future__ import annotations

from redouble._internal.public import public
from redouble.errors import RedoubleError, Rejected


@public("redouble.llm")
class StreamError(RedoubleError):
    """A stream failed after it had started."""


@public("redouble.llm")
class CutShort(StreamError, ConnectionError):
    """A stream ended without the end marker of its protocol: the answer is incomplete."""


@public("redouble.llm")
class ErrorEvent(StreamError):
    """A stream sent an error event, though its status had been 200.

    ``type`` is the provider's error type, such as ``overloaded_error``, and ``said`` the whole event.
    """

    def __init__(self, message: str = "", *, type: str | None = None, said: object = None) -> None:  # noqa: A002
        super().__init__(message)
        self.type = type
        self.said = said


@public("redouble.llm")
class SpendExceeded(RedoubleError):
    """A call was stopped: it takes more of ``what``, ``tokens`` or ``cost``, than the `Spend` allows.

    Raised by a stream that has taken that much, and before the retry of a call whose answer was refused.
    """

    def __init__(self, message: str = "", *, what: str | None = None) -> None:
        super().__init__(message)
        self.what = what


@public("redouble.llm")
class SpendRefused(Rejected):
    """Rejected: the `Spend` has too little left of ``what``: ``tokens``, ``cost`` or ``requests``."""

    def __init__(
        self, message: str = "", *, what: str | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(message, retry_after=retry_after)
        self.what = what
