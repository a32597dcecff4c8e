"""Instrumentation: logs and metrics of all calls. One line switches a back-end on; none is on by default.

>>> from redouble.instruments import logging
>>> handle = logging.instrument()   # every retry and every call given up is logged, from now on
>>> handle.remove()

``logging`` and ``structlog`` write log lines, ``prometheus`` and ``opentelemetry`` export metrics, ``memory``
keeps them in the process, for tests and for a page of your own. Each ``instrument()`` returns a handle:
``remove()`` it, or use it in a ``with``. All back-ends export the same metrics: see `METRICS`.
"""

from redouble.instruments._metric_definitions import METRICS, Metric

__all__ = ["METRICS", "Metric"]

_MODULES = frozenset({"logging", "memory", "opentelemetry", "prometheus", "structlog"})


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415  a back-end is imported on first access

    return import_module(f"{__name__}.{name}")
