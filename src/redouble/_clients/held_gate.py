"""Gates in the policy of a client: an admission ends with the body of the response, and not with its head.

A body may break after its head was returned, and it uses the service until it is complete. So a gate that
recorded a success with the head would miss the failure, and one that limits concurrency would admit too many.

A gate judges the response of an attempt by its ``until`` as soon as the head is there. A response that is a
failure of the server by its status reaches it as the library's own error, so ``on`` judges it too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

from redouble._engine.per_call import PerCall
from redouble._layers.gate import Admission, Gate, task_error
from redouble._layers.layer import Layer


class HeldAdmissions(dict["HeldGate", Admission]):
    """The admissions of one call, outermost first.

    If the caller drops the response, they end when it is freed. A client of httpx puts each response into a
    reference cycle, so that the cyclic collector frees it, at a later time.
    """

    def end(self, error: BaseException | None, *, attempt_only: bool = False) -> None:
        """End the admissions, innermost first; ``attempt_only``: those that a restart acquires again."""
        for gate in reversed([*self]):
            if gate.per_attempt or not attempt_only:
                self.end_one(gate, error)

    def end_one(self, gate: HeldGate, error: BaseException | None) -> None:
        """End the admission of one gate, if it has one."""
        admission = self.pop(gate, None)
        if admission is not None:
            admission.__exit__(None, error, None)

    def __del__(self) -> None:
        self.end(None)


class HoldingCall(Protocol):
    """A call of a client that holds admissions until its body has ended."""

    def admissions(self) -> HeldAdmissions:
        """Return the admissions that the call holds."""
        ...

    def is_unread(self, response: object, /) -> bool:
        """Return True if the body of a response is not there yet: its end will be recorded."""
        ...

    def failed_response(self, error: object, /) -> object:
        """Return the response that the error of the last attempt stands for, or None."""
        ...


def held_gate(layer: Layer, *, per_attempt: bool) -> HeldGate | None:
    """Return the held gate of a layer, or None for a layer that acts on the head alone."""
    kind = type(layer)
    if not isinstance(layer, Gate) or layer.ends_with_head:
        return None
    by_gate = kind.around is Gate.around and kind.around_async is Gate.around_async
    return HeldGate(layer, per_attempt=per_attempt) if by_gate else None


class HeldGate(Layer):
    """A gate whose admission the call keeps until the body has ended.

    per_attempt: True inside the outermost `Retry`: a broken body ends the admission as a failure, and the
        restart acquires another one. Outside, the admission continues during a restart.
    """

    def __init__(self, gate: Gate, *, per_attempt: bool) -> None:
        self._gate, self.per_attempt = gate, per_attempt
        self._evaluate = None if gate._per_call is None else gate._per_call.of_request().evaluate

    def around(self, fn: Callable[..., Any], /) -> Callable[..., Any]:
        """Return ``fn`` gated, for a plain function."""
        exception = sys.exception

        def gated(client_call: HoldingCall) -> Any:
            admissions = client_call.admissions()
            if not self._continues(admissions):
                options = None if self._evaluate is None else self._evaluate(client_call)
                # Registered before it is acquired, so that an interruption cannot lose it.
                admissions[self] = admission = Admission(self._gate, per_call=options)
                entered = False
                try:
                    admission.__enter__()
                    entered = True
                finally:
                    if not entered:
                        admissions.pop(self, None)  # rejected, or undone
            returned = False
            try:
                response = fn(client_call)
                self._judge(admissions, response)
                returned = True
            finally:
                if not returned:
                    admissions.end_one(self, self._failure(client_call, exception()))
            if not client_call.is_unread(response):
                admissions.end_one(self, None)
            return response

        return gated

    def around_async(self, fn: Callable[..., Any], /) -> Callable[..., Any]:
        """Return ``fn`` gated, for a coroutine function."""
        exception = task_error

        async def gated(client_call: HoldingCall) -> Any:
            admissions = client_call.admissions()
            if not self._continues(admissions):
                options = None if self._evaluate is None else self._evaluate(client_call)
                # Registered before it is acquired, so that an interruption cannot lose it.
                admissions[self] = admission = Admission(self._gate, per_call=options)
                entered = False
                try:
                    await admission.__aenter__()
                    entered = True
                finally:
                    if not entered:
                        admissions.pop(self, None)  # rejected, or undone
            returned = False
            try:
                response = await fn(client_call)
                self._judge(admissions, response)
                returned = True
            finally:
                if not returned:
                    admissions.end_one(self, self._failure(client_call, exception()))
            if not client_call.is_unread(response):
                admissions.end_one(self, None)
            return response

        return gated

    def _judge(self, admissions: HeldAdmissions, response: object) -> None:
        """Report a response that the gate refuses as a failure."""
        admission = admissions.get(self)
        if admission is not None:  # pragma: no branch  a body that ended early has ended it
            admission.judge(response)

    def _failure(self, client_call: HoldingCall, error: BaseException | None) -> BaseException | None:
        """Return the failure of a call: a refusal if the gate refuses the response of the error."""
        response = client_call.failed_response(error)
        if response is not None:
            with suppress(Exception):  # a rule that reads the body, which may not be there
                return self._gate.refusal(response) or error
        return error

    def _continues(self, admissions: HeldAdmissions) -> bool:
        """Return True if the call restarts inside this gate; end an admission of an earlier attempt."""
        if self in admissions and not self.per_attempt:
            return True
        admissions.end_one(self, None)
        return False


class RequestGate(Layer):
    """A gate of a client's policy whose admission ends with the head; its options get the request."""

    def __init__(self, gate: Gate, per_call: PerCall) -> None:
        self._gate, self._per_call = gate, per_call.of_request()

    def around(self, fn: Callable[..., Any], /) -> Callable[..., Any]:
        """Return ``fn`` gated, for a plain function."""
        return self._gate._gated(fn, self._per_call)

    def around_async(self, fn: Callable[..., Any], /) -> Callable[..., Any]:
        """Return ``fn`` gated, for a coroutine function."""
        return self._gate._gated_async(fn, self._per_call)


def request_gate(layer: Layer) -> Layer:
    """Return the layer for a client: a gate with functions of a call's arguments passes them the request."""
    if not isinstance(layer, Gate) or layer._per_call is None:
        return layer
    return RequestGate(layer, layer._per_call)
