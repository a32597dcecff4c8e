"""Limits on tokens, cost and requests: reserved before a call, settled after it."""
