"""The first story: the same calls to the same flaky service, plainly, by hand and with Redouble."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from threading import Thread
from typing import NamedTuple

from demonstration.bars import bars, counts
from demonstration.chance import current_call
from demonstration.clients import UnavailableError
from demonstration.ink import Ink, Line, line
from demonstration.screen import Screen
from demonstration.service import FlakyService, Seen
from demonstration.timeline import LEGEND, Call, row
from demonstration.ways import as_asked, by_hand, fetch, plainly, seeded_fetch

HORIZON = 2.6  # seconds a timeline has room for
STEP = 0.1  # seconds of load in one bar
MOST_BARS = 48
BETWEEN_FRAMES = 0.05


class Way(NamedTuple):
    """A way to call the service, and what is worth showing of its source."""

    name: str
    ask: Callable[[int, str], bytes]
    sources: tuple[Callable[..., object], ...] = ()


class Told(NamedTuple):
    """What came of one way."""

    name: str
    calls: int
    succeeded: int
    seen: Sequence[Seen]


WAYS = (
    Way("plain", plainly),
    Way("by hand", by_hand, (by_hand,)),
    Way("Redouble", seeded_fetch, (as_asked, fetch)),
)


def three_ways(screen: Screen, calls: int, pace: float) -> None:
    """Tell the first story."""
    screen.heading(f"{calls} calls at once to a flaky service")
    screen.say("A timeline per call: what the service saw of it.", LEGEND)
    told: list[Told] = []
    for way in WAYS:
        screen.say("", line(Ink(way.name, "bold")))
        for source in way.sources:
            screen.code(inspect.getsource(source))
        told.append(_tell(screen, way, calls, pace))
    screen.say("", line(Ink(f"Requests at the service, per {STEP * 1000:.0f} ms", "bold")), *load(told))
    screen.say("", *results(told))


def load(told: Sequence[Told]) -> list[Line]:
    """Draw what each way asked of the service, all to one scale."""
    longest = max(seen.started for each in told for seen in each.seen)
    loads = [
        counts((seen.started for seen in each.seen), STEP, min(MOST_BARS, int(longest / STEP) + 1))
        for each in told
    ]
    highest = max(max(each) for each in loads)
    return [
        line(f"{each.name:<9}", Ink(bars(load, highest), "cyan"))
        for each, load in zip(told, loads, strict=True)
    ]


def results(told: Sequence[Told]) -> list[Line]:
    """Say what each way got for that."""
    lines: list[Line] = []
    for way, calls, succeeded, seen in told:
        early = sum(request.early for request in seen)
        ok = Ink(f"{succeeded:>2} of {calls} ok", "green" if succeeded == calls else "red")
        too_early = Ink(f", {early} of them too early" if early else "", "yellow")
        lines.append(line(f"{way:<9}", ok, f", {len(seen)} requests", too_early))
    return lines


def _tell(screen: Screen, way: Way, count: int, pace: float) -> Told:
    """Make all the calls at the same time, and draw them until they have ended."""
    calls = [Call(f"call {number}", f"/call/{number}") for number in range(1, count + 1)]
    with FlakyService(pace) as service:

        def frame() -> list[Line]:
            seen, now = list(service.seen), service.now()
            own = {call.path: [one for one in seen if one.path == call.path] for call in calls}
            return [row(call, own[call.path], now, HORIZON * pace, screen.width) for call in calls]

        # Daemons: who presses Ctrl-C is not made to wait for calls nobody wants any more.
        threads = [Thread(target=_call, args=(way, service, call), daemon=True) for call in calls]
        for thread in threads:
            thread.start()
        while under_way := [thread for thread in threads if thread.is_alive()]:
            screen.frame(frame())
            under_way[0].join(BETWEEN_FRAMES)
        screen.settle(frame())
        return Told(way.name, count, sum(call.word == "ok" for call in calls), service.seen)


def _call(way: Way, service: FlakyService, call: Call) -> None:
    current_call.set(call.name)
    try:
        way.ask(service.port, call.path)
    except UnavailableError:
        call.word = "503"
    except ConnectionResetError:
        call.word = "reset"
    except OSError as error:
        call.word = type(error).__name__
    else:
        call.word = "ok"
    call.ended = service.now()
