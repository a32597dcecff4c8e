"""Scripts of calls through a circuit breaker, interruptions of them, and the shapes of a call."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Callable, Generator
from functools import partial
from itertools import count
from types import FrameType
from typing import Any

from redouble import CircuitBreaker, errors
from redouble._internal import reentrancy, sliding_counter
from redouble._layers import gate
from redouble._layers.breaker import call_window, circuit, circuit_breaker, cooldown, state_epoch
from redouble._layers.breaker.state_epoch import Ticket
from redouble._runtime.backend import backend
from redouble.types import Event
from tests.support.fakes import Boom, Draws, Panic, Virtual, in_colour

ENDS: dict[str, BaseException | None] = {
    "good": None,
    "bad": Boom(),
    "cancelled": Panic(),
    "refused": errors.Rejected("further in"),
}


class BreakerScript:
    """A breaker that is driven by scripts: one word per step, and after a colon the expected state.

    ``good``, ``bad``, ``cancelled``, ``refused``: a call that ends at once. ``a>`` starts the call a, and
    ``a=bad`` ends it. ``+3`` moves the clock forwards, ``-3`` backwards. ``isolate``, ``close``,
    ``disable`` and ``metrics_only`` call these methods. The expected state may also be ``no``: the breaker
    rejects the call.
    """

    def __init__(self, *draws: float, start: float = 0.0, **options: object) -> None:
        self.clock = Virtual(start)
        self.chance = Draws(*(draws or (0.0,)))
        self.events: list[Event] = []
        arguments: dict[str, object] = {"on_change": self.events.append} | options
        self.breaker = CircuitBreaker(clock=self.clock, random=self.chance, **arguments)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        self._in_flight: dict[str, Ticket] = {}

    def run(self, script: str) -> None:
        """Run the steps of a script, and check the expected states."""
        for number, word in enumerate(script.split(), 1):
            step, _, expected = word.partition(":")
            found = self._state_after(step)
            assert expected in ("", found), f"word {number} of the script is {word}, and it is {found}"

    def _state_after(self, step: str) -> str:
        try:
            self._step(step)
        except errors.CircuitOpen:
            return "no"
        return self.breaker.state

    def _step(self, step: str) -> None:
        breaker, clock = self.breaker, self.clock
        if step[0] in "+-":
            clock.time += float(step)
        elif step == "isolate":
            breaker.isolate()
        elif step == "close":
            breaker.close()
        elif step == "disable":
            breaker.disable()
        elif step == "metrics_only":
            breaker.metrics_only()
        elif step.endswith(">"):
            self._in_flight[step[:-1]] = breaker.admit(clock.now())
        elif "=" in step:
            name, _, end = step.partition("=")
            breaker.ended(self._in_flight.pop(name), ENDS[end], clock.now())
        else:
            breaker.ended(breaker.admit(clock.now()), ENDS[step], clock.now())

    @property
    def emitted(self) -> str:
        """The names of the emitted events, in one line."""
        return " ".join(event.what.removeprefix("circuit_") for event in self.events)


# ------------------------------------------------------------------------- interruptions


class Interruption:
    """Runs an action at the n-th line of the breaker's code, like a signal handler or a finaliser."""

    def __init__(self, line: int, action: Callable[[], object]) -> None:
        self.left, self.action = line, action

    def __call__(self, frame: FrameType, what: str, _: object) -> Any:
        if frame.f_code.co_filename not in FILES:
            return None
        if what == "line":
            self.left -= 1
            if not self.left:
                sys.settrace(None)
                self.action()
        return self


MODULES = (circuit_breaker, circuit, state_epoch, cooldown, call_window, gate, reentrancy, sliding_counter)
FILES = {module.__file__ for module in MODULES}


