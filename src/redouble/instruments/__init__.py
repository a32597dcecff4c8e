"""What a team sees: one line switches one on, and none is on by itself.

>>> from redouble.instruments import logging
>>> handle = logging.instrument()   # every retry and every call given up is logged, from now on
>>> handle.remove()

``logging`` and ``structlog`` write lines, ``prometheus`` and ``opentelemetry`` count and measure, ``memory``
does so for tests and for a page of your own. Each ``instrument()`` returns a handle: ``remove()`` it, or use
it in a ``with``. What is counted, and what it is called, is the same everywhere: see `METRICS`.
"""

from redouble.instruments._schema import METRICS, Metric

__all__ = ["METRICS", "Metric"]

_MODULES = frozenset({"logging", "memory", "opentelemetry", "prometheus", "structlog"})


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415  for those who name one without importing it

    return import_module(f"{__name__}.{name}")
