"""Records and models read back from W&B, and checked."""
