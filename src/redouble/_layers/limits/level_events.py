"""The events of a limit that changes: one for each noticeable change of its level, none for small ones."""

from __future__ import annotations

from redouble._telemetry.emit import emit_layer

NOTICEABLE = 0.1  # of the level in the last event


class LevelEvents:
    """The ``limit_changed`` events of one limit; its level is in calls, or in calls a second."""

    def __init__(self, by: str, level: float | None = None) -> None:
        self._by, self._level = by, level

    def emit(self, level: float, name: str | None) -> None:
        """Emit ``limit_changed`` if the level has changed noticeably since the last event."""
        if self._level is None or abs(level - self._level) > NOTICEABLE * self._level:
            self._level = level
            emit_layer("limit_changed", self._by, name, level=level)
