"""Allowances of tokens, cost and requests: reserved before a call, settled after it."""
