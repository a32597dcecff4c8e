"""The loops one would write by hand: call, ask the engine, sleep or raise.

One driver for each shape of call (function, `for attempt`, generator, context manager), each in a sync and
an async twin that a test compares. `retrying_wrapper` holds the compiled fast path, `attempt_timeout`
enforces the limits of one attempt, `workers` runs blocking code on threads or in processes, and `slot_wait`
is the wait of a call for a slot.
"""
