"""A study's workspace view and Report in W&B, from what its runs have measured."""
