"""Events, observers and statistics.

The immutable `Event`, the observers, the emitters, fields bound to a context, the weak registry behind
`redouble.stats()`, and redaction of secrets. An observer never changes a call.
"""
