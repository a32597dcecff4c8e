"""Layers of users, the worst case of a pipeline, and its warnings."""

from __future__ import annotations

import re
from typing import Any

from redouble import Hints, Layer, Pipeline, Retry
from redouble._layers.analysis import WorstCase
from tests.support.fakes import options as defaults

UNHINTED = Hints(mode="ignore")


class Own(Layer):
    """A layer of a user."""


class Patient(Retry):
    """A subclass of `Retry`."""


def worst_case_of(pipeline: Pipeline) -> WorstCase:
    """Return the worst case of a pipeline."""
    worst = WorstCase()
    for layer in reversed(pipeline.layers):
        worst = layer.worst_case(worst)
    return worst


def plain(**options: Any) -> Retry:
    """Return a policy without a time limit: 3 attempts, with delays of 1 s and 2 s."""
    arguments = defaults(attempts=3, backoff=[1, 2], give_up_after=None, hints=UNHINTED, on=Exception)
    return Retry(**arguments | options)


def assert_warnings(layers: Layer, expected: list[str]) -> None:
    """Check that the warnings of a pipeline match these patterns, in this order."""
    warnings = Pipeline(layers).check()
    assert len(warnings) == len(expected), warnings
    for warning, pattern in zip(warnings, expected, strict=True):
        assert re.fullmatch(pattern, warning), warning
