"""Keyed: two hosts, one of them down, with one breaker for both and with one for each."""

from __future__ import annotations

from typing import NamedTuple

from drawing.axis import Axis, plain
from drawing.canvas import Canvas
from drawing.legend import Entry, legend
from drawing.panel import Panel
from redouble import CircuitBreaker, Keyed, Layer, errors
from redouble.testing import virtual_time

END, STEP, FROM, TO = 40, 0.5, 8.0, 26.0  # seconds: in all, from call to call, and when host b is down
BREAKER = "CircuitBreaker(ratio=0.4, minimum=5, window=6, cooldown=6)"  # the label of what `breaker` makes
ROWS = {"shared a": 4.0, "shared b": 3.0, "keyed a": 1.5, "keyed b": 0.5}


class Measured(NamedTuple):
    """When calls of each host were answered, failed or were rejected."""

    answered: list[tuple[float, str]]
    failed: list[tuple[float, str]]
    refused: list[tuple[float, str]]


def host_of(host: str) -> str:
    """Return the key of a call."""
    return host


def breaker() -> CircuitBreaker:
    """Return a breaker that opens when four in ten calls fail."""
    return CircuitBreaker(ratio=0.4, minimum=5, window=6, cooldown=6)


def run(layer: Layer) -> Measured:
    """Call both hosts alternately."""
    measured = Measured([], [], [])
    with virtual_time() as clock:

        @layer
        def ask(host: str) -> None:
            if host == "b" and FROM <= clock.now() < TO:
                raise ConnectionError(host)

        for number in range(round(END / STEP)):
            host, now = "ab"[number % 2], clock.now()
            try:
                ask(host)
            except errors.CircuitOpen:
                measured.refused.append((now, host))
            except ConnectionError:
                measured.failed.append((now, host))
            else:
                measured.answered.append((now, host))
            clock.advance(STEP)
    return measured


def picture() -> str:
    """Draw a row for each host, two with a shared breaker above two with their own."""
    keyed = Keyed(host_of, breaker)
    canvas = Canvas(
        "Keyed: host b is down, and host a does not suffer for it",
        "Calls of two hosts in turn, while host b is down for 18 seconds. One breaker for both opens again "
        "and again, and refuses the calls of host a too. With one for each, all calls of host a pass.",
    )
    legend(
        canvas,
        Entry("answered", "blue", "dot"),
        Entry("failed", "orange", "cross"),
        Entry("refused by the breaker, not called", "grey", "ring"),
    )
    names = {height: f"host {name[-1]}" for name, height in ROWS.items()}
    panel = Panel(canvas, plain("time, in seconds", END, 5), Axis("", 0, 5.3, names))
    panel.band(FROM, TO, "host b is down")
    for place, layer, words, height in (
        ("shared", breaker(), f"{BREAKER}: one for both", 4.5),
        ("keyed", keyed, f"Keyed(host_of, lambda: {BREAKER}): one for each", 2.0),
    ):
        measured = run(layer)
        panel.note(0, height, words, "ink")
        panel.dots(rows(place, measured.answered), "blue", "dot")
        panel.dots(rows(place, measured.failed), "orange", "cross")
        panel.dots(rows(place, measured.refused), "grey", "ring")
    return canvas.svg()


def rows(place: str, calls: list[tuple[float, str]]) -> list[tuple[float, float]]:
    """Return the point of each call in the row of its host."""
    return [(now, ROWS[f"{place} {host}"]) for now, host in calls]
