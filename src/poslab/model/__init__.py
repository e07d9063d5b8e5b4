"""Tokens into logits: a GPT with a positional scheme and an attention put into it."""
