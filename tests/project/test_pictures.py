"""The pictures of the strategies: each equals the drawing of a current run, and is accessible.

`scripts/pictures` draws them. These tests check its parts, and that its ``--check`` can fail.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

import pytest

sys.path.append(str(Path(__file__).parents[2] / "scripts"))

import pictures
from drawing import marks
from drawing.axis import Axis, plain
from drawing.canvas import DARK, HEIGHT, LIGHT, WIDTH, Canvas, short
from drawing.gallery import FOLDER, PICTURES, differing, drawn, write
from drawing.legend import ROW, Entry, legend
from drawing.panel import BOTTOM, LEFT, RIGHT, TOP, Panel
from drawing.timing import per_second

import redouble

pytestmark = pytest.mark.one_python

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def now() -> Mapping[str, str]:
    """Return all pictures as drawn now."""
    return drawn()


def read(name: str) -> ElementTree.Element:
    return ElementTree.fromstring((FOLDER / f"{name}.svg").read_text("utf-8"))  # noqa: S314  our own files


# ------------------------------------------------------------------------- the pictures


def test_every_picture_is_up_to_date(now: Mapping[str, str]) -> None:
    assert list(differing(now)) == [], "run scripts/pictures and look at them"


@pytest.mark.parametrize("name", PICTURES)
def test_every_picture_has_a_title_and_a_description(name: str) -> None:
    root = read(name)
    assert root.tag == f"{SVG}svg"
    title, description = root.find(f"{SVG}title"), root.find(f"{SVG}desc")
    assert title is not None
    assert title.text
    assert description is not None
    assert description.text
    assert len(description.text) > len(title.text)
    assert [root.get(key) for key in ("width", "height")] == ["720", "360"]
    assert root.get("role") == "img"


def calls_in(source: str) -> list[ast.Call]:
    """Return the calls of public classes in a source, with the values of its constants."""
    tree = ast.parse(source)
    constants = {
        target.id: value
        for assignment in ast.walk(tree)
        if isinstance(assignment, ast.Assign)
        for names, values in ((assignment.targets[0], assignment.value),)
        for target, value in (
            zip(names.elts, values.elts, strict=True)
            if isinstance(names, ast.Tuple) and isinstance(values, ast.Tuple)
            else [(names, values)]
        )
        if isinstance(target, ast.Name)
    }
    found = [
        node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]
    for call in found:
        for option in call.keywords:
            if isinstance(option.value, ast.Name):
                option.value = constants.get(option.value.id, option.value)
    return [call for call in found if isinstance(call.func, ast.Name) and hasattr(redouble, call.func.id)]


def described(call: ast.Call) -> tuple[str, list[str], set[str]]:
    """Return the name of a class, its positional arguments and its options, as text."""
    name = call.func.id if isinstance(call.func, ast.Name) else ""
    return name, [ast.unparse(arg) for arg in call.args], {ast.unparse(option) for option in call.keywords}


@pytest.mark.parametrize("name", PICTURES)
def test_every_layer_in_a_label_is_the_one_that_was_run(name: str) -> None:
    """A label may omit the seed and the switch of a run; an ellipsis stands for options in the title."""
    module = Path(pictures.__file__).parent / "drawing" / f"{name.replace('-', '_')}.py"
    runs = [described(call) for call in calls_in(module.read_text("utf-8"))]
    texts = [text.text or "" for text in read(name).iter(f"{SVG}text")]
    labels = [match for text in texts for match in re.findall(r"\b[A-Z]\w+\([^()]*\)", text)]
    for label in labels:
        (call,) = calls_in(label)
        kind, positional, options = described(call)
        if positional == ["..."]:
            continue
        same = [run for run in runs if run[0] == kind and run[1] == positional and options <= run[2]]
        assert same, f"{label} is not what was run"
        left = {option.partition("=")[0] for option in same[0][2] - options}
        assert left <= {"seed", "switch", "random"}, f"{label} leaves out {left}"


@pytest.mark.parametrize("name", PICTURES)
def test_nothing_is_drawn_outside_the_panel(name: str) -> None:
    for path in read(name).iter(f"{SVG}path"):
        data = path.get("d", "")
        points = re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", data)
        across = [float(x) for x, _ in points] + [float(x) for x in re.findall(r"H(-?[\d.]+)", data)]
        heights = [float(y) for _, y in points] + [float(y) for y in re.findall(r"V(-?[\d.]+)", data)]
        assert heights
        if abs(heights[0] - ROW) > 9:  # not a mark of the legend
            assert min(across) >= LEFT
            assert max(across) <= RIGHT
            assert min(heights) >= TOP
            assert max(heights) <= BOTTOM + 4
    for text in read(name).iter(f"{SVG}text"):
        if text.get("x") is not None:
            assert 0 <= float(text.get("x", "")) <= WIDTH
            assert 0 < float(text.get("y", "")) < HEIGHT


@pytest.mark.parametrize("name", PICTURES)
def test_every_colour_is_defined_in_light_and_dark_mode(name: str) -> None:
    style = read(name).find(f"{SVG}style")
    assert style is not None
    day, night = (style.text or "").split("@media (prefers-color-scheme:dark)")
    used = {drawing.get("class", "").split()[0] for drawing in read(name).iter() if drawing.get("class")}
    assert used
    for colour in used:
        assert f".{colour}{{color:" in day
        assert f".{colour}{{color:" in night
    assert "system-ui" in day


@pytest.mark.parametrize("name", PICTURES)
def test_every_picture_is_on_its_page_with_an_alternative_text(name: str) -> None:
    page = (FOLDER.parent / f"{name}.md").read_text("utf-8")
    (alt,) = re.findall(rf"^!\[([^\]]+)\]\(pictures/{name}\.svg\)$", page, re.MULTILINE)
    assert len(alt) > 30


# ---------------------------------------------------------------- parts of the drawing


def test_both_palettes_have_the_same_names() -> None:
    assert list(LIGHT) == list(DARK)


@pytest.mark.parametrize(
    ("value", "text"), [(1, "1"), (1.25, "1.2"), (1.06, "1.1"), (-0.01, "0"), (-3, "-3"), (100.0, "100")]
)
def test_coordinates_are_short(value: float, text: str) -> None:
    assert short(value) == text


def test_an_axis_is_linear_or_logarithmic() -> None:
    assert plain("seconds", 10, 5, " s") == Axis("seconds", 0, 10, {0: "0 s", 5: "5 s", 10: "10 s"})
    assert plain("seconds", 10, 5).share(2.5) == 0.25
    assert Axis("", 10, 1000, {}, log=True).share(100) == 0.5


def test_shapes_become_paths() -> None:
    points = [(0.0, 1.0), (2.0, 3.04)]
    assert marks.line(points) == "M0 1L2 3"
    assert marks.steps(points) == "M0 1H2V3"
    assert marks.each("dot", points) == "M0 1h0M2 3h0"
    assert marks.line([]) == marks.steps([]) == marks.each("ring", []) == ""


def test_moments_are_counted_in_slices() -> None:
    assert per_second([0, 0.4, 0.5, 1.9, 7], 2, 0.5) == [(0, 4), (0.5, 2), (1, 0), (1.5, 2), (2, 2)]


def test_a_panel_draws_from_corner_to_corner() -> None:
    canvas = Canvas("a < b", "what & why")
    panel = Panel(canvas, plain("x", 10, 10), plain("y", 10, 10))
    panel.line([(0, 0), (10, 10)], "blue")
    panel.bars([(0, 10)], 10, "green")
    panel.band(0, 10, "all of it")
    panel.dots([], "grey")
    legend(canvas, Entry("a line", "blue"), Entry("a bar", "green", None), Entry("a dot", "red", "dot"))
    root = ElementTree.fromstring(canvas.svg())  # noqa: S314  our own text
    paths = {path.get("class"): path.get("d") for path in root.iter(f"{SVG}path")}
    assert f"M{LEFT} {BOTTOM}L{RIGHT} {TOP}" in [path.get("d") for path in root.iter(f"{SVG}path")]
    assert paths["green soft"] == f"M{LEFT} {BOTTOM}L{LEFT} {TOP}L{RIGHT} {TOP}L{RIGHT} {BOTTOM}"
    assert paths["red dot"] is not None
    assert "grey dot" not in paths
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert texts[0] == "a < b"
    assert texts[-4:] == ["all of it", "a line", "a bar", "a dot"]


# --------------------------------------------------------------------- the check can fail


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write({"a.svg": "<a/>\n", "b.svg": "<b/>\n"}, tmp_path / "pictures")
    return tmp_path / "pictures"


@pytest.mark.parametrize(
    ("now_drawn", "problems"),
    [
        ({"a.svg": "<a/>\n", "b.svg": "<b/>\n"}, []),
        ({"a.svg": "<a/>\n", "b.svg": "<c/>\n"}, ["b.svg shows something else than a run does now"]),
        ({"a.svg": "<a/>\n"}, ["b.svg is drawn by nothing"]),
        ({"a.svg": "<a/>\n", "b.svg": "<b/>\n", "c.svg": "<c/>\n"}, ["c.svg is missing"]),
    ],
)
def test_outdated_and_missing_pictures_are_reported(
    folder: Path, now_drawn: dict[str, str], problems: list[str]
) -> None:
    assert list(differing(now_drawn, folder)) == problems


def test_the_script_checks_and_draws(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pictures, "drawn", lambda: {"a.svg": "<new/>\n", "b.svg": "<b/>\n"})
    assert pictures.main(["--check"], folder) == 1
    assert capsys.readouterr().err.startswith("a.svg shows something else")
    assert (folder / "a.svg").read_text() == "<a/>\n"
    assert pictures.main([], folder) == 0
    assert capsys.readouterr().out.startswith("drawn: 2 pictures in ")
    assert pictures.main(["--check"], folder) == 0
    assert capsys.readouterr() == ("", "")
