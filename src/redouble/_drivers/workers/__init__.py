"""Blocking code on worker threads or in worker processes, so that a limit can be enforced."""
