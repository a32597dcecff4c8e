"""What fallbacks have in common: which failures they replace, the event, and what `lint` advises."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from redouble._failures.verdict import FailureFilter, On, Refusal, Until
from redouble._layers.layer import Layer, Layers
from redouble._telemetry.emit import emit_layer, layer_kind
from redouble._telemetry.observers import watch

if TYPE_CHECKING:
    from redouble._layers.analysis import WorstCase


class ErrorReplacement(Layer):
    """A layer that returns something else instead of a failure."""

    _failures: FailureFilter

    @property
    def on(self) -> On:
        """The errors that are replaced."""
        return self._failures.on

    @property
    def until(self) -> Until | None:
        """The rule for results; None: no result is replaced."""
        return self._failures.until

    @property
    def _failure_kinds(self) -> str:
        """What is replaced, in words."""
        return "an error" if self.until is None else "an error or a refused result"

    def lint(self, outer: Layers, inner: Layers, worst: WorstCase, /) -> Iterator[str]:  # noqa: ARG002
        for layer in outer:
            traits, name = layer.traits(), type(layer).__name__
            if traits.concurrent:
                yield (
                    f"Fallback inside {name}: the substitute for a failed attempt ends the race as a success "
                    "would, while another attempt could still succeed; put it outside"
                )
            if traits.handles is not None and self._failures.covers(traits.handles):
                yield (
                    f"Fallback inside {name}, for the same errors: it replaces each error before the "
                    f"{name} sees it, so the {name} does nothing; put it outside"
                )

    def _emit(self, error: Exception, substitute: Any = None, age: float | None = None) -> Any:
        """Emit the failure that was replaced, and return the substitute; ``age``: that of a stale result."""
        if watch.by_event["fallback"]:
            failed = None if isinstance(error, Refusal) else error
            value = error.last if isinstance(error, Refusal) else None
            emit_layer("fallback", layer_kind(self), self.name, error=failed, value=value, level=age)
        return substitute
