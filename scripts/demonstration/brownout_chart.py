"""The chart of a brownout: requests received and calls answered over time, for each strategy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from demonstration.bar_chart import bars, counts, stacked_bars
from demonstration.recovery import PlacedCall, answered_at, measure_recovery, percent
from demonstration.scenario import Scenario
from demonstration.styled_text import Line, Span, line

NAME, TAIL = 13, 6  # columns: what a row shows, its latest value


class Measured(NamedTuple):
    """The run of one strategy: its name, the arrival times of its requests, and its calls."""

    name: str
    arrived: list[float]
    calls: list[PlacedCall]


def picture(runs: Sequence[Measured], scenario: Scenario, now: float, width: int) -> list[Line]:
    """Draw all runs up to ``now`` under one ruler; once the scenario has ended, with the recovery of each."""
    columns = max(10, width - NAME - TAIL)
    lines = [ruler(scenario, columns)]
    for run in runs:
        name, *rows = chart(run, scenario, now, columns)
        if now < scenario.end:
            lines += [name, *rows]
            continue
        recovered = measure_recovery(run.calls, scenario)
        before = Span(f"{percent(recovered.before)} answered before the brownout", "dim")
        text = Span(f"  {recovered}", "red" if recovered.after is None else "green")
        lines += [(Span(f"{run.name:<24}", "bold"), before), *rows, line(text)]
    return lines


def ruler(scenario: Scenario, columns: int) -> Line:
    """Draw the time axis with the brownout marked."""
    begin, over = (round(moment / scenario.end * columns) for moment in (scenario.calm, scenario.over))
    inside = max(0, over - begin - 2)
    word = next(
        (w for w in (f"brownout: {scenario.brownout_capacity:g}/s", "brownout") if len(w) <= inside), ""
    )
    end = f"{scenario.end:g} s"
    return line(
        " " * NAME,
        f"{'0 s':<{begin}}",
        Span(f"├{word:─^{inside}}┤", "yellow"),
        f"{end:>{max(1, columns - begin - inside - 2)}}",
    )


def chart(run: Measured, scenario: Scenario, now: float, columns: int) -> list[Line]:
    """Draw one run: requests in two rows, the upper one above the capacity; and answered calls."""
    step = scenario.end / columns
    known = min(columns, int(now / step + 1e-9))  # an incomplete column would look like a dip
    asked, answered = (
        [count / step for count in counts(moments, step, columns)[:known]]
        for moments in (run.arrived, answered_at(run.calls))
    )
    upper, lower = stacked_bars(asked, scenario.capacity)
    return [
        line(Span(run.name, "bold")),
        _row(f"over {scenario.capacity:g}/s", Span(upper, "red"), "", columns),
        _row("asked", Span(lower, "cyan"), _latest(asked), columns),
        _row("answered", Span(bars(answered, scenario.calls), "green"), _latest(answered), columns),
    ]


def _row(name: str, drawn: Span, latest: str, columns: int) -> Line:
    rest = f"{'':<{columns - len(drawn.text)}}{latest:>{TAIL}}"
    return line(Span(f"  {name:<{NAME - 2}}", "dim"), drawn, rest)


def _latest(rates: Sequence[float]) -> str:
    """Return the latest rate as the mean of the last five columns, since a single one would flicker."""
    late = rates[-5:]
    return f"{sum(late) / len(late):.0f}/s" if late else ""
