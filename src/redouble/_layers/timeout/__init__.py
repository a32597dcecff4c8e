"""`Timeout`, the state of one call under it, and the limit that it learns from recent latencies."""
