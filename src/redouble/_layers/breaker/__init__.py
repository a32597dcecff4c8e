"""The circuit breaker: its state machine, its settings, and the delivery of its state changes."""
