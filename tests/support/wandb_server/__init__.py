"""A local stand-in for W&B's server, used by W&B's real client; see server.py."""
