"""Retry as a layer: the class, the decorator functions, its description and its lint."""
