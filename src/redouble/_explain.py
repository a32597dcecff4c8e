"""A pipeline in words: drawn as one would on paper, and looked over for what is known to hurt.

What a layer has to say about itself, and about those around it, is the layer's own business.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isinf
from typing import TYPE_CHECKING

from redouble._check import in_seconds
from redouble._worst import Worst

if TYPE_CHECKING:
    from redouble._layer import Layer

__all__ = ["drawn", "objections"]


def drawn(layers: tuple[Layer, ...]) -> str:
    """Draw the layers, outermost first, with what it all comes to at worst."""
    names = [*(type(layer).__name__ for layer in layers), "your function"]
    rows = [("   " * (depth - 1) + "└─ " if depth else "") + name for depth, name in enumerate(names)]
    width = max(len(row) for row in rows) + 2
    told = [*(layer._told() for layer in layers), ""]
    lines = [f"{row:<{width}}{words}".rstrip() for row, words in zip(rows, told, strict=True)]
    worst = Worst()
    for layer in reversed(layers):
        worst = layer._worst(worst)
    return "\n".join([*lines, "", f"at worst: {_summary(worst)}"])


def _summary(worst: Worst) -> str:
    calls = "calls until time is up" if isinf(worst.calls) else f"{worst.calls:g} calls"
    calls = "1 call" if worst.calls == 1 else calls
    if not isinf(worst.seconds):
        return f"{calls}, {in_seconds(worst.seconds)}"
    some = "any amount" if isinf(worst.waiting) else in_seconds(worst.waiting)
    waiting = "" if not worst.waiting else f" and {some} of waiting"
    return f"{calls}, for as long as your function takes{waiting}"


def objections(layers: tuple[Layer, ...]) -> Iterator[str]:
    """Say what is known to hurt, each with its reason."""
    worst = Worst()
    said: list[list[str]] = []
    for place in reversed(range(len(layers))):
        layer = layers[place]
        said.insert(0, list(layer._objections(layers[:place], layers[place + 1 :], worst)))
        worst = layer._worst(worst)
    seen: list[object] = []
    for layer, own in zip(layers, said, strict=True):
        yield from own
        for state in layer._shared():
            if any(state is other for other in seen):
                yield (
                    f"the same {type(state).__name__} is there twice: every call counts twice, and may wait "
                    "for itself"
                )
            seen.append(state)
