"""The tests, in folders as the source; what they share is in `tests.support`."""