def at_every_line(
    make: Callable[[], BreakerScript],
    call: Callable[[BreakerScript], object],
    action: Callable[[BreakerScript], object],
) -> list[BreakerScript]:
    """Repeat a call for each line of the breaker's code that it runs, with the action at that line."""
    seen: list[BreakerScript] = []
    for line in count(1):
        script = make()
        interruption = Interruption(line, partial(action, script))
        before = sys.gettrace()
        sys.settrace(interruption)
        try:
            call(script)
        finally:
            sys.settrace(before)
        if interruption.left > 0:
            assert seen, "no code of the breaker has run"
            return seen
        seen.append(script)
    return seen


def after_script(words: str, **options: Any) -> Callable[[], BreakerScript]:
    def make() -> BreakerScript:
        made = BreakerScript(**options)
        made.run(words)
        return made

    return make


# ------------------------------------------------------------------------------- shapes


class Service:
    """A service that fails while it is down."""

    def __init__(self) -> None:
        self.down: BaseException | None = None
        self.calls = 0

    def __call__(self, item: int = 0, *, scale: int = 1) -> int:
        self.calls += 1
        if self.down is not None:
            raise self.down
        return item * scale

    async def acall(self, item: int = 0, *, scale: int = 1) -> int:
        await backend().sleep(0)
        return self(item, scale=scale)


def block(breaker: CircuitBreaker, service: Service) -> int:
    with breaker:
        return service(2, scale=3)


async def ablock(breaker: CircuitBreaker, service: Service) -> int:
    async with breaker:
        return await service.acall(2, scale=3)


async def amixed(breaker: CircuitBreaker, service: Service) -> int:
    with breaker:
        return await service.acall(2, scale=3)


def method(breaker: CircuitBreaker, service: Service) -> int:
    class Client:
        @breaker
        def get(self, item: int, *, scale: int = 3) -> int:
            return service(item, scale=scale)

    return Client().get(2)


async def amethod(breaker: CircuitBreaker, service: Service) -> int:
    class Client:
        @classmethod
        @breaker
        async def get(cls, item: int, *, scale: int = 3) -> int:
            return await service.acall(item, scale=scale)

    return await Client.get(2)


def generator(breaker: CircuitBreaker, service: Service) -> int:
    @breaker
    def items() -> Generator[int]:
        yield service(2, scale=3)

    return sum(items())


async def agenerator(breaker: CircuitBreaker, service: Service) -> int:
    @breaker
    async def items() -> AsyncGenerator[int]:
        yield await service.acall(2, scale=3)

    return sum([item async for item in items()])


Shape = Callable[[CircuitBreaker, Service], Any]
SHAPES: dict[str, tuple[Shape, Shape]] = {
    "call": (lambda b, s: b.call(s, 2, scale=3), lambda b, s: b.call(s.acall, 2, scale=3)),
    "decorator": (lambda b, s: b(s.__call__)(2, scale=3), lambda b, s: b(s.acall)(2, scale=3)),
    "method": (method, amethod),
    "block": (block, ablock),
    "mixed": (block, amixed),
    "stream": (generator, agenerator),
}


WAITING_SHAPES = [shape for shape in SHAPES if shape != "mixed"]  # `with` never waits in async code


def result_of(colour: str, shape: str, gate: Any, service: Service) -> Any:
    """Make one call through a gate of any type; return its value or its error."""
    blocking, waiting = SHAPES[shape]

    async def main() -> Any:
        return await waiting(gate, service)

    try:
        return in_colour(colour, lambda: blocking(gate, service), main)
    except BaseException as error:
        return error


def outcome_of(colour: str, shape: str, breaker: CircuitBreaker, service: Service) -> Any:
    """Make one call; return its value, its error, or ``no`` if it was rejected."""
    blocking, waiting = SHAPES[shape]

    async def main() -> Any:
        return await waiting(breaker, service)

    try:
        return in_colour(colour, lambda: blocking(breaker, service), main)
    except errors.CircuitOpen:
        return "no"
    except BaseException as error:
        return error
