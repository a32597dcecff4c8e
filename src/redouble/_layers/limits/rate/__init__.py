"""Limits of rate: the gates, the queue in which calls wait for a permit, and the arithmetic of permits."""
