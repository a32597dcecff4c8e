"""Names for annotations: of rules, judges, observers, budgets and streams, and of the hooks of layers.

>>> from redouble.types import Event
>>> def log(event: Event) -> None: ...
"""

from redouble._drivers.context_managers import Entrance
from redouble._drivers.current_call import CurrentCall
from redouble._drivers.streams import Stream
from redouble._engine.budgets.budget_protocol import Budget, BudgetTraits
from redouble._engine.budgets.retries_in_flight import RetriesInFlight
from redouble._engine.options import Delays
from redouble._failures.verdict import Answer, Ended, Judge, On, Rule, Until
from redouble._internal.validation import Duration
from redouble._layers.analysis import Traits, WorstCase
from redouble._layers.gate import Admission
from redouble._runtime.clock import Chance
from redouble._telemetry.bound_fields import Binding
from redouble._telemetry.events import Event, Observer, What
from redouble._telemetry.hide import Hiding
from redouble._telemetry.observers import Observation
from redouble.errors import Limit

__all__ = [
    "Admission",
    "Answer",
    "Binding",
    "Budget",
    "BudgetTraits",
    "Chance",
    "CurrentCall",
    "Delays",
    "Duration",
    "Ended",
    "Entrance",
    "Event",
    "Hiding",
    "Judge",
    "Limit",
    "Observation",
    "Observer",
    "On",
    "RetriesInFlight",
    "Rule",
    "Stream",
    "Traits",
    "Until",
    "What",
    "WorstCase",
]
