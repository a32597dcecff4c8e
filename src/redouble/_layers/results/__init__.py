"""Layers that return another result than that of the call: a fallback, or that of an identical call."""
