"""One module a launcher, found by its name."""
