"""All presets by name, and the policy of each."""

from __future__ import annotations

from collections.abc import Callable

from redouble import Pipeline, Retry, presets

ALL: dict[str, Callable[..., Retry | Pipeline]] = {name: getattr(presets, name) for name in presets.__all__}


def first(made: Retry | Pipeline) -> Retry:
    """Return the policy of a preset: the `Retry` itself, or the outermost layer of the pipeline."""
    policy = made.layers[0] if isinstance(made, Pipeline) else made
    assert isinstance(policy, Retry)
    return policy
