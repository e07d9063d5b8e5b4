"""One run: plan it, name it by its settings, run it in processes of its own, evaluate it again."""
