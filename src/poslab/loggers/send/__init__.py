"""The record mirrored to W&B: runs, reports and evaluations."""
