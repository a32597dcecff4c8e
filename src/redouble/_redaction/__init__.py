"""Redaction: what Redouble may write of texts that are not its own, such as the messages of errors.

Such a text is bounded, on one line, and without secrets. The rules are loaded when the first text is written,
never by a call: reports, notes and messages are built when they are read.
"""
