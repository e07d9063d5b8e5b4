"""A study's workspace view and Report in W&B, with panels for what its runs measured."""
