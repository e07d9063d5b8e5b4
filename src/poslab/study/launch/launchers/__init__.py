"""One module per launcher, found by the module's name."""
