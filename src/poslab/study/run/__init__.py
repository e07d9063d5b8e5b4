"""One run: plan it, identify it by its settings, run it in its own processes, and evaluate it again."""
