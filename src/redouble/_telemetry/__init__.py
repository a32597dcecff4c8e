"""What happened, for people and machines.

The immutable `Event`, the observers, the emitters, fields bound to a context, the weak registry behind
`redouble.stats()`, and redaction of secrets. An observer never changes a call.
"""
