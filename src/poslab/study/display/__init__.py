"""The displays of runs and studies while they run."""
