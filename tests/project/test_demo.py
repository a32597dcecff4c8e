"""The demonstration: its drawings, its conclusions, and real runs on terminals and pipes.

Drawings and conclusions are checked as tables, without a clock. One quick run is real; its assertions do not
depend on the speed of the machine.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from os import terminal_size
from pathlib import Path
from subprocess import PIPE

import pytest

sys.path.append(str(Path(__file__).parents[2] / "scripts"))

from demonstration.bar_chart import bars, counts, stacked_bars
from demonstration.brownout_chart import Measured, picture, ruler
from demonstration.client_comparison import ClientResult, load, results
from demonstration.flaky_service import (
    Behaviour,
    Busy,
    FlakyService,
    Resets,
    ServedRequest,
    Works,
    behaviours_of,
)
from demonstration.recovery import PlacedCall, measure_recovery
from demonstration.scenario import Scenario
from demonstration.screen import HIDE_CURSOR, SHOW_CURSOR, Screen
from demonstration.styled_text import ASCII, GLYPHS, Line, Span, cut, line, plain, with_ansi_colours
from demonstration.timeline import NAME, TAIL, Call, row

pytestmark = pytest.mark.one_python

DEMO = Path(__file__).parents[2] / "scripts" / "demo.py"
OK, RESET, BUSY = Works(0.1), Resets(), Busy(0.5)


# ------------------------------------------------------------------------------- blocks


@pytest.mark.parametrize(
    ("values", "full", "drawn"),
    [
        ([], 8, ""),
        ([0, 1, 2, 3, 4, 5, 6, 7, 8], 8, " ▁▂▃▄▅▆▇█"),
        ([0, 0.01, 100], 8, " ▁█"),  # at least one block for a small value, at most one for a large value
        ([-3, 30, 60], 60, " ▄█"),
    ],
)
def test_values_are_drawn_as_blocks(values: list[float], full: float, drawn: str) -> None:
    assert bars(values, full) == drawn


def test_the_upper_row_starts_where_the_lower_is_full() -> None:
    assert stacked_bars([0, 60, 120, 180, 240, 999], 120) == ("   ▄██", " ▄████")


def test_moments_are_counted_in_steps() -> None:
    assert counts([-0.1, 0, 0.09, 0.1, 0.35, 0.4, 9], 0.1, 4) == [2, 1, 0, 1]


# -------------------------------------------------------------------------- styled text


def test_a_line_is_truncated_coloured_and_plain() -> None:
    drawn = line("ab", Span("cd", "red"), Span("ef  "))
    assert plain(drawn) == "abcdef"
    assert with_ansi_colours(drawn) == "ab\033[31mcd\033[0mef  "
    assert [plain(cut(drawn, width)) for width in range(-1, 8)] == [
        "", "", "a", "ab", "abc", "abcd", "abcde", "abcdef", "abcdef"
    ]  # fmt: skip


def test_every_glyph_has_an_ascii_replacement() -> None:
    assert len(GLYPHS.translate(ASCII)) == len(GLYPHS)
    assert GLYPHS.translate(ASCII).isascii()
    drawn = "█✓ █✗ █! ·· ──".translate(ASCII)
    assert drawn == "#o #x #! .. --"


# ---------------------------------------------------------------------------- timelines


def served(started: float, ended: float | None, behaviour: Behaviour) -> ServedRequest:
    return ServedRequest("/", started, behaviour, ended=ended)


@pytest.mark.parametrize(
    ("requests", "ended", "now", "drawn", "text"),
    [
        # ten cells for a second
        ([], None, 0.5, "", ""),
        ([served(0, None, OK)], None, 0.0, "█", ""),
        ([served(0, None, OK)], None, 0.4, "████", ""),
        ([served(0, 0.4, OK)], 0.4, 0.9, "███✓", "ok    1 attempt    0.4 s"),
        ([served(0.2, 0.4, OK)], 0.4, 0.9, "  █✓", "ok    1 attempt    0.4 s"),
        ([served(0, 0.001, RESET)], 0.001, 0.9, "✗", "oh    1 attempt    0.0 s"),
        # waits, with and without a Retry-After
        ([served(0, 0.1, RESET)], None, 0.55, "✗····", ""),
        ([served(0, 0.1, BUSY)], None, 0.45, "!···", ""),
        ([served(0, 0.1, BUSY), served(0.45, None, OK)], None, 0.65, "!···██", ""),  # too early
        ([served(0, 0.1, BUSY), served(0.65, None, OK)], None, 0.85, "!─────██", ""),  # after the Retry-After
        ([served(0, 0.1, RESET), served(0.25, 0.45, BUSY)], 0.66, 9, "✗·█!", "oh    2 attempts   0.7 s"),
        # attempts without a delay are adjacent, and a long call is truncated
        ([served(0, 0.01, RESET), served(0.02, 0.03, RESET), served(0.04, None, OK)], None, 0.1, "✗✗█", ""),
        ([served(0, 2.5, OK)], 2.5, 2.5, "█████████>", "ok    1 attempt    2.5 s"),
        ([served(0, 0.1, RESET)], None, 7.0, "✗········>", ""),
    ],
)
def test_a_timeline_shows_a_call_at_the_current_time(
    requests: list[ServedRequest], ended: float | None, now: float, drawn: str, text: str
) -> None:
    call = Call("call 7", "/", ended, text[:2])
    shown = plain(row(call, requests, now, horizon=1.0, width=NAME + 10 + TAIL))
    assert shown == f"call 7   {drawn:<10}  {text}".rstrip()


def test_a_narrow_terminal_gets_a_short_bar() -> None:
    drawn = row(Call("call 1", "/", 0.5, "ok"), [served(0, 0.5, OK)], 0.5, horizon=1.0, width=10)
    assert plain(drawn) == "call 1   ███✓      ok    1 attempt    0.5 s"


def test_load_is_drawn_to_one_scale_and_results_in_words() -> None:
    early = ServedRequest("/", 0.15, BUSY, early=True)
    client_results = [
        ClientResult("plain", 2, 1, [served(0, 0.1, OK), served(0, 0.1, RESET)]),
        ClientResult("by hand", 2, 2, [served(0, 0.1, OK)] * 8 + [early] + [served(0.31, 0.4, OK)] * 4),
    ]
    assert [plain(each) for each in load(client_results)] == ["plain    ▂", "by hand  █▁ ▄"]
    assert [plain(each) for each in results(client_results)] == [
        "plain     1 of 2 ok, 2 requests",
        "by hand   2 of 2 ok, 13 requests, 1 of them too early",
    ]


# -------------------------------------------------------------------- the flaky service


class Stopped(FlakyService):
    """A service with a clock that the test sets."""

    moment = 0.0

    def now(self) -> float:
        return self.moment


def test_behaviours_depend_on_the_path_alone() -> None:
    one, other = behaviours_of("/call/1", 1.0), behaviours_of("/call/1", 1.0)
    first = [next(one) for _ in range(50)]
    assert first == [next(other) for _ in range(50)]
    assert {type(behaviour) for behaviour in first} == {Works, Resets, Busy}
    third = behaviours_of("/call/2", 1.0)
    assert first != [next(third) for _ in range(50)]


def test_an_early_request_gets_another_503_and_consumes_no_behaviour() -> None:
    service = Stopped()
    try:
        asked = service.begin_request("/maintenance")
        service.mark_busy(asked, 600)
        service.moment = 100.0
        again = service.begin_request("/maintenance")
        service.moment = 101.0
        service.mark_busy(again, 500)  # does not extend the busy time
        service.moment = 600.0
        in_time = service.begin_request("/maintenance")
        assert [(each.behaviour, each.early) for each in (asked, again, in_time)] == [
            (Busy(600), False), (Busy(500), True), (Busy(600), False)
        ]  # fmt: skip
        assert service.requests == [asked, again, in_time]
    finally:
        service.server_close()


# ------------------------------------------------------------------------- the recovery

SCENARIO = Scenario(calm=2, brownout=3, watched=5, calls=20, client_timeout=0.5)  # ends at 10
NEVER = "never recovered: {} % of normal when we stopped watching"


def answered(*stretches: tuple[float, float], every: int = 1) -> list[PlacedCall]:
    """Return calls placed at a constant rate; in the given stretches every ``every``-th call is answered."""
    calls = [PlacedCall((number + 0.5) / 20) for number in range(200)]
    for call in calls[::every]:
        if any(since <= call.began < until for since, until in stretches):
            call.answered = call.began
    return calls


@pytest.mark.parametrize(
    ("calls", "text"),
    [
        (answered((0, 10)), "recovered as soon as the brownout ended"),
        (answered((0, 2), (5, 10)), "recovered as soon as the brownout ended"),
        (answered((0, 2), (6, 10)), "recovered 0.8 s after the brownout ended"),  # 80 % answered are enough
        (answered((0, 2), (9, 10)), "recovered 3.8 s after the brownout ended"),
        (answered((0, 2), (5, 6), (8, 10)), "recovered 2.8 s after the brownout ended"),  # after a relapse
        (answered((0, 2), (9.5, 10)), NEVER.format(50)),
        (answered((0, 2), (5, 9)), NEVER.format(0)),
        (answered((0, 2)), NEVER.format(0)),
        (answered((0, 2)) + answered((5, 10), every=10), NEVER.format(10)),
        (answered((5, 10)), NEVER.format(0)),  # no call was answered before the brownout
        ([], NEVER.format(0)),
    ],
)
def test_recovery_is_computed_from_the_answered_calls(calls: list[PlacedCall], text: str) -> None:
    assert str(measure_recovery(calls, SCENARIO)) == text


def test_the_share_before_the_brownout_ignores_calls_that_reached_into_it() -> None:
    assert measure_recovery(answered((0, 1.5)), SCENARIO).before == 1.0
    assert measure_recovery(answered((0, 1.2)), SCENARIO).before == pytest.approx(0.8)
    assert measure_recovery([], SCENARIO).before == 0.0


def test_a_short_scenario_is_measured_in_shorter_intervals() -> None:
    short = Scenario(calm=2, brownout=3, watched=1, calls=20)
    calls = [call for call in answered((0, 2), (5.5, 6)) if call.began < 6]
    assert [round(number or 0, 2) for number in measure_recovery(calls, short)] == [1.0, 0.4, 1.0]


# ---------------------------------------------------------------------------- the chart


def test_the_ruler_omits_words_that_do_not_fit() -> None:
    scenario = Scenario(calm=2, brownout=3, watched=5, brownout_capacity=24)
    assert [plain(ruler(scenario, columns)).strip() for columns in (60, 40, 20, 10)] == [
        "0 s         ├─brownout: 24/s─┤                          10 s",
        "0 s     ├─brownout─┤                10 s",
        "0 s ├────┤      10 s",
        "0 s├─┤ 10 s",
    ]


def calm_then_collapsed() -> Measured:
    """Return a run of 20 calls a second; from the third second on each has three attempts and no answer."""
    placed = answered((0, 2))
    retried = [call.began for call in placed for _ in range(3 if call.began >= 2 else 1)]
    return Measured("By hand", retried, placed)


@pytest.mark.parametrize(
    ("now", "drawn"),
    [
        (0.0, ["By hand", "  over 40/s", "  asked", "  answered"]),
        (
            5.9,  # a column is drawn when its time has passed
            [
                "By hand",
                "  over 40/s    ▄▄▄",
                "  asked      ▄▄███       44/s",
                "  answered   ██           8/s",
            ],
        ),
        (
            10.0,
            [
                "By hand                 100 % answered before the brownout",
                "  over 40/s    ▄▄▄▄▄▄▄▄",
                "  asked      ▄▄████████  60/s",
                "  answered   ██           0/s",
                "  never recovered: 0 % of normal when we stopped watching",
            ],
        ),
    ],
)
def test_a_chart_shows_a_run_at_the_current_time(now: float, drawn: list[str]) -> None:
    scenario = Scenario(
        calm=2, brownout=3, watched=5, calls=20, capacity=40, brownout_capacity=5, client_timeout=0.5
    )
    first, *rest = picture([calm_then_collapsed()], scenario, now, width=13 + 10 + 6)
    assert plain(first) == plain(ruler(scenario, 10))
    assert [plain(each) for each in rest] == drawn


def test_runs_are_drawn_below_each_other() -> None:
    drawn = picture([calm_then_collapsed()] * 4, SCENARIO, 10.0, width=79)
    assert len(drawn) == 1 + 4 * 5  # fits on a terminal of 24 lines
    assert max(len(plain(each)) for each in drawn) <= 79


# --------------------------------------------------------------------------- the screen


class Terminal(io.TextIOWrapper):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def printed(
    frames: Sequence[Sequence[Line]],
    environ: Mapping[str, str] | None = None,
    *,
    tty: bool = True,
    encoding: str = "utf-8",
    lines: int = 24,
) -> str:
    """Draw frames, settle the last one, and return the output."""
    raw = io.BytesIO()
    out = (Terminal if tty else io.TextIOWrapper)(raw, encoding=encoding, newline="\n")
    screen = Screen(out, environ or {}, lambda: terminal_size((20, lines)))
    for frame in frames[:-1]:
        screen.frame(frame)
    screen.settle(frames[-1])
    return raw.getvalue().decode(encoding)


FRAMES = [[line(Span("█", "green")), line("two")], [line(Span("██", "green")), line("two")]]


def test_on_a_terminal_each_frame_replaces_the_previous_one() -> None:
    assert printed(FRAMES) == (
        HIDE_CURSOR + "\033[32m█\033[0m\033[K\ntwo\033[K\n\033[J"
        + HIDE_CURSOR + "\033[2F\033[32m██\033[0m\033[K\ntwo\033[K\n\033[J"
        + SHOW_CURSOR
    )  # fmt: skip


@pytest.mark.parametrize("environ", [{"NO_COLOR": "1"}, {"NO_COLOR": "1", "TERM": "xterm"}])
def test_without_colour_frames_are_still_animated(environ: dict[str, str]) -> None:
    drawn = printed(FRAMES, environ)
    assert "\033[32m" not in drawn
    assert "\033[2F██\033[K\n" in drawn


@pytest.mark.parametrize(
    ("tty", "environ"), [(False, {}), (True, {"TERM": "dumb"}), (False, {"TERM": "xterm-256color"})]
)
def test_without_a_terminal_only_the_last_frame_is_printed(tty: bool, environ: dict[str, str]) -> None:
    assert printed(FRAMES, environ, tty=tty) == "██\ntwo\n"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_without_unicode_the_output_is_ascii(encoding: str) -> None:
    frames = [[line("█✓ █✗ ──·· é")]]
    assert printed(frames, tty=False, encoding=encoding) == "#o #x --.. ?\n"


def test_lines_and_frames_are_cut_to_the_size_of_the_terminal() -> None:
    long = [[line("x" * 99)] * 9] * 3
    drawn = printed(long, lines=4)
    assert drawn.count("x" * 19 + "\033[K\n") == 3 + 3 + 9
    assert "x" * 20 not in drawn
    assert drawn.count("\033[3F") == 2


def test_a_new_section_is_not_drawn_over_the_old_one() -> None:
    raw = io.BytesIO()
    screen = Screen(Terminal(raw, encoding="utf-8", newline="\n"), {}, lambda: terminal_size((80, 24)))
    screen.settle([line("one")])
    screen.heading("Two")
    screen.frame([line("three")])
    screen.restore()
    assert "\033[1F" not in raw.getvalue().decode()
    assert raw.getvalue().decode().endswith(f"three\033[K\n\033[J{SHOW_CURSOR}")


# ------------------------------------------------------------------------------- real runs


QUICKLY = [sys.executable, str(DEMO), "--quick"]
ENVIRON = {**os.environ, "COLUMNS": "80", "PYTHONIOENCODING": "utf-8"}
HELP = [sys.executable, str(DEMO), "--help"]


def test_a_pipe_gets_the_whole_output_as_plain_text() -> None:
    ran = subprocess.run(QUICKLY, env=ENVIRON, capture_output=True, encoding="utf-8", check=False)  # noqa: S603  ours
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "\033" not in ran.stdout
    assert "\r" not in ran.stdout
    lines = ran.stdout.splitlines()
    rows = [each[:6] for each in lines if each.startswith("call ")]
    assert rows == ["call 1", "call 2", "call 3", "call 4"] * 3
    assert [each.split()[0] for each in lines if " of 4 ok, " in each] == ["plain", "by", "Redouble"]
    assert "Redouble  4 of 4 ok, 11 requests" in lines
    assert sum(each.startswith("redouble: gave up after ") for each in lines) == 2
    assert sum(each.startswith("reason=") for each in lines) == 2
    assert "@redouble.retry(" in ran.stdout
    assert sum("answered before the brownout" in each for each in lines) == 4
    verdicts = [each for each in lines if each.startswith(("  recovered ", "  never recovered: "))]
    assert len(verdicts) == 4
    assert all(len(each) < 80 for each in lines if "gave up" not in each and "Error: " not in each)


def test_a_reader_that_closes_the_pipe_early_causes_no_error() -> None:
    with subprocess.Popen(QUICKLY, env=ENVIRON, stdout=PIPE, stderr=PIPE) as process:  # noqa: S603  ours
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0


def test_help_describes_the_demonstration() -> None:
    ran = subprocess.run(HELP, capture_output=True, encoding="utf-8", check=True)  # noqa: S603  ours
    assert ran.stdout.startswith("usage: scripts/demo [-h] [--quick]\n")
