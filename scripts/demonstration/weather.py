"""When the service browns out, and how it is called: all the numbers of the second story."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Weather:
    """Seconds and rates. A service that is asked for half of what it can do is a healthy one."""

    calm: float = 2.0  # seconds before the brownout
    brownout: float = 3.0
    watched: float = 6.0  # seconds after it
    calls: float = 60.0  # arriving per second, whatever becomes of them
    capacity: float = 120.0  # requests per second the service can do
    browned: float = 24.0  # the same, in the brownout
    patience: float = 0.5  # seconds after which a client no longer waits for an answer
    dropped: float = 0.05  # share of the requests that fail on any day
    clients: int = 12  # connections

    @property
    def over(self) -> float:
        """When the brownout ends."""
        return self.calm + self.brownout

    @property
    def end(self) -> float:
        """When we stop watching."""
        return self.over + self.watched

    def capacity_at(self, moment: float) -> float:
        """Return how many requests per second the service can do at this moment."""
        return self.browned if self.calm <= moment < self.over else self.capacity


FULL = Weather()
QUICK = Weather(calm=0.4, brownout=0.5, watched=0.8, patience=0.2)
