"""What a run leaves on disk: written, read, and the figures that it gives by itself."""
