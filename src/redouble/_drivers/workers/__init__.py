"""Blocking code on other threads or in other processes, so that a limit can hold for it."""
