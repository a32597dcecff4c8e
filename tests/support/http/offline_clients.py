"""Clients without a network: a script determines the result of each attempt."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter
from typing import Any

from redouble import Layer, Retry, remaining
from redouble._clients.client_call import ClientCall
from redouble._clients.idempotency_key import Keys
from redouble._runtime.backend import backend
from redouble.http._exchange import Exchange
from redouble.http._plan import HttpPlan, http_plan
from redouble.http._request_body import Rewind, nothing_to_rewind
from redouble.http._request_options import NO_OPTIONS, RequestOptions, request_options
from redouble.http._sender import SenderState
from tests.support.fakes import ASYNC, Boom, in_colour

NO_DELAYS = [0] * 99


def new_call() -> ClientCall:
    """Return a call that may always be resent."""
    call = ClientCall(None, float)
    call.request = None
    return call


class RecordingSender:
    """The send function of a client, which records each call and returns "x"."""

    def __init__(self, *, fails: int = 0) -> None:
        self.fails = fails
        self.sent: list[object] = []
        self.time_left: list[float | None] = []

    def send(self, exchange: object) -> object:
        self.sent.append(exchange)
        self.time_left.append(remaining())
        if len(self.sent) <= self.fails:
            raise Boom(str(len(self.sent)))
        return "x"

    async def asend(self, exchange: object) -> object:
        await backend().sleep(0)
        return self.send(exchange)

    def plan(self, policy: Layer | None, *, aio: bool = False, name: str = "client") -> HttpPlan:
        return http_plan(policy, name, self.asend if aio else self.send, aio=aio)

    def call(self, colour: str, policy: Layer | None, host: str = "a") -> object:
        """Send one exchange with a new plan."""
        plan = self.plan(policy, aio=colour in ASYNC)
        return in_colour(
            colour, lambda: plan.call_for(host)(new_call()), lambda: plan.call_for(host)(new_call())
        )


def retrying(**options: Any) -> Retry:
    arguments: dict[str, Any] = {"on": Boom, "backoff": NO_DELAYS, "nested": "allow"}
    return Retry(**arguments | options)


@dataclass(eq=False)
class Request:
    """The attributes of a client's request that an exchange needs."""

    method: str = "GET"
    headers: dict[str, str] = field(default_factory=dict[str, str])
    body: Rewind = nothing_to_rewind
    options: dict[str, Any] = field(default_factory=dict[str, Any])


class Answer:
    """A response, which is stamped with the record of its call."""

    exchange: Exchange

    def __init__(self, status: int = 200) -> None:
        self.status = status


class StatusError(Exception):
    """The error for a failed response."""

    def __init__(self, status: int) -> None:
        super().__init__(f"{status} no")
        self.status_code = status


class ClientTimeout(Exception):
    """The client library's own timeout error."""


class OfflineSender(SenderState):
    """The part of a sender that creates exchanges."""

    _status_of = attrgetter("status")
    _timeout_error = ClientTimeout

    def __init__(self, policy: Layer | None, idempotency: Keys, attempt: Any, *, aio: bool) -> None:
        self._aio, self._attempt = aio, attempt
        super().__init__("client", policy, idempotency)

    def _body_of(self, request: Request) -> Rewind:
        return request.body

    def _options_of(self, request: Request) -> RequestOptions:
        return request_options(request.options) if request.options else NO_OPTIONS

    def _host_of(self, request: Request) -> str:
        del request
        return "host"

    _host_key = _host_of

    def begin_exchange(self, request: Request) -> Exchange:
        """Create the exchange of a request under the policy in force."""
        return self._begin_exchange(self._binding.current, request, None)


class Client:
    """A client that sends nothing: a script determines the result of each attempt."""

    def __init__(self, policy: Layer, *script: int | Exception, colour: str = "sync", **options: Any) -> None:
        self.colour = colour
        aio = colour in ASYNC
        keys: Keys = options.get("idempotency")
        self.sender = OfflineSender(policy, keys, self._asend if aio else self._send, aio=aio)
        self.script = list(script)
        self.sent: list[Request] = []

    def request(
        self,
        method: str = "GET",
        source: Rewind = nothing_to_rewind,
        *,
        broken: Sequence[Exception] = (),
        **options: Any,
    ) -> Any:
        """Send a request under the policy, and return the response or raise.

        broken: errors with which the bodies of successive responses fail; each restarts the call.
        """
        request = Request(method, options.pop("headers", {}), source, options)

        def blocking() -> Any:
            exchange: Any = self.sender.begin_exchange(request)
            for error in chain((None,), broken):
                with finishing(exchange) as answers:
                    answers.append(exchange.call(exchange) if error is None else again(exchange, error))
            return exchange.given

        async def waiting() -> Any:
            exchange: Any = self.sender.begin_exchange(request)
            for error in chain((None,), broken):
                with finishing(exchange) as answers:
                    answers.append(
                        await (exchange.call(exchange) if error is None else again(exchange, error))
                    )
            return exchange.given

        return in_colour(self.colour, blocking, waiting)

    def _send(self, exchange: Exchange) -> Answer:
        exchange.begin_attempt()
        self.sent.append(exchange.request)
        step = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(step, Exception):
            raise exchange.record_failure(step)
        answer = Answer(step)
        if exchange.plan.fails(step, {}):
            raise exchange.record_failure(StatusError(step), answer)
        exchange.record_success(answer)
        return answer

    async def _asend(self, exchange: Exchange) -> Answer:
        await backend().sleep(0)
        return self._send(exchange)


def again(exchange: Exchange, error: Exception) -> Any:
    """Continue a call whose body failed; in async code, return an awaitable."""
    exchange.record_failure(error)
    return exchange.begin_again()


@contextmanager
def finishing(exchange: Any) -> Generator[list[Answer]]:
    """Finish an exchange like all clients: stamp the response, or raise."""
    answers: list[Any] = []
    try:
        yield answers
    except Exception as error:
        answers = [exchange.final_response(error)]
        if answers[0] is None:
            raise
    exchange.finish(answers[0])
    answers[0].exchange, exchange.given = exchange, answers[0]
