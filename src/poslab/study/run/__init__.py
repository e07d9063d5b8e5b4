"""One run: planned, named by what decides it, made in processes of its own, evaluated again."""
