"""Hedged calls: the state that they share, the decision of a race, and a runner for each way to run code."""
