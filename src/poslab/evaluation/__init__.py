"""Trained weights into sums of losses, by length and position."""
