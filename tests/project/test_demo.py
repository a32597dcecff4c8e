"""The demonstration: what it draws, what it concludes, and that it runs wherever it may be run.

Drawings and verdicts are checked as tables, without time. Once, quickly, all of it is run for real; there it
must not matter how fast a machine is.
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

from demonstration.bars import bars, counts, storeys
from demonstration.ink import ASCII, GLYPHS, Ink, Line, cut, line, painted, plain
from demonstration.picture import Measured, picture, ruler
from demonstration.screen import HIDE_CURSOR, SHOW_CURSOR, Screen
from demonstration.service import Busy, FlakyService, Luck, Resets, Seen, Works, luck_of
from demonstration.three_ways import Told, load, results
from demonstration.timeline import NAME, TAIL, Call, row
from demonstration.verdict import Placed, judge
from demonstration.weather import Weather

pytestmark = pytest.mark.one_python

DEMO = Path(__file__).parents[2] / "scripts" / "demo.py"
OK, RESET, BUSY = Works(0.1), Resets(), Busy(0.5)


# ------------------------------------------------------------------------------- blocks


@pytest.mark.parametrize(
    ("values", "full", "drawn"),
    [
        ([], 8, ""),
        ([0, 1, 2, 3, 4, 5, 6, 7, 8], 8, " ▁▂▃▄▅▆▇█"),
        ([0, 0.01, 100], 8, " ▁█"),  # a little is seen, too much is cut
        ([-3, 30, 60], 60, " ▄█"),
    ],
)
def test_values_become_blocks(values: list[float], full: float, drawn: str) -> None:
    assert bars(values, full) == drawn


def test_two_storeys_carry_on_where_the_lower_is_full() -> None:
    assert storeys([0, 60, 120, 180, 240, 999], 120) == ("   ▄██", " ▄████")


def test_moments_are_counted_in_steps() -> None:
    assert counts([-0.1, 0, 0.09, 0.1, 0.35, 0.4, 9], 0.1, 4) == [2, 1, 0, 1]


# ---------------------------------------------------------------------------------- ink


def test_a_line_is_cut_painted_and_plain() -> None:
    drawn = line("ab", Ink("cd", "red"), Ink("ef  "))
    assert plain(drawn) == "abcdef"
    assert painted(drawn) == "ab\033[31mcd\033[0mef  "
    assert [plain(cut(drawn, width)) for width in range(-1, 8)] == [
        "", "", "a", "ab", "abc", "abcd", "abcde", "abcdef", "abcdef"
    ]  # fmt: skip


def test_every_glyph_has_a_plain_stand_in() -> None:
    assert len(GLYPHS.translate(ASCII)) == len(GLYPHS)
    assert GLYPHS.translate(ASCII).isascii()
    drawn = "█✓ █✗ █! ·· ──".translate(ASCII)
    assert drawn == "#o #x #! .. --"


# ---------------------------------------------------------------------------- timelines


def seen(started: float, ended: float | None, luck: Luck) -> Seen:
    return Seen("/", started, luck, ended=ended)


@pytest.mark.parametrize(
    ("requests", "ended", "now", "drawn", "said"),
    [
        # ten cells for a second
        ([], None, 0.5, "", ""),
        ([seen(0, None, OK)], None, 0.0, "█", ""),
        ([seen(0, None, OK)], None, 0.4, "████", ""),
        ([seen(0, 0.4, OK)], 0.4, 0.9, "███✓", "ok    1 attempt    0.4 s"),
        ([seen(0.2, 0.4, OK)], 0.4, 0.9, "  █✓", "ok    1 attempt    0.4 s"),
        ([seen(0, 0.001, RESET)], 0.001, 0.9, "✗", "oh    1 attempt    0.0 s"),
        # waiting, and what it was for
        ([seen(0, 0.1, RESET)], None, 0.55, "✗····", ""),
        ([seen(0, 0.1, BUSY)], None, 0.45, "!···", ""),
        ([seen(0, 0.1, BUSY), seen(0.45, None, OK)], None, 0.65, "!···██", ""),  # too early
        ([seen(0, 0.1, BUSY), seen(0.65, None, OK)], None, 0.85, "!─────██", ""),  # as asked
        ([seen(0, 0.1, RESET), seen(0.25, 0.45, BUSY)], 0.66, 9, "✗·█!", "oh    2 attempts   0.7 s"),
        # attempts that follow at once stand side by side, and a long story is cut
        ([seen(0, 0.01, RESET), seen(0.02, 0.03, RESET), seen(0.04, None, OK)], None, 0.1, "✗✗█", ""),
        ([seen(0, 2.5, OK)], 2.5, 2.5, "█████████>", "ok    1 attempt    2.5 s"),
        ([seen(0, 0.1, RESET)], None, 7.0, "✗········>", ""),
    ],
)
def test_a_call_is_drawn_as_it_is_now(
    requests: list[Seen], ended: float | None, now: float, drawn: str, said: str
) -> None:
    call = Call("call 7", "/", ended, said[:2])
    shown = plain(row(call, requests, now, horizon=1.0, width=NAME + 10 + TAIL))
    assert shown == f"call 7   {drawn:<10}  {said}".rstrip()


def test_a_narrow_terminal_gets_a_short_bar() -> None:
    drawn = row(Call("call 1", "/", 0.5, "ok"), [seen(0, 0.5, OK)], 0.5, horizon=1.0, width=10)
    assert plain(drawn) == "call 1   ███✓      ok    1 attempt    0.5 s"


def test_load_is_drawn_to_one_scale_and_results_in_words() -> None:
    early = Seen("/", 0.15, BUSY, early=True)
    told = [
        Told("plain", 2, 1, [seen(0, 0.1, OK), seen(0, 0.1, RESET)]),
        Told("by hand", 2, 2, [seen(0, 0.1, OK)] * 8 + [early] + [seen(0.31, 0.4, OK)] * 4),
    ]
    assert [plain(each) for each in load(told)] == ["plain    ▂", "by hand  █▁ ▄"]
    assert [plain(each) for each in results(told)] == [
        "plain     1 of 2 ok, 2 requests",
        "by hand   2 of 2 ok, 13 requests, 1 of them too early",
    ]


# -------------------------------------------------------------------- the flaky service


class Stopped(FlakyService):
    """A service whose clock stands where one puts it."""

    moment = 0.0

    def now(self) -> float:
        return self.moment


def test_luck_depends_on_the_path_alone() -> None:
    one, other = luck_of("/call/1", 1.0), luck_of("/call/1", 1.0)
    first = [next(one) for _ in range(50)]
    assert first == [next(other) for _ in range(50)]
    assert {type(luck) for luck in first} == {Works, Resets, Busy}
    third = luck_of("/call/2", 1.0)
    assert first != [next(third) for _ in range(50)]


def test_who_comes_too_early_is_told_again_and_costs_no_luck() -> None:
    service = Stopped()
    try:
        asked = service.meet("/maintenance")
        service.refused(asked, 600)
        service.moment = 100.0
        again = service.meet("/maintenance")
        service.moment = 101.0
        service.refused(again, 500)  # which does not begin to count anew
        service.moment = 600.0
        in_time = service.meet("/maintenance")
        assert [(each.luck, each.early) for each in (asked, again, in_time)] == [
            (Busy(600), False), (Busy(500), True), (Busy(600), False)
        ]  # fmt: skip
        assert service.seen == [asked, again, in_time]
    finally:
        service.server_close()


# ------------------------------------------------------------------------- the verdicts

WEATHER = Weather(calm=2, brownout=3, watched=5, calls=20, patience=0.5)  # ends at 10
NEVER = "never recovered: {} % of normal when we stopped watching"


def answered(*stretches: tuple[float, float], every: int = 1) -> list[Placed]:
    """Return calls placed all the time; in some stretches of it all are answered, or one in so many."""
    calls = [Placed((number + 0.5) / 20) for number in range(200)]
    for call in calls[::every]:
        if any(since <= call.began < until for since, until in stretches):
            call.answered = call.began
    return calls


@pytest.mark.parametrize(
    ("calls", "said"),
    [
        (answered((0, 10)), "recovered as soon as the brownout ended"),
        (answered((0, 2), (5, 10)), "recovered as soon as the brownout ended"),
        (answered((0, 2), (6, 10)), "recovered 0.8 s after the brownout ended"),  # four fifths are enough
        (answered((0, 2), (9, 10)), "recovered 3.8 s after the brownout ended"),
        (answered((0, 2), (5, 6), (8, 10)), "recovered 2.8 s after the brownout ended"),  # after a relapse
        (answered((0, 2), (9.5, 10)), NEVER.format(50)),
        (answered((0, 2), (5, 9)), NEVER.format(0)),
        (answered((0, 2)), NEVER.format(0)),
        (answered((0, 2)) + answered((5, 10), every=10), NEVER.format(10)),
        (answered((5, 10)), NEVER.format(0)),  # nothing was ever normal
        ([], NEVER.format(0)),
    ],
)
def test_a_verdict_is_computed_from_what_was_answered(calls: list[Placed], said: str) -> None:
    assert str(judge(calls, WEATHER)) == said


def test_calm_days_are_judged_by_the_calls_that_had_their_chance() -> None:
    """The calls that ran into the brownout say nothing about calm days."""
    assert judge(answered((0, 1.5)), WEATHER).before == 1.0
    assert judge(answered((0, 1.2)), WEATHER).before == pytest.approx(0.8)
    assert judge([], WEATHER).before == 0.0


def test_a_short_watch_is_judged_by_shorter_stretches() -> None:
    short = Weather(calm=2, brownout=3, watched=1, calls=20)
    calls = [call for call in answered((0, 2), (5.5, 6)) if call.began < 6]
    assert [round(number or 0, 2) for number in judge(calls, short)] == [1.0, 0.4, 1.0]


# -------------------------------------------------------------------------- the picture


def test_the_ruler_has_room_for_a_word_or_not() -> None:
    weather = Weather(calm=2, brownout=3, watched=5, browned=24)
    assert [plain(ruler(weather, columns)).strip() for columns in (60, 40, 20, 10)] == [
        "0 s         ├─brownout: 24/s─┤                          10 s",
        "0 s     ├─brownout─┤                10 s",
        "0 s ├────┤      10 s",
        "0 s├─┤ 10 s",
    ]


def calm_then_collapsed() -> Measured:
    """Twenty calls a second; from the third second on each is tried three times, and none answered."""
    placed = answered((0, 2))
    retried = [call.began for call in placed for _ in range(3 if call.began >= 2 else 1)]
    return Measured("By hand", retried, placed)


@pytest.mark.parametrize(
    ("now", "drawn"),
    [
        (0.0, ["By hand", "  over 40/s", "  asked", "  answered"]),
        (
            5.9,  # a column that is not over yet is not drawn
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
def test_a_run_is_drawn_as_it_is_now(now: float, drawn: list[str]) -> None:
    weather = Weather(calm=2, brownout=3, watched=5, calls=20, capacity=40, browned=5, patience=0.5)
    first, *rest = picture([calm_then_collapsed()], weather, now, width=13 + 10 + 6)
    assert plain(first) == plain(ruler(weather, 10))
    assert [plain(each) for each in rest] == drawn


def test_runs_stand_under_each_other() -> None:
    drawn = picture([calm_then_collapsed()] * 4, WEATHER, 10.0, width=79)
    assert len(drawn) == 1 + 4 * 5  # which a terminal of 24 lines has room for
    assert max(len(plain(each)) for each in drawn) <= 79


# --------------------------------------------------------------------------- the screen


class Terminal(io.TextIOWrapper):
    """Something to print on that says it is a terminal."""

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
    """Draw frames, of which the last one stays, and return what was written."""
    raw = io.BytesIO()
    out = (Terminal if tty else io.TextIOWrapper)(raw, encoding=encoding, newline="\n")
    screen = Screen(out, environ or {}, lambda: terminal_size((20, lines)))
    for frame in frames[:-1]:
        screen.frame(frame)
    screen.settle(frames[-1])
    return raw.getvalue().decode(encoding)


FRAMES = [[line(Ink("█", "green")), line("two")], [line(Ink("██", "green")), line("two")]]


def test_a_terminal_sees_every_frame_drawn_over_the_one_before() -> None:
    assert printed(FRAMES) == (
        HIDE_CURSOR + "\033[32m█\033[0m\033[K\ntwo\033[K\n\033[J"
        + HIDE_CURSOR + "\033[2F\033[32m██\033[0m\033[K\ntwo\033[K\n\033[J"
        + SHOW_CURSOR
    )  # fmt: skip


@pytest.mark.parametrize("environ", [{"NO_COLOR": "1"}, {"NO_COLOR": "1", "TERM": "xterm"}])
def test_without_colour_it_still_moves(environ: dict[str, str]) -> None:
    drawn = printed(FRAMES, environ)
    assert "\033[32m" not in drawn
    assert "\033[2F██\033[K\n" in drawn


@pytest.mark.parametrize(
    ("tty", "environ"), [(False, {}), (True, {"TERM": "dumb"}), (False, {"TERM": "xterm-256color"})]
)
def test_anywhere_else_only_the_last_frame_is_printed(tty: bool, environ: dict[str, str]) -> None:
    assert printed(FRAMES, environ, tty=tty) == "██\ntwo\n"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_without_unicode_it_still_reads(encoding: str) -> None:
    frames = [[line("█✓ █✗ ──·· é")]]
    assert printed(frames, tty=False, encoding=encoding) == "#o #x --.. ?\n"


def test_lines_are_cut_to_the_terminal_and_frames_to_its_height() -> None:
    long = [[line("x" * 99)] * 9] * 3
    drawn = printed(long, lines=4)
    assert drawn.count("x" * 19 + "\033[K\n") == 3 + 3 + 9
    assert "x" * 20 not in drawn
    assert drawn.count("\033[3F") == 2


def test_a_new_story_is_not_drawn_over_the_old_one() -> None:
    raw = io.BytesIO()
    screen = Screen(Terminal(raw, encoding="utf-8", newline="\n"), {}, lambda: terminal_size((80, 24)))
    screen.settle([line("one")])
    screen.heading("Two")
    screen.frame([line("three")])
    screen.restore()
    assert "\033[1F" not in raw.getvalue().decode()
    assert raw.getvalue().decode().endswith(f"three\033[K\n\033[J{SHOW_CURSOR}")


# --------------------------------------------------------------------- all of it, for real


QUICKLY = [sys.executable, str(DEMO), "--quick"]
ENVIRON = {**os.environ, "COLUMNS": "80", "PYTHONIOENCODING": "utf-8"}
HELP = [sys.executable, str(DEMO), "--help"]


def test_piped_it_tells_the_whole_story_as_plain_text() -> None:
    ran = subprocess.run(QUICKLY, env=ENVIRON, capture_output=True, encoding="utf-8", check=False)  # noqa: S603  ours
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "\033" not in ran.stdout
    assert "\r" not in ran.stdout
    told = ran.stdout.splitlines()
    rows = [each[:6] for each in told if each.startswith("call ")]
    assert rows == ["call 1", "call 2", "call 3", "call 4"] * 3
    assert [each.split()[0] for each in told if " of 4 ok, " in each] == ["plain", "by", "Redouble"]
    assert "Redouble  4 of 4 ok, 11 requests" in told
    assert sum(each.startswith("redouble: gave up after ") for each in told) == 2
    assert sum(each.startswith("reason=") for each in told) == 2
    assert "@redouble.retry(" in ran.stdout
    assert sum("answered before the brownout" in each for each in told) == 4
    verdicts = [each for each in told if each.startswith(("  recovered ", "  never recovered: "))]
    assert len(verdicts) == 4
    assert all(len(each) < 80 for each in told if "gave up" not in each and "Error: " not in each)


def test_who_stops_reading_early_is_not_told_off() -> None:
    with subprocess.Popen(QUICKLY, env=ENVIRON, stdout=PIPE, stderr=PIPE) as process:  # noqa: S603  ours
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0


def test_it_says_what_it_is() -> None:
    ran = subprocess.run(HELP, capture_output=True, encoding="utf-8", check=True)  # noqa: S603  ours
    assert ran.stdout.startswith("usage: scripts/demo [-h] [--quick]\n")
