"""Records and models, downloaded from W&B and verified."""
