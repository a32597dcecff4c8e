"""`transient` against the real libraries, in an environment of their own: see noxfile.py.

Nothing here is imported where they are not installed, and linters see none of them: modules are found by
name.
"""
