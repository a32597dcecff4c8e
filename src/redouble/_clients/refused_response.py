"""Failed responses in the policy of a client, for a layer that acts on refused results.

A failed response reaches the layers as the library's own error. If the rules for errors do not name that, the
rule for results still decides, as it would in a function that returns the response.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from redouble._clients.client_call import ClientCall
from redouble._failures.verdict import FailureFilter, On, Refusal, Until
from redouble._layers.layer import Layer


class RefusedResponse(Layer):
    """Inside a layer with ``until``: turns the error of a response that ``until`` refuses into a refusal."""

    def __init__(self, on: On, until: Until) -> None:
        self._failures = FailureFilter(on, "RefusedResponse", until)

    def around(self, fn: Callable[..., Any], /) -> Callable[..., Any]:
        """Return ``fn`` with refusals, for a plain function."""

        def judged(client_call: ClientCall) -> Any:
            try:
                return fn(client_call)
            except Exception as error:
                refusal = self._refusal(client_call, error)
                if refusal is None:
                    raise
                raise refusal from error

        return judged

    def around_async(self, fn: Callable[..., Any], /) -> Callable[..., Any]:
        """Return ``fn`` with refusals, for a coroutine function."""

        async def judged(client_call: ClientCall) -> Any:
            try:
                return await fn(client_call)
            except Exception as error:
                refusal = self._refusal(client_call, error)
                if refusal is None:
                    raise
                raise refusal from error

        return judged

    def _refusal(self, client_call: ClientCall, error: Exception) -> Refusal | None:
        """Return the refusal of the response that an error stands for; None if the error counts itself."""
        response = client_call.failed_response(error)
        if response is not None and not self._failures.matches(error):
            with suppress(Exception):  # a rule that reads the body, which may not be there
                return self._failures.refusal(response)
        return None
