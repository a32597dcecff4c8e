"""The numbers of part two: the phases, the load and the capacity of the service."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Scenario:
    """Durations in seconds and rates per second. The normal load is half of the normal capacity."""

    calm: float = 2.0  # seconds before the brownout
    brownout: float = 3.0
    watched: float = 6.0  # seconds after it
    calls: float = 60.0  # placed per second, whatever their results
    capacity: float = 120.0  # requests per second that the service can process
    brownout_capacity: float = 24.0  # the same, during the brownout
    client_timeout: float = 0.5  # seconds after which a client stops waiting for a response
    failure_rate: float = 0.05  # share of the requests that fail at any time
    clients: int = 12  # connections

    @property
    def over(self) -> float:
        """The end of the brownout."""
        return self.calm + self.brownout

    @property
    def end(self) -> float:
        """The end of the scenario."""
        return self.over + self.watched

    def capacity_at(self, moment: float) -> float:
        """Return the capacity at a moment, in requests per second."""
        return self.brownout_capacity if self.calm <= moment < self.over else self.capacity


FULL = Scenario()
QUICK = Scenario(calm=0.4, brownout=0.5, watched=0.8, client_timeout=0.2)
