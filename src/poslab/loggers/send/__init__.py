"""Records sent to W&B: runs, reports and evaluations."""
