"""poslab: what a positional scheme does to a small GPT, measured so that it can be believed."""
