"""poslab for your own programs: its parts and trained models by name, and studies as tables."""
