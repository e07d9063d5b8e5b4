"""One module per launcher, found by its name."""
