"""A stand-in for W&B's server on this machine, for W&B's real client; see server.py."""
