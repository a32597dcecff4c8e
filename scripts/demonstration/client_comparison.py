"""Part one of the demonstration: the same calls to a flaky service, by three clients."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from threading import Thread
from typing import NamedTuple

from demonstration.bar_chart import bars, counts
from demonstration.fetchers import as_asked, by_hand, fetch, plainly, seeded_fetch
from demonstration.flaky_service import FlakyService, ServedRequest
from demonstration.http_client import UnavailableError
from demonstration.screen import Screen
from demonstration.seeded_random import current_call
from demonstration.styled_text import Line, Span, line
from demonstration.timeline import LEGEND, Call, row

HORIZON = 2.6  # seconds that a timeline covers
STEP = 0.1  # seconds of load in one bar
MOST_BARS = 48
BETWEEN_FRAMES = 0.05


class Client(NamedTuple):
    """A client of the service, and the functions whose source is shown."""

    name: str
    ask: Callable[[int, str], bytes]
    sources: tuple[Callable[..., object], ...] = ()


class ClientResult(NamedTuple):
    """The calls of one client, and the requests that the service received."""

    name: str
    calls: int
    succeeded: int
    requests: Sequence[ServedRequest]


CLIENTS = (
    Client("plain", plainly),
    Client("by hand", by_hand, (by_hand,)),
    Client("Redouble", seeded_fetch, (as_asked, fetch)),
)


def compare_clients(screen: Screen, calls: int, pace: float) -> None:
    """Run and print part one."""
    screen.heading(f"{calls} calls at once to a flaky service")
    screen.show("A timeline per call: what the service saw of it.", LEGEND)
    client_results: list[ClientResult] = []
    for client in CLIENTS:
        screen.show("", line(Span(client.name, "bold")))
        for source in client.sources:
            screen.code(inspect.getsource(source))
        client_results.append(_run_client(screen, client, calls, pace))
    screen.show(
        "", line(Span(f"Requests at the service, per {STEP * 1000:.0f} ms", "bold")), *load(client_results)
    )
    screen.show("", *results(client_results))


def load(client_results: Sequence[ClientResult]) -> list[Line]:
    """Draw the request rate of each client, all to one scale."""
    longest = max(served.started for each in client_results for served in each.requests)
    loads = [
        counts((served.started for served in each.requests), STEP, min(MOST_BARS, int(longest / STEP) + 1))
        for each in client_results
    ]
    highest = max(max(each) for each in loads)
    return [
        line(f"{each.name:<9}", Span(bars(load, highest), "cyan"))
        for each, load in zip(client_results, loads, strict=True)
    ]


def results(client_results: Sequence[ClientResult]) -> list[Line]:
    """Return one line per client: successful calls and requests."""
    lines: list[Line] = []
    for client, calls, succeeded, requests in client_results:
        early = sum(request.early for request in requests)
        ok = Span(f"{succeeded:>2} of {calls} ok", "green" if succeeded == calls else "red")
        too_early = Span(f", {early} of them too early" if early else "", "yellow")
        lines.append(line(f"{client:<9}", ok, f", {len(requests)} requests", too_early))
    return lines


def _run_client(screen: Screen, client: Client, count: int, pace: float) -> ClientResult:
    """Make all calls concurrently, and draw them until all have ended."""
    calls = [Call(f"call {number}", f"/call/{number}") for number in range(1, count + 1)]
    with FlakyService(pace) as service:

        def frame() -> list[Line]:
            served, now = list(service.requests), service.now()
            own = {call.path: [one for one in served if one.path == call.path] for call in calls}
            return [row(call, own[call.path], now, HORIZON * pace, screen.width) for call in calls]

        # Daemon threads: Ctrl-C does not wait for the calls in flight.
        threads = [Thread(target=_call, args=(client, service, call), daemon=True) for call in calls]
        for thread in threads:
            thread.start()
        while under_way := [thread for thread in threads if thread.is_alive()]:
            screen.frame(frame())
            under_way[0].join(BETWEEN_FRAMES)
        screen.settle(frame())
        return ClientResult(client.name, count, sum(call.word == "ok" for call in calls), service.requests)


def _call(client: Client, service: FlakyService, call: Call) -> None:
    current_call.set(call.name)
    try:
        client.ask(service.port, call.path)
    except UnavailableError:
        call.word = "503"
    except ConnectionResetError:
        call.word = "reset"
    except OSError as error:
        call.word = type(error).__name__
    else:
        call.word = "ok"
    call.ended = service.now()
