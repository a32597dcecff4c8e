"""Names for annotations: what rules, judges, observers and budgets of your own are told and asked.

>>> from redouble.types import Event
>>> def log(event: Event) -> None: ...
"""

from redouble._budget import Budget
from redouble._check import Duration
from redouble._events import Event, Observer
from redouble._time import Chance
from redouble._verdict import Answer, Ended, Judge, Rule

__all__ = ["Answer", "Budget", "Chance", "Duration", "Ended", "Event", "Judge", "Observer", "Rule"]
