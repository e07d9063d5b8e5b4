"""The model: a GPT built from a positional scheme and mixers, such as attention."""
