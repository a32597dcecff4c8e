"""`transient` with the real libraries, in a separate environment: see noxfile.py.

These tests are not imported where the libraries are not installed, and linters do not see the libraries:
modules are imported by name.
"""
