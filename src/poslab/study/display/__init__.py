"""Displays of runs and studies while they run."""
