"""Evaluate trained weights: sums of losses by length and position."""
