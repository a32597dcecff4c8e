"""The pages about strategies have a common structure.

Each page describes what the strategy does (with a snippet), when to use it, its options (as a table), how it
works, its results and errors, its combination with other strategies, how to test it, and anti-patterns: for
each one the wrong code, what happens, and the right code.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.one_python

PAGES = sorted((Path(__file__).parents[2] / "docs" / "strategies").glob("*.md"))

SKELETON = [
    "What it does",
    "When to use it",
    "Options",
    "How it works",
    "What comes out",
    "With other strategies",
    "Testing it",
    "Anti-patterns",
]

FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
SNIPPET = re.compile(r"^```python\n.*?^```$", re.MULTILINE | re.DOTALL)


def sections(text: str, level: int) -> dict[str, str]:
    """Return the sections of a page by heading, in order; lines inside fences are no headings."""
    fences = [found.span() for found in FENCE.finditer(text)]
    headings = [
        found
        for found in re.finditer(rf"^{'#' * level} (.+)$", text, re.MULTILINE)
        if not any(start <= found.start() < end for start, end in fences)
    ]
    ends = [following.start() for following in headings[1:]] + [len(text)]
    return {found[1]: text[found.end() : end] for found, end in zip(headings, ends, strict=False)}


def faults(page: str) -> list[str]:
    """Yield the deviations of a page from the common structure."""
    found: list[str] = []
    parts = sections(page, 2)
    if list(parts) != SKELETON:
        return [f"the headings are {list(parts)}"]
    if not SNIPPET.search(parts["What it does"]):
        found.append("what it does is not shown in a snippet")
    if not re.search(r"^\| option \| default \| meaning \|$", parts["Options"], re.MULTILINE):
        found.append("the options are not in a table")
    if not SNIPPET.search(parts["Testing it"]):
        found.append("how to test it is not shown in a snippet")
    wrongs = sections(parts["Anti-patterns"], 3)
    if not wrongs:
        found.append("there are no anti-patterns")
    for wrong, text in wrongs.items():
        shown = [snippet.span() for snippet in SNIPPET.finditer(text)]
        if len(shown) != 2 or not text[shown[0][1] : shown[1][0]].strip():
            found.append(f"{wrong!r} is not: wrong code, what happens, right code")
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_page_has_the_common_structure(page: Path) -> None:
    assert faults(page.read_text("utf-8")) == []


def test_there_are_pages() -> None:
    written = {"retry.md", "streams.md", "timeout.md", "worker.md", "budget.md", "bulkhead.md"}
    written |= {"circuit-breaker.md", "fallback.md", "coalesce.md", "pipeline.md"}
    written |= {"rate-limit.md", "adaptive-rate.md", "adaptive-concurrency.md", "throttle.md"}
    written |= {"hedge.md", "chaos.md", "keyed.md"}
    assert written <= {page.name for page in PAGES}


# ------------------------------------------------------------------- this test can fail

CODE = "```python\n## no heading\n```"
GOOD = f"""\
# A page

## What it does

{CODE}

## When to use it

## Options

| option | default | meaning |
|---|---|---|

## How it works

### A detail

## What comes out

## With other strategies

## Testing it

{CODE}

## Anti-patterns

### Too much of it

{CODE}

It hurts.

{CODE}
"""


@pytest.mark.parametrize(
    ("right", "wrong", "fault"),
    [
        ("# A page", "# A page", None),
        ("## When to use it\n", "", "the headings are"),
        ("## How it works", "## Order", "the headings are"),
        ("## Anti-patterns", "## Anti-patterns\n\n## Links", "the headings are"),
        (f"it does\n\n{CODE}", "it does\n", "what it does is not shown"),
        ("| option |", "| word |", "the options are not in a table"),
        (f"Testing it\n\n{CODE}", "Testing it\n", "how to test it is not shown"),
        ("### Too much of it", "Too much of it", "there are no anti-patterns"),
        ("It hurts.", "", "'Too much of it' is not"),
        (f"It hurts.\n\n{CODE}", "It hurts.\n", "'Too much of it' is not"),
    ],
)
def test_a_fault_is_found(right: str, wrong: str, fault: str | None) -> None:
    page = GOOD.replace(right, wrong)
    assert fault is None or page != GOOD
    assert [found.startswith(str(fault)) for found in faults(page)] == ([] if fault is None else [True])
