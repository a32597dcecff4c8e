"""Layers: each wraps a function.

`Layer`, `Gate` (admits or rejects a call) and `Pipeline`; then one module or folder for each strategy. A
strategy is a pure state machine and a thin part with a lock and a clock. `analysis` implements `explain()`
and `check()`.
"""
