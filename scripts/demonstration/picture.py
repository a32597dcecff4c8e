"""The picture of a brownout: what was asked of a service and what it answered, over time, for every way.

Nothing here knows what time it is, or prints.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from demonstration.bars import bars, counts, storeys
from demonstration.ink import Ink, Line, line
from demonstration.verdict import Placed, answered_at, judge, percent
from demonstration.weather import Weather

NAME, TAIL = 13, 6  # columns: what a row shows, its latest value


class Measured(NamedTuple):
    """One way to call, when its requests reached the service, and what became of its calls."""

    name: str
    arrived: list[float]
    calls: list[Placed]


def picture(runs: Sequence[Measured], weather: Weather, now: float, width: int) -> list[Line]:
    """Draw all runs as they are now, under one ruler; once it is over, with a verdict each."""
    columns = max(10, width - NAME - TAIL)
    lines = [ruler(weather, columns)]
    for run in runs:
        name, *rows = chart(run, weather, now, columns)
        if now < weather.end:
            lines += [name, *rows]
            continue
        verdict = judge(run.calls, weather)
        before = Ink(f"{percent(verdict.before)} answered before the brownout", "dim")
        said = Ink(f"  {verdict}", "red" if verdict.after is None else "green")
        lines += [(Ink(f"{run.name:<24}", "bold"), before), *rows, line(said)]
    return lines


def ruler(weather: Weather, columns: int) -> Line:
    """Show how much time there is, and where in it the brownout is."""
    begin, over = (round(moment / weather.end * columns) for moment in (weather.calm, weather.over))
    inside = max(0, over - begin - 2)
    word = next((w for w in (f"brownout: {weather.browned:g}/s", "brownout") if len(w) <= inside), "")
    end = f"{weather.end:g} s"
    return line(
        " " * NAME,
        f"{'0 s':<{begin}}",
        Ink(f"├{word:─^{inside}}┤", "yellow"),
        f"{end:>{max(1, columns - begin - inside - 2)}}",
    )


def chart(run: Measured, weather: Weather, now: float, columns: int) -> list[Line]:
    """Draw one run: what was asked, in two storeys, the upper beyond all capacity; and what was answered."""
    step = weather.end / columns
    known = min(columns, int(now / step + 1e-9))  # a column that is not over yet would look like a dip
    asked, answered = (
        [count / step for count in counts(moments, step, columns)[:known]]
        for moments in (run.arrived, answered_at(run.calls))
    )
    upper, lower = storeys(asked, weather.capacity)
    return [
        line(Ink(run.name, "bold")),
        _row(f"over {weather.capacity:g}/s", Ink(upper, "red"), "", columns),
        _row("asked", Ink(lower, "cyan"), _latest(asked), columns),
        _row("answered", Ink(bars(answered, weather.calls), "green"), _latest(answered), columns),
    ]


def _row(name: str, drawn: Ink, latest: str, columns: int) -> Line:
    rest = f"{'':<{columns - len(drawn.text)}}{latest:>{TAIL}}"
    return line(Ink(f"  {name:<{NAME - 2}}", "dim"), drawn, rest)


def _latest(rates: Sequence[float]) -> str:
    """Tell the rate of late: the mean of some columns, or the number would flicker."""
    late = rates[-5:]
    return f"{sum(late) / len(late):.0f}/s" if late else ""
