"""Hedged calls: the decision of a race, the latency histogram, one runner for each async library."""
