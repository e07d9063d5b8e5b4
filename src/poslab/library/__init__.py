"""poslab for programs of your own: its parts and trained models by name, and studies as tables."""
