"""All pictures: drawing them, writing their files, and finding files that are out of date."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from drawing import adaptive_concurrency, adaptive_rate, chaos, hedge, keyed, rate_limit, throttle

FOLDER = Path(__file__).parents[2] / "docs" / "strategies" / "pictures"

PICTURES: Mapping[str, Callable[[], str]] = {
    "adaptive-concurrency": adaptive_concurrency.picture,
    "adaptive-rate": adaptive_rate.picture,
    "chaos": chaos.picture,
    "hedge": hedge.picture,
    "keyed": keyed.picture,
    "rate-limit": rate_limit.picture,
    "throttle": throttle.picture,
}


def drawn() -> dict[str, str]:
    """Draw all pictures; return the text of each file."""
    return {f"{name}.svg": picture() for name, picture in PICTURES.items()}


def differing(pictures: Mapping[str, str], folder: Path = FOLDER) -> Iterator[str]:
    """Yield the files that differ from the pictures, are missing, or belong to no picture."""
    there = {path.name for path in folder.glob("*.svg")}
    for name, text in pictures.items():
        if name not in there:
            yield f"{name} is missing"
        elif (folder / name).read_text("utf-8") != text:
            yield f"{name} shows something else than a run does now"
    for name in sorted(there - set(pictures)):
        yield f"{name} is drawn by nothing"


def write(pictures: Mapping[str, str], folder: Path = FOLDER) -> None:
    """Write the files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pictures.items():
        (folder / name).write_text(text, "utf-8", newline="\n")
