"""Helpers that know nothing of retries.

Option validation with messages that say what to write instead, classification of callables, compilation of
wrappers with an exact signature, fork-safe re-entrant locks, a bounded cache, a sliding-window counter.
This package imports the standard library and `redouble.errors` only: code that mentions an attempt belongs
elsewhere.
"""
