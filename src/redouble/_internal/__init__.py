"""General helpers, independent of retries.

Option validation whose messages contain the fix, classification of callables, compilation of
wrappers with an exact signature, fork-safe re-entrant locks, a bounded cache, a sliding-window counter.
This package imports the standard library and `redouble.errors` only: code that mentions an attempt belongs
elsewhere.
"""
