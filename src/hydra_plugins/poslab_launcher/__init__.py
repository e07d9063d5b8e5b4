"""poslab's launcher, where Hydra looks for plugins."""
