"""A canvas that renders to SVG, with named colours for the light and the dark theme.

The same drawing always gives the same text, so that a picture can be compared with its file.
"""

from __future__ import annotations

from typing import Literal, TypeAlias
from xml.sax.saxutils import escape, quoteattr

WIDTH, HEIGHT = 720, 360

Colour: TypeAlias = Literal["blue", "orange", "green", "red", "grey"]
Anchor: TypeAlias = Literal["start", "middle", "end"]

LIGHT = {
    "paper": "#ffffff",
    "ink": "#1f2328",
    "pale": "#59636e",
    "grid": "#e3e7eb",
    "blue": "#0969da",
    "orange": "#bc4c00",
    "green": "#1a7f37",
    "red": "#cf222e",
    "grey": "#818b98",
}
DARK = {
    "paper": "#0d1117",
    "ink": "#f0f6fc",
    "pale": "#a3adb8",
    "grid": "#262c36",
    "blue": "#58a6ff",
    "orange": "#f0883e",
    "green": "#3fb950",
    "red": "#ff7b72",
    "grey": "#7d8590",
}
STYLE = """\
text{font:12px system-ui,sans-serif;fill:currentColor}
.heading{font-size:16px;font-weight:600}
path,line{fill:none;stroke:currentColor}
.thin{stroke-width:1}
.line{stroke-width:2;stroke-linejoin:round}
.dashed{stroke-width:1.5;stroke-dasharray:6 4}
.dot{stroke-width:7;stroke-linecap:round}
.speck{stroke-width:4.5;stroke-linecap:round}
.mark{stroke-width:1.8}
.full{fill:currentColor;stroke:none}
.soft{fill:currentColor;fill-opacity:.4;stroke:none}
.tint{fill:currentColor;fill-opacity:.12;stroke:none}
"""


def colours(palette: dict[str, str]) -> str:
    """Return the CSS rules of a palette."""
    return "".join(f".{name}{{color:{value}}}" for name, value in palette.items())


def short(value: float) -> str:
    """Format a coordinate to a tenth of a pixel, which rounds alike on every machine."""
    text = f"{value:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text


class Canvas:
    """The elements of a picture, in drawing order."""

    def __init__(self, title: str, description: str) -> None:
        self._title, self._description = title, description
        self._drawn = [f'<rect class="paper full" width="{WIDTH}" height="{HEIGHT}" rx="8"/>']
        self.text(16, 27, title, kind="heading")

    def text(
        self, x: float, y: float, text: str, *, colour: str = "ink", kind: str = "", anchor: Anchor = "start"
    ) -> None:
        """Add a line of text."""
        names = f"{colour} {kind}".strip()
        at = "" if anchor == "start" else f' text-anchor="{anchor}"'
        self._drawn.append(f'<text class="{names}" x="{short(x)}" y="{short(y)}"{at}>{escape(text)}</text>')

    def upwards(self, x: float, y: float, text: str) -> None:
        """Add a line of text rotated by 90 degrees, centred on a height."""
        turned = f'transform="translate({short(x)} {short(y)}) rotate(-90)"'
        self._drawn.append(f'<text class="pale" {turned} text-anchor="middle">{escape(text)}</text>')

    def path(self, data: str, colour: str, kind: str) -> None:
        """Add a path."""
        if data:
            self._drawn.append(f'<path class="{colour} {kind}" d={quoteattr(data)}/>')

    def box(self, left: float, top: float, right: float, bottom: float, colour: str, kind: str) -> None:
        """Add a filled rectangle."""
        size = f'width="{short(right - left)}" height="{short(bottom - top)}"'
        self._drawn.append(f'<rect class="{colour} {kind}" x="{short(left)}" y="{short(top)}" {size}/>')

    def svg(self) -> str:
        """Return the text of the file."""
        size = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
        return "\n".join([
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="title desc">',
            f'<title id="title">{escape(self._title)}</title>',
            f'<desc id="desc">{escape(self._description)}</desc>',
            f"<style>\n{STYLE}{colours(LIGHT)}",
            f"@media (prefers-color-scheme:dark){{{colours(DARK)}}}",
            "</style>",
            *self._drawn,
            "</svg>\n",
        ])  # fmt: skip
