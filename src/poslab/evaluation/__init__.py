"""Trained weights into sums of losses, by length, position and question."""
